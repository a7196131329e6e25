package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// sessionCommand returns the command session, with one subcommand for each call of SessionService, and run.
func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Make, list and remove sessions, which keep files between executions",
		Long: `A session keeps files between executions: 'skillrun session run SESSION SKILL ...' puts
them into the workspace, and keeps what the program has changed as a new version.`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.sessionCreateCommand(), a.sessionRunCommand(), a.sessionListCommand(), a.sessionShowCommand(), a.sessionVersionsCommand(),
		a.sessionCopyCommand(), a.sessionUpdateCommand(), a.sessionRemoveCommand())
	return cmd
}

// sessionCreateCommand prints only the ID, so that a script can keep it in a variable.
func (a *app) sessionCreateCommand() *cobra.Command {
	var labels []string
	var idle, ttl time.Duration
	var bytes size
	var files uint32
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an empty session and print its id",
		Args:  arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := positive(cmd); err != nil {
				return err
			}
			m := &pb.CreateSessionRequest{MaxBytes: uint64(bytes), MaxFiles: files}
			var err error
			if m.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			if idle != 0 { // an absent time means the daemon's default
				m.IdleTtl = durationpb.New(idle)
			}
			if ttl != 0 {
				m.Ttl = durationpb.New(ttl)
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Sessions().CreateSession(cmd.Context(), m)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r.GetSession())
			}
			_, err = fmt.Fprintln(a.stdout, printable(r.GetSession().GetSessionId()))
			return err
		},
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label `key=value` for finding the session again (repeatable)")
	cmd.Flags().DurationVar(&idle, "idle-ttl", 0, "remove the session this `time` after its last use (default: the daemon's)")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "remove the session this `time` after its creation (default: the daemon's)")
	cmd.Flags().Var(&bytes, "max-bytes", "limit of bytes in one version, such as 10m (default: the daemon's)")
	cmd.Flags().Uint32Var(&files, "max-files", 0, "at most this `number` of files and directories in one version (default: the daemon's)")
	completeNothing(cmd, "label", "idle-ttl", "ttl", "max-bytes", "max-files")
	return cmd
}

// sessionListCommand prints one row for each session.
func (a *app) sessionListCommand() *cobra.Command {
	var labels []string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, the oldest first",
		Long:  "List sessions, the oldest first. 'skillrun session show ID' prints the files of one.",
		Args:  arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := pairs("label", labels)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return sessions.pages(a, func(token string) ([]*pb.Session, string, error) {
				r, err := c.Sessions().ListSessions(cmd.Context(), &pb.ListSessionsRequest{Labels: want, PageToken: token})
				return r.GetSessions(), r.GetNextPageToken(), err
			})
		},
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only sessions with this label: `key=value` (repeatable)")
	completeNothing(cmd, "label")
	return cmd
}

var sessions = listing[*pb.Session]{[]string{"SESSION", "VERSION", "FILES", "SIZE", "USED", "EXPIRES"}, func(s *pb.Session) []cell {
	n := s.GetNewest()
	return plain(s.GetSessionId(), fmt.Sprint(n.GetNumber()), fmt.Sprint(n.GetFileCount()), bytesText(n.GetSizeBytes()),
		minuteOf(s.GetLastUseTime()), minuteOf(s.GetExpireTime()))
}}

// minuteOf returns a time to the minute, in the time zone of this machine, or "-" without a time.
func minuteOf(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format("2006-01-02 15:04")
}

var sessionFiles = listing[*pb.SessionFile]{[]string{"SIZE", "SHA-256", "PATH"}, func(f *pb.SessionFile) []cell {
	return plain(bytesText(f.GetSizeBytes()), f.GetSha256(), f.GetPath())
}}

// sessionShowCommand lists files only; their content is for cp.
func (a *app) sessionShowCommand() *cobra.Command {
	var version uint32
	cmd := &cobra.Command{
		Use:   "show SESSION",
		Short: "List the files of a session with sizes and hashes",
		Args:  arguments(needs("SESSION")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			return sessionFiles.pages(a, func(token string) ([]*pb.SessionFile, string, error) {
				r, err := c.Sessions().ListSessionFiles(cmd.Context(), &pb.ListSessionFilesRequest{SessionId: args[0], Version: version, PageToken: token})
				return r.GetFiles(), r.GetNextPageToken(), err
			})
		}),
		ValidArgsFunction: a.completeSession,
	}
	cmd.Flags().Uint32Var(&version, "at", 0, "files of this `version` (default the newest)")
	completeNothing(cmd, "at")
	return cmd
}

var sessionVersions = listing[*pb.SessionVersion]{[]string{"VERSION", "FROM", "FILES", "SIZE", "CREATED", "MADE BY"}, func(v *pb.SessionVersion) []cell {
	return plain(fmt.Sprint(v.GetNumber()), fmt.Sprint(v.GetBase()), fmt.Sprint(v.GetFileCount()), bytesText(v.GetSizeBytes()),
		minuteOf(v.GetCreateTime()), v.GetCommittedBy())
}}

// sessionVersionsCommand makes one call. The list has no pages, because the daemon keeps few versions of a session.
func (a *app) sessionVersionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "versions SESSION",
		Short: "List the versions of a session that the daemon keeps, the newest first",
		Args:  arguments(needs("SESSION")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			r, err := c.Sessions().ListSessionVersions(cmd.Context(), &pb.ListSessionVersionsRequest{SessionId: args[0]})
			if err != nil {
				return err
			}
			return sessionVersions.print(a, r.GetVersions()...)
		}),
		ValidArgsFunction: a.completeSession,
	}
}

// sessionRemoveCommand removes the sessions one after the other; see each for errors.
func (a *app) sessionRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SESSION...",
		Short: "Remove sessions with all their files",
		Args:  arguments(needs("SESSION...")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			return a.each(cmd.Context(), args, func(id string) error {
				if _, err := c.Sessions().DeleteSession(cmd.Context(), &pb.DeleteSessionRequest{SessionId: id}); err != nil {
					return fmt.Errorf("remove %s: %w", id, err)
				}
				_, err := fmt.Fprintf(a.stdout, "%s removed\n", printable(id))
				return err
			})
		}),
		ValidArgsFunction: a.completeSession,
	}
}
