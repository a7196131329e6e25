package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A standIn plays daemons at one address: one for each connection that the bridge makes.
type standIn struct {
	t       *testing.T
	address string
	l       net.Listener
	names   []string // the value of conversationHeader, of each connection
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &standIn{t: t, address: "unix://" + path, l: l}
}

// A daemonLink is the daemon's end of a connection.
type daemonLink struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

// request accepts a connection and reads the request to upgrade it.
func (s *standIn) request() *daemonLink {
	s.t.Helper()
	conn, err := s.l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	d := &daemonLink{s.t, conn, bufio.NewReader(conn)}
	req, err := http.ReadRequest(d.r)
	if err != nil || req.Header.Get("Upgrade") != mcpProtocol {
		s.t.Fatalf("%v, %v", req, err)
	}
	s.names = append(s.names, req.Header.Get(conversationHeader))
	return d
}

// accept accepts a connection and upgrades it.
func (s *standIn) accept() *daemonLink {
	s.t.Helper()
	d := s.request()
	d.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + mcpProtocol + "\r\n\r")
	return d
}

func (d *daemonLink) send(lines ...string) {
	d.t.Helper()
	if _, err := io.WriteString(d, strings.Join(lines, "\n")+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// want reads the next messages, which must be these.
func (d *daemonLink) want(lines ...string) {
	d.t.Helper()
	for _, want := range lines {
		if got, err := d.r.ReadString('\n'); err != nil || got != want+"\n" {
			d.t.Fatalf("the daemon got %q, %v, want %q", got, err, want)
		}
	}
}

// wantEnd waits until the bridge closes the connection, without another message.
func (d *daemonLink) wantEnd() {
	d.t.Helper()
	if rest, err := io.ReadAll(d.r); err != nil || len(rest) > 0 {
		d.t.Errorf("the daemon got %q, %v, want the end", rest, err)
	}
}

// An mcpAgent runs `skillrun mcp` in this process.
type mcpAgent struct {
	t      *testing.T
	stdin  *io.PipeWriter
	lines  chan string // of standard output; closed at its end
	stderr bytes.Buffer
	code   chan int
}

// startMCP starts the command. It does not wait for a daemon that is absent, unless args say so.
func startMCP(t *testing.T, s *standIn, args ...string) *mcpAgent {
	t.Helper()
	a := &mcpAgent{t: t, code: make(chan int, 1), lines: make(chan string, 1000)}
	stdin, toStdin := io.Pipe()
	fromStdout, stdout := io.Pipe()
	a.stdin = toStdin
	go func() {
		a.code <- run(t.Context(), append([]string{"mcp", "--wait", "0", "--mcp-address", s.address}, args...), stdin, stdout, &a.stderr)
		stdout.Close()
	}()
	go func() {
		defer close(a.lines)
		for r := bufio.NewReader(fromStdout); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			a.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() { toStdin.Close() })
	return a
}

func (a *mcpAgent) send(lines ...string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

// want reads as many messages as there are lines. They must be these, in any order, because two daemons answer
// independently.
func (a *mcpAgent) want(lines ...string) {
	a.t.Helper()
	var got []string
	for range lines {
		got = append(got, <-a.lines)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(lines))) {
		a.t.Fatalf("the agent got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// end closes standard input and waits for the command. It returns the command's standard error.
func (a *mcpAgent) end() (stderr string) {
	a.t.Helper()
	a.stdin.Close()
	for line := range a.lines {
		a.t.Errorf("the agent got more: %s", line)
	}
	if code := <-a.code; code != 0 {
		a.t.Errorf("exit code %d, want 0", code)
	}
	return a.stderr.String()
}

const (
	hello       = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"the agent"}}}`
	helloResult = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true}},"serverInfo":{"version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	leave       = `{"jsonrpc":"2.0","method":"notifications/skillrun/leave"}`

	resourcesChanged = `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`
	toolsChanged     = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
)

func requests(id any, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"%s"}`, id, method)
}

func calls(id any, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":"%s"}}`, id, tool)
}

func cancels(id any) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%v}}`, id)
}

func replies(id any) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":{}}`, id) }

func refuses(id any) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"error":{"code":-32000,"message":"the daemon stops","data":{"reason":"leave"}}}`, id)
}

// failure is an answer of the bridge itself.
func failure(id any, code int, text string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":"%s"},"id":%v,"jsonrpc":"2.0"}`, code, text, id)
}

func (s *standIn) unanswered(id any) string {
	return failure(id, -32000, "the daemon at "+s.address+" ended before it answered. The request may have been done, so it was not sent again. "+
		"Look at what it has changed, for example with list_files, before you repeat it")
}

