package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

func zygoteOf(h *Host) *zygote.Zygote {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return h.pool.zygote
}

// TestPrewarmWithoutDescriptors makes a sandbox and assigns it with one free descriptor,
// two, and so on, both for commands and for forked Pythons.
func TestPrewarmWithoutDescriptors(t *testing.T) {
	h := openForkServer(t)
	z := zygoteOf(h)
	python, err := h.startPythonZygote(z, pythonSpec(nil, "-c", "").pythonKey().Key)
	if err != nil {
		t.Fatal(err)
	}
	defer python.Close()
	snapshot := newSnapshot(t, map[string]string{"a": "a"})
	for _, kind := range []struct {
		name   string
		python *pyzygote.Zygote
		spec   Spec
	}{
		{"executed", nil, Spec{Program: command("/usr/bin/cat", "a"), Env: testEnv}},
		{"forked", python, pythonSpec(nil, "-c", "print(open('a').read(), end='')")},
	} {
		t.Run(kind.name, func(t *testing.T) {
			s := kind.spec
			s.Workspace = Workspace{Lower: []string{snapshot}}
			s.Mounts = []Mount{{Source: snapshot, Target: "/skills/s", Owned: true}, {Source: snapshot, Target: "/opt/s/deep"}}
			s = s.withDefaults()
			refused := map[string]int{}
			note := func(err error) {
				if setup := (*SetupError)(nil); errors.As(err, &setup) {
					refused[setup.Step]++
				} else {
					t.Errorf("got %v, want a *SetupError", err)
				}
			}
			for more := 0; ; more++ {
				if more == 100 {
					t.Fatalf("100 descriptors are not enough: %v", refused)
				}
				var c *sandbox
				var err error
				withDescriptors(t, more, func() { c, err = h.buildCloned(t.Context(), z, kind.python, s) })
				if err == nil {
					c.discard()
					break
				}
				note(err)
			}
			for more, ran := 0, 0; ran == 0; more++ {
				if more == 100 {
					t.Fatalf("100 descriptors are not enough: %v", refused)
				}
				c, err := h.buildCloned(t.Context(), z, kind.python, s)
				if err != nil {
					t.Fatal(err)
				}
				s.ID = fmt.Sprintf("scarce%d", more)
				var out bytes.Buffer
				withDescriptors(t, more, func() { err = c.assign(t.Context(), s, IO{Stdout: &out}) })
				if err != nil {
					note(err)
					c.discard()
					continue
				}
				if err := h.reserve(s.ID); err != nil {
					t.Fatal(err)
				}
				p := newProcess(c, IO{}, time.Now())
				p.supervise()
				if p.exit.Code != 0 || out.String() != "a" {
					t.Errorf("got %+v, %q", p.exit, out.String())
				}
				ran++
			}
			if len(refused) < 3 {
				t.Errorf("only these steps failed: %v", refused)
			}
		})
	}
	python.Close()
	noLeftovers(t, h)
}

// TestZygoteWithoutDescriptors starts a zygote and a Python zygote in the same way.
func TestZygoteWithoutDescriptors(t *testing.T) {
	h := openHost(t)
	h.config.PythonZygotes = 1
	if _, err := h.ids.take(); err != nil { // the zygote's own
		t.Fatal(err)
	}
	var z *zygote.Zygote
	var err error
	failed := 0
	for more := 0; z == nil; more++ {
		if more == 200 {
			t.Fatal("200 descriptors are not enough")
		}
		withDescriptors(t, more, func() { z, err = h.startZygote(h.groups.common) })
		if err != nil {
			z = nil
			failed++
		}
	}
	defer z.Destroy()
	k := pythonSpec([]string{"json"}, "-c", "").pythonKey()
	for more := 0; ; more++ {
		if more == 100 {
			t.Fatal("100 descriptors are not enough")
		}
		var python *pyzygote.Zygote
		withDescriptors(t, more, func() { python, err = h.startPythonZygote(z, k.Key) })
		if err == nil {
			python.Close()
			break
		}
		failed++
	}
	if failed < 6 {
		t.Errorf("%d descriptors were enough", failed)
	}
}

