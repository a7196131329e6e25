package sandbox

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPostureFromInside reads the kernel's view of the program, from inside the program.
func TestPostureFromInside(t *testing.T) { eachMaker(t, testPostureFromInside) }

func testPostureFromInside(t *testing.T, h *Host) {
	got := run(t, h, Spec{Program: command("cat", "/proc/self/status"), Env: testEnv}, "")
	status := map[string]string{}
	for line := range strings.Lines(got.stdout) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.Join(strings.Fields(value), " ")
	}
	none := strings.Repeat("0", 16)
	for key, want := range map[string]string{
		"Uid": "1000 1000 1000 1000", "Gid": "1000 1000 1000 1000", "Groups": "", "PPid": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "Umask": "0077", "SigBlk": none, "SigIgn": none,
	} {
		if status[key] != want {
			t.Errorf("%s: got %q, want %q", key, status[key], want)
		}
	}
}

// TestView compares a program's view of the machine with the intended view.
func TestView(t *testing.T) { eachMaker(t, testView) }

func testView(t *testing.T, h *Host) {
	for _, tt := range []struct{ name, script, want string }{
		{"root", "ls -A / | tr '\\n' ' '", "bin dev etc home lib lib64 node_modules opt proc run sbin skills tmp usr var workspace "},
		{"dev", "ls -A /dev | grep -v core | tr '\\n' ' '", "fd full null random shm stderr stdin stdout urandom zero "},
		{"empty", "ls -A /workspace /tmp /home/skill /dev/shm /run /skills | grep -v : | tr -d '\\n'", ""},
		{"descriptors", "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 "}, // 3 is of ls
		{"kinds", "for i in 0 1 2; do stat -Lc %F /proc/self/fd/$i; done | uniq", "fifo\n"},
		{"processes", `exec python3 -c 'import os; print([p for p in os.listdir("/proc") if p.isdigit()] == [str(os.getpid())])'`, "True\n"}, // init is hidden
		{"identity", "id; whoami; echo ~; uname -n", "uid=1000(skill) gid=1000(skill) groups=1000(skill)\nskill\n/home/skill\nsandbox\n"},
		{"environment", "env -i /usr/bin/env", ""},
		{"only our environment", "/usr/bin/env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= | sort | tr '\\n' ' '", "HOME=/home/skill LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin TMPDIR=/tmp USER=skill "},
		{"cgroup", "cut -d: -f3 /proc/self/cgroup | sort -u", "/\n"},
		{"interfaces", "tail -n +3 /proc/net/dev | cut -d: -f1", "    lo\n"},
		{"loopback", `python3 -c 'import socket
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); s.accept()[0].send(b"hi"); print(c.recv(2))'`, "b'hi'\n"},
		{"unix sockets", `python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))'`, "b'x'\n"},
		{"uptime", "[ $(cut -d. -f1 /proc/uptime) -lt 100 ] && echo hidden", "hidden\n"},
		{"init's files", "ls /proc/1/fd 2>&1; cat /proc/1/environ 2>&1", "ls: cannot access '/proc/1/fd': No such file or directory\ncat: /proc/1/environ: No such file or directory\n"},
		{"signals to init", "kill -9 1 2>&1; kill -STOP 1 2>&1; echo alive", "/usr/bin/bash: line 1: kill: (1) - Operation not permitted\n/usr/bin/bash: line 1: kill: (1) - Operation not permitted\nalive\n"},
		{"oom score", "echo 0 2>/dev/null >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj", "1000\n"},
		{"executables in TMPDIR", "cp /usr/bin/true /tmp/x && chmod +x /tmp/x && /tmp/x && echo runs", "runs\n"},
		{"executables in dev shm", "cp /usr/bin/true /dev/shm/x && chmod +x /dev/shm/x && /dev/shm/x 2>/dev/null || echo refused", "refused\n"},
		{"limits", "ulimit -n -c -f -l | sed 's/.*) //'", "1024\n0\n262144\n64\n"},
		{"time zone", "date +%Z >/dev/null && echo known", "known\n"},
		{"threads of numpy", "python3 -c 'import threading; t = [threading.Thread(target=print, args=(i,)) for i in range(2)]; [(x.start(), x.join()) for x in t]'", "0\n1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: bash(tt.script), Env: testEnv}, "")
			if got.stdout != tt.want {
				t.Errorf("got %q (stderr %q), want %q", got.stdout, got.stderr, tt.want)
			}
		})
	}
}

// TestMountTable compares every mount of a sandbox with a list, so that no mount is
// added by accident.
func TestMountTable(t *testing.T) { eachMaker(t, testMountTable) }

