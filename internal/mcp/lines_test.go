package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	files "github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/toolview"
)

// A pipe is a connection that was upgraded to LinesProtocol.
type pipe struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (d *daemon) pipe(t *testing.T, headers ...string) *pipe {
	t.Helper()
	conn, r, err := upgrade(d.mine, headers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &pipe{t, conn, r}
	p.send(initialize)
	if m := p.receive(); m["result"] == nil {
		t.Fatalf("initialize: %v", m)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *pipe) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipe) receive() map[string]any {
	p.t.Helper()
	line, err := p.r.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		p.t.Fatalf("got %q", line)
	}
	return m
}

// want reads the next message, which must be an error for the id.
func (p *pipe) want(id any, text string) {
	p.t.Helper()
	m := p.receive()
	e, _ := m["error"].(map[string]any)
	if m["id"] != id || e == nil || !strings.Contains(fmt.Sprint(e["message"]), text) {
		p.t.Errorf("got %v, want error %q for %v", m, text, id)
	}
}

// Invalid messages are answered, and the connection stays open.
func TestLinesThatAreNoMessages(t *testing.T) {
	d := startIdle(t, func(c *Config) { c.MaxMessageBytes = 10_000 })
	p := d.pipe(t)
	for _, tt := range []struct{ name, line, want string }{
		{"no JSON", "hello", "not valid JSON"},
		{"half of a message", `{"jsonrpc":"2.0"`, "not valid JSON"},
		{"zeros", "\x00\x00", "not valid JSON"},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "batches"},
		{"a text", `"x"`, "not a JSON object"},
		{"no JSON-RPC", `{}`, "not a JSON-RPC message"},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, "not a JSON-RPC message"},
		{"a strange id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "not a JSON-RPC message"},
		{"too long", strings.Repeat("x", 10_001), "larger than 10000 bytes"},
		{"much too long", `{"x":"` + strings.Repeat("x", 1<<20), "larger than 10000 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.send(tt.line)
			p.want(nil, tt.want)
		})
	}
	p.t = t
	p.send(`{"jsonrpc":"2.0","id":"noted","method":"notifications/cancelled"}`)
	p.want("noted", "which has no id")
	p.send("\n  \r\n")
	p.send(`{"jsonrpc":"2.0","id":"unasked","result":{}}`)
	p.send(`{"jsonrpc":"2.0","method":"notifications/nope"}`)
	p.send(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	if m := p.receive(); m["id"] != "last" || m["result"] == nil {
		t.Errorf("got %v", m)
	}
	longest := `{"jsonrpc":"2.0","id":"","method":"ping"}`
	p.send(strings.Replace(longest, `""`, `"`+strings.Repeat("x", 10_000-len(longest))+`"`, 1))
	if m := p.receive(); m["result"] == nil {
		t.Errorf("a line of exactly the maximum length: %v", m)
	}
}

// A connection may have maxCalls calls under way, each with a different id.
func TestLinesBoundCalls(t *testing.T) {
	started, release := make(chan struct{}, 2*maxCalls), make(chan struct{})
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(ctx context.Context, _ toolview.ToolCall) (toolview.Result, error) {
			started <- struct{}{}
			<-release
			return toolview.Result{Content: "ok"}, nil
		})
	})
	p := d.pipe(t)
	for i := range maxCalls {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"call %d","method":"tools/call","params":{"name":"fake"}}`, i))
	}
	for range maxCalls {
		<-started
	}
	p.send(`{"jsonrpc":"2.0","id":"call 0","method":"ping"}`)
	p.want("call 0", "is already under way")
	p.send(`{"jsonrpc":"2.0","id":"too many","method":"ping"}`)
	p.want("too many", "64 requests are under way")
	close(release)
	seen := map[any]bool{}
	for range maxCalls {
		m := p.receive()
		if m["result"] == nil || seen[m["id"]] {
			t.Errorf("got %v", m)
		}
		seen[m["id"]] = true
	}
	p.send(`{"jsonrpc":"2.0","id":"call 0","method":"ping"}`)
	if m := p.receive(); m["id"] != "call 0" || m["result"] == nil {
		t.Errorf("afterwards: %v", m)
	}
}

// A client that reads no answers cannot have many of them made: the connection is not read further.
func TestUnreadAnswersAreFew(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	l := &lineConn{
		conn: server, r: bufio.NewReader(server), max: 1 << 20, patience: time.Minute, gone: func(error) {}, calls: map[jsonrpc.ID]lineCall{},
		begin: func() func() { return func() {} }, count: func() {}, holdAnswer: func(envelope) (func(), *refusal) { return func() {}, nil },
	}
	l.fewer.L = &l.mu
	go func() {
		for i := range 2 * maxUnread {
			fmt.Fprintf(client, `{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":"x"}}`+"\n", i)
		}
	}()
	read := func() *jsonrpc.Request {
		msg, err := l.Read(t.Context())
		if err != nil {
			t.Error(err)
			return nil
		}
		return msg.(*jsonrpc.Request)
	}
	var calls []*jsonrpc.Request
	for range maxUnread {
		calls = append(calls, read())
	}
	next := make(chan *jsonrpc.Request)
	go func() { next <- read() }()
	var written sync.WaitGroup
	for _, call := range calls { // nobody reads, so each of these waits
		written.Go(func() { _ = l.Write(t.Context(), &jsonrpc.Response{ID: call.ID, Result: []byte("{}")}) })
	}
	select {
	case <-next:
		t.Fatal("another call was read before an answer was")
	case <-time.After(100 * time.Millisecond):
	}
	answers := bufio.NewReader(client)
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if call := <-next; call == nil || call.ID == calls[0].ID {
		t.Errorf("got %v", call)
	}
	client.Close()
	written.Wait()
}

