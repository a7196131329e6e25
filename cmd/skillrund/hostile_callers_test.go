package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/ingress"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// These tests show what one caller can do to other callers with connections, requests and
// sessions. A caller is a user of a Unix socket, or an address.

// nobody is the uid of the attacker.
const nobody = 65534

// startForAll starts a daemon with every kind of listener, whose sockets all users may open.
func startForAll(t *testing.T, extra string) *running {
	t.Helper()
	return startListening(t, "", extra)
}

// startListening is startForAll with more keys of listen.
func startListening(t *testing.T, listen, extra string) *running {
	t.Helper()
	d := startHostile(t, "listen: {unix: s.sock, unix_mode: 0666, tcp: \"127.0.0.1:0\", mcp_tcp: \"127.0.0.1:0\""+listen+"}\n"+extra)
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

// A dialFunc connects as one caller.
type dialFunc func(context.Context) (net.Conn, error)

// asUser connects to a socket as a user.
func asUser(socket string, uid int) dialFunc {
	type dialed struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context) (net.Conn, error) {
		done := make(chan dialed)
		go func() {
			// This changes the user ids of this thread only. Go ends the locked thread with the
			// goroutine (runtime.LockOSThread).
			runtime.LockOSThread()
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- dialed{nil, errno}
				return
			}
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			done <- dialed{conn, err}
		}()
		d := <-done
		return d.conn, d.err
	}
}

// from connects to a port from a local address.
func from(ip, port string) dialFunc {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", port) }
}

// executions returns a client with a new connection.
func (f dialFunc) executions(t *testing.T) executionClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///daemon", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return executionClient{pb.NewExecutionServiceClient(conn)}
}

// askGRPC sends a small request on a new connection.
func (f dialFunc) askGRPC(t *testing.T) error {
	_, err := f.executions(t).ListExecutions(t.Context(), &pb.ListExecutionsRequest{PageSize: 1})
	return err
}

// post sends one message on a new connection.
func (f dialFunc) post(t *testing.T, session, message string) (*http.Response, string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f(ctx) }}}
	return postMCP(t, client, session, message)
}

