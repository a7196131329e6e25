package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// converseSkill has the scripts of converse.mjs: list.py counts its runs in the session, wait.py waits for a signal.
var converseSkill = map[string]string{
	"scripts/list.py": "import os\nprint(sorted(os.listdir('.')))\nopen('runs', 'a').write('x')\n",
	"scripts/wait.py": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nprint('ready', flush=True)\nsignal.sigwait([signal.SIGUSR1])\nprint('released')\n",
}

// A conversation is a running converse.mjs.
type conversation struct {
	t                *testing.T
	name             string
	cmd              *exec.Cmd
	stdin            io.Closer
	rounds, released atomic.Int64
	ending           atomic.Bool // it has seen the end of its standard input
	last             string      // the last line; valid after ended
	failed           atomic.Bool // a line was an error
	ended            chan struct{}
}

// converse starts converse.mjs against a server.
func (d *running) converse(name, era string, server ...string) *conversation {
	d.t.Helper()
	c := &conversation{t: d.t.(*testing.T), name: name, ended: make(chan struct{})}
	c.cmd = nodeCommand(c.t)
	c.cmd.Args = append(append(c.cmd.Args, clientModule(c.t, "converse.mjs"), era), server...)
	c.cmd.Env = append(c.cmd.Env, "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.stdin = stdin
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			switch c.last = lines.Text(); c.last {
			case "rounds":
				c.rounds.Add(1)
			case "released":
				c.released.Add(1)
			case "ending":
				c.ending.Store(true)
			default:
				if !strings.HasPrefix(c.last, "{") {
					c.failed.Store(true)
					c.t.Errorf("%s: %s", c.name, c.last)
				}
			}
		}
	}()
	c.t.Cleanup(func() { c.cmd.Process.Kill(); <-c.ended; c.cmd.Wait() })
	return c
}

// goOn waits until the conversation has made more rounds.
func (c *conversation) goOn() {
	c.t.Helper()
	goal := c.rounds.Load() + 2
	until(c.t, c.name+": the conversation stands still", func() bool { return c.rounds.Load() >= goal || c.hasEnded() })
	if c.hasEnded() {
		c.t.Fatalf("%s has ended", c.name)
	}
}

// hasEnded reports whether the client has ended, or has met an error.
func (c *conversation) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return c.failed.Load()
	}
}

// waitingCalls returns the executions of wait.py that wait for their signal, as many as there are conversations.
func (d *running) waitingCalls(ctx context.Context, all []*conversation) (ids []string) {
	d.t.Helper()
	until(d.t, "not all calls run", func() bool {
		list, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{Skill: "waits", States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_RUNNING}})
		if err != nil {
			d.t.Fatal(err)
		}
		ids = nil
		for _, e := range list.GetExecutions() {
			if e.GetScript() == "scripts/wait.py" {
				ids = append(ids, e.GetExecutionId())
			}
		}
		for _, c := range all {
			if c.hasEnded() {
				d.t.Fatalf("%s has ended", c.name)
			}
		}
		return len(ids) == len(all)
	})
	for _, id := range ids {
		s, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id})
		if err != nil {
			d.t.Fatal(err)
		}
		readLine(d.t, s, "ready\n")
	}
	return ids
}

// signalAll ends the programs of waiting calls.
func (d *running) signalAll(ctx context.Context, ids []string) {
	d.t.Helper()
	for _, id := range ids {
		if _, err := d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: id, Signal: "SIGUSR1"}); err != nil {
			d.t.Errorf("%s: %v", id, err)
		}
	}
}

// endConversations ends the conversations, and checks that none has noticed anything.
func endConversations(ctx context.Context, d *running, all []*conversation, released int64) {
	d.t.Helper()
	for _, c := range all {
		until(d.t, c.name+": a released call is not answered", func() bool { return c.released.Load() >= released || c.hasEnded() })
	}
	ids := d.waitingCalls(ctx, all)
	for _, c := range all {
		c.stdin.Close()
	}
	for _, c := range all { // else it may start another call once this one is answered
		until(d.t, c.name+": the client does not stop", func() bool { return c.ending.Load() || c.hasEnded() })
	}
	d.signalAll(ctx, ids)
	for _, c := range all {
		until(d.t, c.name+": the client does not end", c.hasEnded)
		if c.failed.Load() {
			continue
		}
		var seen struct {
			Rounds, Released int
			Errors, Sessions []string
		}
		if err := json.Unmarshal([]byte(c.last), &seen); err != nil || len(seen.Errors) > 0 || len(seen.Sessions) != 1 || seen.Released != int(released)+1 {
			d.t.Errorf("%s: %v: %s\nwant no errors, one session, %d released calls", c.name, err, c.last, released+1)
		}
	}
}

