package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

func asSetup(err error, target **SetupError) bool { return errors.As(err, target) }

// talk is a program that the test talks to through its streams. A line of its output shows
// how far the program got.
type talk struct {
	t   *testing.T
	p   *Process
	in  *io.PipeWriter
	out *io.PipeReader
}

func startTalk(t *testing.T, h *Host, s Spec, collect func(*os.Root) error) *talk {
	t.Helper()
	return startTalkBy(t, h.Start, s, collect)
}

// startTalkBy is startTalk with the Start of a Host that is given.
func startTalkBy(t *testing.T, start func(context.Context, Spec, IO) (*Process, error), s Spec, collect func(*os.Root) error) *talk {
	t.Helper()
	s.ID = fmt.Sprintf("t%d", testIDs.Add(1))
	s.Env = testEnv
	s.Limits.Wall = patientWall(s.Limits.Wall)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p, err := start(context.Background(), s, IO{Stdin: inR, Stdout: outW, Collect: collect})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Wait()
		outW.Close()
		inR.Close()
	}()
	return &talk{t: t, p: p, in: inW, out: outR}
}

func (k *talk) line(want string) {
	k.t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(k.out, b); err != nil || string(b) != want {
		k.t.Fatalf("got %q, %v, want %q", b, err, want)
	}
}

func (k *talk) wait() Exit {
	k.t.Helper()
	rest := make(chan []byte)
	go func() { b, _ := io.ReadAll(k.out); rest <- b }()
	exit, err := k.p.Wait()
	if err != nil {
		k.t.Fatal(err)
	}
	if b := <-rest; len(b) > 0 {
		k.t.Errorf("more output: %q", b)
	}
	return exit
}

func TestSignal(t *testing.T) { eachMaker(t, testSignal) }

func testSignal(t *testing.T, h *Host) {
	k := startTalk(t, h, Spec{Program: bash(`trap 'echo usr1' USR1; trap 'exit 5' INT; echo ready; while :; do sleep 0.02; done`)}, nil)
	k.line("ready\n")
	if err := k.p.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	k.line("usr1\n")
	if err := k.p.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if exit := k.wait(); exit.End != Exited || exit.Code != 5 {
		t.Errorf("got %+v", exit)
	}
	if err := k.p.Signal(syscall.SIGINT); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v, want %v", err, ErrEnded)
	}
	if err := k.p.Signal(0); err == nil {
		t.Error("signal 0 was sent")
	}
}

func TestSignalReachesTheMainProcessOnly(t *testing.T) {
	eachMaker(t, testSignalReachesTheMainProcessOnly)
}

func testSignalReachesTheMainProcessOnly(t *testing.T, h *Host) {
	k := startTalk(t, h, Spec{Program: pipeline(
		cmd("bash", "-c", `trap 'echo first' TERM; while :; do sleep 0.02; echo x || exit; done`),
		cmd("bash", "-c", `trap 'echo last; exit 4' TERM; echo ready; while read x; do [ $x = first ] && echo both; done`),
	)}, nil)
	k.line("ready\n")
	k.p.Signal(syscall.SIGTERM)
	k.line("last\n")
	if exit := k.wait(); exit.End != Exited || exit.Code != 4 {
		t.Errorf("got %+v", exit)
	}
}

// TestSignalDuringChurn: init still forwards signals while it reaps hundreds of orphans.
func TestSignalDuringChurn(t *testing.T) { eachMaker(t, testSignalDuringChurn) }

func testSignalDuringChurn(t *testing.T, h *Host) {
	k := startTalk(t, h, Spec{
		Program: command("python3", "-c", `
import os, signal
for i in range(8):
    if os.fork() == 0:
        while True:
            try:
                if os.fork() == 0:
                    try:
                        if os.fork() == 0: os._exit(0)
                    finally: os._exit(0)
                os.wait()
            except OSError: pass
# A handler and pause would miss a signal that comes between the two.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
os._exit(9)`),
		Limits: Limits{Processes: 200, MemoryBytes: 2 << 30}, // a forked Python takes some MiB
	}, nil)
	k.line("ready\n")
	if err := k.p.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	if exit := k.wait(); exit.End != Exited || exit.Code != 9 {
		t.Errorf("got %+v", exit)
	}
}

func TestStop(t *testing.T) { eachMaker(t, testStop) }

func testStop(t *testing.T, h *Host) {
	for _, tt := range []struct {
		name   string
		script string
		grace  time.Duration
		code   int
		signal syscall.Signal
		said   string
	}{
		{"at once", "echo ready; sleep 1000", 0, 0, syscall.SIGKILL, ""},
		{"in its grace", "trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.02; done", time.Minute, 6, 0, "bye\n"},
		{"after its grace", "trap '' TERM; echo ready; while :; do sleep 0.02; done", 50 * time.Millisecond, 0, syscall.SIGKILL, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := startTalk(t, h, Spec{Program: bash(tt.script)}, nil)
			k.line("ready\n")
			for range 100 {
				k.p.Stop(time.Hour)
			}
			k.p.Stop(tt.grace) // the sooner end counts
			k.p.Stop(time.Hour)
			k.line(tt.said)
			if exit := k.wait(); exit.End != Stopped || exit.Code != tt.code || exit.Signal != tt.signal {
				t.Errorf("got %+v", exit)
			}
		})
	}
}