// postMCP sends one message to the MCP endpoint and returns the response and its whole body.
// An empty session means none.
func postMCP(t *testing.T, client *http.Client, session, message string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/mcp", strings.NewReader(message))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

const mcpPing = `{"jsonrpc":"2.0","id":2,"method":"ping"}`

func (f dialFunc) askMCP(t *testing.T) error {
	resp, body, err := f.post(t, "", mcpPing)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// A front is one of a daemon's listeners.
type front struct {
	name string
	by   func(who int) dialFunc // returns how caller number who connects
	ask  func(dialFunc, *testing.T) error
	// hello is the complete beginning of the protocol, up to the first request.
	hello string
}

const (
	h2Settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	mcpHead    = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)

func fronts(t *testing.T, d *running) []front {
	t.Helper()
	ports := map[string]string{}
	for line := range strings.Lines(d.log.String()) {
		if head, port, ok := strings.Cut(line, "network=tcp address="); ok {
			ports[head[strings.Index(head, "msg="):]] = strings.TrimSpace(port)
		}
	}
	grpcPort, mcpPort := ports["msg=listening "], ports["msg=\"listening for MCP\" "]
	if grpcPort == "" || mcpPort == "" {
		t.Fatalf("ports %v in the log:\n%s", ports, d.log.String())
	}
	user := func(socket string) func(int) dialFunc {
		return func(who int) dialFunc { return asUser(filepath.Join(d.dir, socket), nobody-who) }
	}
	address := func(port string) func(int) dialFunc {
		return func(who int) dialFunc { return from(fmt.Sprintf("127.0.%d.%d", who>>8, who&255+1), port) }
	}
	return []front{
		{"gRPC, Unix", user("s.sock"), dialFunc.askGRPC, http2.ClientPreface + h2Settings},
		{"gRPC, TCP", address(grpcPort), dialFunc.askGRPC, http2.ClientPreface + h2Settings},
		{"MCP, Unix", user("mcp.sock"), dialFunc.askMCP, mcpHead},
		{"MCP, TCP", address(mcpPort), dialFunc.askMCP, mcpHead},
	}
}

// A hog is a connection that stays open without a complete request.
type hog struct {
	net.Conn
	kind int
}

// Kinds of hogs: how much of a hello they send.
const (
	hogSilent = iota
	hogHalf
	hogShort   // all but the last byte
	hogTrickle // one byte at a time, slowly
	hogIdle    // all of it, but no request
	hogKinds
)

// hold opens a hog. The client can't tell whether the daemon has accepted its connection.
func hold(t *testing.T, f front, dial dialFunc, kind int) hog {
	t.Helper()
	conn, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n := []int{0, len(f.hello) / 2, len(f.hello) - 1, 1, len(f.hello)}[kind]
	io.WriteString(conn, f.hello[:n]) // the daemon may have closed it already
	return hog{conn, kind}
}

// connectionHogs opens more connections of every kind than a caller may have. Requests of
// this caller and of others must succeed while they are open.
func connectionHogs(t *testing.T, _ *running, _ hostileCase) {
	d := startForAll(t, "")
	d.works()
	before := d.held()
	var all sync.WaitGroup
	for _, f := range fronts(t, d) {
		all.Go(func() {
			var hogs []hog
			for i := range ingress.MaxPeerUnidentified + 10*hogKinds {
				hogs = append(hogs, hold(t, f, f.by(0), i%hogKinds))
			}
			if err := f.ask(f.by(0), t); err != nil {
				t.Errorf("%s: a request of a caller who holds connections: %v", f.name, err)
			}
			if err := f.ask(f.by(1), t); err != nil {
				t.Errorf("%s: a request of another: %v", f.name, err)
			}
			var closing sync.WaitGroup
			for _, h := range hogs {
				if h.kind == hogIdle {
					continue // the daemon keeps an idle connection for a minute
				}
				closing.Go(func() { h.untilClosed(t, f) })
			}
			closing.Wait()
			for _, h := range hogs {
				h.Close()
			}
		})
	}
	all.Wait()
	if lines := grep(d.log.String(), "too many connections"); len(lines) == 0 || len(lines) > 40 {
		t.Errorf("the log has %d lines about connections that had no room", len(lines))
	}
	d.works()
	d.wantHeldAs(before)
}

// untilClosed waits until the daemon has closed a connection with an incomplete hello.
func (h hog) untilClosed(t *testing.T, f front) {
	over := make(chan struct{})
	if h.kind == hogTrickle {
		go func() {
			for i := 1; i < len(f.hello)-1; i++ {
				select {
				case <-over:
					return
				case <-time.After(patience / time.Duration(len(f.hello))): // paces the attack
					io.WriteString(h, f.hello[i:i+1])
				}
			}
		}()
	}
	defer close(over)
	h.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, h); os.IsTimeout(err) {
		t.Errorf("%s: a connection of kind %d stays open", f.name, h.kind)
	}
}

// crowdOfHogs takes every connection of a listener, each from another address: the connections without an identified
// caller (gRPC), and the connections of identified callers (MCP).
func crowdOfHogs(t *testing.T, _ *running, _ hostileCase) {
	d := startListening(t, fmt.Sprint(", peer_connections: 64, connections: ", ingress.MaxUnidentified), "")
	for _, f := range fronts(t, d) {
		if strings.Contains(f.name, "Unix") {
			continue // it would take as many users as connections
		}
		lines := func() int { return len(grep(d.log.String(), "too many connections")) }
		before := lines()
		for i := range ingress.MaxUnidentified + 10 {
			hold(t, f, f.by(i), hogIdle)
		}
		until(t, f.name+": there is still room", func() bool { return lines() > before })
		if err := f.ask(f.by(1000), t); err != nil {
			t.Errorf("%s: a request from one more address: %v", f.name, err)
		}
	}
	d.works()
}

// connectionsInUse takes all connections that one caller may have and starts a call on each.
// The daemon does not close them to make room. It refuses the next connection of this
// caller, and still serves others.
func connectionsInUse(t *testing.T, _ *running, _ hostileCase) {
	const connections = 64
	d := startListening(t, fmt.Sprint(", peer_connections: ", connections), "")
	hostile, other := asUser(d.dir+"/s.sock", nobody), asUser(d.dir+"/s.sock", nobody-1)
	mine := *d
	mine.runs = hostile.executions(t)
	started, s := mine.untilOutput(t.Context(), shell("hostile", "echo ready; sleep 600"))
	var attached []eventStream
	for range connections - 1 {
		a, err := hostile.executions(t).AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: started.ExecutionId})
		if err == nil {
			_, err = a.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		attached = append(attached, a)
	}
	for range 3 {
		if err := hostile.askGRPC(t); status.Code(err) != codes.Unavailable {
			t.Errorf("one more of the caller: %v, want %v", err, codes.Unavailable)
		}
	}
	if err := other.askGRPC(t); err != nil {
		t.Errorf("of another: %v", err)
	}
	if _, err := mine.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: started.ExecutionId}); err != nil {
		t.Fatal(err)
	}
	for i, a := range append(attached, s) {
		var last *pb.ExecutionEvent
		for {
			e, err := a.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("stream %d: %v", i, err)
				}
				break
			}
			last = e
		}
		if last.GetOutcome().GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
			t.Errorf("stream %d ended with %v", i, last)
		}
	}
}