// A client that floods the server and does not read blocks itself.
func TestLinesFlood(t *testing.T) {
	d := startIdle(t, nil)
	p := d.pipe(t)
	go func() {
		for {
			if _, err := io.WriteString(p, strings.Repeat("x\n", 1000)); err != nil {
				return
			}
		}
	}()
	for range 5000 {
		p.want(nil, "not valid JSON")
	}
	p.Close()
	if got := d.open(t, d.mine).ping(); got != 200 {
		t.Errorf("another client: %d", got)
	}
}

// A long line counts as the longest until its end and then by its length, until it is
// answered. A line without room is refused, and the connection stays open.
func TestLinesAreHeld(t *testing.T) {
	var mu sync.Mutex
	var asked []int64
	held, room := int64(0), true
	inCall, release := make(chan int64), make(chan struct{})
	d := startIdle(t, func(c *Config) {
		c.MaxMessageBytes = 1 << 20
		c.Hold = func(_ *ingress.Conn, n int64) (func(), bool) {
			mu.Lock()
			defer mu.Unlock()
			if !room {
				return nil, false
			}
			asked, held = append(asked, n), held+n
			return func() { mu.Lock(); defer mu.Unlock(); held -= n }, true
		}
		c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			mu.Lock()
			now := held
			mu.Unlock()
			inCall <- now
			<-release
			return toolview.Result{Content: "done"}, nil
		})
	})
	p := d.pipe(t)
	call := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fake","arguments":{"x":"` + strings.Repeat("a", 100_000) + `"}}}`
	p.send(call)
	if got := <-inCall; got != int64(len(call)) {
		t.Errorf("%d bytes are reserved while the call runs, want %d", got, len(call))
	}
	release <- struct{}{}
	p.receive()
	mu.Lock()
	for held != 0 { // released after the answer is sent
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
	}
	if len(asked) != 2 || asked[0] != 1<<20 || asked[1] != int64(len(call)) {
		t.Errorf("asked for %v, want the largest and then the size", asked)
	}
	room = false
	mu.Unlock()
	p.send(call)
	p.want(nil, "request memory is full")
	p.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
	if m := p.receive(); m["result"] == nil {
		t.Errorf("after a refusal: %v", m)
	}
	mu.Lock()
	room = true
	mu.Unlock()
	// A call whose client goes away releases its memory.
	p.send(call)
	<-inCall
	p.Close()
	close(release)
	d.Stop(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if held != 0 {
		t.Errorf("%d bytes are still reserved", held)
	}
}

// A long line must arrive within lineTime.
func TestLineThatDoesNotArrive(t *testing.T) {
	d := startIdle(t, nil)
	d.bodyTime = 50 * time.Millisecond
	p := d.pipe(t)
	if _, err := io.WriteString(p, strings.Repeat("a", 100_000)); err != nil {
		t.Fatal(err)
	}
	if line, err := p.r.ReadString('\n'); err == nil {
		t.Errorf("got %q, want the connection closed", line)
	}
}