// A zygote that was stopped for longer than the daemon waits makes sandboxes afterwards.
func TestZygoteIsStopped(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: bash("echo fine"), Env: testEnv}
	prewarm(t, h, s, 1)
	z := zygoteOf(h)
	if err := unix.Kill(z.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Usually the zygote is asked within this time and then owes an answer. On a slow machine the
	// program below waits for the zygote instead, which ends in the same way.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c, err := h.build(ctx, cloner{z, nil}, s.withDefaults())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it doesn't answer", err)
	}
	c.discard()
	for range 6 {
		if got := run(t, h, s, ""); got.stdout != "fine\n" {
			t.Errorf("got %+v", got)
		}
	}
	if err := unix.Kill(z.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := eventually(func() error {
			c, err := h.buildCloned(t.Context(), z, nil, s.withDefaults())
			if err == nil {
				err = c.destroy()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	noLeftovers(t, h)
}

// TestPythonZygotesMakeRoom: if there are too many Python zygotes, the one with the oldest
// request ends. One that can't be started doesn't keep its entry. One without requests ends.
func TestPythonZygotesMakeRoom(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed, c.PythonZygotes = 4, 1
	h := openWith(t, c)
	rested := func() {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		h.pool.rest = time.Time{}
	}
	ask := func(s Spec) {
		t.Helper()
		until(t, "no Python zygote is started", func() bool {
			rested() // none starts while the other one forks a child
			if got := run(t, h, s, ""); got.exit.End != Exited {
				t.Errorf("got %+v", got)
			}
			return pythonEntries(h)[s.pythonKey()] != nil
		})
		waitForReady(t, h, s)
	}
	first, second := pythonSpec(nil, "-c", "pass"), pythonSpec([]string{"csv"}, "-c", "pass")
	ask(first)
	ask(second)
	if n := len(pythonEntries(h)); n != 1 || pythonEntries(h)[second.pythonKey()] == nil {
		t.Errorf("got %d Python zygotes, want the second alone", n)
	}
	// A program that does not exist can't start.
	until(t, "a Python zygote that can't be started is not known to be one", func() bool {
		rested() // no start while all Python zygotes have running children
		h.pool.askPythonZygote(pythonKey{Key: noPython()}, "")
		r := pythonEntries(h)[pythonKey{Key: noPython()}]
		return r != nil && r.failed
	})
	ask(first)
	// A Python zygote that is forking a child stays until the next shrink.
	until(t, "a Python zygote that nobody asks for stays", func() bool {
		h.pool.mu.Lock()
		for _, r := range h.pool.pythons {
			r.ask("", time.Now().Add(-2*pythonIdle))
		}
		for _, f := range h.pool.buckets {
			f.asked = time.Now().Add(-2 * poolIdle)
		}
		h.pool.mu.Unlock()
		h.pool.shrink()
		return len(pythonEntries(h)) == 0
	})
	noLeftovers(t, h)
}

// pythonEntries returns a copy of the pool's map of Python zygotes.
func pythonEntries(h *Host) map[pythonKey]*pythonEntry {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	all := map[pythonKey]*pythonEntry{}
	for k, r := range h.pool.pythons {
		all[k] = &pythonEntry{r.zygote, r.failed, r.has, maps.Clone(r.asked)}
	}
	return all
}

func TestWhatIsNotForked(t *testing.T) {
	base := func() Spec { return pythonSpec(nil, "-c", "pass") }
	if base().pythonKey().none() {
		t.Fatal("a Python is not forked")
	}
	for name, change := range map[string]func(*Spec){
		"not said to be a Python":      func(s *Spec) { s.Python = nil },
		"two steps":                    func(s *Spec) { s.Program = append(s.Program, s.Program[0]) },
		"a pipeline":                   func(s *Spec) { p := &s.Program[0].Pipeline; *p = append(*p, (*p)[0]) },
		"a redirect":                   func(s *Spec) { s.Program[0].Pipeline[0].Redirects = []Redirect{{}} },
		"an argument that is no UTF-8": func(s *Spec) { s.Program[0].Pipeline[0].Args[2] = "\xff" },
		"a variable that is no UTF-8":  func(s *Spec) { s.Env = append(s.Env, "X=\xff") },
		"a program of the skill":       func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "/skills/s/venv/bin/python" },
		"a program of an environment":  func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "/opt/environment/bin/python3" },
		"a program of the workspace":   func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "./python3" },
		"a way around to it":           func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "/usr/bin/../../workspace/python3" },
		"no Python":                    func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "/usr/bin/true" },
		"another language":             func(s *Spec) { s.Env = append(s.Env, "LC_ALL=de_DE.UTF-8") },
		"no language":                  func(s *Spec) { s.Env = slices.Delete(s.Env, 2, 3) },
		"another PATH":                 func(s *Spec) { s.Env[0] = "PATH=/workspace:" + pyzygote.Path },
		"another HOME":                 func(s *Spec) { s.Env[1] = "HOME=/workspace" },
		"another PATH of the command":  func(s *Spec) { s.Program[0].Pipeline[0].Env = []string{"PATH=/workspace"} },
		"PYTHONPATH":                   func(s *Spec) { s.Env = append(s.Env, "PYTHONPATH=/workspace") },
		"PYTHONHOME":                   func(s *Spec) { s.Env = append(s.Env, "PYTHONHOME=/workspace") },
		"PYTHONSTARTUP":                func(s *Spec) { s.Env = append(s.Env, "PYTHONSTARTUP=/workspace/x.py") },
		"PYTHONWARNINGS":               func(s *Spec) { s.Env = append(s.Env, "PYTHONWARNINGS=error::evil.Class") },
		"PYTHONUNBUFFERED=x":           func(s *Spec) { s.Env[3] = "PYTHONUNBUFFERED=x" },
		"a module that is not listed":  func(s *Spec) { s.Python.Imports = []string{"json", "evil"} },
		"a module beneath a listed":    func(s *Spec) { s.Python.Imports = []string{"json.tool"} },
		"no module":                    func(s *Spec) { s.Python.Imports = []string{""} },
	} {
		s := base()
		if change(&s); !s.pythonKey().none() {
			t.Errorf("%s: it is forked", name)
		}
	}
}

// TestAssignIsCanceled cancels the context before the sandbox gets anything.
func TestAssignIsCanceled(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{ID: "x", Program: command("true"), Env: testEnv}.withDefaults()
	c, err := h.buildCloned(t.Context(), zygoteOf(h), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("not wanted")
	cancel(cause)
	if err := c.assign(ctx, s, IO{}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	c.discard()
	noLeftovers(t, h)
}
