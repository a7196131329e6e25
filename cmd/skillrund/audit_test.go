package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/disktest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// auditEntries returns the audit log of the daemon in dir.
func auditEntries(t testing.TB, dir string) (all []audit.Entry) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "state/audit/audit-*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no audit log: %v", err)
	}
	slices.Sort(files)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e audit.Entry
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			all = append(all, e)
		}
	}
	return all
}

// auditTool runs skillrund audit for the configuration in dir.
func auditTool(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(binary(t, "skillrund"), append([]string{"--config", filepath.Join(dir, "skillrund.yaml"), "audit"}, args...)...).CombinedOutput()
	return string(out), err
}

func wantVerified(t testing.TB, dir string) {
	t.Helper()
	if out, err := auditTool(t, dir, "verify"); err != nil || !strings.Contains(out, "are as they were written") {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// The log has each call that changes something and each refusal, with the caller, the decision and the
// rule, over gRPC and MCP, and the end of each execution.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	s := startSecured(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	ci := with(ctx, s.token("create", "--tenant", "acme", "--name", "ci", "--role", "invoke"))
	ops := with(ctx, s.token("create", "--tenant", "acme", "--name", "ops", "--role", "invoke"))
	globex := with(ctx, s.token("create", "--tenant", "globex", "--name", "ci", "--role", "admin"))
	readerToken := s.token("create", "--tenant", "acme", "--name", "reader", "--role", "read")
	runs := executionClient{pb.NewExecutionServiceClient(s.connect(nil))}

	// Allowed by a rule, twice with one key; deleted.
	req := command("calculator", "python {baseDir}/scripts/calc.py 6*7")
	req.IdempotencyKey = "once"
	var ids []string
	for range 2 {
		stream, err := runs.Execute(ci, req)
		if err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, stream, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.wantStdout(t, "42\n")
		ids = append(ids, r.id)
	}
	if _, err := runs.DeleteExecution(ci, &pb.DeleteExecutionRequest{ExecutionId: ids[0]}); err != nil {
		t.Error(err)
	}
	// Signalled by its caller, and cancelled by another one of the tenant. Another tenant may not.
	ready, stream := (&running{t: t, runs: runs}).untilOutput(ci, shell("calculator", "trap 'echo got it' USR1; echo ready; while :; do sleep 0.1; done"))
	if _, err := runs.SignalExecution(ci, &pb.SignalExecutionRequest{ExecutionId: ready.ExecutionId, Signal: "SIGUSR1"}); err != nil {
		t.Error(err)
	}
	_, err := runs.CancelExecution(globex, &pb.CancelExecutionRequest{ExecutionId: ready.ExecutionId, Reason: "mine now"})
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	if _, err := runs.CancelExecution(ops, &pb.CancelExecutionRequest{ExecutionId: ready.ExecutionId, Reason: "too slow"}); err != nil {
		t.Error(err)
	}
	if _, err := collect(t, stream, ready.Sequence, nil); err != nil {
		t.Error(err)
	}
	// Denied by the policy, by the role, and without a credential.
	for _, call := range []struct {
		ctx  context.Context
		req  *pb.ExecuteRequest
		code codes.Code
		word string
	}{
		{ci, command("calculator", "rm -rf /"), codes.PermissionDenied, "COMMAND_NOT_ALLOWED"},
		{ci, script("nothing", "x.py"), codes.NotFound, "SKILL_NOT_FOUND"},
		{with(ctx, readerToken), script("calculator", "scripts/calc.py"), codes.PermissionDenied, "ROLE_REQUIRED"},
		{with(ctx, "skillrun_abcdefghij_SECRET"), script("calculator", "scripts/calc.py"), codes.Unauthenticated, "UNIDENTIFIED"},
	} {
		stream, err := runs.Execute(call.ctx, call.req)
		if err == nil {
			_, err = stream.Recv()
		}
		wantReason(t, err, call.code, call.word, "")
	}
	overTLS := &http.Client{Transport: bearing{&http.Transport{TLSClientConfig: s.trust()}, readerToken}}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.mcp, HTTPClient: overTLS}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "ls"}}); err == nil {
		t.Error("a reader called a tool")
	}
	c.Close()
	s.stop()

	all := auditEntries(t, s.dir)
	used := make([]bool, len(all))
	for _, want := range []struct {
		name  string
		match func(audit.Entry) bool
	}{
		{"execute", func(e audit.Entry) bool {
			return e.Event == audit.Execute && e.Decision == audit.Allowed && e.Tenant == "acme" && e.Principal == "token:ci" && e.Address == "127.0.0.1" &&
				e.Method == pb.ExecutionService_Execute_FullMethodName && e.Execution == ids[0] && strings.HasPrefix(e.Skill, "calculator@sha256:") &&
				e.Command == req.GetCommand() && strings.HasPrefix(e.Rule, "Bash(")
		}},
		{"end", func(e audit.Entry) bool {
			return e.Event == audit.End && e.Execution == ids[0] && e.End == "EXITED" && e.ExitCode != nil && *e.ExitCode == 0
		}},
		{"duplicate", func(e audit.Entry) bool { return e.Event == audit.Duplicate && e.Execution == ids[0] }},
		{"delete", func(e audit.Entry) bool {
			return e.Event == audit.Delete && e.Execution == ids[0] && e.Decision == audit.Allowed && e.Principal == "token:ci"
		}},
		{"signal", func(e audit.Entry) bool {
			return e.Event == audit.Signal && e.Execution == ready.ExecutionId && e.Signal == "SIGUSR1" && e.Principal == "token:ci"
		}},
		{"another tenant's cancel", func(e audit.Entry) bool {
			return e.Event == audit.Cancel && e.Decision == audit.Refused && e.Tenant == "globex" && e.Execution == ready.ExecutionId && e.Reason == "EXECUTION_NOT_FOUND"
		}},
		{"cancel", func(e audit.Entry) bool {
			return e.Event == audit.Cancel && e.Decision == audit.Allowed && e.Execution == ready.ExecutionId && e.Principal == "token:ops" && e.By == "token:ops" && e.Why == "too slow"
		}},
		{"the cancelled end", func(e audit.Entry) bool {
			return e.Event == audit.End && e.Execution == ready.ExecutionId && e.End == "CANCELLED" && e.Principal == "token:ci" && e.By == "token:ops" && e.Why == "too slow"
		}},
		{"denied by the policy", func(e audit.Entry) bool {
			return e.Event == audit.Execute && e.Decision == audit.Refused && e.Command == "rm -rf /" && e.Reason == "COMMAND_NOT_ALLOWED" && e.Missing == "Bash(rm:*)" && e.Principal == "token:ci"
		}},
		{"no such skill", func(e audit.Entry) bool {
			return e.Event == audit.Execute && e.Decision == audit.Refused && e.Skill == "nothing" && e.Reason == "SKILL_NOT_FOUND"
		}},
		{"denied by the role", func(e audit.Entry) bool {
			return e.Event == audit.Call && e.Reason == "ROLE_REQUIRED" && e.Principal == "token:reader" && e.Method == pb.ExecutionService_Execute_FullMethodName && e.Missing == "role invoke"
		}},
		{"denied by the role, MCP", func(e audit.Entry) bool {
			return e.Event == audit.Call && e.Reason == "ROLE_REQUIRED" && e.Principal == "token:reader" && e.Method == "tools/call bash" && e.Address == "127.0.0.1"
		}},
		{"without a credential", func(e audit.Entry) bool {
			return e.Event == audit.Unidentified && e.Address == "127.0.0.1" && e.Reason == "UNIDENTIFIED" && e.Tenant == ""
		}},
	} {
		n := 0
		for i, e := range all {
			if want.match(e) {
				used[i] = true
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d entries: %s", n, want.name)
		}
	}
	if t.Failed() {
		for i, e := range all {
			t.Logf("used %v: %+v", used[i], e)
		}
	}
	if text, _ := json.Marshal(all); strings.Contains(string(text), "SECRET") {
		t.Error("the audit log has a token")
	}
	wantVerified(t, s.dir)
}

