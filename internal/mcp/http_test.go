package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

// open opens a session for the caller that socket stands for.
func (d *daemon) open(t *testing.T, socket string) *raw {
	t.Helper()
	r := &raw{t: t, http: httpClient(t, socket)}
	if err := r.tryOpen(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *raw) tryOpen() error {
	r.session, r.version = "", ""
	resp := r.request("POST", initialize)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if strings.Contains(string(body), `"error"`) {
		return errors.New(string(body))
	}
	r.session, r.version = resp.Header.Get("Mcp-Session-Id"), "2025-11-25"
	return nil
}

// ping returns the HTTP status of a ping.
func (r *raw) ping(header ...string) int {
	r.t.Helper()
	resp := r.request("POST", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, header...)
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// callWait starts the program that waits. It returns the stream of the call as soon as the
// program runs.
func (r *raw) callWait() *http.Response {
	r.t.Helper()
	resp := r.request("POST", `{"jsonrpc":"2.0","id":"wait","method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/wait.py","timeout":600},"_meta":{"progressToken":"p"}}}`)
	for data := range events(resp.Body) {
		if strings.Contains(data, "started") {
			return resp
		}
		break
	}
	r.t.Fatal("the program does not run")
	return nil
}

// A message counts against the request memory from before it is read until it is answered.
// A message without room is refused with a Retry-After.
func TestMessagesAreHeld(t *testing.T) {
	var mu sync.Mutex
	var asked []int64
	held, room := int64(0), true
	d := startIdle(t, func(c *Config) {
		c.MaxMessageBytes = 10_000
		c.Hold = func(_ *ingress.Conn, n int64) (func(), bool) {
			mu.Lock()
			defer mu.Unlock()
			if !room {
				return nil, false
			}
			asked, held = append(asked, n), held+n
			return func() { mu.Lock(); defer mu.Unlock(); held -= n }, true
		}
	})
	r := d.open(t, d.mine)
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	r.request("POST", ping).Body.Close()
	r.send("POST", io.MultiReader(strings.NewReader(ping))).Body.Close() // without a Content-Length
	mu.Lock()
	size := int64(len(ping))
	if last := asked[len(asked)-3:]; !slices.Equal(last, []int64{size, 10_000, size}) {
		t.Errorf("asked for %v, want the size, and the largest followed by the size", last)
	}
	room = false
	mu.Unlock()
	resp := r.request("POST", ping)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("without room: got %d, %v", resp.StatusCode, resp.Header)
	}
	mu.Lock()
	room = true
	mu.Unlock()
	if got := r.ping(); got != http.StatusOK {
		t.Errorf("with room again: got %d", got)
	}
	d.Stop(t.Context()) // waits for the answers under way
	mu.Lock()
	defer mu.Unlock()
	if held != 0 {
		t.Errorf("%d bytes are still reserved", held)
	}
}

func TestRefusedRequests(t *testing.T) {
	d := startIdle(t, func(c *Config) { c.MaxMessageBytes = 10_000 })
	r := d.open(t, d.mine)
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for _, tt := range []struct {
		name, method, body string
		header             []string
		status             int
		want               string
	}{
		{"a body too large", "POST", `{"jsonrpc":"2.0","id":2,"method":"ping","x":"` + strings.Repeat("x", 10_000) + `"}`, nil, 413, "larger than 10000 bytes"},
		{"no JSON", "POST", "hello", nil, 400, "not valid JSON"},
		{"nothing", "POST", "", nil, 400, "not valid JSON"},
		{"JSON and more", "POST", ping + "x", nil, 400, "not valid JSON"},
		{"too deep", "POST", strings.Repeat("[", 9999), nil, 400, "not valid JSON"},
		{"a batch", "POST", "[" + ping + "]", nil, 400, "batches"},
		{"an empty batch", "POST", " []", nil, 400, "batches"},
		{"a number", "POST", "1", nil, 400, "not a JSON object"},
		{"no JSON-RPC", "POST", "{}", nil, 400, "jsonrpc is not"},
		{"no method", "POST", `{"jsonrpc":"2.0","id":2}`, nil, 400, `"id":2`},
		{"an id that a double changes", "POST", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, nil, 400, `"id":9007199254740993`},
		{"a token that a double changes", "POST", `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"progressToken":9007199254740993}}}`, nil, 400, "up to 2^53"},
		{"a call before initialize", "POST", `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, []string{"Mcp-Session-Id", ""}, 400, `{"code":-32600,"message":"tools/list before initialize`},
		{"a method that does not exist", "POST", `{"jsonrpc":"2.0","id":"x","method":"nope"}`, nil, 200, `{"error":{"code":-32601,"message":"method not found: \"nope\""},"id":"x","jsonrpc":"2.0"}`},
		{"a notification with an id", "POST", `{"jsonrpc":"2.0","id":2,"method":"notifications/cancelled"}`, nil, 400, `which has no id"},"id":2`},
		{"a form", "POST", ping, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"no type", "POST", ping, []string{"Content-Type", ""}, 415, "application/json"},
		{"another method", "PUT", ping, nil, 405, "use POST"},
		{"options", "OPTIONS", "", nil, 405, "use POST"},
		{"a web page", "POST", ping, []string{"Origin", "https://evil.example"}, 403, "web pages"},
		{"a local web page", "POST", ping, []string{"Origin", "http://localhost"}, 403, "web pages"},
		{"a sandboxed web page", "POST", ping, []string{"Origin", "null"}, 403, "web pages"},
		{"a page's own stream", "GET", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, "web pages"},
		{"an unknown session", "POST", ping, []string{"Mcp-Session-Id", "nope"}, 404, "no such session"},
		{"an unknown session's stream", "GET", "", []string{"Mcp-Session-Id", "nope"}, 404, "no such session"},
		{"an unknown session's end", "DELETE", "", []string{"Mcp-Session-Id", "nope"}, 404, "no such session"},
		{"a stream of no session", "GET", "", []string{"Mcp-Session-Id", ""}, 400, ""},
		{"a version that does not exist", "POST", ping, []string{"MCP-Protocol-Version", "1999-01-01"}, 400, "nsupported protocol version"},
		{"a version to come", "POST", ping, []string{"MCP-Protocol-Version", "2999-01-01"}, 400, ""},
		{"an upgrade by POST", "POST", ping, []string{"Connection", "Upgrade", "Upgrade", LinesProtocol}, 400, "with GET"},
		{"resumption", "GET", "", []string{"Last-Event-ID", "x_1"}, 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := r.request(tt.method, tt.body, tt.header...)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.want) {
				t.Errorf("got %d %s, %v; want %d %s", resp.StatusCode, body, err, tt.status, tt.want)
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("a web page may read the answer")
			}
		})
	}
	if got := r.ping("X", strings.Repeat("x", 2*maxHeaderBytes)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header too large: %d", got)
	}
	// Clients that prefer HTTP/2 ask for an upgrade, and must work without it.
	if got := r.ping("Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"); got != 200 {
		t.Errorf("asking for HTTP/2: %d", got)
	}
	if got := r.ping(); got != 200 {
		t.Errorf("the session afterwards: %d", got)
	}
	resp, err := r.http.Get("http://localhost/")
	if err != nil || resp.StatusCode != 404 {
		t.Errorf("another path: %v, %v", resp, err)
	}
}

// On TCP the Host must be this machine: a page whose DNS name points here has another one.
func TestHost(t *testing.T) {
	d := startIdle(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.serve(l, alice)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "localhost": 200, "[::1]:" + port: 200, "[::1]": 200,
		"evil.example": 403, "evil.example:" + port: 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:" + port: 403, "10.0.0.1:" + port: 403, "0.0.0.0": 403,
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", host, len(initialize), initialize)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: %v, %v; want %d", host, resp, err, want)
		}
		conn.Close()
	}
}

