package sandbox

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// memoryHas says whether the writable memory of a process, or the name of a file that it has
// mapped, contains the text.
func memoryHas(pid int, text string) (bool, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer mem.Close()
	if strings.Contains(string(maps), text) {
		return true, nil
	}
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &rights); err != nil {
			return false, fmt.Errorf("%q: %w", line, err)
		}
		// Only AddressSanitizer's shadow memory is larger. It has no bytes of the program.
		const shadow = 1 << 30
		if rights[1] != 'w' || end-start > shadow {
			continue
		}
		b := make([]byte, end-start)
		n, _ := mem.ReadAt(b, int64(start)) // up to a page that is not there yet
		if bytes.Contains(b[:n], []byte(text)) {
			return true, nil
		}
	}
	return false, nil
}

// pythonMinor names the directory of the system's Python beneath lib: "python3.11".
func pythonMinor(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// markedSpec returns a Spec with a unique text in every part that a request sets.
func markedSpec(t *testing.T, mark string, args ...string) Spec {
	t.Helper()
	code := "raise SystemExit('" + mark + "')\n"
	files := map[string]string{mark + "/" + mark + ".py": code, "python3": "#!/bin/sh\necho " + mark}
	for _, name := range []string{"json.py", "sitecustomize.py", "usercustomize.py", "site.py", "os.py", "pyvenv.cfg"} {
		files[name], files[mark+"/"+name] = code, code
	}
	for _, dir := range []string{"", ".local/"} {
		dir += "lib/" + pythonMinor(t) + "/site-packages/"
		files[dir+mark+".pth"], files[dir+mark+".py"], files[dir+"usercustomize.py"] = "import "+mark+"\n", code, code
	}
	snapshot := newSnapshot(t, files)
	s := pythonSpec([]string{"json"}, args...)
	s.ID, s.Dir = mark[:20]+strconv.Itoa(int(testIDs.Add(1))), mark
	s.Workspace.Lower = []string{snapshot}
	s.Mounts = []Mount{{Source: snapshot, Target: "/skills/" + mark, Owned: true}, {Source: snapshot, Target: "/opt/" + mark}}
	s.Env = append(s.Env, "MARK="+mark, mark+"="+mark)
	return s
}

// No byte of a request reaches a zygote. The test puts a unique text into each part of a
// request, and searches the memory of both zygotes for it. The search finds the text in the
// running program, which shows that the search works.
func TestNoByteReachesAZygote(t *testing.T) {
	h, zygote, python := zygotes(t)
	mark := "m" + strings.ToLower(rand.Text())
	say := "import sys; print('" + mark + "', sys.argv, flush=True); input()"
	env := func(e ...string) func(*Spec) { return func(s *Spec) { s.Env = environ(s.Env, e) } }
	for name, change := range map[string]func(*Spec){
		"all that a request brings": func(*Spec) {},
		"PATH":                      env("PATH=/skills/" + mark + ":" + pyzygote.Path),
		"HOME":                      env("HOME=/skills/" + mark),
		"PYTHONPATH":                env("PYTHONPATH=/skills/" + mark),
		"PYTHONSTARTUP":             env("PYTHONSTARTUP=/skills/" + mark + "/json.py"),
		"PYTHONUSERBASE":            env("PYTHONUSERBASE=/skills/" + mark),
		"PYTHONHASHSEED":            env("PYTHONHASHSEED=7", "PYTHONWARNINGS=ignore::"+mark),
		"LD_PRELOAD":                env("LD_PRELOAD=/skills/" + mark + "/python3"),
		"threads of libraries":      env("OPENBLAS_NUM_THREADS="+mark, "OMP_NUM_THREADS="+mark),
		"the language":              env("LC_ALL="+mark, "LANGUAGE="+mark),
		"imports":                   func(s *Spec) { s.Python.Imports = []string{"json", mark} },
		"a program of a mount":      func(s *Spec) { s.Program[0].Pipeline[0].Args[0] = "/skills/" + mark + "/../../usr/bin/python3" },
		"modules elsewhere":         func(s *Spec) { s.Python.Elsewhere = true },
		"a virtual environment":     func(s *Spec) { s.Python.Venv, s.Python.Base = "/opt/"+mark, "python3" },
		"a command's variables":     func(s *Spec) { s.Program[0].Pipeline[0].Env = []string{"PATH=/workspace", "X=" + mark} },
	} {
		t.Run(name, func(t *testing.T) {
			s := markedSpec(t, mark, "-c", say, mark, "--"+mark)
			change(&s)
			h.pool.mu.Lock()
			h.pool.rest = time.Time{} // the next zygote may start at once
			h.pool.mu.Unlock()
			k := &held{out: &bytes.Buffer{}}
			r, w := io.Pipe()
			first := &firstWrite{to: k.out, done: make(chan struct{})}
			p, err := h.Start(t.Context(), s, IO{Stdin: r, Stdout: first, Stderr: first})
			if err != nil {
				w.Close()
				t.Logf("it does not start: %v", err) // LD_PRELOAD, or another PATH
			} else {
				<-first.done
				pids, err := p.sandbox.group.Pids()
				if err != nil {
					t.Fatal(err)
				}
				found := false
				for _, pid := range pids {
					has, err := memoryHas(pid, mark)
					if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // one that has ended holds nothing
						t.Error(err)
					}
					found = found || has
				}
				if !found && strings.HasPrefix(k.out.String(), mark) {
					t.Error("the program that runs does not have it: the search finds nothing")
				}
				fmt.Fprintln(w, mark)
				w.Close()
				if _, err := p.Wait(); err != nil {
					t.Error(err)
				}
				if at := "site-packages/" + mark + ".py"; (name == "HOME" || name == "PYTHONUSERBASE") && !strings.Contains(k.out.String(), at) {
					t.Errorf("Python does not run the .pth file in the request's directory: the test tries nothing\n%s", k.out)
				}
			}
			h.pool.mu.Lock()
			ready := len(h.pool.pythons)
			h.pool.mu.Unlock()
			if ready != 1 {
				t.Errorf("%d Python zygotes: a request has one of its own", ready)
			}
			for who, pid := range map[string]int{"the zygote": zygote, "the Python zygote": python} {
				if has, err := memoryHas(pid, mark); err != nil || has {
					t.Errorf("%s has it: %t, %v", who, has, err)
				}
			}
		})
	}
}

