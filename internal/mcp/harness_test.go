package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/sandbox"
)

// The tests of this package run real executions in real sandboxes, over a real socket.

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// patience limits every wait of a test. No test depends on its value.
const patience = 60 * time.Second

// A daemon is a server on Unix sockets with an executor and a registry.
type daemon struct {
	*Server
	t      *testing.T
	dir    string
	logs   *executortest.Logs
	x      *executor.Executor
	skills *skill.Registry
	mine   string // alice's socket; the method socket makes others
}

var alice = principal("default", "alice")

func principal(tenant, name string) permission.Principal {
	return permission.Principal{Tenant: tenant, Name: name}
}

// startDaemon starts a daemon that runs the skills of skillFiles in real sandboxes, which
// needs root. edit, if not nil, changes the configuration.
func startDaemon(t *testing.T, edit func(*Config)) *daemon {
	t.Helper()
	return startOn(t, hosttest.Host(t), edit)
}

// startIdle is startDaemon for tests in which no program starts. They need no root.
func startIdle(t *testing.T, edit func(*Config)) *daemon {
	t.Helper()
	return startOn(t, nil, edit)
}

// startOn starts a daemon whose sandboxes are on a host; a nil one makes none.
func startOn(t *testing.T, host *sandbox.Host, edit func(*Config)) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: hosttest.Dir(t)}
	for path, text := range skillFiles {
		d.write(path, text)
	}
	builtIn, err := toolview.WriteBuiltIn(filepath.Join(d.dir, "builtin"))
	if err != nil {
		t.Fatal(err)
	}
	var roots []skill.Root // with namespaces
	for _, namespace := range []string{"team", "crew"} {
		root := skill.Root{Dir: filepath.Join(d.dir, namespace), Namespace: namespace}
		if err := os.Mkdir(root.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, root)
	}
	b := executortest.New(t, executortest.Config{
		Dir: d.dir, Skills: []string{builtIn, filepath.Join(d.dir, "skills")}, Roots: roots, Runtimes: hosttest.Runtimes(t), Host: host,
	})
	d.x, d.skills, d.logs = b.Executor, b.Skills, b.Logs
	c := Config{
		Tools:    toolview.New(toolview.Config{Executor: d.x, Skills: d.skills, Log: b.Log}),
		Executor: d.x, Skills: d.skills, Version: "test", Log: b.Log,
		Identify: func(c identity.Credentials) (identity.Identity, error) {
			who, ok := c.Addr.(peer)
			if !ok {
				return identity.Identity{}, errors.New("unknown peer")
			}
			return identity.Identity{Principal: principal(who.tenant, who.name), Role: identity.Operator}, nil
		},
		Explain: func(err error) string { return "explained: " + err.Error() },
	}
	if edit != nil {
		edit(&c)
	}
	d.Server = New(c)
	d.leaveTime = 0 // most clients of these tests do not leave
	t.Cleanup(func() {
		b.Stop()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		d.Stop(over) // does not return if a goroutine leaks
	})
	d.mine = d.socket(alice)
	return d
}

// A peer is the remote address of a connection to one of a daemon's sockets.
type peer struct {
	net.Addr
	tenant, name string
}

type peerListener struct {
	net.Listener
	who permission.Principal
}

// SetDeadline lets ingress hold the listener.
func (l peerListener) SetDeadline(t time.Time) error {
	return l.Listener.(*net.UnixListener).SetDeadline(t)
}

type peerConn struct {
	net.Conn
	addr net.Addr
}

func (c peerConn) RemoteAddr() net.Addr { return c.addr }

func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// A small buffer, so that a client that does not read blocks writes early.
	if err := c.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(4 << 10); err != nil {
		return nil, err
	}
	return peerConn{c, peer{c.RemoteAddr(), l.who.Tenant, l.who.Name}}, nil
}

// serve serves l until the daemon stops.
func (d *daemon) serve(l net.Listener, who permission.Principal) {
	d.t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.Serve(peerListener{l, who}) }()
	d.t.Cleanup(func() {
		d.Stop(context.Background())
		if err := <-done; err != nil {
			d.t.Errorf("Serve: %v", err)
		}
	})
}