// Agents with the official client notice nothing of takeovers, not even during a call.
func TestMCPTakeoverOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeSkill(t, dir, "waits", "", converseSkill)
	// The starter opens the socket, so the port is known and free.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	d := launchWith(t, dir, fmt.Sprintf("listen: {unix: s.sock, mcp_tcp: '%s'}\n", l.Addr()), []*os.File{socket})
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	endpoint := fmt.Sprintf("http://%s/mcp", l.Addr())
	all := []*conversation{
		d.converse("stdio, with sessions", "legacy", d.mcpCommand().Args...), d.converse("stdio", "2026-07-28", d.mcpCommand().Args...),
		d.converse("HTTP, with sessions", "legacy", endpoint), d.converse("HTTP", "2026-07-28", endpoint),
	}
	const takeovers = 4
	for range takeovers {
		for _, c := range all {
			c.goOn()
		}
		ids := d.waitingCalls(ctx, all)
		next := d.takeOver()
		next.signalAll(ctx, ids)
		next.untilAlone(d)
		d = next
	}
	endConversations(ctx, d, all, takeovers)
	d.wantNothingLeft()
}

// A plain restart, without sockets that stay: the conversation of `skillrun mcp` waits for the daemon and goes on with
// its files. A call that runs at the restart ends in the drain.
func TestMCPRestartOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeSkill(t, dir, "waits", "", converseSkill)
	d := startDaemonIn(t, dir, "")
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	command := append(d.mcpCommand().Args, "--wait", patience.String())
	all := []*conversation{d.converse("with sessions", "legacy", command...), d.converse("2026-07-28", "2026-07-28", command...)}
	const restarts = 2
	for range restarts {
		for _, c := range all {
			c.goOn()
		}
		ids := d.waitingCalls(ctx, all)
		d.cmd.Process.Signal(syscall.SIGTERM)
		d.untilLogged("draining")
		d.signalAll(ctx, ids)
		if err := d.wait(); err != nil {
			t.Errorf("the daemon exited with %v", err)
		}
		d = startDaemonIn(t, dir, "")
	}
	for _, c := range all {
		c.goOn()
	}
	endConversations(ctx, d, all, restarts)
	d.wantNothingLeft()
}

// What happens to a call when its daemon ends, the agent learns from the answer. The conversation goes on with the
// next daemon, and has its files.
func TestMCPDaemonGoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(d *running)
		want string // in the answer to the call
	}{
		{"killed", (*running).kill, "ended before it answered. The request may have been done, so it was not sent again"},
		{"drained", (*running).stop, "It was cancelled by drain: the daemon stops."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newDir(t)
			writeSkill(t, dir, "waits", "", map[string]string{"scripts/wait.py": waitSkill})
			d := startDaemonIn(t, dir, "drain: 100ms\n")
			a := d.startAgent(t, "--wait", "0")
			a.initialize()
			a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"a.txt","text":"kept"}}}`)
			if m := a.receive(); !strings.Contains(fmt.Sprint(m), "version:1") {
				t.Fatalf("got %v", m)
			}
			a.startWaiting()
			tt.end(d)
			if m := a.receive(); fmt.Sprint(m["id"]) != "7" || !strings.Contains(fmt.Sprint(m), tt.want) {
				t.Errorf("got %v, want %s", m, tt.want)
			}
			const read = `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"}}}`
			a.send(read)
			if m := a.receive(); !strings.Contains(fmt.Sprint(m["error"]), "no MCP endpoint at unix://"+dir+"/mcp.sock") {
				t.Errorf("no daemon answers: got %v", m)
			}
			startDaemonIn(t, dir, "")
			a.send(read)
			if m := a.receive(); m["method"] != "notifications/resources/list_changed" {
				t.Errorf("got %v", m)
			}
			if m := a.receive(); !strings.Contains(fmt.Sprint(m["result"]), "text:kept") {
				t.Errorf("the next daemon: got %v", m)
			}
			a.stdin.Close()
			if code := a.exit(); code != 0 || !strings.Contains(a.stderr.String(), "the next request tries again") {
				t.Errorf("exit code %d: %s", code, a.stderr)
			}
		})
	}
}

// The bridge repeats the tools that change nothing, and no others.
func TestMCPReadingTools(t *testing.T) {
	t.Parallel()
	a := startShared(t).startAgent(t)
	a.initialize()
	a.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	data, err := json.Marshal(a.receive()["result"])
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Tools []struct {
			Name        string
			Annotations struct{ ReadOnlyHint bool }
		}
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list.Tools) == 0 {
		t.Fatalf("%v: %s", err, data)
	}
	source, err := os.ReadFile("../../internal/mcp/bridge/message.go")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(source), "var readingTools = map[string]bool{\n")
	line, _, _ = strings.Cut(line, "\n")
	for _, tool := range list.Tools {
		if got := strings.Contains(line, fmt.Sprintf("%q: true", tool.Name)); got != tool.Annotations.ReadOnlyHint {
			t.Errorf("%s: the bridge repeats it: %v, want %v", tool.Name, got, tool.Annotations.ReadOnlyHint)
		}
		line = strings.Replace(line, fmt.Sprintf("%q: true", tool.Name), "", 1)
	}
	if rest := strings.Trim(line, "\t, "); rest != "" {
		t.Errorf("the daemon has no such tool: %s", rest)
	}
}
