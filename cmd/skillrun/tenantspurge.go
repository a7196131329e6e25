package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// errNotPurged: a person did not repeat the tenant's name.
var errNotPurged = errors.New("nothing was removed: the answer was not the name of the tenant")

// purgeCommand removes the data of a tenant that is not configured.
// The daemon refuses a tenant that is configured, or has executions that run; see PurgeTenant in
// system.proto.
func (a *app) purgeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge NAME",
		Short: "Remove all data of a tenant that is no longer configured",
		Long: `Purge removes the executions of a tenant with their output, artifacts and idempotency keys, the
skills that it has pushed, its prepared packages and its sessions. Remove the tenant from the configuration first;
executions that still run must have ended. It needs the role operator. The audit log keeps its entries.

On a terminal, purge asks for the tenant's name again. Elsewhere it needs --yes.`,
		Args: arguments(needs("NAME")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				// A pipe could answer with anything, so it is no confirmation.
				if !terminal(a.stdin) {
					return usage(cmd, errors.New("standard input is not a terminal, so nobody can confirm; add --yes"))
				}
				if err := a.confirmPurge(a.stdin, args[0]); err != nil {
					return err
				}
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			a.words = map[string]string{"tenant": "NAME"}
			done, err := c.System().PurgeTenant(cmd.Context(), &pb.PurgeTenantRequest{Tenant: args[0]})
			if err != nil {
				return err
			}
			return a.printPurged(args[0], done)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirmPurge returns nil if a person answers with the name of the tenant.
func (a *app) confirmPurge(answers io.Reader, name string) error {
	if _, err := fmt.Fprintf(a.stderr, "This removes all data of tenant %s, and cannot be undone. Type the name to go on: ", printable(name)); err != nil {
		return err
	}
	answer, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	if strings.TrimSpace(answer) != name {
		return errNotPurged
	}
	return nil
}

// printPurged prints the counts. A tenant without data can be a mistyped name, so it has a sentence of
// its own.
func (a *app) printPurged(name string, done *pb.PurgeTenantResponse) error {
	if a.json {
		return a.printJSON(done)
	}
	if done.GetExecutions()+done.GetSkillVersions()+done.GetEnvironments()+done.GetSessions() == 0 {
		_, err := fmt.Fprintf(a.stdout, "the daemon had no data of tenant %s\n", printable(name))
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %d execution(s) with %s, %d version(s) of skills with %s, %d environment(s) with %s and %d session(s) with %s removed\n", printable(name),
		done.GetExecutions(), bytesText(done.GetExecutionBytes()), done.GetSkillVersions(), bytesText(done.GetSkillBytes()),
		done.GetEnvironments(), bytesText(done.GetEnvironmentBytes()), done.GetSessions(), bytesText(done.GetSessionBytes()))
	return err
}
