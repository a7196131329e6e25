package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/metrics"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// instances returns the names of the instances of living and dead daemons in the directory of d.
func (d *running) instances() (names []string) {
	entries, _ := os.ReadDir(filepath.Join(d.dir, "state/sandbox/instances"))
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

var nextServes = regexp.MustCompile(`the next daemon serves" pid=(\d+)`)

// takeOver makes the next daemon take over, and returns it. d still drains.
func (d *running) takeOver() *running {
	d.t.Helper()
	before := len(nextServes.FindAllString(d.log.String(), -1))
	d.cmd.Process.Signal(syscall.SIGUSR2)
	var all [][]string
	until(d.t, "the next daemon does not serve", func() bool {
		all = nextServes.FindAllStringSubmatch(d.log.String(), -1)
		return len(all) > before || d.hasExited()
	})
	if len(all) == before {
		d.t.Fatalf("the daemon exited\n%s", tail(d.log.String(), 4000))
	}
	pid, err := strconv.Atoi(all[before][1])
	if err != nil {
		d.t.Fatal(err)
	}
	return d.adoptProcess(pid)
}

// adoptProcess returns the daemon with a pid. The process is no child of the test.
func (d *running) adoptProcess(pid int) *running {
	d.t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		d.t.Fatal(err)
	}
	n := &running{t: d.t, dir: d.dir, log: d.log, exited: make(chan error, 1), cmd: &exec.Cmd{Process: p}}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		n.exited <- nil
		return n
	}
	if err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer unix.Close(fd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				n.exited <- err
				return
			}
		}
	}()
	d.t.Cleanup(n.stop)
	n.dial("unix://" + d.dir + "/s.sock")
	return n
}

// untilAlone waits until the daemon from which n took over has ended.
func (n *running) untilAlone(earlier *running) {
	n.t.Helper()
	if err := earlier.wait(); err != nil {
		n.t.Errorf("the earlier daemon exited with %v, want 0", err)
	}
	until(n.t, "the next daemon does not adopt", func() bool {
		return strings.Count(n.log.String(), "the earlier daemon has ended") == len(nextServes.FindAllString(n.log.String(), -1))
	})
}

// waitsFor starts an execution, and returns when it has printed the line "ready".
func (d *running) waitsFor(ctx context.Context, req *pb.ExecuteRequest) (id string, s interactiveClient) {
	d.t.Helper()
	wall(req, min(patience, 10*time.Minute)) // the next daemon may start slowly
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: req}}); err != nil {
		d.t.Fatal(err)
	}
	return readLine(d.t, s, "ready\n"), s
}

// readLine reads events until the output since the call is a line, however it is cut into pieces. It returns the ID of
// the execution.
func readLine(t testing.TB, s eventStream, line string) (id string) {
	t.Helper()
	for got := ""; got != line; {
		e, err := s.Recv()
		if err != nil || !strings.HasPrefix(line, got) {
			t.Fatalf("got %q, %v, want %q", got, err, line)
		}
		id, got = e.GetExecutionId(), got+string(e.GetOutput().GetData())
	}
	return id
}

