package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// pushCommand sends a folder with PushSkill. The daemon validates it; validate says the same without
// a daemon.
func (a *app) pushCommand() *cobra.Command {
	var o skillrun.PushOptions
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Import a folder as a skill of your tenant, or as a new version of one",
		Long: `Push has the daemon import the folder DIR as a skill that only your tenant sees. If the tenant
has a skill of this name, the folder becomes its newest version. The skill hides a shared
skill of the same name. The daemon keeps older versions within the tenant's quota;
NAME@sha256:DIGEST runs an older version. Push needs the role admin.`,
		Example: `  skillrun push ./my-skill
  skillrun run my-skill scripts/main.py
  skillrun skills versions my-skill`,
		Args: arguments(needs("DIR")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() { // to open a FIFO would wait for its writer
				return fmt.Errorf("push %s: %s", args[0], notAFolder(args[0], info))
			}
			// os.Root keeps links within the folder: no file from elsewhere on this machine is
			// sent.
			root, err := os.OpenRoot(args[0])
			if err != nil {
				return err
			}
			defer root.Close()
			a.advice = map[string]string{"SKILL_INVALID": "skillrun validate " + quote(args[0]) + " lists all findings"}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = a.push(cmd.Context(), c, args[0], root.FS(), o)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "push only if the skill has this `name`")
	return cmd
}

// push pushes a folder and prints the result. what names the folder in errors.
// The findings of a skill that was accepted go to stderr, so that stdout has the result alone.
func (a *app) push(ctx context.Context, c *skillrun.Client, what string, dir fs.FS, o skillrun.PushOptions) (*pb.PushSkillResponse, error) {
	pushed, err := c.PushSkill(ctx, dir, o)
	if err != nil {
		a.printViolations(err)
		return nil, fmt.Errorf("push %s: %w", what, err)
	}
	if a.json {
		return pushed, a.printJSON(pushed)
	}
	for _, f := range pushed.GetFindings() {
		a.note("%s", findingText(f))
	}
	how := "pushed"
	if pushed.GetExisted() {
		how = "was there already"
	}
	var t table
	t.add(cell{text: fmt.Sprintf("%s@%s %s", pushed.GetName(), pushed.GetVersion().GetDigest(), how), colour: green})
	// The tenant's quota of versions removed these. A caller may have pinned one of them.
	for _, v := range pushed.GetRemovedVersions() {
		t.add(cell{text: fmt.Sprintf("removed %s@%s, to make room", v.GetName(), v.GetDigest())})
	}
	return pushed, a.print(&t)
}

// printViolations prints the findings of a refused skill, which the error's message only counts.
func (a *app) printViolations(err error) {
	if skillrun.Reason(err) != "SKILL_INVALID" {
		return
	}
	var grpcError interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &grpcError) {
		return
	}
	for _, detail := range grpcError.GRPCStatus().Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				a.note("%s: %s", v.GetField(), v.GetDescription())
			}
		}
	}
}

// versionsCommand lists the versions that NAME@sha256:DIGEST can run.
func (a *app) versionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "versions SKILL",
		Short: "List the versions of a skill that the daemon keeps, the newest first",
		Args:  arguments(needs("SKILL")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			return skillVersions.pages(a, func(token string) ([]*pb.SkillVersion, string, error) {
				page, err := c.Skills().ListSkillVersions(cmd.Context(), &pb.ListSkillVersionsRequest{Skill: args[0], PageToken: token})
				if err != nil {
					err = fmt.Errorf("versions of %s: %w", args[0], err)
				}
				return page.GetVersions(), page.GetNextPageToken(), err
			})
		}),
		ValidArgsFunction: a.completeSkill,
	}
}

var skillVersions = listing[*pb.SkillVersion]{[]string{"DIGEST", "PUSHED", "SIZE", "SOURCE"}, func(v *pb.SkillVersion) []cell {
	pushed, size := "-", "-"
	// A version from a folder of the daemon was never pushed and counts for no quota.
	if v.GetPushTime() != nil {
		pushed, size = v.GetPushTime().AsTime().Local().Format("2006-01-02 15:04:05"), bytesText(v.GetSizeBytes())
	}
	return plain(v.GetDigest(), pushed, size, v.GetSource())
}}

// removeSkillCommand removes pushed skills or versions.
// It stops at the first error. The skills before it are deleted then, and printed.
func (a *app) removeSkillCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SKILL...",
		Short: "Delete skills of your tenant, or one version of a skill (NAME@sha256:DIGEST)",
		Long: `Rm deletes skills that were pushed to your tenant. Executions that run keep their version. A
skill that all tenants share cannot be deleted. Rm needs the role admin.`,
		Args: arguments(needs("SKILL...")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			for _, name := range args {
				gone, err := c.Skills().DeleteSkill(cmd.Context(), &pb.DeleteSkillRequest{Skill: name})
				if err != nil {
					return fmt.Errorf("delete %s: %w", name, err)
				}
				if a.json {
					if err := a.printJSON(gone); err != nil {
						return err
					}
					continue
				}
				if _, err := fmt.Fprintf(a.stdout, "%s: %d version(s) deleted\n", printable(name), len(gone.GetDigests())); err != nil {
					return err
				}
			}
			return nil
		}),
		ValidArgsFunction: a.completeSkill,
	}
}