// begin plays the beginning of a conversation.
func begin(a *mcpAgent, s *standIn) *daemonLink {
	a.t.Helper()
	d := s.accept()
	a.send(hello)
	d.want(hello)
	d.send(helloResult)
	a.want(helloResult)
	a.send(initialized)
	d.want(initialized)
	return d
}

// greets reads the messages that begin each link after the first, and answers the initialize.
func (d *daemonLink) greets(answer string) {
	d.t.Helper()
	d.want(hello)
	d.send(answer)
	d.want(initialized)
}

// A daemon that dies is followed by the next one, which gets the agent's initialize and the requests that only read.
// Other requests are answered with an error. Everything else passes unchanged.
func TestMCPDaemonDies(t *testing.T) {
	s := newStandIn(t)
	a := startMCP(t, s)
	d := begin(a, s)
	open := []string{calls(1, "bash"), requests(`"two"`, "tools/list"), calls(3, "read_file"), requests(4, "unknown"), requests(5, "ping")}
	a.send(append(open, "", "not JSON")...)
	d.want(append(open, "not JSON")...)
	d.send(replies(5), `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","id":null,"error":{}}`)
	io.WriteString(d, `{"jsonrpc":"2.0","id":1,"res`) // it dies while it writes
	a.want(replies(5), `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","id":null,"error":{}}`)
	d.Close()

	d = s.accept()
	d.greets(helloResult)
	d.want(open[1], open[2])
	d.send(replies(`"two"`), replies(3))
	a.want(s.unanswered(1), s.unanswered(4), resourcesChanged, replies(`"two"`), replies(3))
	// The next request goes to the new daemon, and so does one with an id that was used before.
	a.send(calls(1, "bash"))
	d.want(calls(1, "bash"))
	d.send(replies(1))
	a.want(replies(1))
	if stderr := a.end(); stderr != "" {
		t.Errorf("it said %q", stderr)
	}
	d.wantEnd()
	if len(s.names) != 2 || s.names[0] != s.names[1] || len(s.names[0]) < 20 {
		t.Errorf("names of the conversation: %q, want the same one twice", s.names)
	}
}

// A daemon that has asked to leave its link answers the calls that it has begun, and gets their cancellations. All
// other messages go to the next daemon, also a request that the first one has refused. The agent notices nothing.
func TestMCPDaemonIsLeft(t *testing.T) {
	s := newStandIn(t)
	a := startMCP(t, s)
	old := begin(a, s)
	a.send(calls(1, "bash"), calls(2, "bash"), calls(3, "bash"), calls(4, "bash"))
	old.want(calls(1, "bash"), calls(2, "bash"), calls(3, "bash"), calls(4, "bash"))
	old.send(leave)
	d := s.accept()
	a.send(cancels(2))
	old.want(cancels(2))
	d.greets(strings.Replace(helloResult, `"version":"1"`, `"version":"2"`, 1))
	a.want(resourcesChanged, toolsChanged)
	a.send(calls(5, "bash"))
	d.want(calls(5, "bash"))
	// Request 2 was cancelled, and is not sent again.
	old.send(refuses(3), refuses(2))
	d.want(calls(3, "bash"))
	a.want(failure(2, -32800, "cancelled"))
	a.send(cancels(3))
	d.want(cancels(3))
	d.send(replies(3), replies(5))
	old.send(`{"jsonrpc":"2.0","method":"notifications/progress"}`, replies(1))
	a.want(`{"jsonrpc":"2.0","method":"notifications/progress"}`, replies(1), replies(3), replies(5))
	old.send(replies(4))
	a.want(replies(4))
	old.wantEnd()
	// A refusal alone says the same, and the daemon has the same version.
	a.send(calls(6, "bash"))
	d.want(calls(6, "bash"))
	d.send(refuses(6))
	d.wantEnd()
	d = s.accept()
	d.greets(strings.Replace(helloResult, `"version":"1"`, `"version":"2"`, 1))
	d.want(calls(6, "bash"))
	d.send(replies(6))
	a.want(resourcesChanged, replies(6))
	a.end()
}

// Requests wait for a daemon that stops, and are sent in their order. A cancelled one is not sent.
func TestMCPWaitsForTheNextDaemon(t *testing.T) {
	s := newStandIn(t)
	a := startMCP(t, s, "--wait", "1h", "-v")
	d := begin(a, s)
	d.Close()
	next := s.request()
	a.send(calls(1, "bash"), calls(2, "bash"), calls(3, "bash"), cancels(2))
	a.want(failure(2, -32800, "cancelled"))
	next.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r")
	next.Close()
	s.request().Close()
	// It stops, too, after the first request.
	d = s.accept()
	d.greets(helloResult)
	d.want(calls(1, "bash"))
	d.send(leave, refuses(1))
	d.wantRefused()
	d = s.accept()
	d.greets(helloResult)
	got := []string{d.line(), d.line()}
	if slices.Sort(got); !slices.Equal(got, []string{calls(1, "bash"), calls(3, "bash")}) {
		t.Errorf("the daemon got %q", got)
	}
	d.send(replies(1), replies(3))
	a.want(resourcesChanged, resourcesChanged, replies(1), replies(3))
	if stderr := a.end(); !strings.Contains(stderr, "the daemon at "+s.address+" does not answer; waiting up to 1h0m0s for it") {
		t.Errorf("it said %q", stderr)
	}
}