// The next daemon serves while the earlier one runs an execution. Everything that callers may do with the
// execution they can do through the next daemon.
func TestTakeover(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	session, err := pb.NewSessionServiceClient(d.conn).CreateSession(ctx, &pb.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sessionID := session.GetSession().GetSessionId()
	keyed := shell("calculator", "echo once")
	keyed.IdempotencyKey = "before"
	first := d.run(keyed)
	waiting := code("hostile", "print('ready', flush=True); open('made', 'w').write(input()); print('finished')")
	waiting.Session = &pb.SessionUse{SessionId: sessionID}
	id, s := d.waitsFor(ctx, waiting)
	before, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
	if err != nil {
		t.Fatal(err)
	}
	trap := code("hostile", "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)")
	trap.IdempotencyKey = "under-way"
	signalled, trapped := d.waitsFor(ctx, trap)

	next := d.takeOver()
	// The earlier daemon's executions, through the next one.
	got, err := next.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
	if err != nil || got.GetState() != pb.ExecutionState_EXECUTION_STATE_RUNNING {
		t.Errorf("the running execution: got %v, %v", got, err)
	}
	if again := next.run(keyed); again.id != first.id || !again.header.Deduplicated {
		t.Errorf("a key that was used before: got %s, want %s", again.id, first.id)
	}
	busy := shell("calculator", "cat made")
	busy.Session = &pb.SessionUse{SessionId: sessionID}
	_, err = next.try(busy)
	wantStatus(t, err, "FailedPrecondition", "SESSION_BUSY")
	repeated := make(chan *result, 1)
	go func() {
		r, err := next.try(trap)
		if err != nil {
			t.Error(err)
		}
		repeated <- r
	}()
	if _, err := next.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: signalled, Signal: "SIGUSR1"}); err != nil {
		t.Error(err)
	}
	readLine(t, trapped, "got it\n")
	cancelled, err := next.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: signalled, Reason: "enough"})
	if err != nil || cancelled.GetOutcome().GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || cancelled.GetOutcome().GetEvidence().GetCancelReason() != "enough" {
		t.Errorf("cancelled: got %v, %v", cancelled, err)
	}
	if r := <-repeated; r == nil || r.id != signalled || r.stdout.String() != "ready\ngot it\n" {
		t.Errorf("the repeated request: got %+v", r)
	}
	// Readers at the next daemon, one of which has read "ready" before, and a request that waits for the session.
	attached, resumed := make(chan *result, 1), make(chan *result, 1)
	go func() { attached <- next.attach(id, 0) }()
	until(t, "the next daemon does not see the output", func() bool {
		got, err := next.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
		return err == nil && got.GetLastSequence() == before.LastSequence
	})
	go func() { resumed <- next.attach(id, before.LastSequence) }()
	waits := shell("calculator", "cat made")
	waits.Session = &pb.SessionUse{SessionId: sessionID, Wait: true}
	served := make(chan *result, 1)
	go func() {
		r, err := next.try(waits)
		if err != nil {
			t.Error(err)
		}
		served <- r
	}()
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("from the session\n")}}); err != nil {
		t.Error(err)
	}
	if r := <-attached; r == nil || r.stdout.String() != "ready\nfinished\n" || r.outcome.GetExitCode() != 0 {
		t.Errorf("attached at the next daemon: got %q, %q, %v", r.stdout.String(), r.stderr.String(), r.outcome)
	}
	if r := <-resumed; r == nil || r.stdout.String() != "finished\n" || r.outcome.GetExitCode() != 0 {
		t.Errorf("attached again at the next daemon: got %q, %v", r.stdout.String(), r.outcome)
	}
	if r := <-served; r == nil || r.stdout.String() != "from the session" {
		t.Errorf("the execution that waited for the session: got %q, %q, %v", r.stdout.String(), r.stderr.String(), r.outcome)
	}
	next.untilAlone(d)
	next.works()
	next.wantNothingLeft()
	if got := next.instances(); len(got) != 1 {
		t.Errorf("instances: got %q, want one", got)
	}
	verifyAuditOf(t, next)
}

