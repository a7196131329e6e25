package main

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The limits of running executions together stay within concurrency.memory, which slots alone would not do. The tenant
// with the smaller part of the memory is next, although the other one has waited for longer. An execution that
// could never start is refused at once.
func TestMemoryOfAllTenantsIsBounded(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+`
concurrency: {running: 8, reserved: 0, memory: 120MiB}
limits: {default: {memory: 60MiB}}
tenants: {acme: {}, globex: {}}
`)
	acme, globex := d.asTenant(t.Context(), "acme", "invoke"), d.asTenant(t.Context(), "globex", "invoke")
	// The skill's own limit is 128 MiB; a request may ask for less.
	begin := func(ctx context.Context, memory uint64, script string) (stream eventStream, id string) {
		t.Helper()
		req := shell("calculator", script)
		req.Limits, req.OnDisconnect = &pb.ExecutionLimits{MemoryBytes: memory}, pb.OnDisconnect_ON_DISCONNECT_CONTINUE
		stream, err := d.runs.Execute(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return stream, e.ExecutionId
	}
	run := func() string {
		stream, id := begin(acme, 60<<20, "echo started; sleep 600")
		for {
			e, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.GetOutput() != nil {
				return id
			}
		}
	}
	first, second := run(), run()
	_, late := begin(acme, 60<<20, "echo ran")
	_, other := begin(globex, 30<<20, "echo ran")
	large := shell("calculator", "echo never")
	large.Limits = &pb.ExecutionLimits{MemoryBytes: 128 << 20}
	wantReason(t, d.refusalOf(acme, large), codes.InvalidArgument, "LIMIT_TOO_LARGE", "above the daemon's maximum")
	for id, ctx := range map[string]context.Context{late: acme, other: globex} {
		if e, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id}); err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_QUEUED {
			t.Errorf("with all memory in use: %v, %v; want it queued", e.GetState(), err)
		}
	}

	end := func(id string) {
		t.Helper()
		if _, err := d.runs.CancelExecution(acme, &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			t.Fatal(err)
		}
	}
	started := func(ctx context.Context, id string) (at time.Time) {
		t.Helper()
		until(t, "it does not start", func() bool {
			e, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
			if err != nil {
				t.Fatal(err)
			}
			at = e.StartTime.AsTime()
			return e.Outcome != nil
		})
		return at
	}
	end(first) // makes room for one of acme, or for two of globex
	if a, b := started(globex, other), started(acme, late); a.After(b) {
		t.Errorf("globex started at %s, after acme at %s", a, b)
	}
	end(second)
}
