package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// openSockets listens for gRPC and MCP in dir, as systemd does for deploy/skillrund.socket. Every user may
// connect, which is systemd's default.
func openSockets(t *testing.T, dir string) (files []*os.File) {
	t.Helper()
	for _, name := range []string{"s.sock", "mcp.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		if err := errors.Join(err, os.Chmod(filepath.Join(dir, name), 0o666)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(); l.Close() })
		files = append(files, f)
	}
	return files
}

func startWith(t *testing.T, dir string, sockets []*os.File) *running {
	t.Helper()
	d := launchWith(t, dir, "", sockets)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	return d
}

// A call that comes while a daemon drains waits for the next daemon. A call on an old connection is still
// answered, and an execution that runs ends as always.
func TestCallsWaitForTheNextDaemon(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	sockets := openSockets(t, dir)
	d := startWith(t, dir, sockets)
	for _, name := range []string{"s.sock", "mcp.sock"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%s: mode %v, %v; want the one of listen.unix_mode", name, info.Mode(), err)
		}
	}
	if got := d.run(shell("calculator", "env")).stdout.String(); strings.Contains(got, "LISTEN") {
		t.Errorf("a script has the variables: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: code("calculator", "print('ready'); input(); print('finished')")}}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 2)
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if !strings.HasPrefix(string(e.GetOutput().GetData()), "ready") {
			return
		}
		d.cmd.Process.Signal(syscall.SIGTERM)
		d.untilLogged("new connections wait for the next daemon")
		conn := dialSocket(t, dir)
		for range cap(answered) {
			go func() { answered <- executeOn(ctx, conn, "") }()
		}
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "ready\nfinished\n")
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v, want 0", err)
	}
	if len(answered) > 0 {
		t.Errorf("the daemon that drained answered: %s", <-answered)
	}
	next := startWith(t, dir, sockets)
	for range cap(answered) {
		select {
		case got := <-answered:
			if got != "ran" {
				t.Errorf("a call that waited: %s", got)
			}
		case <-ctx.Done():
			t.Fatal("a call that waited was not answered")
		}
	}
	next.attach(r.id, 0).wantStdout(t, "ready\nfinished\n")
}

func dialSocket(t *testing.T, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+dir+"/s.sock", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// executeOn executes a command with an idempotency key, which may be empty. It returns "ran" or the error's
// text.
func executeOn(ctx context.Context, conn *grpc.ClientConn, key string) string {
	req := shell("calculator", "echo $((6 * 7))")
	req.IdempotencyKey = key
	s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(ctx, req)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for {
		e, err := s.Recv()
		if err != nil {
			return err.Error()
		}
		out.Write(e.GetOutput().GetData())
		if o := e.GetOutcome(); o != nil {
			if o.GetExitCode() != 0 || out.String() != "42\n" {
				return fmt.Sprintf("%v with output %q", o, out.String())
			}
			return "ran"
		}
	}
}

// Clients with old and with new connections notice nothing of restarts but their time.
func TestRestartsUnderLoadRefuseNothing(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	sockets := openSockets(t, dir)
	d := startWith(t, dir, sockets)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var asked, answered atomic.Int64 // executions
	var over atomic.Bool
	var clients sync.WaitGroup
	client := func(each func(n int) string) {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				if got := each(n); got != "ran" {
					t.Errorf("call %d: %s", n, got)
					return
				}
			}
		})
	}
	execute := func(conn *grpc.ClientConn, key string) string {
		asked.Add(1)
		defer answered.Add(1)
		return executeOn(ctx, conn, key)
	}
	kept := dialSocket(t, dir)
	for c := range 3 {
		client(func(n int) string { return execute(kept, fmt.Sprintf("kept-%d-%d", c, n)) })
	}
	client(func(n int) string {
		conn := dialSocket(t, dir)
		defer conn.Close()
		return execute(conn, fmt.Sprintf("new-%d", n))
	})
	client(func(int) string {
		if _, err := pb.NewExecutionServiceClient(kept).ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1}); err != nil {
			return err.Error()
		}
		return "ran"
	})
	client(func(int) string { // a new connection for each message
		const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
		c := userClient(filepath.Join(dir, "mcp.sock"), 0)
		defer c.CloseIdleConnections()
		resp, _, err := postMCP(t, c, "", initialize)
		if err != nil {
			return err.Error()
		}
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return "ran"
	})
	for range 3 {
		before := answered.Load()
		until(t, "no call is answered", func() bool { return t.Failed() || answered.Load() > before+10 })
		d.cmd.Process.Signal(syscall.SIGTERM)
		if err := d.wait(); err != nil {
			t.Errorf("the daemon exited with %v, want 0", err)
		}
		d = startWith(t, dir, sockets)
	}
	over.Store(true)
	clients.Wait()
	if got := countExecutions(t, d); got != asked.Load() {
		t.Errorf("%d executions are recorded, want %d", got, asked.Load())
	}
}