// verifyAudit runs skillrund audit verify.
func verifyAuditOf(t *testing.T, d *running) {
	t.Helper()
	out, err := exec.Command(binary(t, "skillrund"), "--config", filepath.Join(d.dir, "skillrund.yaml"), "audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// openMetrics opens a socket for the metrics of daemons that take over from each other, and returns it with its
// address. The test does not keep it open.
func openMetrics(t *testing.T) (socket *os.File, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if socket, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	return socket, l.Addr().String()
}

// wantMetric checks a line of the metrics.
func (d *running) wantMetric(line string) {
	d.t.Helper()
	if _, text := d.page(metrics.Path); !strings.Contains(text, "\n"+line+"\n") {
		d.t.Errorf("no metric %s", line)
	}
}

// A daemon whose next one does not start, or does not serve, goes on.
func TestTakeoverThatFails(t *testing.T) {
	t.Parallel()
	program := buildFaulty(t)
	dir := newDir(t)
	writeHostileSkill(t, dir)
	socket, address := openMetrics(t)
	// The drain has no effect on calls of a daemon that goes on.
	listen := fmt.Sprintf("drain: 1ms\nlisten: {unix: s.sock, metrics_tcp: '%s'}\n", address)
	d := launchProgram(t, dir, listen, program, failpoint.KillVar+"="+string(failpoint.BeforeServing)+":0", socket)
	socket.Close()
	d.waitServing()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, s := d.waitsFor(ctx, code("hostile", "print('ready', flush=True); print(input())"))

	// It dies after the hand-over. The daemon takes its socket back although the socket's file is gone.
	if err := os.Rename(filepath.Join(dir, "s.sock"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	d.cmd.Process.Signal(syscall.SIGUSR2)
	d.untilLogged("the next daemon does not serve; this daemon continues to serve")
	if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "s.sock")); err != nil {
		t.Fatal(err)
	}
	d.works()
	if got := d.instances(); len(got) != 1 {
		t.Errorf("instances: got %q, want one", got)
	}
	conn := dialSocket(t, dir)
	if got := executeOn(ctx, conn, "key"); got != "ran" {
		t.Errorf("a new connection: %s", got)
	}
	d.wantMetric(`skillrun_takeovers_total{result="not_served"} 1`)
	// Its configuration is wrong.
	config := filepath.Join(dir, "skillrund.yaml")
	good, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append(good, "concurrency: {running: -1}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	d.cmd.Process.Signal(syscall.SIGUSR2)
	d.untilLogged("the next daemon did not start; this daemon continues to serve")
	d.works()
	// After this each listener waits for another connection, and the test ends the daemon.
	if got := executeOn(ctx, dialSocket(t, dir), "other-key"); got != "ran" {
		t.Errorf("another new connection: %s", got)
	}
	d.wantMetric(`skillrun_takeovers_total{result="not_started"} 1`)
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("still there\n")}}); err != nil {
		t.Error(err)
	}
	readLine(t, s, "still there\n")
	if err := os.WriteFile(config, good, 0o600); err != nil {
		t.Fatal(err)
	}
	verifyAuditOf(t, d)
	d.wantNothingLeft()
}

// takenOver is a row of TestFaults: takeovers under load, with two programs in turns. Nothing is refused.
func takenOver(t *testing.T, row *faultRow) {
	const times = 10
	dir := newDir(t)
	writeHostileSkill(t, dir)
	program := filepath.Join(dir, "bin", "skillrund")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	versions := []string{binary(t, "skillrund"), buildFaulty(t)}
	install := func(n int) {
		t.Helper()
		if err := os.Symlink(versions[n%len(versions)], program+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(program+".new", program); err != nil {
			t.Fatal(err)
		}
	}
	install(0)
	const drain = 15 * time.Second // on a busy machine a request waits for seconds before its program starts
	d := launch(t, dir, faultConfig+fmt.Sprintf("drain: %s\n", drain), "/bin/sh", "-c", `shift; exec "$0" "$@"`, program)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	l := &faultLoad{programs: faultPrograms, ends: []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_CANCELLED}, refusesNone: true}
	l.start(t, d)
	long := startLong(t, d, l)
	for n := range times {
		l.untilAnswers(20)
		install(n + 1)
		dead := d.doomedAll()
		next := d.takeOver()
		row.times++
		next.untilAlone(d)
		for _, i := range dead {
			row.left += next.leftOf(i)
		}
		d = next
	}
	long()
	endLoad(t, d, l, row)
	if n := l.refused.Load(); n > 0 {
		row.lost += int(n)
		t.Errorf("%d requests were refused", n)
	}
}