// A push and a delete of a skill have an entry before they happen, and one with the skill.
func TestAuditOfPushes(t *testing.T) {
	t.Parallel()
	p := startPushing(t, "")
	digest := p.mustPush(p.acme, "say", "one")
	if _, err := p.about.DeleteSkill(p.acme, &pb.DeleteSkillRequest{Skill: "say@" + digest}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	var got []string
	for _, e := range auditEntries(t, p.dir) {
		if e.Tenant == "acme" && e.Principal == "token:a" && e.Decision == audit.Allowed {
			got = append(got, string(e.Event)+" "+e.Method[strings.LastIndex(e.Method, "/")+1:]+" "+e.Skill)
		}
	}
	want := []string{"call PushSkill ", "push PushSkill say@" + digest, "call DeleteSkill ", "delete DeleteSkill say@" + digest}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	wantVerified(t, p.dir)
}

// SIGKILL in the middle of many executions: the log has each execution whose caller got an answer, the
// chain goes on in the next daemon, and every accepted execution has an end.
func TestAuditSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "audit: {file_bytes: 64KiB}\n")
	var mu sync.Mutex
	answered, ended := map[string]bool{}, map[string]bool{}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				stream, err := d.runs.Execute(t.Context(), shell("calculator", "echo hello"))
				if err != nil {
					return
				}
				for {
					e, err := stream.Recv()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						return // the daemon is dead
					}
					mu.Lock()
					answered[e.ExecutionId] = true
					if e.GetOutcome() != nil {
						ended[e.ExecutionId] = true
					}
					mu.Unlock()
				}
			}
		})
	}
	until(t, "no executions", func() bool { mu.Lock(); defer mu.Unlock(); return len(ended) >= 100 })
	d.kill()
	clients.Wait()
	if out, err := auditTool(t, d.dir, "verify"); err != nil {
		t.Errorf("before the restart: %v\n%s", err, out)
	}
	d = startDaemonIn(t, d.dir, "audit: {file_bytes: 64KiB}\n")
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.stop()
	wantVerified(t, d.dir)

	accepted, ends := map[string]bool{}, map[string]string{}
	for _, e := range auditEntries(t, d.dir) {
		switch e.Event {
		case audit.Execute:
			accepted[e.Execution] = true
		case audit.End:
			ends[e.Execution] = e.End
		case audit.Lost:
			t.Errorf("entries are lost: %+v", e)
		}
	}
	for id := range answered {
		if !accepted[id] || ends[id] == "" {
			t.Errorf("execution %s: accepted %v, end %q", id, accepted[id], ends[id])
		}
		if ended[id] && ends[id] != "EXITED" {
			t.Errorf("execution %s: its caller got its end, but the log has %q", id, ends[id])
		}
	}
}

