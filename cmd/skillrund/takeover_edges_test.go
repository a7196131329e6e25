package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// rewrite replaces a text in the configuration of the daemon.
func (d *running) rewrite(old, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, "skillrund.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		d.t.Fatalf("the configuration has no %q", old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// sendLine sends a line to the program of an interactive call.
func sendLine(t testing.TB, s interactiveClient, line string) {
	t.Helper()
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte(line + "\n")}}); err != nil {
		t.Error(err)
	}
}

// A daemon's listeners do not block when a next daemon has been started with their sockets: else neither Hold nor Close
// ends an Accept.
func TestCopiedSocketsDoNotBlock(t *testing.T) {
	t.Parallel()
	for network, address := range map[string]string{"unix": filepath.Join(t.TempDir(), "s"), "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		files, err := listeners{all: []listener{{Listener: l}}}.files()
		if err != nil {
			t.Fatal(err)
		}
		defer closeFiles(files)
		// os/exec calls Fd.
		flags, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("%s: flags %#x, %v; want O_NONBLOCK", network, flags, err)
		}
	}
}

// A next daemon with another state directory, or another value of a key that needs a restart, does not start, although
// the other directory has the state of a daemon that has stopped. The file with which the next daemon compares is made
// again for each takeover.
func TestTakeoverOfOtherDirectories(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	other := startDaemonIn(t, dir, "")
	other.stop()
	if err := os.Rename(filepath.Join(dir, "state"), filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "")
	fails := 0
	for _, tt := range []struct{ old, text, want string }{
		{"state_dir: state\n", "state_dir: other\n", "state_dir has changed to " + dir + "/other; the change needs a restart"},
		{"run_dir: run\n", "run_dir: run2\n", "takeover: run_dir: the change needs a restart"},
	} {
		d.rewrite(tt.old, tt.text)
		d.cmd.Process.Signal(syscall.SIGUSR2)
		fails++
		until(t, "the takeover does not fail", func() bool {
			return strings.Count(d.log.String(), "the next daemon did not start; this daemon continues to serve") == fails
		})
		if !strings.Contains(d.log.String(), tt.want) {
			t.Errorf("the log does not say %q", tt.want)
		}
		d.rewrite(tt.text, tt.old)
	}
	d.works()
	if err := os.Truncate(filepath.Join(dir, "state/config.json"), 0); err != nil {
		t.Fatal(err)
	}
	d.takeOver().untilAlone(d)
}

// At no moment of a takeover another daemon could take the lock of the state directory.
func TestTakeoverKeepsTheLock(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	f, err := os.Open(filepath.Join(dir, "state/lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	over, taken := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; {
			select {
			case <-over:
				taken <- n
				return
			default:
			}
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				n++
				unix.Flock(int(f.Fd()), unix.LOCK_UN)
			}
		}
	}()
	next := d.takeOver()
	next.untilAlone(d)
	close(over)
	if n := <-taken; n > 0 {
		t.Errorf("another process could take the lock %d times", n)
	}
	next.works()
}

// After a takeover the first SIGTERM to the earlier daemon ends no execution: the daemon drains already. Ctrl-C in a
// terminal sends the signal to both daemons. The next daemon adopts the state again and again until it has everything.
func TestTakeoverAndSIGTERM(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	id, s := d.waitsFor(ctx, code("hostile", "print('ready', flush=True); print(input())"))
	next := d.takeOver()
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.untilLogged("draining already")
	// A part of the state that can't be adopted at first is adopted later.
	environments := filepath.Join(dir, "state/environments")
	if err := os.Rename(environments, environments+".away"); err != nil {
		t.Fatal(err)
	}
	sendLine(t, s, "still there")
	readLine(t, s, "still there\n")
	next.untilLogged("some state of the earlier daemon is not adopted yet")
	if err := os.Rename(environments+".away", environments); err != nil {
		t.Fatal(err)
	}
	next.untilAlone(d)
	if r := next.attach(id, 0); r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
		t.Errorf("it ended as %v", r.outcome)
	}
}

// A reload while a daemon starts does not end it. It comes after the start.
func TestReloadDuringStart(t *testing.T) {
	t.Parallel()
	d := launch(t, newDir(t), "")
	d.dial("unix://" + d.dir + "/s.sock")
	d.untilLogged("skills loaded")
	d.cmd.Process.Signal(syscall.SIGHUP)
	d.waitServing()
	d.untilLogged("skills reloaded")
}

// A daemon that stops while the next one starts leaves nothing of the next one.
func TestStopDuringTakeover(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	d.cmd.Process.Signal(syscall.SIGUSR2)
	until(t, "the next daemon makes no instance", func() bool { return len(d.instances()) == 2 })
	both := d.doomedAll()
	d.stop()
	if got := d.instances(); len(got) > 0 {
		t.Errorf("instances are left: %q", got)
	}
	for _, dead := range both {
		if n := d.leftOf(dead); n > 0 {
			t.Errorf("%d things of the instance %s are left", n, dead.name)
		}
	}
}

