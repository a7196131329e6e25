package main

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A hostileTenant is a daemon with the tenant acme, which does its worst, and globex, which works.
type hostileTenant struct {
	*secured
	hostile, quiet context.Context
	runs           executionClient // of acme
}

func startHostileTenant(t *testing.T) *hostileTenant {
	t.Helper()
	s := startSecured(t, `
concurrency: {running: 8, reserved: 2, queued: 100, queue_timeout: 600s}
tenants:
  acme: {quotas: {running: 4, queued: 8, streams: 24}, cgroup: {memory: 640MiB, processes: 140}}
  globex: {}
  default: {}
`)
	writeHostileSkill(t, s.dir)
	s.reload("hostile")
	return &hostileTenant{secured: s, hostile: s.asTenant(t.Context(), "acme", "invoke"), quiet: s.asTenant(t.Context(), "globex", "invoke"),
		runs: executionClient{pb.NewExecutionServiceClient(s.connect(nil))}}
}

// works runs a program of the quiet tenant on a new connection.
func (h *hostileTenant) works() {
	h.t.Helper()
	conn := h.connect(nil)
	defer conn.Close()
	stream, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(h.quiet, shell("calculator", "echo hi"))
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := collect(h.t, stream, 0, nil)
	if err != nil {
		h.t.Fatalf("the quiet tenant is refused: %v", err)
	}
	r.wantExit(h.t, 0)
	r.wantStdout(h.t, "hi\n")
}

// A tenant cancels, attaches, lists and retries without a pause, and its handshakes stall. Its calls are
// answered or refused because of a quota. It loses nothing, and the other tenant works.
func TestHostileTenantCalls(t *testing.T) {
	t.Parallel()
	h := startHostileTenant(t)
	ctx, cancel := context.WithCancel(h.hostile)
	var loops sync.WaitGroup
	defer func() { cancel(); loops.Wait() }() // after a failure: the loops call h.t.Error
	forever := func(f func()) {
		loops.Go(func() {
			for ctx.Err() == nil {
				f()
			}
		})
	}
	var mu sync.Mutex
	begun, retried := map[string]bool{}, map[string]bool{}
	note := func(ids map[string]bool, id string) {
		mu.Lock()
		defer mu.Unlock()
		ids[id] = true
	}
	begin := func(runs executionClient, req *pb.ExecuteRequest, ids map[string]bool) (string, eventStream) {
		stream, err := runs.Execute(ctx, req)
		var e *pb.ExecutionEvent
		if err == nil {
			e, err = stream.Recv()
		}
		if !h.mayGet(ctx, err) {
			return "", nil
		}
		note(ids, e.ExecutionId)
		return e.ExecutionId, stream
	}
	for range 4 {
		runs := executionClient{pb.NewExecutionServiceClient(h.connect(nil))}
		for range 4 {
			forever(func() { // starts and cancels
				if id, _ := begin(runs, shell("calculator", "sleep 600"), begun); id != "" {
					_, err := runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: id, ReturnImmediately: true})
					h.mayGet(ctx, err)
				}
			})
			forever(func() { // attaches, and goes
				attached, gone := context.WithCancel(ctx)
				defer gone()
				mu.Lock()
				id := ""
				for id = range begun {
					break
				}
				mu.Unlock()
				if id == "" {
					return
				}
				stream, err := runs.AttachExecution(attached, &pb.AttachExecutionRequest{ExecutionId: id})
				if err == nil {
					_, err = stream.Recv()
				}
				h.mayGet(ctx, err)
			})
			forever(func() { // lists
				_, err := runs.ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1000})
				h.mayGet(ctx, err)
			})
			forever(func() { // retries
				req := shell("calculator", "echo once")
				req.IdempotencyKey = "again"
				begin(runs, req, retried)
			})
		}
	}
	const handshakes = 150 // an address may have 128 connections
	_, port, _ := strings.Cut(h.address, ":")
	for range handshakes {
		forever(func() {
			conn, err := from("127.0.0.2", "127.0.0.1:"+port)(ctx)
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			if _, err := conn.Write([]byte{22, 3, 1, 2, 0, 1}); err == nil { // the beginning of a ClientHello
				io.Copy(io.Discard, conn)
			}
		})
	}
	until(t, "the hostile tenant has begun nothing", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(begun) > 20 && len(retried) > 0
	})
	for range 20 {
		h.works()
	}
	cancel()
	loops.Wait()
	if len(retried) != 1 {
		t.Errorf("%d executions of one idempotency key", len(retried))
	}
	h.wantAllEnded(begun)
	h.works()
	h.wantNothingLeft()
}