// Data that sessions keep is small, and so are all messages except tools/call.
func TestLargeMessagesAreCallsOfTools(t *testing.T) {
	d := startIdle(t, nil)
	large := strings.Repeat("a", maxSmall)
	for _, message := range []string{
		strings.Replace(initialize, `"name":"`, `"name":"`+large, 1),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fake","_meta":{"x":"` + large + `"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + large + `"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"x":"` + large + `"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"x":"` + large + `"}}`,
	} {
		if _, bad := readEnvelope([]byte(message)); bad == nil || !strings.Contains(bad.reason, "larger than") {
			t.Errorf("%.80s: %v, want it refused as too large", message, bad)
		}
	}
	if got := d.open(t, d.mine).ping(); got != 200 {
		t.Errorf("got %d", got)
	}
}

// The end of a connection cancels its executions.
func TestLinesEnd(t *testing.T) {
	d := startDaemon(t, nil)
	p := d.pipe(t)
	p.send(`{"jsonrpc":"2.0","id":"wait","method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","script_path":"scripts/wait.py","timeout":600},"_meta":{"progressToken":"p"}}}`)
	if m := p.receive(); m["method"] != "notifications/progress" {
		t.Fatalf("got %v", m)
	}
	p.Close()
	if got := d.outcome(d.newest()); got.End != "CANCELLED" {
		t.Errorf("got %+v", got)
	}
}

// A stop waits for the calls under way, if its context allows.
func TestStopWaits(t *testing.T) {
	started, release := make(chan struct{}, 2), make(chan struct{})
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(ctx context.Context, _ toolview.ToolCall) (toolview.Result, error) {
			started <- struct{}{}
			<-release
			return toolview.Result{Content: "in time"}, ctx.Err()
		})
	})
	p := d.pipe(t)
	p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fake"}}`)
	r := d.open(t, d.mine)
	body := make(chan string)
	go func() {
		resp := r.request("POST", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fake"}}`)
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		body <- string(data)
	}()
	<-started
	<-started
	stopped := make(chan struct{})
	go func() { d.Stop(context.Background()); close(stopped) }()
	<-d.stopping.Done()
	if m := p.receive(); m["method"] != notifyLeave {
		t.Errorf("got %v, want %s", m, notifyLeave)
	}
	close(release)
	if m := p.receive(); !strings.Contains(fmt.Sprint(m["result"]), "in time") {
		t.Errorf("without HTTP: %v", m)
	}
	if got := <-body; !strings.Contains(got, "in time") {
		t.Errorf("over HTTP: %s", got)
	}
	<-stopped
	if _, err := p.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection: %v", err)
	}
}

// Clients that only listen do not delay a stop.
func TestStopWithListeners(t *testing.T) {
	d := startIdle(t, nil)
	for _, w := range ways {
		d.connect(t, w.transport, w.version)
	}
	d.Stop(context.Background()) // does not return if a listener delays it
	if conn, _, err := upgrade(d.mine); err == nil {
		conn.Close()
		t.Error("a connection after the stop")
	}
}

// A call that arrives during a stop is refused.
func TestStopRefusesCalls(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			close(started)
			<-release
			return toolview.Result{Content: "ok"}, nil
		})
	})
	p := d.pipe(t)
	p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fake"}}`)
	<-started
	stopped := make(chan struct{})
	go func() { d.Stop(context.Background()); close(stopped) }()
	<-d.stopping.Done()
	if m := p.receive(); m["method"] != notifyLeave {
		t.Errorf("got %v, want %s", m, notifyLeave)
	}
	p.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	if m := p.receive(); !strings.Contains(fmt.Sprint(m["error"]), "the daemon is stopping") {
		t.Errorf("got %v, want a refusal", m)
	}
	close(release)
	if m := p.receive(); fmt.Sprint(m["id"]) != "5" || m["result"] == nil {
		t.Errorf("got %v", m)
	}
	<-stopped
}

