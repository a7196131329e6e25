package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

func openForkServer(t testing.TB) *Host {
	c := testConfig(t)
	c.Prewarmed, c.PythonZygotes = 4, 2
	return openWith(t, c)
}

// pythonSpec is a Spec that may be forked.
func pythonSpec(imports []string, args ...string) Spec {
	return Spec{
		Program: command(append([]string{"python3"}, args...)...), Python: &Python{Imports: imports},
		Env: []string{"PATH=" + pyzygote.Path, "HOME=/home/skill", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"},
	}
}

// waitForReady returns when a sandbox with a forked Python waits for s. Until then s counts as
// asked for: on a slow machine the last request may be so old that the pool gives others its room.
func waitForReady(t testing.TB, h *Host, s Spec) {
	t.Helper()
	key := s.withDefaults().profile()
	until(t, "no forked Python waits", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		key.python = h.pool.serving(s.pythonKey(), s.Caller)
		f := h.pool.buckets[key]
		if f != nil {
			f.asked = time.Now()
			h.pool.wakeUp()
		}
		return !key.python.none() && f != nil && len(f.waiting) > 0
	})
}

func TestPythonZygote(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec([]string{"json"}, "-c", "import os, sys; print(2 + 2, os.getpid() > 1, sys.argv); sys.exit(3)", "x")
	run(t, h, s, "") // asks for it
	for range 3 {
		waitForReady(t, h, s)
		got := run(t, h, s, "")
		if got.exit.End != Exited || got.exit.Code != 3 || got.stdout != "4 True ['-c', 'x']\n" {
			t.Errorf("got %+v", got)
		}
	}
	noLeftovers(t, h)
}

// A Python zygote imports each module that a started Python can import in a sandbox. A module that can't be imported
// there, for example because it wants a temporary directory, must not be in the list: what is left of it would be in
// every script.
func TestPythonZygoteImportsWhatPythonImports(t *testing.T) {
	h := openForkServer(t)
	const there = `import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        print(name)
    except ImportError:
        pass`
	s := pythonSpec(nil, append([]string{"-c", there}, PythonModules()...)...)
	s.Program[0].Pipeline[0].Args[0] = "/usr/bin/python3" // has the packages of Debian
	s.Python = nil
	imported := strings.Fields(run(t, h, s, "").stdout)
	if !slices.Contains(imported, "numpy") {
		t.Fatalf("Debian's Python imports only %v", imported)
	}
	s = pythonSpec(imported, append([]string{"-c", "import sys; print(*(m for m in sys.argv[1:] if m not in sys.modules))"}, imported...)...)
	s.Program[0].Pipeline[0].Args[0] = "/usr/bin/python3"
	run(t, h, s, "") // asks for it
	waitForReady(t, h, s)
	if got := run(t, h, s, ""); got.stdout != "\n" {
		t.Errorf("not imported: %s%s", got.stdout, got.stderr)
	}
}

// A script that imports matplotlib works in a forked Python as in a started one.
func TestForkedMatplotlib(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec([]string{"numpy"}, "-c", "import matplotlib; from matplotlib.text import Text; Text(0, 0, 'x'); print(hasattr(matplotlib, 'colors'))")
	s.Program[0].Pipeline[0].Args[0] = "/usr/bin/python3"
	for range 2 {
		if got := run(t, h, s, ""); got.stdout != "True\n" {
			t.Fatalf("got %+v", got)
		}
		waitForReady(t, h, s)
	}
}

// If no child waits, a program is forked at its Start. A forked program has no parent in its
// sandbox; the parent of an executed one is init.
func TestPythonZygoteIsForkedWhenAskedFor(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "import os; print(os.getppid())")
	run(t, h, s, "")
	waitForReady(t, h, s)
	var all sync.WaitGroup
	for range 6 { // more than the waiting sandboxes
		all.Go(func() {
			if got := run(t, h, s, ""); got.stdout != "0\n" || got.exit.End != Exited {
				t.Errorf("got %+v", got)
			}
		})
	}
	all.Wait()
	noLeftovers(t, h)
}

// noPython returns the key of a Python that no machine has.
func noPython() pyzygote.Key { return pyzygote.NewKey("/bin/python3.39", pythonSpec(nil).Env, nil) }