// socket returns the path of a socket on which every caller is who.
func (d *daemon) socket(who permission.Principal) string {
	d.t.Helper()
	path := filepath.Join(d.dir, who.Tenant+"-"+who.Name+".sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.serve(l, who)
	return path
}

// httpClient returns a client that connects to a socket.
func httpClient(t *testing.T, socket string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const endpoint = "http://localhost" + Path

// lines is an SDK transport over an upgraded connection.
type lines struct{ socket string }

func (l lines) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, r, err := upgrade(l.socket)
	if err != nil {
		return nil, err
	}
	return (&sdk.IOTransport{Reader: readCloser{r, conn}, Writer: conn}).Connect(ctx)
}

type readCloser struct {
	io.Reader
	io.Closer
}

// upgrade opens a connection and upgrades it to LinesProtocol, with more headers.
func upgrade(socket string, headers ...string) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	headers = append(headers, "Host: localhost", "Connection: Upgrade", "Upgrade: "+LinesProtocol)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\n%s\r\n\r\n", Path, strings.Join(headers, "\r\n"))
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = errors.New(resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, r, nil
}

// A client is an SDK client with the notifications that it received.
type client struct {
	*sdk.ClientSession
	t        *testing.T
	progress chan *sdk.ProgressNotificationParams
	changed  chan struct{} // the list of resources has changed
}

// connect opens a session with a transport and a protocol version. An empty version means
// the newest.
func (d *daemon) connect(t *testing.T, transport, version string) *client {
	t.Helper()
	var over sdk.Transport = lines{d.mine}
	if transport == "http" {
		over = &sdk.StreamableClientTransport{Endpoint: endpoint, HTTPClient: httpClient(t, d.mine)}
	}
	c := &client{t: t, progress: make(chan *sdk.ProgressNotificationParams, 1000), changed: make(chan struct{}, 10)}
	cl := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { c.progress <- r.Params },
		ResourceListChangedHandler:  func(context.Context, *sdk.ResourceListChangedRequest) { c.changed <- struct{}{} },
	})
	for _, method := range []string{methodList, methodGet, methodDirectory} {
		if err := sdk.AddSendingCustomMethod[*params, *answer](cl, method); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	c.ClientSession, err = cl.Connect(t.Context(), over, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect over %s in %q: %v", transport, version, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A reply is the result of a call.
type reply struct {
	*sdk.CallToolResult
	text       string
	structured map[string]any
	links      map[string]*sdk.ResourceLink // by name
}

// call calls a tool and fails the test on a protocol error.
func (c *client) call(name string, arguments any) reply {
	c.t.Helper()
	r, err := c.CallTool(c.t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return newReply(c.t, r)
}

func newReply(t *testing.T, r *sdk.CallToolResult) reply {
	t.Helper()
	out := reply{CallToolResult: r, links: map[string]*sdk.ResourceLink{}}
	out.structured, _ = r.StructuredContent.(map[string]any)
	for i, content := range r.Content {
		switch content := content.(type) {
		case *sdk.TextContent:
			if i > 0 {
				t.Errorf("a second text: %q", content.Text)
			}
			out.text = content.Text
		case *sdk.ResourceLink:
			out.links[content.Name] = content
		default:
			t.Errorf("content %T", content)
		}
	}
	return out
}

// read reads a resource and fails the test if that is an error.
func (c *client) read(uri string) *sdk.ResourceContents {
	c.t.Helper()
	r, err := c.ReadResource(c.t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		c.t.Fatalf("%s: %v", uri, err)
	}
	if len(r.Contents) != 1 {
		c.t.Fatalf("%s: %d contents", uri, len(r.Contents))
	}
	return r.Contents[0]
}

// newest returns the id of the execution that was accepted last.
func (d *daemon) newest() string {
	d.t.Helper()
	list, _, err := d.x.List(d.t.Context(), alice, executor.Filter{PageSize: 1})
	if err != nil || len(list) == 0 {
		d.t.Fatalf("no execution: %v", err)
	}
	return list[0].ID
}

// outcome waits for the end of an execution.
func (d *daemon) outcome(id string) *executor.Outcome {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	events, err := d.x.Follow(ctx, alice, id, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer events.Close()
	for {
		e, err := events.Next(ctx)
		if err != nil {
			d.t.Fatalf("execution %s: no outcome: %v", id, err)
		}
		if e.Outcome != nil {
			return e.Outcome
		}
	}
}

// write writes a file below the skills' root.
func (d *daemon) write(path, text string) {
	d.t.Helper()
	path = filepath.Join(d.dir, "skills", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// reload makes the daemon load changed skills.
func (d *daemon) reload() {
	d.t.Helper()
	if _, err := d.skills.Reload(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

const oddName = "a b?#%&ü'\"<>.txt"

// skillFiles are the skills of all tests.
var skillFiles = map[string]string{
	"demo/SKILL.md":            "---\nname: demo\ndescription: A skill to try things with.\nallowed-tools: Bash(echo:*), Bash(cat:*)\n---\n\nUse {baseDir}/scripts/hello.py.\n",
	"demo/references/guide.md": "# Guide\n\nNaïve.\n",
	"demo/assets/logo.png":     "\x89PNG\r\n\x1a\n\x00\xff",
	"demo/assets/" + oddName:   "odd\n",
	"demo/assets/big.txt":      strings.Repeat("0123456789abcde\n", 3<<16),
	"demo/scripts/hello.py":    "import json, sys\nprint('hello', json.load(sys.stdin).get('name', 'nobody'))\n",
	"demo/scripts/once.py":     "import os\nos.write(1, b'all at once\\n')\nopen('left.txt', 'w').write('left')\n",
	"demo/scripts/fail.py":     "import sys\nprint('so far so good')\nprint('broken', file=sys.stderr)\nsys.exit(3)\n",
	"demo/scripts/wait.py":     "import os, time\nos.write(1, b'started\\n')\ntime.sleep(3600)\n",
	"demo/scripts/big.py":      "import sys\nfor i in range(12000): print('%015d' % i)\nprint('short', file=sys.stderr)\n",
	"demo/scripts/leave.py":    "import os\nos.makedirs('out')\nopen('out/table.csv', 'w').write('a,b\\n1,2\\n')\nopen('out/" + strings.NewReplacer("'", "\\'").Replace(oddName) + "', 'w').write('strange')\nopen(b'out/\\xff.bin', 'wb').write(b'\\0\\1')\n",
	"hidden/SKILL.md":          "---\nname: hidden\ndescription: Not to be shown.\ndisable-model-invocation: true\n---\n\nSecret steps.\n",
	"odd name/SKILL.md":        "---\nname: odd name\ndescription: A name with a blank.\n---\n\nOdd.\n",
}

// fakeTools replaces the tools in one test.
type fakeTools func(ctx context.Context, c toolview.ToolCall) (toolview.Result, error)

func (f fakeTools) Tools() []toolview.Tool {
	return []toolview.Tool{{Name: "fake", Description: "A tool of a test.", Parameters: json.RawMessage(`{"type":"object"}`)}}
}

func (f fakeTools) Call(ctx context.Context, c toolview.ToolCall) (toolview.Result, error) {
	return f(ctx, c)
}

func (f fakeTools) EndConversation(permission.Principal, *toolview.Conversation) {}