func TestUnidentified(t *testing.T) {
	d := startIdle(t, func(c *Config) {
		c.Identify = func(c identity.Credentials) (identity.Identity, error) {
			if !slices.Equal(c.Authorization, []string{"Bearer peer"}) {
				t.Errorf("got %+v", c)
			}
			return identity.Identity{}, errors.New("unknown peer")
		}
	})
	r := &raw{t: t, http: httpClient(t, d.mine)}
	resp := r.request(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Authorization", "Bearer peer")
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("got %s with %v, want 401", resp.Status, resp.Header)
	}
}

// A session belongs to its principal. For all others it does not exist.
func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	d := startIdle(t, nil)
	mine := d.open(t, d.mine)
	for _, who := range []permission.Principal{principal("default", "bob"), principal("other", "alice")} {
		other := d.open(t, d.socket(who))
		if got := other.ping(); got != 200 {
			t.Errorf("%v: its own session: %d", who, got)
		}
		if got := other.ping("Mcp-Session-Id", mine.session); got != 404 {
			t.Errorf("%v: another's session: %d, want 404", who, got)
		}
		for _, method := range []string{"GET", "DELETE"} {
			resp := other.request(method, "", "Mcp-Session-Id", mine.session)
			resp.Body.Close()
			if resp.StatusCode != 404 {
				t.Errorf("%v: %s of another's session: %d, want 404", who, method, resp.StatusCode)
			}
		}
	}
	if got := mine.ping(); got != 200 {
		t.Errorf("the session afterwards: %d", got)
	}
}