// The environment of Python zygotes names directories of a sandbox's root.
func TestPythonZygoteFindsItsDirectories(t *testing.T) {
	if got := pyzygote.NewKey("python3", pythonSpec(nil).Env, nil).Env(); !slices.Contains(got, "HOME="+mount.HomeDir) || !strings.HasSuffix(pyzygote.Path, ":"+mount.LinksDir) {
		t.Errorf("got %q, want the home %s, and %s at the end of PATH", got, mount.HomeDir, mount.LinksDir)
	}
}

// The end of a Python zygote during its imports is noticed. Neither the pool nor Close waits
// for the imports.
func TestPythonZygoteThatEnds(t *testing.T) {
	h := openForkServer(t)
	_, err := h.startPythonZygote(zygoteOf(h), noPython())
	if err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("got %v, want that it is gone", err)
	}
}

// When a Python zygote ends, its waiting children end. No request gets one of them.
func TestPythonZygoteThatIsKilled(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "print(2+2)")
	for range 3 {
		run(t, h, s, "")
		waitForReady(t, h, s)
		python := pythonEntries(h)[s.pythonKey()].zygote
		if err := unix.Kill(python.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-python.Gone()
		if got := run(t, h, s, ""); got.stdout != "4\n" || got.exit.End != Exited {
			t.Errorf("the next request: got %+v", got)
		}
		h.pool.mu.Lock()
		h.pool.rest = time.Time{} // the next one may start at once
		h.pool.mu.Unlock()
	}
	noLeftovers(t, h)
}

