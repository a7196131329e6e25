package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A clientRun is a process of skillrun.
type clientRun struct {
	*exec.Cmd
	t      *testing.T
	stdin  io.WriteCloser
	stdout *bufio.Reader
	notes  chan string // the lines of standard error
}

// client starts `skillrun -v run` with these arguments.
func (d *running) client(t *testing.T, args ...string) *clientRun {
	t.Helper()
	return d.begun(t, append([]string{"run"}, args...)...)
}

// begun starts `skillrun -v` with these arguments. It waits longer than by default: a daemon may start slowly
// while other tests run.
func (d *running) begun(t *testing.T, args ...string) *clientRun {
	t.Helper()
	c := &clientRun{Cmd: exec.CommandContext(t.Context(), binary(t, "skillrun"), append([]string{"-v", "--wait", patience.String()}, args...)...), t: t, notes: make(chan string, 1000)}
	c.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(stdout)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.notes)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			c.notes <- lines.Text()
		}
	}()
	return c
}

// untilNote waits for a line on standard error that contains text.
func (c *clientRun) untilNote(text string) {
	c.t.Helper()
	for line := range c.notes {
		if strings.Contains(line, text) {
			return
		}
	}
	c.t.Errorf("%v: no %q on standard error", c.Args, text)
}

// end waits for the process. It returns the rest of its output, and its exit code.
func (c *clientRun) end() (stdout, stderr string, code int) {
	c.t.Helper()
	c.stdin.Close()
	out, err := io.ReadAll(c.stdout)
	if err != nil {
		c.t.Error(err)
	}
	var notes strings.Builder
	for line := range c.notes {
		fmt.Fprintln(&notes, line)
	}
	c.Wait()
	return string(out), notes.String(), c.ProcessState.ExitCode()
}

// Sixty runs in a row over one restart succeed, each exactly once. One of them runs while the daemon drains, one
// comes to a daemon that drains, and the daemon starts again when that one has said that it waits.
func TestCommandsOutliveARestart(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	const runs, restart = 60, 20
	var held *clientRun
	for i := range runs {
		arg := fmt.Sprint(i)
		if i == restart {
			held = d.client(t, "--label", "n=held", "calculator", "-c", "print('ready', flush=True); print('got', input())")
			if line, err := held.stdout.ReadString('\n'); line != "ready\n" {
				t.Fatalf("the run before the restart printed %q, %v", line, err)
			}
			d.cmd.Process.Signal(syscall.SIGTERM)
			d.untilLogged("draining")
		}
		c := d.client(t, "--label", "n="+arg, "calculator", "-c", "import sys; print(sys.argv[1], sys.stdin.read())", "--", arg)
		io.WriteString(c.stdin, "input")
		c.stdin.Close()
		if i == restart {
			c.untilNote("stops; waiting")
			io.WriteString(held.stdin, "input\n")
			if stdout, stderr, code := held.end(); stdout != "got input\n" || code != 0 {
				t.Errorf("the run during the drain: got %q, %q and %d", stdout, stderr, code)
			}
			c.untilNote("does not answer; waiting")
			d.wait()
			d = launch(t, d.dir, "")
			d.dial("unix://" + d.dir + "/s.sock")
		}
		if stdout, stderr, code := c.end(); stdout != arg+" input\n" || code != 0 {
			t.Errorf("run %d: got %q, %q and %d", i, stdout, stderr, code)
		}
	}
	d.waitServing()
	for i := range runs + 1 {
		n := fmt.Sprint(i)
		if i == runs {
			n = "held"
		}
		r, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Labels: map[string]string{"n": n}})
		if err != nil || len(r.GetExecutions()) != 1 {
			t.Errorf("n=%s: got %d executions, %v, want 1", n, len(r.GetExecutions()), err)
		}
	}
}

// An execution that a restart ends is reported as such: cancelled by the drain, or lost with a daemon that was
// killed. Its output comes once.
func TestCommandsThatARestartEnds(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "drain: 100ms\n")
	start := func() *clientRun {
		c := d.client(t, "calculator", "-c", "print('ready', flush=True); import time; time.sleep(3600)")
		if line, err := c.stdout.ReadString('\n'); line != "ready\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		return c
	}
	c := start()
	d.stop()
	if stdout, stderr, code := c.end(); stdout != "" || code != 143 || !strings.Contains(stderr, "cancelled by drain: the daemon stops") {
		t.Errorf("after the drain: got %q, %q and %d, want 143", stdout, stderr, code)
	}
	d = startDaemonIn(t, d.dir, "")
	c = start()
	d.kill()
	c.untilNote("does not answer; waiting")
	d = startDaemonIn(t, d.dir, "")
	if stdout, stderr, code := c.end(); stdout != "" || code != 125 || !strings.Contains(stderr, "daemon lost") {
		t.Errorf("after SIGKILL: got %q, %q and %d, want 125", stdout, stderr, code)
	}
}

// Commands that come while no daemon runs wait for the next daemon, and each takes effect exactly once.
func TestEveryCommandOutlivesARestart(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	ended := d.run(code("calculator", "open('a.txt', 'w').write('kept')")).id
	doomed := d.run(code("calculator", "print(1)")).id
	session := d.newSession(t.Context(), &pb.CreateSessionRequest{}).id
	d.stop()
	commands := []struct {
		args string
		want string // in standard output
	}{
		{"ps --all", ended}, {"show " + ended, ended}, {"artifacts " + ended, "a.txt"}, {"attach " + ended, ""},
		{"cancel " + ended, ended}, {"delete " + doomed, doomed + " deleted"},
		{"session ls", session}, {"session show " + session, "PATH"}, {"session create --label n=1", ""},
		{"session cp - " + session + ":b.txt", "version 1"},
		{"skills", "calculator"}, {"activate calculator", "calculator"}, {"check calculator --command true", ""},
		{"tool list", "list_skills"}, {"tool call list_skills {}", "calculator"}, {"tenants", ""}, {"budget", ""},
	}
	var running []*clientRun
	for _, c := range commands {
		run := d.begun(t, strings.Fields(c.args)...)
		run.stdin.Close()
		running = append(running, run)
	}
	for _, run := range running {
		run.untilNote("does not answer; waiting")
	}
	d = startDaemonIn(t, d.dir, "")
	for i, c := range commands {
		if stdout, stderr, code := running[i].end(); code != 0 && !strings.HasPrefix(c.args, "check") || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: got %q, %q and %d", c.args, stdout, stderr, code)
		}
	}
	r, err := pb.NewSessionServiceClient(d.conn).ListSessions(t.Context(), &pb.ListSessionsRequest{Labels: map[string]string{"n": "1"}})
	if err != nil || len(r.GetSessions()) != 1 {
		t.Errorf("got %v, %v, want one session", r.GetSessions(), err)
	}
}
