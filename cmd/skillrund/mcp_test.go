package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// An agent is a running `skillrun mcp`, with pipes for its input and output.
type agent struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
}

// startAgent starts `skillrun mcp` with the daemon's address, as an agent does.
func (d *running) startAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	a := &agent{t: t, cmd: d.mcpCommand(), stderr: &strings.Builder{}}
	a.cmd.Args = append(a.cmd.Args, args...)
	a.cmd.Stderr = a.stderr
	var err error
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.stdout = bufio.NewReader(stdout)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stdin.Close(); a.cmd.Wait() })
	return a
}

// mcpCommand returns the command `skillrun mcp`, not started.
func (d *running) mcpCommand() *exec.Cmd {
	cmd := exec.Command(binary(d.t, "skillrun"), "mcp")
	cmd.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
	return cmd
}

func (a *agent) send(message string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, message+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

// receive returns the next message. Standard output may contain nothing else.
func (a *agent) receive() map[string]any {
	a.t.Helper()
	line, err := a.stdout.ReadString('\n')
	if err != nil {
		a.t.Fatalf("no message: %v; %s", err, a.stderr)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil || m["jsonrpc"] != "2.0" {
		a.t.Fatalf("standard output has %q", line)
	}
	return m
}

// exit waits for the process and returns its exit code.
func (a *agent) exit() int {
	a.t.Helper()
	io.Copy(io.Discard, a.stdout)
	a.cmd.Wait()
	return a.cmd.ProcessState.ExitCode()
}

func (a *agent) initialize() {
	a.t.Helper()
	a.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if m := a.receive(); fmt.Sprint(m["id"]) != "0" || m["result"] == nil {
		a.t.Fatalf("initialize: %v", m)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

const waitSkill = "import os, time\nos.write(1, b'started\\n')\ntime.sleep(600)\n"

// startWaiting calls a script that waits and returns when the script runs.
func (a *agent) startWaiting() {
	a.t.Helper()
	a.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"waits","script_path":"scripts/wait.py","timeout":600},"_meta":{"progressToken":"p"}}}`)
	m := a.receive()
	if params, _ := m["params"].(map[string]any); m["method"] != "notifications/progress" || params["message"] != "started\n" {
		a.t.Fatalf("got %v, want progress", m)
	}
}

// newest waits for the end of the execution that was accepted last and returns its outcome.
func (d *running) newest() *pb.ExecutionOutcome {
	d.t.Helper()
	list, err := d.runs.ListExecutions(d.t.Context(), &pb.ListExecutionsRequest{PageSize: 1})
	if err != nil || len(list.Executions) == 0 {
		d.t.Fatalf("no execution: %v", err)
	}
	s, err := d.runs.AttachExecution(d.t.Context(), &pb.AttachExecutionRequest{ExecutionId: list.Executions[0].ExecutionId})
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := collect(d.t, s, 0, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.outcome
}

// The messages of one agent's conversation.
func TestMCPOverStandardStreams(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "waits", "", map[string]string{"scripts/wait.py": waitSkill})
	d := startDaemonIn(t, dir, "")
	a := d.startAgent(t)
	a.initialize()

	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	list := a.receive()
	if text := fmt.Sprint(list); !strings.Contains(text, "run_skill_script") || !strings.Contains(text, "activate_skill") {
		t.Errorf("tools: %v", list)
	}
	a.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"skill":"waits","command":"rm -rf /"}}}`)
	if m := a.receive(); !strings.Contains(fmt.Sprint(m), "isError:true") {
		t.Errorf("a command that is not allowed: %v", m)
	}
	a.send(`{"jsonrpc":"2.0","id":3,"method":"nope"}`)
	if m := a.receive(); !strings.Contains(fmt.Sprint(m["error"]), "-32601") {
		t.Errorf("an unknown method: %v", m)
	}
	a.send(`[{"jsonrpc":"2.0","id":4,"method":"ping"}]`)
	if m := a.receive(); !strings.Contains(fmt.Sprint(m["error"]), "batches") {
		t.Errorf("a batch: %v", m)
	}
	a.startWaiting()
	a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`)
	if got := d.newest(); got.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
		t.Errorf("cancelled: %v", got)
	}
	if m := a.receive(); fmt.Sprint(m["id"]) != "7" || m["error"] == nil {
		t.Errorf("the cancelled call: %v", m)
	}
	// The agent is notified when skills change.
	writeSkill(t, dir, "another", "", nil)
	if m := a.receive(); m["method"] != "notifications/resources/list_changed" {
		t.Errorf("after a new skill: %v", m)
	}
	a.stdin.Close()
	if code := a.exit(); code != 0 || a.stderr.String() != "" {
		t.Errorf("exit code %d, %s", code, a.stderr)
	}
}

// Every message in a pipe is answered, even if standard input ends right after the last one.
func TestMCPAnswersAPipe(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	a := d.startAgent(t)
	a.initialize()
	const last = 20
	for id := 1; id <= last; id++ {
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id))
	}
	a.stdin.Close()
	answered := map[string]bool{}
	for range last {
		m := a.receive()
		if m["result"] == nil {
			t.Errorf("got %v", m)
		}
		answered[fmt.Sprint(m["id"])] = true
	}
	if len(answered) != last {
		t.Errorf("answers to %v", answered)
	}
	if code := a.exit(); code != 0 || a.stderr.String() != "" {
		t.Errorf("exit code %d, %s", code, a.stderr)
	}
}

// When an agent ends, in any way, its execution is cancelled.
func TestMCPAgentGoes(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "waits", "", map[string]string{"scripts/wait.py": waitSkill})
	d := startDaemonIn(t, dir, "")
	for _, tt := range []struct {
		name string
		end  func(a *agent)
		code int
	}{
		{"closes standard input", func(a *agent) { a.stdin.Close() }, 0},
		{"terminates the process", func(a *agent) { a.cmd.Process.Signal(syscall.SIGTERM) }, 143},
		{"kills the process", func(a *agent) { a.cmd.Process.Kill() }, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := d.startAgent(t)
			a.initialize()
			a.startWaiting()
			tt.end(a)
			if got := d.newest(); got.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
				t.Errorf("got %v", got)
			}
			if code := a.exit(); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, a.stderr)
			}
		})
	}
}

// The client of the MCP SDK, over a pipe and over HTTP, on a Unix socket and on loopback.
func TestMCPClients(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, mcp_tcp: '127.0.0.1:0'}\n")
	address := tcpAddress(t, d)
	socket := filepath.Join(d.dir, "mcp.sock")
	overSocket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	overTCP := d.mcpCommand()
	overTCP.Env = append(overTCP.Env, "SKILLRUN_MCP_ADDRESS="+address)
	for name, transport := range map[string]mcp.Transport{
		"command":          &mcp.CommandTransport{Command: d.mcpCommand()},
		"command over TCP": &mcp.CommandTransport{Command: overTCP},
		"socket":           &mcp.StreamableClientTransport{Endpoint: "http://localhost/mcp", HTTPClient: overSocket},
		"TCP":              &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, transport, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "run_skill_script", Arguments: map[string]any{
				"skill": "calculator", "script_path": "scripts/calc.py", "arguments": map[string]any{"expression": "6*7"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if out, _ := r.StructuredContent.(map[string]any); r.IsError || !strings.Contains(fmt.Sprint(out["stdout"]), "42") {
				t.Errorf("got %v", r.StructuredContent)
			}
			read, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "skill://calculator/SKILL.md"})
			if err != nil || !strings.Contains(read.Contents[0].Text, "calculator") {
				t.Errorf("got %v, %v", read, err)
			}
		})
	}
	e, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	byPrincipal := map[string]int{}
	for _, x := range e.Executions {
		byPrincipal[x.Principal]++
	}
	if byPrincipal["uid:0"] != 2 || byPrincipal["anonymous"] != 2 {
		t.Errorf("who ran what: %v", byPrincipal)
	}
}

// The MCP socket has the mode unix_mode. A daemon without mcp_unix has no MCP socket.
func TestMCPSocket(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, unix_mode: 0600}\n")
	info, err := os.Stat(filepath.Join(d.dir, "mcp.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	second := launch(t, newDir(t), "listen: {unix: s.sock, mcp_unix: "+d.dir+"/mcp.sock}\n")
	if err := second.wait(); err == nil || !strings.Contains(second.log.String(), "listen.mcp_unix: ") || !strings.Contains(second.log.String(), "another daemon answers there") {
		t.Errorf("got %v, log %s", err, tail(second.log.String(), 500))
	}
	d.stop()
	if d := startDaemonIn(t, d.dir, "listen: {unix: s.sock, mcp_unix: ''}\n"); d != nil {
		if _, err := os.Stat(filepath.Join(d.dir, "mcp.sock")); !os.IsNotExist(err) {
			t.Errorf("a socket that nobody asked for: %v", err)
		}
	}
}

// A session belongs to its user, whom the kernel names. Another user who knows its id can't
// use it.
func TestMCPSessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "listen: {unix: s.sock, unix_mode: 0666}\n")
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(d.dir, "mcp.sock")
	root, nobody := userClient(socket, 0), userClient(socket, 65534)
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	post := func(c *http.Client, session, message string) (status int, id string) {
		t.Helper()
		resp, _, err := postMCP(t, c, session, message)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	}
	const run = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"calculator","script_path":"scripts/calc.py","arguments":{"expression":"1"}}}}`
	_, ofRoot := post(root, "", initialize)
	_, ofNobody := post(nobody, "", initialize)
	for _, tt := range []struct {
		who     *http.Client
		session string
		want    int
	}{{root, ofRoot, 200}, {nobody, ofNobody, 200}, {nobody, ofRoot, 404}, {root, ofNobody, 404}} {
		if got, _ := post(tt.who, tt.session, run); got != tt.want {
			t.Errorf("got %d, want %d", got, tt.want)
		}
	}
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var who []string
	for _, e := range list.Executions {
		who = append(who, e.Principal)
	}
	if got := strings.Join(who, " "); got != "uid:65534 uid:0" {
		t.Errorf("who ran what, newest first: %s", got)
	}
}

// userClient returns an HTTP client that connects to a socket as a user.
func userClient(socket string, uid int) *http.Client {
	dial := asUser(socket, uid)
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
}