// odds are attacks of a process on its parents, and unusual states that it leaves to them.
var odds = map[string]string{
	"signals":       "import os, signal\nfor p in (-1, 0, 1, os.getppid()):\n  for s in (0, signal.SIGTERM, signal.SIGSTOP):\n    try: p and os.kill(p, s)\n    except OSError: pass",
	"aborts":        "import os; os.abort()",
	"is killed":     "import os; os.kill(os.getpid(), 9)",
	"stops":         "import os, signal\nif os.fork() == 0:\n  os.kill(os.getppid(), signal.SIGSTOP); os.kill(os.getppid(), signal.SIGCONT)\n  os._exit(0)",
	"zombies":       "import os\nfor _ in range(200):\n  try:\n    if os.fork() == 0:\n      os._exit(0) if os.fork() == 0 else os._exit(1)\n  except OSError: pass",
	"left children": "import os, signal\nfor _ in range(40):\n  try:\n    if os.fork() == 0: signal.pause()\n  except OSError: pass",
	"traced":        "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
	"parent death":  "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGSTOP)",
	"descriptors":   "import os\nfor fd in range(1024):\n  for b in (b'{\"op\":\"ended\"}', b'\\0' * 70000, b'skr2' * 9):\n    try: os.write(fd, b)\n    except OSError: pass\n  try: os.close(fd)\n  except OSError: pass",
	"sends descriptors": `
import os, socket
for fd in range(3, 64):
    try:
        s = socket.socket(fileno=os.dup(fd))
        socket.send_fds(s, [b'{"op":"init"}'], [0, 1, 2])
    except OSError: pass`,
	"memory": `
import ctypes, os
for line in open('/proc/self/maps'):
    if line.split()[1][1] == 'w' and line.split()[1][3] == 's': print(line)
for pid in os.listdir('/proc'):
    for name in ('mem', 'maps', 'environ', 'fd/3', 'ns/pid'):
        if pid.isdigit() and int(pid) != os.getpid():
            try: open('/proc/%s/%s' % (pid, name), 'r+b'); print(pid, name)
            except OSError: pass`,
	"locks": `
import fcntl, os, sys
for path in (sys.executable, '/opt/skillrun/forkserver/sitecustomize.py', os.__file__):
    try: fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: pass`,
	"names":     "import os, ctypes; ctypes.CDLL(None).prctl(15, b'zygote'); os.execv('/usr/bin/python3', ['skillrun-zygote', 'skillrun-zygote', '-c'])",
	"namespace": "import ctypes, os\nl = ctypes.CDLL(None)\nfor n in os.listdir('/proc/self/ns'): l.setns(os.open('/proc/self/ns/' + n, 0), 0)",
}

// Whatever a program does to its parents or leaves to them, the zygotes stay unchanged and
// alive, and the next program runs.
func TestZygotesOutliveWhatRuns(t *testing.T) {
	h, zygote, python := zygotes(t)
	before := zygoteIDs(t, zygote, python)
	next := pythonSpec([]string{"json"}, "-c", "print(2 + 2)")
	for name, code := range odds {
		t.Run(name, func(t *testing.T) {
			for _, forked := range []bool{true, false} {
				s := pythonSpec([]string{"json"}, "-c", code)
				if forked {
					waitForReady(t, h, s)
				} else {
					s.Python = nil
				}
				if got := run(t, h, s, ""); got.stdout != "" && name != "descriptors" {
					t.Errorf("forked %v: got %+v", forked, got)
				}
			}
			waitForReady(t, h, next)
			if got := run(t, h, next, ""); got.stdout != "4\n" || got.exit.End != Exited {
				t.Errorf("the next one: got %+v", got)
			}
			if now := zygoteIDs(t, zygote, python); now != before {
				t.Errorf("zygotes: got\n%swant\n%s", now, before)
			}
		})
	}
	noLeftovers(t, h)
}

// zygoteIDs returns the state of both zygotes that no program may change.
func zygoteIDs(t *testing.T, pids ...int) string {
	t.Helper()
	var out strings.Builder
	for _, pid := range pids {
		status, err := pseudofs.ReadStatus(strconv.Itoa(pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"Name", "Uid", "TracerPid", "CapPrm", "CapEff", "Seccomp_filters", "SigIgn", "SigCgt", "SigBlk", "Umask", "Threads"} {
			fmt.Fprintln(&out, key, status.Of(key))
		}
		root, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, root)
	}
	return out.String()
}