// A process that names its own parent for its child's would leave it to the
// interpreter, which doesn't wait for it; the sandbox would never end.
func TestPythonZygoteHasNoSiblings(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x8000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
print(pid, os.getppid())`)
	run(t, h, s, "")
	waitForReady(t, h, s)
	if got := run(t, h, s, ""); got.stdout != "-1 0\n" || got.exit.End != Exited {
		t.Errorf("got %+v", got)
	}
	noLeftovers(t, h)
}

// A forked Python skips the destruction of its modules if no difference can be seen. This
// script can see one: its callback is a function of a preloaded module, and those don't
// prevent the fast exit. With a callback of the script, nothing is skipped.
func TestPythonZygoteLeavesThingsAsTheyAre(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the fast exit exists only on x86_64")
	}
	h := openForkServer(t)
	for function, want := range map[string]bool{"json.loads": false, "print": true} {
		s := pythonSpec([]string{"json"}, "-c", `
import json, sys, weakref
class Thing: pass
thing = Thing()
reference = weakref.ref(thing, `+function+`)
sys.exit(7)`)
		run(t, h, s, "")
		waitForReady(t, h, s)
		got := run(t, h, s, "")
		if said := got.stdout+got.stderr != ""; got.exit.Code != 7 || said != want {
			t.Errorf("%s: got %+v, want that it is called: %v", function, got, want)
		}
	}
}

// Without the fast exit a forked script ends like an executed one: atexit functions,
// finalizers and callbacks come in the same order, with the same exit code. The fast exit
// would leave out the callback of the second script.
func TestPythonFastExitOff(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed, c.PythonZygotes, c.PythonFastExit = 4, 2, false
	h := openWith(t, c)
	for _, tt := range []struct{ name, code, stdout, stderr string }{
		{"finalizers", `
import atexit, weakref
class Thing:
    def __del__(self): print("deleted")
class Other: pass
atexit.register(print, "at exit")
thing, other = Thing(), Other()
weakref.finalize(other, print, "finalized")`, "finalized\nat exit\ndeleted\n", ""},
		{"a callback", `
import json, weakref
class Thing: pass
thing = Thing()
reference = weakref.ref(thing, json.loads)`, "", "Exception ignored in: <function loads"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := pythonSpec([]string{"json"}, "-c", "import os, sys\nprint(os.getppid())"+tt.code+"\nsys.exit(7)")
			executed := s
			executed.Python = nil
			want := run(t, h, executed, "")
			run(t, h, s, "") // asks for it
			waitForReady(t, h, s)
			got := run(t, h, s, "")
			if !strings.HasPrefix(got.stdout, "0\n") {
				t.Errorf("it was not forked: %+v", got)
			}
			for who, r := range map[string]result{"forked": got, "executed": want} {
				_, output, _ := strings.Cut(r.stdout, "\n")
				if output != tt.stdout || !strings.HasPrefix(r.stderr, tt.stderr) || (r.stderr == "") != (tt.stderr == "") || r.exit.End != Exited || r.exit.Code != 7 {
					t.Errorf("%s: got %+v, want %q and %q", who, r, tt.stdout, tt.stderr)
				}
			}
		})
	}
	noLeftovers(t, h)
}

// A late report of a child's end is not taken for the end of another child that has the same
// ids by then.
func TestPythonZygoteEndsAsItself(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "print(input())")
	run(t, h, s, "") // asks for it
	waitForReady(t, h, s)
	key := s.withDefaults().profile()
	key.python = s.pythonKey()
	python := pythonEntries(h)[key.python].zygote
	until(t, "the pool still makes sandboxes", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		return len(h.pool.buckets[key].waiting) >= h.pool.buckets[key].want
	})
	h.pool.mu.Lock()
	h.pool.buckets[key].want = 0 // the pool makes no further sandbox
	old := h.pool.buckets[key].waiting[0]
	h.pool.buckets[key].waiting = h.pool.buckets[key].waiting[1:]
	h.pool.mu.Unlock()
	signalPythonZygote := func(s syscall.Signal) {
		t.Helper()
		if err := unix.Kill(python.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signalPythonZygote(unix.SIGSTOP) // it is busy
	old.discard()
	for { // so that its pair of ids is the first that is free
		lower, err := h.ids.take()
		if err != nil {
			t.Fatal(err)
		}
		if lower.index >= old.ids.index {
			h.ids.release(lower)
			break
		}
		defer h.ids.release(lower)
	}
	before := python.Children()
	var next *sandbox
	var err error
	made := make(chan struct{})
	go func() {
		defer close(made)
		next, err = h.buildCloned(t.Context(), zygoteOf(h), python, s.withDefaults())
	}()
	until(t, "the next one is not asked for", func() bool { return python.Children() > before })
	signalPythonZygote(unix.SIGCONT)
	<-made
	if err != nil {
		t.Fatal(err)
	}
	defer next.discard()
	if next.ids != old.ids {
		t.Fatalf("got ids %s, want %s again", next.ids, old.ids)
	}
	if !next.waits() {
		t.Error("it waits, and is said to have ended")
	}
}

// Python runs code of the .pth files in a directory of packages at its start. In a forked
// Python, too, this code is part of the program: its output is seen, the deadline holds for
// it, it can end the program, and it can't talk to the daemon.
func TestPythonZygoteRunsPackages(t *testing.T) {
	h := openForkServer(t)
	for _, tt := range []struct{ name, line string }{
		{"harmless", "import sys; sys.seen = 1"},
		{"raises", "import nothing"},
		{"exits", "import sys; sys.exit(5)"},
		{"ends it", "import os; os._exit(9)"},
		{"hangs", "import time; time.sleep(600)"},
		{"speaks", `import os; [print("socket") for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}") and "socket" in os.readlink(f"/proc/self/fd/{fd}")]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := publicDir(t)
			version, err := exec.Command("/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2], end='')").Output()
			if err != nil {
				t.Fatal(err)
			}
			packages := filepath.Join(base, "venv/lib", string(version), "site-packages")
			if err := os.MkdirAll(packages, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(packages, "its.pth"), []byte(tt.line+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s := pythonSpec(nil, "-c", "import sys; print('runs', hasattr(sys, 'seen'))")
			s.Mounts = []Mount{{Source: base, Target: "/skills/its"}}
			s.Env = append(s.Env, "PYTHONUSERBASE=/skills/its/venv")
			if tt.name == "hangs" {
				s.Limits.Wall = time.Second
			}
			executed := s
			executed.Python = nil
			want := run(t, h, executed, "")
			run(t, h, s, "") // asks for it
			waitForReady(t, h, s)
			got := run(t, h, s, "")
			if got.exit.End != want.exit.End || got.exit.Code != want.exit.Code || got.exit.Deadline != want.exit.Deadline || got.stdout != want.stdout || got.stderr != want.stderr {
				t.Errorf("got %+v, executed %+v", got, want)
			}
		})
	}
}

