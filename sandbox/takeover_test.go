package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// peerVar makes the test binary another daemon with the same StateDir, its value. The peer does what its input says.
const peerVar = "SKILLRUN_TEST_PEER"

func init() {
	if os.Getenv(peerVar) != "" {
		mainOfTests = bePeer
	}
}

// A pair is two programs that live: one in the default group, and one in the group acme, and a helper of acme.
type pair struct {
	host   *Host
	talks  []*repeater
	helper *exec.Cmd
	group  *HelperGroup
}

// A repeater is a program that repeats the lines of its input.
type repeater struct {
	in      *io.PipeWriter
	out     *bufio.Reader
	process *Process
}

// startPair starts both programs by the zygotes of their groups, and asks for a forked Python.
func startPair(h *Host) (*pair, error) {
	p := &pair{host: h}
	for n, group := range []string{"", "acme"} {
		for {
			e, err := startRepeater(h, fmt.Sprintf("echo-%d-%d", n, testIDs.Add(1)), group)
			if err != nil {
				return nil, err
			}
			if byZygote(e.process.sandbox) {
				p.talks = append(p.talks, e)
				break
			}
			e.in.Close() // made by libcontainer: the group's zygote has not started yet
			if _, err := e.process.Wait(); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if p.group, err = h.NewHelperGroup("acme", HelperLimits{MemoryBytes: 64 << 20, Processes: 8}); err != nil {
		return nil, err
	}
	p.helper = exec.Command("sleep", "1000")
	if err := p.helper.Start(); err != nil {
		return nil, err
	}
	return p, p.group.Enter(p.helper.Process.Pid)
}

func startRepeater(h *Host, id, group string) (*repeater, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p, err := h.Start(context.Background(), Spec{ID: id, Group: group, Env: testEnv, Program: bash("while read x; do echo $x; done"), Limits: Limits{Wall: time.Hour}}, IO{Stdin: inR, Stdout: outW})
	if err != nil {
		return nil, err
	}
	go func() {
		p.Wait()
		outW.Close()
		inR.Close()
	}()
	return &repeater{inW, bufio.NewReader(outR), p}, nil
}

// check talks to both programs, and runs a Python until it is forked: a forked one has no parent in its sandbox.
func (p *pair) check() error {
	for _, e := range p.talks {
		fmt.Fprintln(e.in, "still here")
		if line, err := e.out.ReadString('\n'); err != nil || line != "still here\n" {
			return fmt.Errorf("a program answers %q, %w", line, err)
		}
	}
	if err := p.helper.Process.Signal(unix.Signal(0)); err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	return eventually(func() error {
		s := pythonSpec(nil, "-c", "import os; print(os.getppid())")
		s.ID = fmt.Sprintf("python-%d", testIDs.Add(1))
		var out bytes.Buffer
		process, err := p.host.Start(context.Background(), s, IO{Stdout: &out})
		if err == nil {
			_, err = process.Wait()
		}
		if err == nil && out.String() != "0\n" {
			err = fmt.Errorf("Python was not forked: %q", out.String())
		}
		return err
	})
}

// end ends the programs and the helper.
func (p *pair) end() error {
	err := p.group.Close()
	_ = p.helper.Wait()
	for _, e := range p.talks {
		e.in.Close()
		_, werr := e.process.Wait()
		err = errors.Join(err, werr)
	}
	return errors.Join(err, p.host.Close())
}

// names are what no other daemon may have: its instance, its ids, the ids of its group and helper, and its cgroups.
func (p *pair) names() string {
	of := p.host.groups.named["acme"]
	return fmt.Sprintln(p.host.instance.name, p.host.ids.first, of.ids.Load().first, p.group.ID(),
		p.talks[0].process.sandbox.group.File("pids", "cgroup.procs"), p.talks[1].process.sandbox.group.File("pids", "cgroup.procs"), p.group.group.File("pids", "cgroup.procs"))
}

func pairConfig(state string) Config {
	return Config{StateDir: state, Prewarmed: 4, GroupZygotes: 1, PythonZygotes: 1}
}

func bePeer() {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", "; "))
			os.Exit(1)
		}
	}
	h, err := Open(context.Background(), pairConfig(os.Getenv(peerVar)))
	fail(err)
	p, err := startPair(h)
	fail(err)
	fmt.Print(p.names())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		what, arg, _ := strings.Cut(in.Text(), " ")
		switch what {
		case "check":
			fail(p.check())
		case "points":
			points, err := mount.Points(arg)
			fail(err)
			if len(points) > 0 {
				fail(fmt.Errorf("inherited: %v", points))
			}
		case "sweep":
			fail(h.Sweep(context.Background()))
		case "close":
			fail(p.end())
		}
	}
}

// A peer is the other daemon.
type peer struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	out   *bufio.Reader
	names []string
}

func startPeer(t *testing.T, state string) *peer {
	t.Helper()
	p := &peer{t: t, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), peerVar+"="+state)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := p.out.ReadString('\n')
	if p.names = strings.Fields(line); err != nil || len(p.names) != 7 {
		t.Fatalf("the other daemon: %q, %v", line, err)
	}
	return p
}

// do has the peer do something.
func (p *peer) do(what string) {
	p.t.Helper()
	fmt.Fprintln(p.in, what)
	if line, err := p.out.ReadString('\n'); err != nil || line != "done\n" {
		p.t.Fatalf("%s: the other daemon says %q, %v", what, line, err)
	}
}