// mayGet reports whether a call of the hostile tenant was answered. A refusal must name a quota and a
// time to come back.
func (h *hostileTenant) mayGet(ctx context.Context, err error) bool {
	h.t.Helper()
	if err != nil && ctx.Err() == nil && (status.Code(err) != codes.ResourceExhausted || skillrun.Reason(err) != "SATURATED" || !hasRetryInfo(err)) {
		h.t.Errorf("got %v (%s), want an answer, or a quota that is used up", err, skillrun.Reason(err))
	}
	return err == nil
}

// wantAllEnded checks that the record has an end of every execution that was begun.
func (h *hostileTenant) wantAllEnded(begun map[string]bool) {
	h.t.Helper()
	untilNone(h.t, "without an end", func() (open []string) {
		for id := range begun {
			e, err := h.runs.GetExecution(h.hostile, &pb.GetExecutionRequest{ExecutionId: id})
			if err != nil {
				h.t.Fatalf("%s is lost: %v", id, err)
			}
			if e.Outcome == nil {
				open = append(open, id)
			} else if ended, _ := endedAs("ANY", e.Outcome); !ended {
				h.t.Fatalf("%s ended as %v", id, e.Outcome)
			}
		}
		return open
	})
}

// A tenant forks, fills memory and spins up to the limits of its group. Each of its executions ends with
// the reason, and the other tenant works all the time.
func TestHostileTenantFillsItsGroup(t *testing.T) {
	t.Parallel()
	h := startHostileTenant(t)
	ctx, cancel := context.WithCancel(h.hostile)
	defer cancel()
	limited := func(text string, memory uint64, processes uint32) *pb.ExecuteRequest {
		req := code("hostile", text)
		req.Limits = &pb.ExecutionLimits{MemoryBytes: memory, Processes: processes}
		return req
	}
	spinning := h.hold(ctx, limited("import os\nfor _ in range(8):\n if os.fork() == 0: break\nelse: print('ready', flush=True)\nwhile True: pass\n", 64<<20, 16))
	h.works()

	// Each may have 90 processes, both together 140. They take again what another process leaves.
	const forks = `import os, time
told = False
while True:
    try: os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    except OSError:
        if not told: print("full", flush=True)
        told = True
        time.sleep(.01)
`
	first, second := h.hold(ctx, limited(forks, 64<<20, 90)), h.hold(ctx, limited(forks, 64<<20, 90))
	h.works()
	// A sandbox that was made before may still serve a start, and the processes that make one count, too, until they end.
	var full *pb.ExecutionOutcome
	if !await(func() bool {
		full = h.run(ctx, limited("print(1)", 64<<20, 90)).outcome
		return full.GetEnd() == pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED
	}) || !strings.Contains(full.GetEvidence().GetSetupError(), "the tenant's executions have used up its limit of processes or memory") {
		t.Errorf("a start beyond the tenant's processes: got %v", full)
	}
	h.works()
	for _, id := range []string{first, second, spinning} {
		if _, err := h.runs.CancelExecution(h.hostile, &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			t.Error(err)
		}
	}

	// Each may have 512 MiB, all together 640. Each waits when it has 300, so that the first does not reach its own limit
	// before the others have begun.
	const fills = "import time\nx = [b'x' * (1 << 20) for _ in range(300)]\ntime.sleep(10)\nwhile True: x.append(b'x' * (1 << 20))\n"
	var eaters sync.WaitGroup
	var mu sync.Mutex
	tenants := 0
	for range 3 {
		eaters.Go(func() {
			o := h.run(ctx, wall(limited(fills, 512<<20, 16), 5*time.Minute)).outcome
			if o.GetEnd() != pb.ExecutionEnd_EXECUTION_END_OOM_KILLED {
				t.Errorf("got %v", o)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(o.GetAdvice(), "all executions of its tenant together") {
				tenants++
			}
		})
	}
	h.works()
	eaters.Wait()
	if tenants == 0 {
		t.Error("no execution ran out of the tenant's memory")
	}
	h.works()
	h.wantNothingLeft()
}

// hold starts a program of the hostile tenant and returns when it has printed a line. It runs on.
func (h *hostileTenant) hold(ctx context.Context, req *pb.ExecuteRequest) (id string) {
	h.t.Helper()
	stream, err := h.runs.Execute(ctx, wall(req, patience))
	if err != nil {
		h.t.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			h.t.Fatal(err)
		}
		if o := e.GetOutcome(); o != nil {
			h.t.Fatalf("ended as %v", o)
		}
		if e.GetOutput() != nil {
			return e.ExecutionId
		}
	}
}

// run runs a program of the hostile tenant to its end.
func (h *hostileTenant) run(ctx context.Context, req *pb.ExecuteRequest) *result {
	h.t.Helper()
	stream, err := h.runs.Execute(ctx, req)
	if err != nil {
		h.t.Error(err)
		return &result{}
	}
	r, err := collect(h.t, stream, 0, nil)
	if err != nil {
		h.t.Error(err)
	}
	return r
}
