package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// showCommand makes one call, Get. It shows an execution in any state; only an ended one has an
// outcome.
func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show ID",
		Short:             "Show all that is known of an execution",
		Args:              arguments(needs("ID")),
		ValidArgsFunction: a.completeExecution(anyExecution),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			answer, err := c.Executions().GetExecution(cmd.Context(), &pb.GetExecutionRequest{ExecutionId: args[0]})
			if err != nil {
				return fmt.Errorf("execution %s: %w", args[0], err)
			}
			e := answer.GetExecution()
			if a.json {
				return a.printJSON(e)
			}
			return a.print(executionTable(e))
		}),
	}
}

// addRequest adds the fields of the request. It quotes arguments where a shell needs quotes.
// The record has names of variables and paths of files only: values, code and input can be secret.
func addRequest(t *table, r *pb.RequestSummary) {
	t.field("command", r.GetCommand())
	t.field("language", r.GetLanguage())
	t.field("arguments", quoteAll(r.GetArgs()))
	t.field("directory", r.GetWorkingDirectory())
	// The names of secret variables are no secret.
	t.field("variables", strings.Join(slices.Concat(r.GetEnvNames(), r.GetSecretEnvNames()), " "))
	t.field("files", quoteAll(r.GetFilePaths()))
	if r.GetTruncated() {
		t.field("", "the request is too long for the record; this is its beginning")
	}
}

// executionTable has names and values; it leaves empty values out. "kills" counts the OOM
// killer's victims in the sandbox's cgroup (memory.events), "refused" the forks that the limit of
// processes stopped (pids.events).
func executionTable(e *pb.Execution) *table {
	t := &table{}
	t.field("id", e.GetExecutionId())
	t.add(cell{text: "state"}, stateCell(e))
	t.field("skill", e.GetSkill())
	t.field("digest", e.GetSkillDigest())
	t.field("source", strings.TrimSpace(sourceWord(e.GetSourceKind())+" "+e.GetScript()))
	addRequest(t, e.GetRequest())
	t.field("principal", e.GetPrincipal()+" of tenant "+e.GetTenant())
	// A map has no order, and two calls of show must print the same.
	for _, key := range slices.Sorted(maps.Keys(e.GetLabels())) {
		t.field("label", key+"="+e.GetLabels()[key])
	}
	t.field("created", timeText(e.GetCreateTime()))
	t.field("started", timeText(e.GetStartTime()))
	t.field("ended", timeText(e.GetEndTime()))
	if e.GetExpireTime() != nil {
		t.field("kept until", timeText(e.GetExpireTime()))
	}
	t.field("limits", limitsText(e.GetLimits()))
	t.field("network", networkText(e.GetNetworkRules()))
	o := e.GetOutcome()
	if o == nil {
		return t
	}
	t.field("end", endText(o))
	// An absent exit code means a signal, a limit, or that no program started.
	if o.ExitCode != nil {
		t.field("exit code", fmt.Sprint(o.GetExitCode()))
	}
	t.field("usage", usageText(o.GetUsage()))
	t.field("stdout", streamText(o.GetStdout()))
	t.field("stderr", streamText(o.GetStderr()))
	if n := o.GetEvidence().GetOomKillCount(); n > 0 {
		t.field("out of memory", fmt.Sprintf("%d kills, memory of the %s", n, word("OOM_SCOPE_", o.GetEvidence().GetOomScope().String())))
	}
	if n := o.GetEvidence().GetPidsMaxCount(); n > 0 {
		t.field("processes", fmt.Sprintf("%d refused", n))
	}
	addNetwork(t, o)
	t.field("session", sessionText(o.GetSession()))
	t.field("artifacts", fmt.Sprint(o.GetArtifactCount()))
	for _, line := range o.GetArtifactsRefused() {
		t.field("not an artifact", line)
	}
	t.field("advice", outcomeWords(o, o.GetAdvice()))
	return t
}

// sessionText is the session of an execution with the version that it started from, and what became of its
// changes.
func sessionText(s *pb.SessionResult) string {
	if s.GetSessionId() == "" {
		return ""
	}
	from := fmt.Sprintf("%s, version %d", s.GetSessionId(), s.GetBaseVersion())
	switch {
	case s.GetCommittedVersion() > 0:
		return fmt.Sprintf("%s, made version %d (files: %d added, %d changed, %d deleted)", from, s.GetCommittedVersion(), s.GetFilesAdded(), s.GetFilesChanged(), s.GetFilesDeleted())
	case s.GetUncommitted() == pb.SessionUncommitted_SESSION_UNCOMMITTED_UNKNOWN:
		return from + ", perhaps a new version: " + s.GetReason()
	case s.GetUncommitted() != pb.SessionUncommitted_SESSION_UNCOMMITTED_UNSPECIFIED:
		return from + ", no new version: " + s.GetReason()
	}
	return from + ", unchanged"
}

// field adds a name and its value, unless that is empty.
func (t *table) field(name, value string) {
	if value != "" {
		t.add(plain(name, value)...)
	}
}

// streamText is how much a program wrote to a stream, and how much of that was delivered.
func streamText(t *pb.OutputTruncation) string {
	if t.GetTruncated() {
		return fmt.Sprintf("%s of %s, truncated", bytesText(t.GetDeliveredBytes()), bytesText(t.GetTotalBytes()))
	}
	return bytesText(t.GetTotalBytes())
}
