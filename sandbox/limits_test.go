package sandbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// soon is a deadline that a test can reach. later is a deadline that lets an interpreter
// start and do something before, even on a busy machine.
const (
	soon  = 500 * time.Millisecond
	later = 5 * time.Second
)

func TestDeadlines(t *testing.T) {
	t.Parallel()
	eachMaker(t, testDeadlines)
}

func testDeadlines(t *testing.T, h *Host) {
	for _, tt := range []struct {
		name     string
		program  Program
		limits   Limits
		deadline Deadline
		stdout   string
	}{
		{"sleeping", command("sleep", "1000"), Limits{Wall: soon}, Wall, ""},
		{"spinning", bash("while :; do :; done"), Limits{Wall: soon}, Wall, ""},
		{"TERM handler has the grace", bash("trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done"), Limits{Wall: later, Grace: time.Minute}, Wall, "bye\n"},
		{"TERM ignored", bash("trap '' TERM; while :; do sleep 0.05; done"), Limits{Wall: later, Grace: 100 * time.Millisecond}, Wall, ""},
		{"stopped", bash("kill -STOP $$; echo never"), Limits{Wall: later, Grace: 100 * time.Millisecond}, Wall, ""},
		{"CPU", bash("while :; do :; done"), Limits{CPU: 200 * time.Millisecond}, CPU, ""},
		{"CPU of many children", bash("for i in 1 2 3 4; do while :; do :; done & done; wait"), Limits{CPU: 200 * time.Millisecond}, CPU, ""},
		{"no further step", Program{{Pipeline: []Command{cmd("sleep", "1000")}}, {Pipeline: []Command{cmd("echo", "never")}}}, Limits{Wall: soon, Grace: time.Second}, Wall, ""},
		{"fork bomb", bash(":(){ :|:& };:; sleep 1000"), Limits{Wall: soon, Processes: 32}, Wall, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, h, Spec{Program: tt.program, Env: testEnv, Limits: tt.limits}, "")
			if got.exit.End != TimedOut || got.exit.Deadline != tt.deadline {
				t.Errorf("got %v %v, want %v %v", got.exit.End, got.exit.Deadline, TimedOut, tt.deadline)
			}
			if got.stdout != tt.stdout {
				t.Errorf("got %q, want %q", got.stdout, tt.stdout)
			}
		})
	}
}

func TestOutOfMemory(t *testing.T) { eachMaker(t, testOutOfMemory) }

func testOutOfMemory(t *testing.T, h *Host) {
	eat := `x = bytearray(200 << 20); x[::4096] = b"x" * len(x[::4096]); print("never")`
	for _, tt := range []struct {
		name    string
		program Program
	}{
		{"main", command("python3", "-c", eat)},
		{"a child, and main goes on", bash(`python3 -c '` + eat + `'; sleep 1000`)},
		{"a child, and main ends well", bash(`python3 -c '` + eat + `'; exit 0`)},
		{"a file on tmpfs", bash("head -c 200M /dev/zero >/tmp/f")},
		{"memory files", command("python3", "-c", "import os\nfor i in range(200): os.write(os.memfd_create('x'), bytes(1 << 20))")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: tt.program, Env: testEnv, Limits: Limits{MemoryBytes: 64 << 20}}, "")
			if got.exit.End != OOMKilled || got.exit.OOMKills == 0 {
				t.Errorf("got %+v", got.exit)
			}
			if got.exit.Usage.MemoryPeakBytes < 32<<20 || got.exit.Usage.MemoryPeakBytes > 64<<20 {
				t.Errorf("peak: got %d", got.exit.Usage.MemoryPeakBytes)
			}
			if got.stdout != "" {
				t.Errorf("got %q", got.stdout)
			}
		})
	}
}

func TestTooLittleMemory(t *testing.T) { eachMaker(t, testTooLittleMemory) }

func testTooLittleMemory(t *testing.T, h *Host) {
	for mib := range int64(12) {
		p, err := h.Start(context.Background(), Spec{ID: "tiny", Program: command("true"), Env: testEnv, Limits: Limits{MemoryBytes: mib<<20 + 4096}}, IO{})
		if err == nil { // enough for init
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
			continue
		}
		var setup *SetupError
		if !asSetup(err, &setup) || setup.Step != "memory" || !strings.Contains(err.Error(), "too few") {
			t.Errorf("%d MiB: got %v", mib, err)
		}
	}
	noLeftovers(t, h)
}

func TestProcesses(t *testing.T) { eachMaker(t, testProcesses) }