// A script learns nothing about other scripts that the same Python zygote forked.
func TestPythonZygoteKnowsNoSibling(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "import sys; print(sys.path_hooks.zygote.children)")
	run(t, h, s, "") // asks for it, and fails
	waitForReady(t, h, s)
	for range 3 {
		waitForReady(t, h, s)
		if got := run(t, h, s, ""); got.stdout != "{}\n" {
			t.Errorf("got %+v", got)
		}
	}
}

// A script that may be a zip file is executed, so that reading it is part of the program: a
// search of the file may take long.
func TestPythonZygoteReadsNoZipAhead(t *testing.T) {
	h := openForkServer(t)
	for end, want := range map[string]string{"": "True\n", "PK\x05\x06 is how a zip file's end begins": "False\n"} {
		base := publicDir(t)
		if err := os.WriteFile(filepath.Join(base, "script"), []byte("import sys\nprint('ctypes' in sys.modules)\n# "+end+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := pythonSpec(nil, "/skills/its/script")
		s.Mounts = []Mount{{Source: base, Target: "/skills/its"}}
		run(t, h, s, "") // asks for it
		waitForReady(t, h, s)
		if got := run(t, h, s, ""); got.stdout != want {
			t.Errorf("%q: got %+v, want preloaded modules: %s", end, got, want)
		}
	}
}

// A program that may search for modules beneath the workspace is forked, unless a module
// there has the name of a preloaded one.
func TestPythonZygoteLooksForModules(t *testing.T) {
	h := openForkServer(t)
	many := map[string]string{}
	for i := range 5000 {
		many[fmt.Sprintf("data/%d.txt", i)] = ""
	}
	for _, tt := range []struct {
		name   string
		files  map[string]string
		link   string // to a directory outside of it
		forked bool
	}{
		{"nothing", nil, "", true},
		{"other modules", map[string]string{"lib/mine.py": "", "lib/json.txt": "", "lib/json/readme.md": "", "lib/mine/__init__.py": ""}, "", true},
		{"a module", map[string]string{"lib/deep/json.py": ""}, "", false},
		{"a compiled one", map[string]string{"lib/json.cpython-311-x86_64-linux-gnu.so": ""}, "", false},
		{"a package", map[string]string{"lib/json/__init__.py": ""}, "", false},
		{"a link", map[string]string{"lib/mine.py": "", "other/mine.py": ""}, "lib/json", false},
		{"a virtual environment", map[string]string{"venv/pyvenv.cfg": "", "venv/lib/python3.11/site-packages/a/json.py": ""}, "", true},
		{"a package of a virtual environment", map[string]string{"venv/pyvenv.cfg": "", "venv/lib/python3.11/site-packages/json.py": ""}, "", false},
		{"another virtual environment", map[string]string{"env/pyvenv.cfg": "", "env/lib/json.py": ""}, "", false},
		{"a cache", map[string]string{"lib/__pycache__/json.cpython-311.pyc": ""}, "", true},
		{"a module in a cache", map[string]string{"lib/__pycache__/json.pyc": ""}, "", false},
		{"a module of a program for node", map[string]string{"node_modules/gyp/json.py": ""}, "", false},
		{"too much", many, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := publicDir(t)
			for name, text := range tt.files {
				name = filepath.Join(base, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tt.link != "" {
				if err := os.Symlink("../other", filepath.Join(base, tt.link)); err != nil {
					t.Fatal(err)
				}
			}
			s := pythonSpec([]string{"json"}, "-c", "import sys; print('ctypes' in sys.modules)")
			s.Workspace.Lower = []string{base}
			for _, elsewhere := range []bool{true, false} {
				s.Python = &Python{Imports: s.Python.Imports, Elsewhere: elsewhere}
				run(t, h, s, "") // asks for it
				waitForReady(t, h, s)
				want := "False\n"
				if tt.forked || !elsewhere {
					want = "True\n"
				}
				if got := run(t, h, s, ""); got.stdout != want {
					t.Errorf("elsewhere %v: got %+v, want forked: %s", elsewhere, got, want)
				}
			}
		})
	}
}

// publicDir makes a directory for the test that every user may read.
func publicDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