// A client that is asked to leave gets the answers to its calls. Its next calls are refused as not begun, also those
// that the daemon had taken and not begun, and so are new connections.
func TestLeave(t *testing.T) {
	started, release := make(chan string), make(chan error)
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(_ context.Context, call toolview.ToolCall) (toolview.Result, error) {
			started <- string(call.Arguments)
			return toolview.Result{Content: "done"}, <-release
		})
	})
	d.leaveTime = time.Hour
	p := d.pipe(t)
	call := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"fake","arguments":{}}}`, id)
	}
	for id := range 2 {
		p.send(call(id))
		<-started
	}
	d.Leave()
	if m := p.receive(); m["method"] != notifyLeave || m["id"] != nil {
		t.Errorf("got %v, want %s", m, notifyLeave)
	}
	refused := func(m map[string]any, id float64) {
		t.Helper()
		e, _ := m["error"].(map[string]any)
		if data, _ := e["data"].(map[string]any); m["id"] != id || e["code"] != float64(codeBusy) || data["reason"] != "leave" {
			t.Errorf("got %v, want a refusal of %v", m, id)
		}
	}
	p.send(call(7))
	refused(p.receive(), 7)
	if _, _, err := upgrade(d.mine); err == nil || !strings.HasPrefix(err.Error(), "503 ") {
		t.Errorf("a new connection: %v, want 503", err)
	}
	release <- fmt.Errorf("x: %w", executor.ErrDraining)
	first := p.receive()
	release <- nil
	second := p.receive()
	if first["id"] == 1.0 {
		refused(first, 1)
	} else {
		refused(first, 0)
	}
	if first["id"] == second["id"] || second["result"] == nil {
		t.Errorf("got %v, want the other call's result", second)
	}
	// The stop waits for the client to go.
	stopped := make(chan struct{})
	go func() { d.Stop(context.Background()); close(stopped) }()
	<-d.stopping.Done()
	p.send(call(8))
	refused(p.receive(), 8)
	p.Close()
	<-stopped
}

// A call over HTTP is answered with the reason, because its client does not know how to go on at the next daemon.
func TestDrainingOverHTTP(t *testing.T) {
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			return toolview.Result{}, executor.ErrDraining
		})
	})
	if r := d.connect(t, "http", "").call("fake", map[string]any{}); !r.IsError || !strings.Contains(r.text, executor.ErrDraining.Error()) {
		t.Errorf("got %+v", r)
	}
}

// Connections that name the same conversation have the same files.
func TestConversationsGoOn(t *testing.T) {
	d := startIdle(t, withFiles)
	const name = conversationHeader + ": abcdefghijklmnop0123"
	write := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"a","text":"kept"}}}`
	read := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a"}}}`
	p := d.pipe(t, name)
	p.send(write)
	if m := p.receive(); !strings.Contains(fmt.Sprint(m), "version:1") {
		t.Fatalf("got %v", m)
	}
	for _, header := range []string{name, conversationHeader + ": another0123456789"} {
		next := d.pipe(t, header)
		next.send(read)
		if m := next.receive(); strings.Contains(fmt.Sprint(m), "text:kept") != (header == name) {
			t.Errorf("%s: got %v", header, m)
		}
	}
	for _, bad := range []string{"short", strings.Repeat("x", 65), "with a blank 0123456789"} {
		if _, _, err := upgrade(d.mine, conversationHeader+": "+bad); err == nil || !strings.HasPrefix(err.Error(), "400 ") {
			t.Errorf("%q: %v, want 400", bad, err)
		}
	}
}

// A reader who names a conversation does not remove its empty session. The end of the conversation itself does.
func TestReadersEndNoConversation(t *testing.T) {
	d := startIdle(t, func(c *Config) {
		withFiles(c)
		identify := c.Identify
		c.Identify = func(from identity.Credentials) (identity.Identity, error) {
			who, err := identify(from)
			if who.Name == "reader" {
				who.Role = identity.Read
			}
			return who, err
		}
	})
	const name = "abcdefghijklmnop0123"
	if _, err := d.x.CreateSession(t.Context(), alice, files.Settings{Labels: map[string]string{"conversation": name}}); err != nil {
		t.Fatal(err)
	}
	own := d.mine
	for _, c := range []struct {
		socket string
		left   int // sessions after the end of the connection
	}{{d.socket(principal(alice.Tenant, "reader")), 1}, {own, 0}} {
		d.mine = c.socket
		d.pipe(t, conversationHeader+": "+name).Close()
		d.lines.Wait()
		if got := d.usage(); got != c.left {
			t.Errorf("%s: %d sessions are left, want %d", c.socket, got, c.left)
		}
	}
}