// While the disk of the audit log is full, executions are refused, health and doctor say so, and cancels
// and deletions work. As soon as the disk has room, executions start again without a restart.
func TestAuditDiskFull(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	logs := filepath.Join(dir, "state/audit")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	disktest.Mount(t, logs, "size=256k,mode=0700")
	d := startDaemonIn(t, dir, "")
	health := func() healthpb.HealthCheckResponse_ServingStatus {
		r, err := healthpb.NewHealthClient(d.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	ready, stream := d.untilOutput(t.Context(), shell("data-analysis", "echo ready; sleep 3600")) // calculator may run for 10 s only
	filler := disktest.Fill(t, logs)
	var err error
	// The last page of the newest file may still have room, even for the small entries that say how many
	// were lost.
	for refused := 0; refused < 25; {
		if _, err = d.try(command("calculator", "python {baseDir}/scripts/calc.py 1")); err != nil {
			refused++
		}
	}
	wantReason(t, err, codes.Unavailable, "AUDIT_UNAVAILABLE", "the audit log cannot be written")
	if got := health(); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health says %v", got)
	}
	out, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "doctor").CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "the audit log cannot be written: ") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: ready.ExecutionId}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if r, err := collect(t, stream, ready.Sequence, nil); err != nil || r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
		t.Errorf("got %+v, %v", r.outcome, err)
	}
	_, err = d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: ready.ExecutionId})
	if err != nil {
		t.Errorf("delete: %v", err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	until(t, "health does not recover", func() bool { return health() == healthpb.HealthCheckResponse_SERVING })
	d.run(command("calculator", "python {baseDir}/scripts/calc.py 1")).wantStdout(t, "1\n")
	d.stop()
	wantVerified(t, dir)
	if !slices.ContainsFunc(auditEntries(t, dir), func(e audit.Entry) bool { return e.Event == audit.Lost && e.Count > 0 }) {
		t.Error("the log does not say that entries are missing")
	}
}

// audit verify names the line that was changed; audit key prints the key that it needs for files.
func TestAuditCommand(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	wantVerified(t, d.dir) // the daemon runs
	d.stop()
	wantVerified(t, d.dir)
	key, err := auditTool(t, d.dir, "key")
	if err != nil {
		t.Fatal(err)
	}
	file, logs := filepath.Join(d.dir, "key.pub"), filepath.Join(d.dir, "state/audit")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(logs, "audit-000000000001.jsonl")
	kept := filepath.Join(d.dir, "head.kept")
	if err := os.Link(filepath.Join(logs, "head"), kept); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string // empty: success
	}{
		{[]string{"verify", "--key", file, "--head", kept, logs}, ""},
		{[]string{"verify", "--key", file, first}, ""},
		{[]string{"verify", first}, "files need --key"},
		{[]string{"verify", "--key", file, "--head", kept, first}, "--head needs a directory"},
		{[]string{"verify", "--key", first, logs}, "not an Ed25519 public key"},
		{[]string{"verify", "--key", "/no/such/file"}, "--key: open /no/such/file"},
		{[]string{"verify", logs, first}, "is too much after a directory"},
		{[]string{"verify", "/no/such/file"}, "no such file"},
		{[]string{"verify", "--nonsense"}, "flag provided but not defined"},
		{[]string{"key", "x"}, `"x" is too much`},
		{[]string{"sign"}, "no such command"},
		{nil, "which command?"},
	} {
		out, err := auditTool(t, d.dir, tt.args...)
		if (err == nil) != (tt.want == "") || !strings.Contains(out, tt.want) {
			t.Errorf("audit %v: got %v, want %q\n%s", tt.args, err, tt.want, out)
		}
	}
	data, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.Count(data[:bytes.Index(data, []byte(`"EXITED"`))], []byte("\n")) + 1
	if err := os.WriteFile(first, bytes.Replace(data, []byte(`"EXITED"`), []byte(`"EXITEd"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := auditTool(t, d.dir, "verify"); err == nil || !strings.Contains(out, fmt.Sprintf("audit-000000000001.jsonl:%d: the line was changed", line)) {
		t.Errorf("got %v, want line %d\n%s", err, line, out)
	}
}

// With audit.enabled: false the daemon writes no audit log, and everything else works.
func TestAuditOff(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "audit: {enabled: false}\n")
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.stop()
	if _, err := os.Stat(filepath.Join(d.dir, "state/audit")); err == nil {
		t.Error("there is an audit log")
	}
}