// line returns the next message.
func (d *daemonLink) line() string {
	d.t.Helper()
	line, err := d.r.ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// wantRefused refuses requests until the bridge closes the connection.
func (d *daemonLink) wantRefused() {
	d.t.Helper()
	for {
		line, err := d.r.ReadString('\n')
		if err != nil {
			return
		}
		var m struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			d.t.Fatal(err)
		}
		d.send(refuses(string(m.ID)))
	}
}

// If no daemon comes back, requests are answered with the reason, and the next one tries again.
func TestMCPNoDaemonComesBack(t *testing.T) {
	s := newStandIn(t)
	path := strings.TrimPrefix(s.address, "unix://")
	a := startMCP(t, s)
	d := begin(a, s)
	s.l.Close()
	a.send(requests(1, "ping"), calls(2, "bash"))
	d.want(requests(1, "ping"), calls(2, "bash"))
	d.Close()
	absent := "no MCP endpoint at " + s.address + ": connect: no such file or directory (is skillrund running? Its config says where it serves MCP: listen.mcp_unix, listen.mcp_tcp; tell this command by --mcp-address or SKILLRUN_MCP_ADDRESS)"
	nothing := absent + ". Nothing of the request was done"
	a.want(failure(1, -32000, nothing), s.unanswered(2))
	a.send(calls(3, "bash"))
	a.want(failure(3, -32000, nothing))
	var err error
	if s.l, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	a.send(calls(4, "bash"))
	d = s.accept()
	d.greets(helloResult)
	d.want(calls(4, "bash"))
	d.send(replies(4))
	a.want(resourcesChanged, replies(4))
	if stderr, want := a.end(), "skillrun: "+absent+"; the next request tries again\n"; stderr != want+want {
		t.Errorf("it said %q", stderr)
	}
}

// A listening request of version 2026-07-28 goes on at the next daemon. The agent gets its acknowledgement once, and
// learns that the lists may have changed.
func TestMCPListensAtTheNextDaemon(t *testing.T) {
	s := newStandIn(t)
	a := startMCP(t, s)
	d := s.accept()
	listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true}}}`
	acknowledged := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"resourcesListChanged":true}}}`
	changed := `{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
	a.send(listen)
	d.want(listen)
	d.send(acknowledged)
	a.want(acknowledged)
	// Once asked to leave, and once dead.
	for _, end := range []func(){func() { d.send(leave); d.wantEnd() }, func() { d.Close() }} {
		end()
		d = s.accept()
		d.want(listen)
		d.send(acknowledged)
		a.want(changed)
	}
	a.send(cancels(`"l"`))
	d.want(cancels(`"l"`))
	d.send(replies(`"l"`))
	a.want(replies(`"l"`))
	a.end()
}

// A request that ends every connection is given up.
func TestMCPRequestThatEndsDaemons(t *testing.T) {
	s := newStandIn(t)
	a := startMCP(t, s)
	d := begin(a, s)
	read := requests(1, "resources/read")
	a.send(read)
	for range 3 { // bridge.maxTries
		d.want(read)
		d.Close()
		d = s.accept()
		d.greets(helloResult)
	}
	a.want(resourcesChanged, resourcesChanged, resourcesChanged, s.unanswered(1))
	a.end()
}

// A next daemon that can't go on with the conversation is an error in the answers.
func TestMCPNextDaemonRefuses(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"another version", strings.Replace(helloResult, "2025-06-18", "2024-11-05", 1), `now speaks version \"2024-11-05\" of MCP, this conversation has \"2025-06-18\"; start skillrun mcp again`},
		{"not allowed", `{"jsonrpc":"2.0","id":0,"error":{"code":-32010,"message":"not identified"}}`, "refuses the conversation: not identified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStandIn(t)
			a := startMCP(t, s, "--wait", "1h")
			begin(a, s).Close()
			d := s.accept()
			d.want(hello)
			// The answer to the cancellation says that the call before it waits.
			a.send(calls(1, "bash"), calls(2, "bash"), cancels(2))
			a.want(failure(2, -32800, "cancelled"))
			d.send(tt.answer)
			d.wantEnd()
			if line := <-a.lines; !strings.Contains(line, tt.want) || !strings.Contains(line, `"id":1`) {
				t.Errorf("got %s, want %s", line, tt.want)
			}
			a.end()
		})
	}
}