func TestCanceledStart(t *testing.T) { eachMaker(t, testCanceledStart) }

func testCanceledStart(t *testing.T, h *Host) {
	for i := range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(i*2)*time.Millisecond, cancel) // anywhere in a start
		p, err := h.Start(ctx, Spec{ID: fmt.Sprintf("c%d", i), Program: command("sleep", "1000"), Env: testEnv}, IO{})
		var setup *SetupError
		switch {
		case err == nil: // too late
			p.Stop(0)
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, context.Canceled) || !asSetup(err, &setup):
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		cancel()
	}
	noLeftovers(t, h)
}

func TestExecErrors(t *testing.T) { eachMaker(t, testExecErrors) }

func testExecErrors(t *testing.T, h *Host) {
	for _, tt := range []struct {
		name  string
		spec  Spec
		step  string
		cause error
	}{
		{"missing program", Spec{Program: command("/usr/bin/nonesuch")}, "exec", syscall.ENOENT},
		{"missing in PATH", Spec{Program: command("nonesuch")}, "exec", syscall.ENOENT},
		{"empty name", Spec{Program: command("")}, "exec", syscall.ENOENT},
		{"not executable", Spec{Program: command("/etc/passwd")}, "exec", syscall.EACCES},
		{"argument too long", Spec{Program: command("true", string(bytes.Repeat([]byte("x"), 200_000)))}, "exec", syscall.E2BIG},
		{"missing directory", Spec{Program: command("true"), Dir: "none"}, "directory", syscall.ENOENT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.ID, tt.spec.Env = "x", testEnv
			_, err := h.Start(context.Background(), tt.spec, IO{})
			var setup *SetupError
			if !asSetup(err, &setup) || setup.Step != tt.step || !errors.Is(err, tt.cause) {
				t.Errorf("got %v, want step %s, %v", err, tt.step, tt.cause)
			}
			noLeftovers(t, h)
		})
	}
}

func TestSameID(t *testing.T) { eachMaker(t, testSameID) }

func testSameID(t *testing.T, h *Host) {
	s := Spec{ID: "same", Program: command("sleep", "1000"), Env: testEnv}
	p, err := h.Start(context.Background(), s, IO{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(context.Background(), s, IO{}); err == nil {
		t.Error("a second sandbox with the same id runs")
	}
	p.Stop(0)
	p.Wait()
	s.Program = command("true")
	if p, err = h.Start(context.Background(), s, IO{}); err != nil {
		t.Fatal(err)
	}
	p.Wait()
}

func TestCloseEndsWhatRuns(t *testing.T) {
	h, err := Open(context.Background(), testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	k := startTalk(t, h, Spec{Program: bash("echo ready; sleep 1000")}, nil)
	k.line("ready\n")
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if exit := k.wait(); exit.End != Stopped {
		t.Errorf("got %v, want %v", exit.End, Stopped)
	}
	if _, err := h.Start(context.Background(), Spec{ID: "late", Program: command("true")}, IO{}); !errors.Is(err, errClosed) {
		t.Errorf("got %v, want %v", err, errClosed)
	}
	noLeftovers(t, h)
	for _, dir := range []string{h.instance.run, h.instance.state} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestIDsAreUnique(t *testing.T) { eachMaker(t, testIDsAreUnique) }

func testIDsAreUnique(t *testing.T, h *Host) {
	const n = 20
	var mu sync.Mutex
	seen := map[idPair]int{}
	var all []*talk
	for range n {
		k := startTalk(t, h, Spec{Program: bash("echo ready; read x; echo $x")}, nil)
		k.line("ready\n")
		all = append(all, k)
	}
	for _, k := range all {
		mu.Lock()
		seen[k.p.sandbox.ids]++
		mu.Unlock()
	}
	if len(seen) != n {
		t.Errorf("got %d different pairs of ids, want %d", len(seen), n)
	}
	for i, k := range all {
		fmt.Fprintln(k.in, i)
		k.line(fmt.Sprintln(i))
		if exit := k.wait(); exit.Code != 0 {
			t.Errorf("got %+v", exit)
		}
	}
	h.pool.close() // also discards prewarmed sandboxes and waits for deferred teardowns
	for i, used := range h.ids.used {
		zygotes := i == 0 && h.pool != nil
		if used && !zygotes {
			t.Errorf("pair %d is still in use", i)
		}
	}
}