// A call has the principal of its connection, whatever the client says.
func TestCallsNameTheirPrincipal(t *testing.T) {
	var got atomic.Value
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(_ context.Context, c toolview.ToolCall) (toolview.Result, error) {
			got.Store(c.Who)
			return toolview.Result{Content: "ok"}, nil
		})
	})
	for i, who := range []permission.Principal{alice, principal("other", "bob")} {
		if i > 0 {
			d.mine = d.socket(who)
		}
		for _, w := range ways {
			got.Store(permission.Principal{})
			if r := d.connect(t, w.transport, w.version).call("fake", nil); r.text != "ok" || got.Load() != who {
				t.Errorf("%v: %q for %v, want %v", w, r.text, got.Load(), who)
			}
		}
	}
}

// The number of abandoned sessions is limited, and the newest one works.
func TestSessionsAreBounded(t *testing.T) {
	d := startIdle(t, nil)
	first := d.open(t, d.mine)
	r := d.open(t, d.mine)
	for range 1500 {
		if err := r.tryOpen(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.sessions.count(); got > maxPrincipalSessions {
		t.Errorf("%d sessions, want at most %d", got, maxPrincipalSessions)
	}
	if got := r.ping(); got != 200 {
		t.Errorf("the newest: %d", got)
	}
	if got := first.ping(); got != 404 {
		t.Errorf("the oldest: %d", got)
	}
	// Sessions in use are kept, so the next one is refused.
	d.sessions.mu.Lock()
	var busy []string
	for id := range d.sessions.byID {
		busy = append(busy, id)
	}
	d.sessions.mu.Unlock()
	for len(busy) < maxPrincipalSessions {
		n := d.open(t, d.mine)
		busy = append(busy, n.session)
	}
	for _, id := range busy {
		n, ok := d.sessions.enter(id, alice)
		if !ok {
			t.Fatal("a session in use was ended")
		}
		defer d.sessions.leave(n)
	}
	if err := r.tryOpen(); err == nil || !strings.Contains(err.Error(), "too many sessions") {
		t.Errorf("one too many: %v", err)
	}
	// Another principal's limit is its own.
	if got := d.open(t, d.socket(principal("default", "bob"))).ping(); got != 200 {
		t.Errorf("bob's: %d", got)
	}
}

// fill adds sessions of other principals of a tenant, all in use, until the test ends.
func (d *daemon) fill(t *testing.T, tenant string, n int) {
	d.sessions.mu.Lock()
	defer d.sessions.mu.Unlock()
	for i := range n {
		s := &session{who: principal(tenant, fmt.Sprint("other", i%8)), requests: 1}
		s.here, s.cancel = context.WithCancelCause(t.Context())
		d.sessions.byID[fmt.Sprint(tenant, i)] = s
	}
	t.Cleanup(func() {
		d.sessions.mu.Lock()
		defer d.sessions.mu.Unlock()
		for i := range n {
			delete(d.sessions.byID, fmt.Sprint(tenant, i))
		}
	})
}

// A tenant with many principals leaves sessions to other tenants, and loses idle ones to them.
func TestTenantsShareSessions(t *testing.T) {
	d := startIdle(t, nil)
	idle := d.open(t, d.socket(principal("hog", "idle")))
	d.fill(t, "hog", maxTenantSessions-1)
	d.fill(t, "some", maxSessions-maxTenantSessions)
	if got := d.open(t, d.mine).ping(); got != 200 {
		t.Errorf("the first session of another tenant: %d", got)
	}
	if got := idle.ping(); got != 404 {
		t.Errorf("an idle session of the tenant with the most: %d, want 404", got)
	}
	// All sessions of tenants with more are in use.
	if got := d.open(t, d.mine).ping(); got != 200 || d.sessions.count() != maxSessions {
		t.Errorf("%d, and %d sessions; want it in the place of its own", got, d.sessions.count())
	}
}

// With as many sessions as a tenant may have, a new session replaces one of the principal with the most
// sessions, and never one of a principal with fewer than the caller.
func TestSessionsOfOthersMakeRoom(t *testing.T) {
	d := startIdle(t, nil)
	bob := principal("default", "bob")
	mine, yours := d.open(t, d.mine), d.open(t, d.socket(bob))
	d.fill(t, "default", maxTenantSessions-2)
	// The sessions of all others are in use or too few, so alice's new one replaces
	// alice's old one.
	again := d.open(t, d.mine)
	if got := mine.ping(); got != 404 {
		t.Errorf("alice's first session: %d, want 404", got)
	}
	again.request("DELETE", "").Body.Close()
	if got := d.open(t, d.mine).ping(); got != 200 {
		t.Errorf("alice's third session: %d", got)
	}
	if got := yours.ping(); got != 200 {
		t.Errorf("bob's session: %d", got)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	d := startIdle(t, nil)
	d.sessions.idle = time.Nanosecond
	r := d.open(t, d.mine)
	for ss := range d.allAudiences()[0].sdk.Sessions() {
		ss.Wait()
	}
	if got := r.ping(); got != 404 {
		t.Errorf("got %d, want 404", got)
	}
	if n := d.sessions.count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// A session with an open stream is not idle.
func TestOpenStreamKeepsSession(t *testing.T) {
	d := startIdle(t, nil)
	r := d.open(t, d.mine)
	resp := r.request("GET", "")
	defer resp.Body.Close()
	d.sessions.mu.Lock()
	n := d.sessions.byID[r.session]
	d.sessions.mu.Unlock()
	d.sessions.expire(n) // as the timer does
	if got := r.ping(); got != 200 {
		t.Errorf("got %d", got)
	}
}

// A message that does not arrive in time is refused.
func TestBodyThatDoesNotArrive(t *testing.T) {
	d := startIdle(t, nil)
	d.bodyTime = 10 * time.Millisecond
	conn := dial(t, d.mine)
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(body), "the message did not arrive within 10ms") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// A body that breaks off, or is not chunked as it says, is no matter of time.
func TestBodyThatBreaksOff(t *testing.T) {
	d := startIdle(t, nil)
	for _, rest := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"} {
		conn := dial(t, d.mine)
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s", rest)
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(body), "the message broke off") {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
	}
}

// A silent call sends comments to its client, and its answer arrives as usual.
func TestSilentCallsAreKeptAlive(t *testing.T) {
	release := make(chan struct{})
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			<-release
			return toolview.Result{Content: "at last"}, nil
		})
	})
	d.keepalive = time.Millisecond
	r := d.open(t, d.mine)
	resp := r.request("POST", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fake"}}`)
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := body.ReadString('\n'); err != nil || line != ": still there\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		body.ReadString('\n')
	}
	close(release)
	rest, err := io.ReadAll(body)
	if err != nil || !strings.HasSuffix(string(rest), `"text":"at last"}]}}`+"\n\n") {
		t.Errorf("got %q, %v", rest, err)
	}
}