// startLong adds 18 clients to the load: some execute programs that run for longer than the drain, some list,
// some read, and some cancel. stop waits until all of them have ended.
func startLong(t *testing.T, d *running, l *faultLoad) (stop func()) {
	var over atomic.Bool
	ctx := d.asTenant(t.Context(), "right", "invoke")
	each := func(n int, f func(ctx context.Context, conn *grpc.ClientConn) error) {
		for range n {
			conn := dialSocket(t, d.dir)
			l.clients.Go(func() {
				for !over.Load() {
					ctx, cancel := context.WithTimeout(ctx, patience)
					err := f(ctx, conn)
					cancel()
					if err != nil {
						l.refusal("beside the load", err)
						return
					}
				}
			})
		}
	}
	execute := func(ctx context.Context, conn *grpc.ClientConn, req *pb.ExecuteRequest, want pb.ExecutionEnd, first func(id string) error) error {
		s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(ctx, req)
		if err != nil {
			return err
		}
		var failed error
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			if e.GetStarted() != nil && first != nil {
				failed = first(e.GetExecutionId())
			}
		})
		if err == nil && r.outcome.GetEnd() != want {
			err = fmt.Errorf("it ended as %v, want %v", r.outcome, want)
		}
		if failed != nil {
			return failed
		}
		return err
	}
	// They sleep for longer than the drain, so the drain cancels them, or they end between two takeovers.
	each(6, func(ctx context.Context, conn *grpc.ClientConn) error {
		s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(ctx, shell("hostile", "sleep 5"))
		if err != nil {
			return err
		}
		r, err := collect(t, s, 0, nil)
		if err == nil && r.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_CANCELLED && r.outcome.GetEvidence().GetCancelledBy() != "drain" {
			err = fmt.Errorf("it ended as %v", r.outcome)
		}
		return err
	})
	each(4, func(ctx context.Context, conn *grpc.ClientConn) error {
		return execute(ctx, conn, shell("hostile", "sleep 60"), pb.ExecutionEnd_EXECUTION_END_CANCELLED, func(id string) error {
			_, err := pb.NewExecutionServiceClient(conn).CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: id, Reason: "the test"})
			return err
		})
	})
	each(4, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewExecutionServiceClient(conn).ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 10})
		return err
	})
	each(4, func(ctx context.Context, conn *grpc.ClientConn) error {
		var copied error
		err := execute(ctx, conn, shell("hostile", "echo read me; sleep 0.1; echo end"), pb.ExecutionEnd_EXECUTION_END_EXITED, func(id string) error {
			s, err := executionClient{pb.NewExecutionServiceClient(conn)}.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id})
			if err != nil {
				return err
			}
			r, err := collect(t, s, 0, nil)
			if err == nil && r.stdout.String() != "read me\nend\n" {
				copied = fmt.Errorf("a reader got %q", r.stdout.String())
			}
			return err
		})
		if err == nil {
			err = copied
		}
		return err
	})
	return func() { over.Store(true) }
}

// While the earlier daemon runs an execution, it has no connection of HTTP any longer. A client with one makes a
// new one, to the next daemon. So no agent is refused, and no reader of metrics and health is told of a drain.
func TestTakeoverOfHTTP(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	socket, address := openMetrics(t)
	d := launchWith(t, dir, fmt.Sprintf("listen: {unix: s.sock, mcp_unix: mcp.sock, metrics_tcp: '%s'}\n", address), []*os.File{socket})
	socket.Close()
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, s := d.waitsFor(ctx, code("hostile", "print('ready', flush=True); input()"))
	var connections atomic.Int64
	counted := func(network, address string) *http.Client {
		return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			connections.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
	}
	agent, reader := counted("unix", filepath.Join(dir, "mcp.sock")), counted("tcp", address)
	ask := func() {
		t.Helper()
		if resp, body, err := postMCP(t, agent, "", mcpPing); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("ping: got %v, %q, %v", resp, body, err)
		}
		resp, err := reader.Get("http://" + address + metrics.ReadyPath)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			t.Errorf("/readyz: got %s: %s", resp.Status, body)
		}
	}
	ask()
	next := d.takeOver()
	ask()
	if got := connections.Load(); got != 4 {
		t.Errorf("got %d connections, want 4: two to each daemon", got)
	}
	next.wantMetric(`skillrun_takeovers_total{result="succeeded"} 1`)
	for range 20 {
		reader.CloseIdleConnections()
		ask()
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil {
		t.Error(err)
	}
	next.untilAlone(d)
}
