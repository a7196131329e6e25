package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// psPage is the number of executions that one call asks for: the contract's default.
const psPage = 100

// psCommand lists the executions of the caller's tenant. Without --all or --end it asks for the
// states QUEUED and RUNNING only.
func (a *app) psCommand() *cobra.Command {
	var all bool
	var limit int
	var skill, principal, tenant string
	var oldest bool
	var labels, ends []string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the executions that run or wait, or all",
		Args:  arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &pb.ListExecutionsRequest{Skill: skill, Principal: principal, Tenant: tenant}
			if oldest {
				request.Order = pb.ExecutionOrder_EXECUTION_ORDER_OLDEST_FIRST
			}
			if !all && len(ends) == 0 {
				request.States = []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_QUEUED, pb.ExecutionState_EXECUTION_STATE_RUNNING}
			}
			var err error
			if request.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			for _, name := range ends {
				// "timed-out", "timed out" and "TIMED_OUT" are all EXECUTION_END_TIMED_OUT. 0 is
				// EXECUTION_END_UNSPECIFIED.
				end, ok := pb.ExecutionEnd_value[endPrefix+strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(name))]
				if !ok || end == 0 {
					return usage(cmd, fmt.Errorf("--end %s: want exited, signaled, timed-out, oom-killed, cancelled, daemon-lost or setup-failed", name))
				}
				request.Ends = append(request.Ends, pb.ExecutionEnd(end))
			}
			if limit < 0 {
				return usage(cmd, fmt.Errorf("--limit %d: must not be less than 0", limit))
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return a.ps(cmd.Context(), c, request, limit)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also executions that have ended")
	cmd.Flags().IntVarP(&limit, "limit", "n", psPage, "show at most this `number`; 0: all")
	cmd.Flags().BoolVar(&oldest, "oldest", false, "the oldest first, not the newest")
	cmd.Flags().StringVar(&skill, "skill", "", "only of this `skill`")
	cmd.Flags().StringVar(&principal, "principal", "", "only executions that this `principal` requested, as 'skillrun show' prints it")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only of this `tenant`; '*': of all tenants (for operators)")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only executions with this label, `key=value` (repeatable)")
	cmd.Flags().StringArrayVar(&ends, "end", nil, "only executions with this end: `exited`, timed-out, ... (repeatable)")
	completeNothing(cmd, "limit", "label", "principal", "tenant")
	completeWith(cmd, "skill", a.completeSkill)
	completeWith(cmd, "end", cobra.FixedCompletions(endWords(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// endWords returns the ways in which an execution can end, as words for --end. They are in the order of their
// numbers, so that the list is the same each time.
func endWords() []string {
	var words []string
	for number := range int32(len(pb.ExecutionEnd_name)) {
		if name, ok := pb.ExecutionEnd_name[number]; ok && number > 0 {
			words = append(words, strings.ReplaceAll(word(endPrefix, name), " ", "-"))
		}
	}
	return words
}

// ps lists executions until limit; 0: all. New executions may begin between two pages. They do not shift the
// pages: a page token names the execution after which the next page begins.
func (a *app) ps(ctx context.Context, c *skillrun.Client, request *pb.ListExecutionsRequest, limit int) error {
	l := listing[*pb.Execution]{[]string{"ID", "SKILL", "SOURCE", "STATE", "CODE", "TIME", "CREATED"}, psRow}
	if request.GetTenant() != "" {
		l.header = append(l.header, "TENANT")
		l.row = func(e *pb.Execution) []cell { return append(psRow(e), cell{text: e.GetTenant()}) }
	}
	shown := 0
	return l.pages(a, func(token string) ([]*pb.Execution, string, error) {
		request.PageToken, request.PageSize = token, psPage
		if limit > 0 {
			request.PageSize = uint32(min(psPage, limit-shown))
		}
		page, err := c.Executions().ListExecutions(ctx, request)
		// A limit that is reached ends the list, whatever the daemon still has.
		next := page.GetNextPageToken()
		if shown += len(page.GetExecutions()); limit > 0 && shown >= limit {
			next = ""
		}
		return page.GetExecutions(), next, err
	})
}

// psRow returns the row of an execution. TIME is the wall time of an ended program, and the time since the
// start of a running one, by this machine's clock. "-" means that the value is not known yet.
func psRow(e *pb.Execution) []cell {
	source := sourceWord(e.GetSourceKind())
	if e.GetScript() != "" {
		source = e.GetScript()
	}
	row := plain(e.GetExecutionId(), e.GetSkill(), source, "", "-", "-", timeText(e.GetCreateTime()))
	row[3] = stateCell(e)
	if o := e.GetOutcome(); o != nil {
		if o.ExitCode != nil {
			row[4].text = fmt.Sprint(o.GetExitCode())
		}
		row[5].text = durationText(o.GetUsage().GetWallTime())
	} else if e.GetStartTime() != nil {
		row[5].text = shortTime(time.Since(e.GetStartTime().AsTime()))
	}
	return row
}

// stateCell returns the state of an execution, or how it ended. It is green only for the exit code 0. An absent
// exit code does not count as 0, although a getter returns 0 for it.
func stateCell(e *pb.Execution) cell {
	if o := e.GetOutcome(); o != nil {
		c := cell{text: endWord(o.GetEnd()), colour: red}
		if o.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED && proto.Equal(&pb.ExecutionOutcome{ExitCode: o.ExitCode}, &pb.ExecutionOutcome{ExitCode: proto.Int32(0)}) {
			c.colour = green
		}
		return c
	}
	text := word("EXECUTION_STATE_", e.GetState().String())
	if n := e.GetQueuePosition(); n > 0 {
		text = fmt.Sprintf("%s, position %d", text, n)
	}
	return cell{text: text, colour: yellow}
}