// When a caller goes away, in any of these ways, its execution is cancelled.
func TestCallersThatGo(t *testing.T) {
	d := startDaemon(t, nil)
	for _, tt := range []struct {
		name string
		end  func(r *raw, call *http.Response)
	}{
		{"hangs up", func(_ *raw, call *http.Response) { call.Body.Close() }},
		{"ends its session", func(r *raw, _ *http.Response) { r.request("DELETE", "").Body.Close() }},
		{"cancels", func(r *raw, _ *http.Response) {
			r.request("POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"wait"}}`).Body.Close()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := d.open(t, d.mine)
			call := r.callWait()
			defer call.Body.Close()
			tt.end(r, call)
			if got := d.outcome(d.newest()); got.End != "CANCELLED" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A client that does not read is dropped after a while, and its call is cancelled.
func TestClientThatDoesNotRead(t *testing.T) {
	cancelled := make(chan error)
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(ctx context.Context, c toolview.ToolCall) (toolview.Result, error) {
			text := []byte(strings.Repeat("x", 4000))
			output := time.NewTicker(time.Millisecond) // 4 MB in a second, without an end
			defer output.Stop()
			for ctx.Err() == nil {
				<-output.C
				if err := c.Sink(executor.Output{Stream: executor.Stdout, Data: text}); err != nil {
					t.Error(err)
				}
			}
			cancelled <- context.Cause(ctx)
			return toolview.Result{}, ctx.Err()
		})
	})
	d.patience = 2 * time.Second // also applies to writes to clients that read
	const call = `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fake","arguments":{},"_meta":{"progressToken":"p"}}}`

	r := d.open(t, d.mine)
	conn := dial(t, d.mine)
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", r.session, len(call), call)
	t.Logf("over HTTP: %v", <-cancelled)
	if got := r.ping(); got != 200 {
		t.Errorf("the session afterwards: %d", got)
	}

	conn = dial(t, d.mine)
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s\n%s\n", LinesProtocol, initialize, call)
	t.Logf("without HTTP: %v", <-cancelled)
}

// A message that is announced as too large is refused before it comes.
func TestAnnouncedTooLarge(t *testing.T) {
	d := startDaemon(t, nil)
	conn := dial(t, d.mine)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", Path, int64(1)<<40)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %v, %v", resp, err)
	}
}