// countExecutions counts the executions in the record. Each must have ended well.
func countExecutions(t *testing.T, d *running) (count int64) {
	t.Helper()
	for page := ""; ; {
		list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{PageToken: page})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Executions {
			if count++; e.Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
				t.Errorf("%s ended as %v", e.ExecutionId, e.Outcome)
			}
		}
		if page = list.NextPageToken; page == "" {
			return count
		}
	}
}

// A socket that the daemon can't use is a mistake in the socket unit, and the message names it.
func TestInheritedSocketsThatNoListenerHas(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "other.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unlistened, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "gram.sock"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer unlistened.Close()
	for want, socket := range map[string]interface{ File() (*os.File, error) }{
		"other.sock was passed to the daemon, but no key of listen has this address": other,
		"not a listening socket; write ListenStream=":                                unlistened,
	} {
		f, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		d := launchWith(t, dir, "", []*os.File{f})
		f.Close()
		if err := d.wait(); err == nil || !strings.Contains(d.log.String(), want) {
			t.Errorf("got %v, want an error with %q\n%s", err, want, d.log)
		}
		if _, err := os.Stat(filepath.Join(dir, "s.sock")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a socket is left: %v", err)
		}
	}
}

func TestSameAddress(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "run"), 0o700), os.Symlink("run", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	unix := func(path string) net.Addr { return &net.UnixAddr{Name: filepath.Join(dir, path), Net: "unix"} }
	tcp := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		have net.Addr
		want string
		same bool
	}{
		{unix("run/a"), dir + "/run/a", true},
		{unix("run/a"), dir + "/link/a", true},
		{unix("run/a"), dir + "/run/b", false},
		{unix("gone/a"), dir + "/gone/../gone/a", true},
		{tcp("127.0.0.1", 80), "127.0.0.1:80", true},
		{tcp("127.0.0.1", 80), "127.0.0.1:81", false},
		{tcp("127.0.0.1", 80), "127.0.0.2:80", false},
		{tcp("::", 80), ":80", true},
		{tcp("::", 80), "0.0.0.0:80", true},
		{tcp("::1", 80), "[::1]:80", true},
		{tcp("127.0.0.1", 80), "no address", false},
		{&net.IPAddr{}, "127.0.0.1:80", false},
	} {
		if got := sameAddress(c.have, c.want); got != c.same {
			t.Errorf("%v and %s: got %v, want %v", c.have, c.want, got, c.same)
		}
	}
}

// The units and the default configuration agree.
func TestSocketUnitHasTheDefaults(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/skillrund.socket")
	if err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	want := []string{
		"ListenStream=" + c.Listen.Unix, "ListenStream=" + c.Listen.MCPUnix,
		fmt.Sprintf("SocketMode=%04o", c.Listen.UnixMode), "SocketGroup=" + c.Listen.UnixGroup,
	}
	var got []string
	for line := range strings.Lines(string(unit)) {
		if strings.HasPrefix(line, "ListenStream=") || strings.HasPrefix(line, "Socket") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("deploy/skillrund.socket has %q, want %q", got, want)
	}
}

// The daemon opens only the sockets that it has not inherited. Connections can wait in the kernel only if the sockets of
// all callers are inherited. The port of an inherited socket can't get another address.
func TestListenTakesInheritedSockets(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	passed := func(address string) net.Listener {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	for _, stay := range []bool{true, false} {
		c := defaultConfig()
		c.Listen.Unix, c.Listen.MCPUnix, c.Listen.MetricsTCP = "", "", "127.0.0.1:0"
		grpc, agents := passed("127.0.0.1:0"), passed("127.0.0.1:0")
		c.Listen.TCP, c.Listen.MCPTCP = grpc.Addr().String(), agents.Addr().String()
		sockets := inherited{{Listener: agents}, {Listener: grpc}}
		if !stay {
			sockets = inherited{{Listener: grpc}}
			agents.Close()
		}
		open, err := listen(c, sockets, log)
		if err != nil {
			t.Fatal(err)
		}
		defer open.close()
		if open.stay != stay || len(open.all) != 3 || open.all[0].Listener != grpc || (open.all[1].Listener == agents) != stay {
			t.Errorf("got %+v, want the sockets %v and %v, stay %v", open, grpc.Addr(), agents.Addr(), stay)
		}
	}
	loopback := passed("127.0.0.1:0")
	_, port, err := net.SplitHostPort(loopback.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	c.Listen.Unix, c.Listen.MCPUnix, c.Listen.TCP = "", "", "0.0.0.0:"+port
	if _, err := listen(c, inherited{{Listener: loopback}}, log); err == nil || !strings.Contains(err.Error(), "another address, "+loopback.Addr().String()+"; restart the daemon") {
		t.Errorf("the port of an inherited socket: got %v", err)
	}
	c.Listen.Unix = filepath.Join(t.TempDir(), "gone", "s") // no file has this name
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.listenOn(l, "unix", c.Listen.Unix, -1, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a socket without a file: got %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it was not closed: %v", err)
	}
}