func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// isGone checks that nothing of an instance is left.
func isGone(t *testing.T, h *Host, names []string) {
	t.Helper()
	for _, path := range []string{
		filepath.Join(h.config.StateDir, "instances", names[0]), filepath.Join(h.config.RunDir, names[0]),
		filepath.Dir(names[4]), filepath.Dir(names[5]), filepath.Dir(names[6]),
	} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want that it is gone", path, err)
		}
	}
	if points, err := mount.Points(filepath.Join(h.config.RunDir, names[0])); err != nil || len(points) > 0 {
		t.Errorf("mounts are left: %v, %v", points, err)
	}
}

// Two daemons use one StateDir. They share no ids and no cgroups. Whether one daemon ends or dies, the sandboxes of the
// other go on, and the other can sweep the resources of a dead one.
func TestTwoDaemons(t *testing.T) {
	needsRoot(t)
	state := t.TempDir()
	h, err := Open(t.Context(), pairConfig(state))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := startPair(h)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := p.check(); err != nil {
			t.Error(err)
		}
	}
	check()

	// The test starts the other one in a copy of its mount namespace, and in its cgroup.
	next := startPeer(t, state)
	for i, name := range strings.Fields(p.names()) {
		if next.names[i] == name {
			t.Errorf("both daemons have %s", name)
		}
	}
	next.do("points " + h.instance.run)
	if points, err := mount.Points(h.instance.run); err != nil || len(points) == 0 {
		t.Errorf("the mounts of this daemon are %v, %v", points, err)
	}
	next.do("check")
	check()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Sweep(ctx); err == nil {
		t.Error("a sweep while the other daemon lives: no error")
	}
	next.do("check")

	t.Run("close", func(t *testing.T) {
		next.do("close")
		isGone(t, h, next.names)
		check()
	})
	t.Run("death", func(t *testing.T) {
		next := startPeer(t, state)
		next.kill()
		if err := h.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		isGone(t, h, next.names)
		check()
	})
	t.Run("takeover", func(t *testing.T) {
		next := startPeer(t, state)
		names := strings.Fields(p.names())
		if err := p.end(); err != nil {
			t.Error(err)
		}
		isGone(t, h, names)
		next.do("check")
		next.do("sweep") // there is nothing left
		next.do("check")
		// It becomes the earlier one, and dies.
		after, err := Open(t.Context(), Config{StateDir: state})
		if err != nil {
			t.Fatal(err)
		}
		defer after.Close()
		next.do("check")
		next.kill()
		if err := after.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		isGone(t, after, next.names)
		if got := run(t, after, Spec{Program: command("echo", "x"), Env: testEnv}, ""); got.stdout != "x\n" {
			t.Errorf("got %+v", got)
		}
	})
}

// After HandOver, a Host holds no sandboxes, zygotes and ids for later programs. Programs still start.
func TestHandOver(t *testing.T) {
	t.Parallel()
	h := openWith(t, pairConfig(testConfig(t).StateDir))
	p, err := startPair(h)
	if err != nil {
		t.Fatal(err)
	}
	python := pythonSpec(nil, "-c", "print(1)")
	run(t, h, python, "")
	waitForReady(t, h, python)
	counts := func() (waiting, pythons, zygotes int) {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		for _, b := range h.pool.buckets {
			waiting += len(b.waiting)
		}
		return waiting, len(h.pool.pythons), len(h.pool.byGroup)
	}
	h.HandOver()
	until(t, "prewarmed sandboxes or Python zygotes are left", func() bool {
		waiting, pythons, _ := counts()
		return waiting == 0 && pythons == 0
	})
	if _, _, zygotes := counts(); zygotes != 1 {
		t.Errorf("%d zygotes of groups, want the one whose program runs", zygotes)
	}
	acme := p.talks[1]
	for _, e := range p.talks {
		fmt.Fprintln(e.in, "x")
		if line, err := e.out.ReadString('\n'); err != nil || line != "x\n" {
			t.Errorf("got %q, %v", line, err)
		}
	}
	acme.in.Close()
	if _, err := acme.process.Wait(); err != nil {
		t.Error(err)
	}
	until(t, "the idle group has ids", func() bool {
		h.groups.mu.Lock()
		defer h.groups.mu.Unlock()
		of := h.groups.named["acme"]
		return of == nil || of.ids.Load() == nil
	})
	for _, group := range []string{"", "acme", "other"} {
		if got := run(t, h, Spec{Group: group, Program: command("echo", "x"), Env: testEnv}, ""); got.stdout != "x\n" {
			t.Errorf("group %q: got %+v", group, got)
		}
	}
	if got := run(t, h, python, ""); got.stdout != "1\n" {
		t.Errorf("got %+v", got)
	}
	if waiting, pythons, zygotes := counts(); waiting+pythons+zygotes > 0 {
		t.Errorf("%d sandboxes wait, %d Python zygotes, %d zygotes of groups", waiting, pythons, zygotes)
	}
	h.Resume()
	h.pool.mu.Lock()
	h.pool.rest = time.Time{} // as if the pause after the last start were over: it is long if that start was slow
	h.pool.mu.Unlock()
	run(t, h, python, "")
	waitForReady(t, h, python)
	if err := p.end(); err != nil {
		t.Error(err)
	}
}