// slotHog takes every slot and then fills the queue.
func slotHog(t *testing.T, _ *running, _ hostileCase) {
	d := startForAll(t, "concurrency: {running: 2, queued: 32, queue_timeout: 600s}\n")
	hostile, other := asUser(d.dir+"/s.sock", nobody).executions(t), *d
	other.runs = asUser(d.dir+"/s.sock", nobody-1).executions(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sleep := func() error {
		s, err := hostile.Execute(ctx, wall(shell("hostile", "sleep 600"), 600*time.Second))
		if err == nil {
			_, err = s.Recv() // the header says that it is queued or runs
		}
		return err
	}
	for i := range 2 + 16 {
		if err := sleep(); err != nil {
			t.Fatalf("execution %d: %v", i, err)
		}
	}
	other.works() // while executions of the hog are queued
	for i := range 16 {
		if err := sleep(); err != nil {
			t.Fatalf("execution %d: %v", 18+i, err)
		}
	}
	err := sleep()
	wantStatus(t, err, "ResourceExhausted", "SATURATED")
	if !hasRetryInfo(err) {
		t.Errorf("refused without RetryInfo: %v", err)
	}
	other.works() // while the queue is full
	var several sync.WaitGroup
	for range 2 {
		several.Go(other.works)
	}
	several.Wait()
	cancel()
	d.wantNothingLeft()
}

// openSession opens an MCP session and returns its id.
func (f dialFunc) openSession(t *testing.T) (string, error) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	resp, body, err := f.post(t, "", initialize)
	if err != nil {
		return "", err
	}
	id := resp.Header.Get("Mcp-Session-Id")
	if resp.StatusCode != http.StatusOK || id == "" || !strings.Contains(body, "serverInfo") {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return id, nil
}

// sessionHogs lets some users open all possible MCP sessions, and then lets another user open
// one.
func sessionHogs(t *testing.T, _ *running, _ hostileCase) {
	d := startForAll(t, "")
	socket := d.dir + "/mcp.sock"
	resident := d.residentBytes()
	sessions := make([][]string, 4)
	var hogs sync.WaitGroup
	for who := range sessions {
		hogs.Go(func() {
			for range 300 {
				id, err := asUser(socket, nobody-who).openSession(t)
				if err != nil {
					t.Error(err)
					return
				}
				sessions[who] = append(sessions[who], id)
			}
		})
	}
	hogs.Wait()
	t.Logf("1200 sessions: %d KiB more", (d.residentBytes()-resident)>>10)
	other := asUser(socket, nobody-len(sessions))
	id, err := other.openSession(t)
	if err != nil {
		t.Fatalf("a session of another: %v", err)
	}
	if resp, body, err := other.post(t, id, mcpPing); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("in it: %v, %s, %v", resp, body, err)
	}
	// A request in a session that the daemon closed gets 404, so that the client opens a new
	// session.
	alive, gone := 0, 0
	for who, ids := range sessions {
		for _, id := range ids {
			switch resp, body, err := asUser(socket, nobody-who).post(t, id, mcpPing); {
			case err == nil && resp.StatusCode == http.StatusOK:
				alive++
			case err == nil && resp.StatusCode == http.StatusNotFound:
				gone++
			default:
				t.Fatalf("a session of before: %v, %s, %v", resp, body, err)
			}
		}
	}
	if alive == 0 || gone < 1200+1-1024 {
		t.Errorf("%d sessions live, %d are gone; want at most 1024 with the newest", alive, gone)
	}
	// A session keeps its initialize request in memory.
	big := strings.Replace(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"$","version":"1"}}}`, "$", strings.Repeat("a", 4<<20), 1)
	before := d.residentBytes()
	for range 40 {
		if resp, body, err := other.post(t, "", big); err != nil || resp.StatusCode == http.StatusOK {
			t.Fatalf("an initialize of 4 MiB: %v, %.200s, %v", resp, body, err)
		}
	}
	if grown := d.residentBytes() - before; grown > heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
}

// lineHogs sends endless lines to the MCP socket, over the protocol of `skillrun mcp`.
func lineHogs(t *testing.T, _ *running, _ hostileCase) {
	const room = 64 << 20
	d := startForAll(t, fmt.Sprintf("request_bytes: %d\n", room))
	before := d.residentBytes()
	dial := asUser(d.dir+"/mcp.sock", nobody)
	var hogs sync.WaitGroup
	for range 32 {
		hogs.Go(func() {
			conn, err := dial(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { conn.Close() })
			io.WriteString(conn, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: skillrun-mcp-lines\r\n\r\n")
			if hello, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(hello, "101") {
				t.Errorf("%q, %v", hello, err)
			}
			chunk := []byte(strings.Repeat("a", 1<<20))
			for range 15 {
				conn.SetWriteDeadline(time.Now().Add(patience))
				if _, err := conn.Write(chunk); err != nil {
					return // the daemon may have closed it
				}
			}
		})
	}
	hogs.Wait()
	if grown := d.residentBytes() - before; grown > 2*room+heapSlack {
		t.Errorf("the daemon grew by %d MiB; the requests that it holds may have %d", grown>>20, room>>20)
	}
	d.works()
}

// budgetHog announces messages that it never sends, until request_bytes is used up.
func budgetHog(t *testing.T, _ *running, _ hostileCase) {
	const message = 16 << 20
	d := startForAll(t, fmt.Sprintf("request_bytes: %d\n", 4*message))
	dial := asUser(d.dir+"/mcp.sock", nobody)
	for range 4 {
		conn, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", message)
	}
	large := code("hostile", "import sys; print(len(sys.stdin.buffer.read()))")
	large.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, message/4)}
	hostile, other := *d, *d
	hostile.runs = asUser(d.dir+"/s.sock", nobody).executions(t)
	other.runs = asUser(d.dir+"/s.sock", nobody-1).executions(t)
	// The daemon forgets an announcement after a while, so a request that is soon refused asks whether it has read them.
	refused := code("no-such-skill", "")
	refused.Stdin = large.Stdin
	var err error
	until(t, "the announcements count", func() bool {
		_, err = hostile.try(refused)
		return skillrun.Reason(err) != "SKILL_NOT_FOUND"
	})
	wantStatus(t, err, "Unavailable", "REQUESTS_FULL")
	other.run(large).wantStdout(t, fmt.Sprintln(message/4))
}