func testProcesses(t *testing.T, h *Host) {
	count := `
import os, time
n = 0
try:
    while True:
        if os.fork() == 0: time.sleep(1000)
        n += 1
except OSError as e: print(n, e.strerror)`
	got := run(t, h, Spec{Program: command("python3", "-c", count), Env: testEnv, Limits: Limits{Processes: 7}}, "")
	if want := "7 Resource temporarily unavailable\n"; got.stdout != want {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
	if got.exit.PidsMax == 0 || got.exit.PidsOfGroup {
		t.Errorf("the refused fork: got %+v", got.exit)
	}
	got = run(t, h, Spec{Program: command("echo", "alone"), Env: testEnv, Limits: Limits{Processes: 1}}, "")
	if got.stdout != "alone\n" {
		t.Errorf("got %q", got.stdout)
	}
}

func TestFiles(t *testing.T) { eachMaker(t, testFiles) }

func testFiles(t *testing.T, h *Host) {
	spec := Spec{Env: testEnv, Limits: Limits{OpenFiles: 64}, Workspace: Workspace{SizeBytes: 1 << 20, Files: 20}}
	for _, tt := range []struct{ name, script, want string }{
		{"size", "head -c 1M /dev/zero >a; head -c 1M /dev/zero >b", "No space left on device"},
		{"one file", "python3 -c 'open(\"a\", \"wb\").truncate(2 << 20)'", "File too large"},
		{"inodes", "touch $(seq 40)", "No space left on device"},
		{"descriptors", "python3 -c 'import os\nwhile 1: os.dup(0)'", "Too many open files"},
		{"home", "cd; head -c 1M /dev/zero >a; head -c 1M /dev/zero >b", "No space left on device"},
		{"inodes of home", "cd; touch $(seq 17000)", "No space left on device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := spec
			s.Program = bash(tt.script)
			got := run(t, h, s, "")
			if !strings.Contains(got.stderr, tt.want) {
				t.Errorf("got %.300q, want %q", got.stderr, tt.want)
			}
		})
	}
}

func TestUsage(t *testing.T) { eachMaker(t, testUsage) }

func testUsage(t *testing.T, h *Host) {
	got := run(t, h, Spec{Program: command("python3", "-c", "x = bytearray(50 << 20)\nfor i in range(3_000_000): pass"), Env: testEnv}, "")
	u := got.exit.Usage
	if u.UserCPU <= 0 || u.Wall <= 0 || u.Setup <= 0 || u.MemoryPeakBytes < 50<<20 {
		t.Errorf("got %+v", u)
	}
}

// counting counts and compares bytes without storing them.
type counting struct{ n, bad int64 }

func (c *counting) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != byte('a'+c.n%26) {
			c.bad++
		}
		c.n++
	}
	return len(p), nil
}

func TestMuchOutputAndInput(t *testing.T) { eachMaker(t, testMuchOutputAndInput) }

func testMuchOutputAndInput(t *testing.T, h *Host) {
	const size = 50 << 20
	var out, errs counting
	spec := Spec{ID: "much", Program: bash("tee /dev/stderr"), Env: testEnv, Limits: Limits{Wall: 5 * time.Minute}}
	p, err := h.Start(context.Background(), spec,
		IO{Stdin: io.LimitReader(&alphabet{}, size), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.End != Exited || exit.Code != 0 {
		t.Fatal(exit, err)
	}
	for _, c := range []counting{out, errs} {
		if c.n != size || c.bad != 0 {
			t.Errorf("got %d bytes, %d of them wrong, want %d", c.n, c.bad, size)
		}
	}
}

type alphabet struct{ n int64 }

func (a *alphabet) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte('a' + a.n%26)
		a.n++
	}
	return len(p), nil
}

func TestIgnoredInput(t *testing.T) {
	h := openHost(t)
	p, err := h.Start(context.Background(), Spec{ID: "ignored", Program: command("true"), Env: testEnv}, IO{Stdin: &alphabet{}})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.End != Exited || exit.Code != 0 {
		t.Errorf("got %+v, %v", exit, err)
	}
}

type brokenWriter struct{ writes int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	w.writes++
	return 0, fmt.Errorf("client is gone")
}

func TestBrokenWriter(t *testing.T) { eachMaker(t, testBrokenWriter) }

func testBrokenWriter(t *testing.T, h *Host) {
	w := &brokenWriter{}
	p, err := h.Start(context.Background(), Spec{ID: "broken", Program: bash("head -c 1M /dev/zero && echo done >&2"), Env: testEnv}, IO{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 0 || w.writes != 1 {
		t.Errorf("got %+v, %v after %d writes", exit, err, w.writes)
	}
}