func testMountTable(t *testing.T, h *Host) {
	skill := newSnapshot(t, nil)
	got := run(t, h, Spec{Program: command("cat", "/proc/self/mountinfo"), Env: testEnv, Mounts: []Mount{{Source: skill, Target: "/skills/s", Owned: true}}}, "")
	want := map[string]string{ // mount point: type and the flags that matter
		"/":           "overlay ro,nosuid,nodev",
		"/usr":        "overlay ro,nosuid,nodev",
		"/proc":       "proc ro,nosuid,nodev,noexec", // of which nothing can be written
		"/dev":        "tmpfs ro,nosuid,noexec",
		"/dev/shm":    "tmpfs rw,nosuid,nodev,noexec",
		"/tmp":        "tmpfs rw,nosuid,nodev",
		"/home/skill": "tmpfs rw,nosuid,nodev",
		"/workspace":  "overlay rw,nosuid,nodev",
		"/skills":     "tmpfs ro,nosuid,nodev,noexec",
		"/skills/s":   "overlay ro,nosuid,nodev",
	}
	if _, err := os.Stat("/var/lib/texmf"); err == nil { // mounted, since it is large
		want["/var/lib/texmf"] = "overlay ro,nosuid,nodev"
	}
	top := map[string]string{} // of several mounts at a point the last is seen
	for line := range strings.Lines(got.stdout) {
		top[strings.Fields(line)[4]] = line
	}
	for point, line := range top {
		before, after, _ := strings.Cut(line, " - ")
		options, kind := strings.Split(strings.Fields(before)[5], ","), strings.Fields(after)[0]
		if strings.HasPrefix(point, "/proc/") {
			if !slices.Contains(maskedPaths, point) {
				t.Errorf("mount %s is not expected", point)
			}
			continue
		}
		if strings.HasPrefix(point, "/usr/") { // a mount of the machine
			point = "/usr"
		}
		expected, ok := want[point]
		if !ok {
			t.Errorf("mount %s is not expected: %s", point, line)
			continue
		}
		wantKind, flags, _ := strings.Cut(expected, " ")
		if wantKind != "*" && wantKind != kind {
			t.Errorf("%s: got %s, want %s", point, kind, wantKind)
		}
		for _, f := range strings.Split(flags, ",") {
			if f != "" && !slices.Contains(options, f) {
				t.Errorf("%s: got %v, want %s", point, options, f)
			}
		}
	}
	for point := range want {
		if top[point] == "" {
			t.Errorf("mount %s is missing", point)
		}
	}
}

// TestNothingElseIsWritable visits every file that a program sees and tries to write to it.
func TestNothingElseIsWritable(t *testing.T) { eachMaker(t, testNothingElseIsWritable) }

func testNothingElseIsWritable(t *testing.T, h *Host) {
	walk := `
import os
ok = ("/workspace", "/tmp", "/home/skill", "/dev/shm", "/proc/", "/dev/")
for top, dirs, files in os.walk("/"):
    if top.startswith(("/proc", "/usr/share", "/usr/lib", "/usr/include")): dirs[:] = []; continue
    for name in dirs[:50] + files[:50]:
        p = os.path.join(top, name)
        if os.path.islink(p) or p.startswith(ok) or p in ok: continue
        try: os.close(os.open(p, os.O_RDWR)); print("opened", p)
        except OSError: pass
        try: os.close(os.open(p + "/probe", os.O_CREAT | os.O_WRONLY)); print("made", p)
        except OSError: pass
        try: os.chmod(p, 0o777); print("chmod", p)
        except OSError: pass
print("done")`
	got := run(t, h, Spec{Program: command("python3", "-c", walk), Env: testEnv}, "")
	if got.stdout != "done\n" {
		t.Errorf("got %q, %q", got.stdout, got.stderr)
	}
}

// TestHostFilesAreTheTable checks that programs see each generated file.
func TestHostFilesAreTheTable(t *testing.T) {
	h := openHost(t)
	got := run(t, h, Spec{Program: bash("cd /etc && find . -maxdepth 1 -mindepth 1 -printf '/etc/%P\\n'"), Env: testEnv}, "")
	want := append(slices.Clone(h.roots[""].Table), "/etc/ssl") // of which the table has two files
	s := bufio.NewScanner(strings.NewReader(got.stdout))
	for s.Scan() {
		if p := s.Text(); !slices.Contains(want, p) {
			t.Errorf("%s is visible", p)
		}
	}
}

func TestLinks(t *testing.T) {
	c := testConfig(t)
	c.Links = map[string]string{"/opt/skillrun/bin/python": "/usr/bin/python3"}
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	skill := newSnapshot(t, nil)
	for _, mounts := range [][]Mount{nil, {{Source: skill, Target: "/opt/x"}}} {
		got := run(t, h, Spec{Program: command("python", "-c", "print(1)"), Env: testEnv, Mounts: mounts}, "")
		if got.stdout != "1\n" {
			t.Errorf("with mounts %v: got %q, %q", mounts, got.stdout, got.stderr)
		}
	}
	for _, bad := range []string{"relative", "/usr/bin/x", "/a/../b"} {
		c.Links = map[string]string{bad: "x"}
		if h, err := Open(t.Context(), c); err == nil {
			h.Close()
			t.Errorf("link %q was made", bad)
		}
	}
}
