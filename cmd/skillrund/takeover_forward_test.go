package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/failpoint"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A waiter is a request that waits for a session, of a client that repeats nothing.
type waiter struct {
	name string
	got  chan *result
	err  error
}

// dialBare connects to a daemon with gRPC's defaults and without its transparent retries.
func dialBare(t *testing.T, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+dir+"/s.sock", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// waitFor sends a request, and returns when the daemon has had time to begin it: the answer to a later call of the same
// connection has come. A request that comes later passes the test by another way.
func waitFor(ctx context.Context, t *testing.T, name string, conn *grpc.ClientConn, req *pb.ExecuteRequest) *waiter {
	t.Helper()
	s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	w := &waiter{name: name, got: make(chan *result, 1)}
	go func() {
		var r *result
		r, w.err = collect(t, s, 0, nil)
		w.got <- r
	}()
	if _, err := pb.NewExecutionServiceClient(conn).ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1}); err != nil {
		t.Fatal(err)
	}
	return w
}

// want checks that the request was executed.
func (w *waiter) want(t *testing.T, stdout string) (id string) {
	t.Helper()
	r := <-w.got
	if r == nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED || r.stdout.String() != stdout {
		t.Errorf("%s: got %+v, %v, want %q", w.name, r, w.err, stdout)
		return ""
	}
	return r.id
}

// executionsWith counts the executions with a label.
func (d *running) executionsWith(ctx context.Context, label string) int {
	d.t.Helper()
	list, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{Labels: map[string]string{"test": label}})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(list.GetExecutions())
}

// Requests that wait for a session behind a program that outlives the hand-over are answered by the next daemon, to
// clients that repeat nothing.
func TestTakeoverForwards(t *testing.T) {
	t.Parallel()
	forwards(t, binary(t, "skillrund"), dyingAt("never"), func(d *running) *running { return d.takeOver() })
}

// If the next daemon dies before it serves, the earlier one answers them.
func TestTakeoverForwardsToNobody(t *testing.T) {
	t.Parallel()
	forwards(t, buildFaulty(t), dyingAt(failpoint.BeforeServing), func(d *running) *running {
		d.cmd.Process.Signal(syscall.SIGUSR2)
		d.untilLogged("the next daemon does not serve; this daemon continues to serve")
		return d
	})
}

// forwards sends requests that wait for a session, calls takeOver, which returns the daemon that serves then, and ends the
// programs that have the sessions. Each request must be executed and audited once, for its caller.
func forwards(t *testing.T, program, variable string, takeOver func(*running) *running) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := launchProgram(t, dir, withTokens+"tenants: {acme: {}, other: {}}\n", program, variable)
	d.waitServing()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	callers := map[string]context.Context{"acme": d.asTenant(ctx, "acme", "invoke"), "other": d.asTenant(ctx, "other", "invoke")}
	sessions, holders, holding := map[string]string{}, map[string]interactiveClient{}, map[string]string{}
	for tenant, ctx := range callers {
		made, err := pb.NewSessionServiceClient(d.conn).CreateSession(ctx, &pb.CreateSessionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		sessions[tenant] = made.GetSession().GetSessionId()
		hold := code("hostile", "print('ready', flush=True); input(); open('made', 'w').write('"+tenant+"')")
		hold.Session = &pb.SessionUse{SessionId: sessions[tenant]}
		holding[tenant], holders[tenant] = d.waitsFor(ctx, hold)
	}
	request := func(tenant, label, key string) *pb.ExecuteRequest {
		req := shell("hostile", "cat made")
		req.Session = &pb.SessionUse{SessionId: sessions[tenant], Wait: true}
		req.Labels, req.IdempotencyKey = map[string]string{"test": label}, key
		return req
	}
	conn := dialBare(t, dir)
	plain := waitFor(callers["acme"], t, "without a key", conn, request("acme", "plain", ""))
	keyed := waitFor(callers["acme"], t, "with a key", conn, request("acme", "keyed", "key"))
	other := waitFor(callers["other"], t, "of another tenant", conn, request("other", "other", ""))
	gone, goes := context.WithCancel(callers["acme"])
	defer goes()
	cancelled := waitFor(gone, t, "cancelled", dialBare(t, dir), request("acme", "cancelled", ""))
	piped, err := executionClient{pb.NewExecutionServiceClient(conn)}.ExecuteInteractive(callers["acme"])
	if err != nil {
		t.Fatal(err)
	}
	start := code("hostile", "print('got ' + input())")
	start.Session, start.Labels = request("acme", "", "").Session, map[string]string{"test": "piped"}
	if err := piped.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}

	serving := takeOver(d)
	goes()
	if r := <-cancelled.got; status.Code(cancelled.err) != codes.Canceled {
		t.Errorf("cancelled: got %+v, %v", r, cancelled.err)
	}
	sendLine(t, piped, "this")
	for _, s := range holders {
		sendLine(t, s, "")
	}
	ids := map[string]string{
		"plain": plain.want(t, "acme"), "keyed": keyed.want(t, "acme"), "other": other.want(t, "other"), "piped": readLine(t, piped, "got this\n"),
	}
	if r, err := collectRest(piped); err != nil || r.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
		t.Errorf("with stdin: got %v, %v", r, err)
	}
	again, err := serving.runs.Execute(callers["acme"], request("acme", "keyed", "key"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := collect(t, again, 0, nil); err != nil || r.id != ids["keyed"] || !r.header.Deduplicated {
		t.Errorf("the key again: got %+v, %v, want %s", r, err, ids["keyed"])
	}
	if serving != d {
		serving.untilAlone(d)
	}
	entries := auditEntries(t, dir)
	for label, id := range ids {
		tenant := "acme"
		if label == "other" {
			tenant = "other"
		}
		if n := serving.executionsWith(callers[tenant], label); n != 1 {
			t.Errorf("%s: %d executions, want 1", label, n)
		}
		var allowed []audit.Entry
		for _, e := range entries {
			if e.Event == audit.Execute && id != "" && e.Execution == id {
				allowed = append(allowed, e)
			}
		}
		holder := func(e audit.Entry) bool { return e.Event == audit.Execute && e.Execution == holding[tenant] }
		want := entries[slices.IndexFunc(entries, holder)]
		if len(allowed) != 1 || allowed[0].Principal != want.Principal || allowed[0].Tenant != tenant || allowed[0].Address != want.Address {
			t.Errorf("%s: the audit log has %+v, want one entry for %s of %s at %s", label, allowed, want.Principal, tenant, want.Address)
		}
	}
	if n := serving.executionsWith(callers["acme"], "cancelled"); n != 0 {
		t.Errorf("cancelled: %d executions", n)
	}
	for _, e := range entries {
		if e.Reason == "DRAINING" {
			t.Errorf("refused: %+v", e)
		}
	}
	verifyAuditOf(t, serving)
}

// collectRest reads the events of a stream to the end, and returns the outcome.
func collectRest(s interactiveClient) (outcome *pb.ExecutionOutcome, err error) {
	for {
		e, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return outcome, nil
		}
		if err != nil {
			return outcome, err
		}
		if e.GetOutcome() != nil {
			outcome = e.GetOutcome()
		}
	}
}