func dial(t *testing.T, socket string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A stopping server ends streams that only listen, and refuses new requests.
func TestStop(t *testing.T) {
	d := startDaemon(t, nil)
	r := d.open(t, d.mine)
	stream := r.request("GET", "")
	defer stream.Body.Close()
	lines, reader, err := upgrade(d.mine)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	call := r.callWait()
	defer call.Body.Close()

	over, cancel := context.WithCancel(context.Background())
	cancel()
	stopped := make(chan struct{})
	go func() { d.Stop(over); close(stopped) }()
	// Stop may close the connection before it has asked the client to leave, because its context is over.
	leave := `{"jsonrpc":"2.0","method":"` + notifyLeave + `"}` + "\n"
	if rest, err := io.ReadAll(reader); err != nil || string(rest) != "" && string(rest) != leave {
		t.Errorf("a connection without HTTP: got %q, %v", rest, err)
	}
	io.Copy(io.Discard, stream.Body)
	io.Copy(io.Discard, call.Body)
	<-stopped
	if got := d.outcome(d.newest()); got.End != "CANCELLED" {
		t.Errorf("got %+v", got)
	}
	// The listener is closed by now. A request that is already on its way is refused.
	w := newRecorder()
	req, _ := http.NewRequest("POST", endpoint, strings.NewReader(initialize))
	d.ServeHTTP(w, req)
	if w.status != http.StatusServiceUnavailable || w.header.Get("Retry-After") == "" {
		t.Errorf("got %d", w.status)
	}
}

type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// An error of the daemon is explained by Explain. A panic is answered with a reference.
func TestErrorsOfOurs(t *testing.T) {
	for _, tt := range []struct {
		name string
		call fakeTools
		want string
	}{
		{"an error", func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			return toolview.Result{}, errors.New("no room")
		}, "explained: no room"},
		{"a bad argument", func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			return toolview.Result{}, &toolview.ArgumentsError{Tool: "fake", Field: "x", Reason: "is wrong"}
		}, "fake: x: is wrong"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := startDaemon(t, func(c *Config) { c.Tools = tt.call })
			r := d.connect(t, "http", "").call("fake", nil)
			if !r.IsError || r.text != tt.want {
				t.Errorf("got %v, %q; want %q", r.IsError, r.text, tt.want)
			}
		})
	}
	t.Run("a panic", func(t *testing.T) {
		d := startDaemon(t, func(c *Config) {
			c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
				panic("the secret")
			})
		})
		r := d.open(t, d.mine)
		resp := r.request("POST", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fake"}}`)
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if !strings.Contains(string(body), "internal error (reference ") || strings.Contains(string(body), "secret") {
			t.Errorf("got %s", body)
		}
		if !strings.Contains(d.logs.String(), "the secret") {
			t.Error("not logged")
		}
		if got := r.ping(); got != 200 {
			t.Errorf("afterwards: %d", got)
		}
	})
}