// A takeover makes the missing file of a socket again, and removes the file of a socket that the configuration no longer
// has. The last daemon removes the files of all its sockets.
func TestTakeoverOfSocketFiles(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "listen: {unix: s.sock, mcp_unix: old.sock}\n")
	if err := os.Remove(filepath.Join(dir, "s.sock")); err != nil {
		t.Fatal(err)
	}
	d.rewrite("old.sock", "new.sock")
	next := d.takeOver()
	next.untilAlone(d)
	next.works()
	last := next.takeOver()
	last.untilAlone(next)
	last.wantSockets("new.sock", "s.sock")
	last.stop()
	last.wantSockets()
}

// wantSockets checks the names of the socket files in the daemon's directory.
func (d *running) wantSockets(want ...string) {
	d.t.Helper()
	paths, _ := filepath.Glob(filepath.Join(d.dir, "*.sock"))
	var got []string
	for _, path := range paths {
		got = append(got, filepath.Base(path))
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("socket files: got %q, want %q", got, want)
	}
}

// A daemon that gets SIGTERM during the hand-over does not wait for the next daemon.
func TestStopDuringHandOver(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	program := filepath.Join(dir, "bin", "skillrund")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Dir(program), 0o755))
	must(os.Symlink(binary(t, "skillrund"), program))
	d := launch(t, dir, "", "/bin/sh", "-c", `shift; exec "$0" "$@"`, program)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	// The next daemon says that it is ready, and never serves.
	must(os.Remove(program))
	must(os.WriteFile(program, fmt.Appendf(nil, `#!/bin/sh
echo '{"method":"%s","params":[{}],"id":0}' >&%d
head -n 1 <&%[2]d >/dev/null
echo handed over >&2
exec sleep 1000
`, callAwait, toEarlier), 0o755))
	d.cmd.Process.Signal(syscall.SIGUSR2)
	d.untilLogged("handed over")
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v, want 0", err)
	}
	if log := d.log.String(); !strings.Contains(log, "this daemon stops: terminated") || !strings.Contains(log, "msg=draining") {
		t.Error("the daemon waited for the next one")
	}
}

// After a takeover only the next daemon reloads tenants. The earlier one has another configuration, and would write it to
// the file with which skillrund --check compares.
func TestTakeoverOfTenants(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, withTokens+"tenants: {default: {}}\ntenants_dir: tenants\nkeepalive: 20s\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, s := d.waitsFor(d.asTenant(ctx, "default", "invoke"), code("hostile", "print('ready', flush=True); input()"))
	d.rewrite("keepalive: 20s\n", "keepalive: 30s\n")
	next := d.takeOver()
	next.write("tenants/acme.yaml", "quotas: {running: 1}\n")
	d.untilLogged("tenants reloaded")
	sendLine(t, s, "")
	next.untilAlone(d)
	if n := strings.Count(d.log.String(), "tenants reloaded"); n != 1 {
		t.Errorf("%d daemons have reloaded the tenants, want one", n)
	}
	out, err := exec.Command(binary(t, "skillrund"), "--config", filepath.Join(dir, "skillrund.yaml"), "--check").CombinedOutput()
	if err != nil || strings.Contains(string(out), "differs") {
		t.Errorf("--check: %v\n%s", err, out)
	}
}

// The first process of a PID namespace can't be replaced, because its end would be the end of all others.
func TestTakeoverInContainer(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := launch(t, dir, "", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	pid := strconv.Itoa(d.cmd.Process.Pid)
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	// Before the stop of unshare, which would kill the daemon.
	t.Cleanup(func() {
		syscall.Kill(daemon, syscall.SIGTERM)
		if err := d.wait(); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Kill(daemon, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	d.untilLogged("first process of its container")
	d.works()
}

// While the next daemon reads nothing, the earlier one does not wait for it, and loses no message: a part of one
// would make the next daemon take the connection for the connection of a dead daemon.
func TestPeerThatReadsLate(t *testing.T) {
	ours, theirs, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.SetWriteBuffer(1); err != nil { // the kernel's minimum
		t.Fatal(err)
	}
	n := &nextDaemon{calls: newCalls(ours)}
	defer n.calls.Close()
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint("execution ", i))
		n.Ended(want[i])
	}
	ended := make(chan string, len(want))
	c, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	go serveCalls(c, map[string]peerMethod{callEnded: withoutReply(func(id string) { ended <- id })})
	var got []string
	for range want {
		select {
		case id := <-ended:
			got = append(got, id)
		case <-time.After(patience):
			t.Fatalf("%d of %d messages have come", len(got), len(want))
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("got %d messages, not the ones that were sent", len(got))
	}
}
