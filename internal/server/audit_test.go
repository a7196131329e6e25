package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A method that someone adds has entries, and is refused while they cannot be written.
func TestAuditOfNewMethods(t *testing.T) {
	const method = "/skillrun.v1.SkillService/SomethingNew"
	accessTable[method] = identity.Invoke
	t.Cleanup(func() { delete(accessTable, method) })
	dir := t.TempDir()
	log, err := audit.Open(audit.Config{
		Dir: dir, KeyFile: filepath.Join(dir, "key"), FileBytes: 1 << 20, Files: 2, Reason: Reason, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{log: slog.New(slog.DiscardHandler), x: executorOf(tenant.New(&tenant.Tenant{Name: "acme"})), identify: as(identity.Invoke), audit: log, bidirectional: map[string]bool{method: false}}
	refused := &executor.RequestError{Field: "name", Reason: "no"}
	for _, want := range []error{nil, refused} {
		if err := s.guard(callContext(t), method, func(context.Context) error { return want }); (err == nil) != (want == nil) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "audit-000000000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	allowed, denied := bytes.Count(data, []byte(`"decision":"allowed"`)), bytes.Count(data, []byte(`"reason":"INVALID_REQUEST"`))
	if allowed != 2 || denied != 1 {
		t.Errorf("%d allowed and %d refused, want 2 and 1:\n%s", allowed, denied, data)
	}
	err = s.guard(callContext(t), method, func(context.Context) error { t.Error("it ran, but the log is closed"); return nil })
	wantRefusal(t, err, refusal{codes.Unavailable, "AUDIT_UNAVAILABLE", ""})
}

// Calls that change something and refused calls leave exactly one entry each, and reads leave none.
func TestAudit(t *testing.T) {
	hosttest.Host(t) // may skip the test, before the log writes to its directory
	dir := t.TempDir()
	log, err := audit.Open(audit.Config{
		Dir: dir, KeyFile: filepath.Join(dir, "key"), FileBytes: 1 << 20, Files: 2, Reason: Reason, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, func(xc *executor.Config, c *Config) { xc.Audit, c.Audit = log, log })
	r := d.execute(&pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "echo hello", Language: "sh"}}})
	id := r.id
	ctx := t.Context()
	// Reads, also a refused one.
	if _, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id}); err != nil {
		t.Error(err)
	}
	_, err = d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: "none"})
	wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	// The server refuses this one, and the executor the others.
	_, err = d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: id, Grace: durationpb.New(time.Hour)})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "grace"})
	_, err = d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: id, Signal: "SIGTERM"})
	wantRefusal(t, err, refusal{codes.FailedPrecondition, "NOT_RUNNING", ""})
	stream, err := d.about.PrepareSkill(ctx, &pb.PrepareSkillRequest{Skill: "none"})
	if err == nil {
		_, err = stream.Recv()
	}
	wantRefusal(t, err, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""})
	if _, err := d.runs.DeleteExecution(ctx, &pb.DeleteExecutionRequest{ExecutionId: id}); err != nil {
		t.Error(err)
	}
	_, err = d.runs.DeleteExecution(ctx, &pb.DeleteExecutionRequest{ExecutionId: id})
	wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}

	type summary struct {
		Event     audit.Event
		Decision  audit.Decision
		Execution string
		Reason    string
	}
	want := []summary{
		{audit.Execute, audit.Allowed, id, ""},
		{audit.End, "", id, ""},
		{audit.Call, audit.Refused, "", "INVALID_REQUEST"},
		{audit.Signal, audit.Refused, id, "NOT_RUNNING"},
		{audit.Call, audit.Refused, "", "SKILL_NOT_FOUND"},
		{audit.Delete, audit.Allowed, id, ""},
		{audit.Delete, audit.Refused, id, "EXECUTION_NOT_FOUND"},
	}
	data, err := os.ReadFile(filepath.Join(dir, "audit-000000000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var got []summary
	for line := range bytes.Lines(data) {
		var e audit.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		switch e.Event {
		case audit.Start, audit.Stop, audit.Checkpoint:
			continue
		}
		got = append(got, summary{e.Event, e.Decision, e.Execution, e.Reason})
		if e.Event != audit.End && (e.Method == "" || e.Address == "" || e.Principal == "") {
			t.Errorf("the caller is not known: %s", line)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d entries, want %d\n%s", len(got), len(want), data)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("entry %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}
