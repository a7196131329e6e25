package sandbox

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Most tests of this file test cgroup v2, also on a machine with v1. They read and write in a
// directory that looks like a cgroup. They kill and remove in a real cgroup v2, which has no
// controllers on a machine with v1. The last tests use whole sandboxes on v2, like all tests
// of make test-cgroup2.

// fakeGroup is a hierarchy whose base is a directory with these files.
func fakeGroup(t *testing.T, files map[string]string) (*hierarchy, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &hierarchy{unified: true, prefix: "/x", base: map[string]string{"": dir}}, dir
}

func TestUnifiedUsage(t *testing.T) {
	h, _ := fakeGroup(t, map[string]string{
		"cpu.stat":      "usage_usec 30\nuser_usec 10\nsystem_usec 20\n",
		"memory.peak":   "4096\n",
		"memory.events": "low 0\noom 5\noom_kill 3\n",
		"pids.events":   "max 7\n",
	})
	g := h.group()
	want := Usage{UserCPU: 10 * time.Microsecond, SystemCPU: 20 * time.Microsecond, MemoryPeakBytes: 4096}
	if got := g.usage(); got != want {
		t.Errorf("usage: got %+v, want %+v", got, want)
	}
	if n, err := g.oomKills(); n != 3 || err != nil {
		t.Errorf("oom kills: got %d, %v, want 3", n, err)
	}
	if n := g.refusedForks(); n != 7 {
		t.Errorf("refused forks: got %d, want 7", n)
	}

	h, dir := fakeGroup(t, map[string]string{"memory.events": "low 0\n"})
	if got := h.group().usage(); got != (Usage{}) {
		t.Errorf("usage of nothing: got %+v", got)
	}
	if _, err := h.group().oomKills(); err == nil || !strings.Contains(err.Error(), dir+"/memory.events: no oom_kill") {
		t.Errorf("oom kills that are not told: got %v", err)
	}
	if _, err := h.group("none").oomKills(); !os.IsNotExist(err) {
		t.Errorf("oom kills of no group: got %v", err)
	}
}

func TestUnifiedVerify(t *testing.T) {
	page := strconv.Itoa(os.Getpagesize())
	right := map[string]string{"pids.max": "9\n", "memory.max": page + "\n", "memory.oom.group": "1\n", "memory.swap.max": "0\n"}
	for _, tt := range []struct{ file, text, want string }{
		{"", "", ""},
		{"memory.swap.max", "-", ""}, // a kernel without swap has no such file
		{"pids.max", "8", "pids.max is 8, want 9"},
		{"memory.max", "1", "memory.max is 1, want " + page},
		{"memory.oom.group", "0", "memory.oom.group is 0, want 1"},
		{"memory.swap.max", "5", "memory.swap.max is 5, want 0"},
		{"memory.max", "max", "invalid syntax"},
		{"memory.oom.group", "-", "no such file"},
	} {
		h, dir := fakeGroup(t, right)
		if tt.text == "-" {
			os.Remove(filepath.Join(dir, tt.file))
		} else if tt.file != "" {
			if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// The kernel rounds a limit down to pages.
		err := h.group().verify(int64(os.Getpagesize())+1, 9)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s is %q: got %v, want %q", tt.file, tt.text, err, tt.want)
		}
	}
}

// Memory and swap together may be no more than memory, on either version.
func TestResourcesLeaveNoSwap(t *testing.T) {
	s := Spec{Limits: Limits{MemoryBytes: 1 << 20, Processes: 1000}}
	for _, g := range []group{{unified: true}, {swap: true}} {
		r := resources(s, g)
		if r.Memory != 1<<20 || r.MemorySwap != 1<<20 || *r.PidsLimit != 1001 || (r.Unified["memory.oom.group"] == "1") != g.unified {
			t.Errorf("%+v: got %+v", g, r)
		}
	}
	if r := resources(s, group{}); r.MemorySwap != 0 {
		t.Errorf("without accounting of swap: got %d", r.MemorySwap)
	}
}

func TestUnifiedPrepare(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	read := func(path string) string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	t.Run("alone in its cgroup", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.type": "domain\n", "cgroup.procs": self + "\n", "cgroup.subtree_control": ""})
		if err := h.prepare(); err != nil {
			t.Fatal(err)
		}
		if got := read(filepath.Join(dir, daemonGroup, "cgroup.procs")); got != self {
			t.Errorf("the daemon's leaf got %q, want %s", got, self)
		}
		// A real file collects them; this one has the last.
		if got := read(filepath.Join(dir, "cgroup.subtree_control")); got != "+cpu" {
			t.Errorf("subtree_control got %q", got)
		}
	})
	t.Run("in its leaf already", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.type": "domain\n", "cgroup.procs": "", "cgroup.subtree_control": ""})
		if err := h.prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, daemonGroup)); err == nil {
			t.Error("a leaf was made for nobody")
		}
	})
	t.Run("root of the machine", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.procs": "1\n" + self + "\n", "cgroup.subtree_control": ""})
		if err := h.prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, daemonGroup)); err == nil {
			t.Error("the root was left")
		}
	})
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"others in it", map[string]string{"cgroup.type": "", "cgroup.procs": self + "\n1\n"}, "holds other processes, such as 1,"},
		{"no list of processes", map[string]string{"cgroup.type": ""}, "no such file"},
		{"odd list of processes", map[string]string{"cgroup.type": "", "cgroup.procs": "x"}, "invalid syntax"},
		{"the leaf's name is taken", map[string]string{"cgroup.type": "", "cgroup.procs": self, daemonGroup: ""}, "not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := fakeGroup(t, tt.files)
			if err := h.prepare(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("v1", func(t *testing.T) {
		if err := (&hierarchy{}).prepare(); err != nil {
			t.Error(err)
		}
	})
}

func TestOwnGroup(t *testing.T) {
	root := t.TempDir()
	for path, procs := range map[string]string{"alone": strconv.Itoa(os.Getpid()), "shared": strconv.Itoa(os.Getpid()) + "\n1", "odd": "x"} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path, "cgroup.procs"), []byte(procs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/alone": "/alone", "/shared": "/", "/service/" + daemonGroup: "/service"} {
		if got, err := ownGroup(root, path); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"/odd", "/none"} {
		if got, err := ownGroup(root, path); err == nil {
			t.Errorf("%s: got %q, want an error", path, got)
		}
	}
}

func TestTryUnified(t *testing.T) {
	h, dir := fakeGroup(t, map[string]string{"cgroup.controllers": "cpu memory pids\n"})
	if got, err := h.try(); got != "cgroup v2 at "+dir || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if left, _ := filepath.Glob(dir + "/skillrun*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "no such file"},
		{map[string]string{"cgroup.controllers": "cpu memory.x pids\n"}, "has no controller memory"},
		{map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.type": "", "cgroup.procs": "1"}, "holds other processes"},
	} {
		h, _ := fakeGroup(t, tt.files)
		if got, err := h.try(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %q, %v, want %q", tt.files, got, err, tt.want)
		}
	}
	v1 := &hierarchy{base: map[string]string{"memory": t.TempDir(), "pids": t.TempDir()}}
	if _, err := v1.try(); err == nil || !strings.Contains(err.Error(), "no controller cpuacct") {
		t.Errorf("v1 without cpuacct: got %v", err)
	}
	v1.base["pids"] = "/dev/null/x"
	if _, err := v1.try(); err == nil {
		t.Error("a cgroup was made in a file")
	}
}

func TestTrySwap(t *testing.T) {
	with, _ := fakeGroup(t, map[string]string{"memory.swap.max": "max"})
	without, _ := fakeGroup(t, nil)
	for _, tt := range []struct {
		name string
		h    *hierarchy
		good bool
	}{
		{"v1 with swapaccount", &hierarchy{swap: true}, true},
		{"v1 without", &hierarchy{}, false},
		{"v2", with, true},
		{"v2 at its root", &hierarchy{unified: true, base: map[string]string{"": unifiedRoot}}, true},
		{"v2 without swap accounting", without, false},
	} {
		if got, err := tt.h.trySwap(); (err == nil) != tt.good {
			t.Errorf("%s: got %q, %v", tt.name, got, err)
		}
	}
}

func TestLoadHierarchy(t *testing.T) {
	h, _ := fakeGroup(t, nil)
	path := filepath.Join(t.TempDir(), "h.json")
	if err := h.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := loadHierarchy(path)
	if err != nil || !got.unified || got.base[""] != h.base[""] {
		t.Errorf("got %+v, %v, want %+v", got, err, h)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadHierarchy(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: got %v", err)
	}
	if _, err := loadHierarchy(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("no file: got %v", err)
	}
}

// realGroup makes a new, empty cgroup v2.
func realGroup(t *testing.T) *hierarchy {
	t.Helper()
	mount := t.TempDir()
	if err := unix.Mount("none", mount, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Skipf("cgroup v2 can't be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := &hierarchy{unified: true, base: map[string]string{"": filepath.Join(mount, "skillrun-test-"+rand.Text())}}
	if err := os.Mkdir(h.base[""], 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() {
		if err := h.group().clear(sweepPatience); err != nil {
			t.Error(err)
		}
	})
	return h
}

// enter starts a process in g that waits for its input to end.
func enter(t *testing.T, g group) *exec.Cmd {
	t.Helper()
	if err := os.MkdirAll(g.dirs[""], 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(g.dirs[""])
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("cat")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestUnifiedKill(t *testing.T) {
	h := realGroup(t)
	g := h.group("a")
	outer, inner := enter(t, g), enter(t, h.group("a", "b"))
	if pids, err := g.pids(); err != nil || !slices.Equal(pids, []int{outer.Process.Pid}) {
		t.Errorf("pids: got %v, %v, want %d", pids, err, outer.Process.Pid)
	}
	if children := g.children(); len(children) != 1 || children[0].dirs[""] != h.group("a", "b").dirs[""] {
		t.Errorf("children: got %v", children)
	}
	if err := g.remove(); err == nil || !strings.Contains(err.Error(), "remove cgroup") {
		t.Errorf("a cgroup with processes was removed: %v", err)
	}
	// The parent can't have controllers for children while it has processes (cgroups(7)).
	if err := (&hierarchy{unified: true, base: g.dirs}).prepare(); err == nil || !strings.Contains(err.Error(), strconv.Itoa(outer.Process.Pid)) {
		t.Errorf("prepare: got %v, want it to name %d", err, outer.Process.Pid)
	}
	killed := make(chan error, 2)
	for _, cmd := range []*exec.Cmd{outer, inner} {
		go func() { killed <- cmd.Wait() }()
	}
	if err := g.clear(sweepPatience); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-killed; err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process ended with %v, want killed", err)
		}
	}
	if _, err := os.Stat(g.dirs[""]); !os.IsNotExist(err) {
		t.Errorf("the cgroup is left: %v", err)
	}
	if pids, err := g.pids(); len(pids) > 0 || err != nil {
		t.Errorf("pids of no cgroup: got %v, %v", pids, err)
	}
}

// The rules for devices hold in the group and in its children, in addition to a sandbox's
// other restrictions. To set them again changes nothing.
func TestUnifiedDevices(t *testing.T) {
	h := realGroup(t)
	tries := func() string {
		g := h.group("sandbox")
		if err := os.MkdirAll(g.dirs[""], 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(g.dirs[""])
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd := exec.Command("sh", "-c", `for d in "null 1 3" "zero 1 5" "mem 1 1" "loop 7 0"; do set -- $d
			kind=c; [ $1 = loop ] && kind=b
			rm -f $1; mknod $1 $kind $2 $3 2>/dev/null && echo made $1
			[ -e $1 ] && head -c 1 $1 >/dev/null 2>&1 && echo read $1
		done; head -c 1 /dev/zero >/dev/null && echo read /dev/zero`)
		cmd.Dir = t.TempDir()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := tries(); !strings.Contains(got, "made mem\n") || !strings.Contains(got, "made loop\n") {
		t.Fatalf("without rules: got %q; this machine makes no devices, and nothing would be shown", got)
	}
	for range 2 {
		if err := h.group().limitDevices(); err != nil {
			t.Fatal(err)
		}
		got := tries()
		if strings.Contains(got, " mem\n") || strings.Contains(got, " loop\n") || !strings.Contains(got, "read /dev/zero\n") {
			t.Errorf("with rules: got %q, want no more than a sandbox's devices", got)
		}
	}
}

// A real cgroup v2 without controllers is refused, and the error names the controllers.
func TestUnifiedWithoutControllers(t *testing.T) {
	h := realGroup(t)
	have, err := os.ReadFile(filepath.Join(h.base[""], "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(have, []byte("memory")) {
		t.Skip("the machine has cgroup v2 with controllers: make test-cgroup2 is for it")
	}
	if _, err := h.try(); err == nil || !strings.Contains(err.Error(), "has no controller memory") {
		t.Errorf("try: got %v", err)
	}
	if err := h.prepare(); err == nil || !strings.Contains(err.Error(), "pass on controller memory") {
		t.Errorf("prepare: got %v", err)
	}
}

// openBeneath opens a Host with a named cgroup v2 as the parent of its sandboxes, and returns
// that cgroup. The cgroup's counters include its children's, even after they were removed.
func openBeneath(t *testing.T) (*Host, group) {
	t.Helper()
	if !cgroups.IsCgroup2UnifiedMode() {
		t.Skip("this machine has cgroup v1: make test-cgroup2 runs it on v2")
	}
	root := &hierarchy{unified: true, base: map[string]string{"": unifiedRoot}}
	if err := root.prepare(); err != nil { // for the parent to have controllers
		t.Fatal(err)
	}
	parent := root.group("skillrun-test-" + rand.Text())
	if err := os.Mkdir(parent.dirs[""], 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parent.remove(); err != nil {
			t.Error(err)
		}
	})
	c := testConfig(t)
	c.CgroupParent = strings.TrimPrefix(parent.dirs[""], unifiedRoot)
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if left := parent.children(); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	})
	return h, parent
}

// TestUnifiedCounters compares an Exit with the kernel's counters.
func TestUnifiedCounters(t *testing.T) {
	h, parent := openBeneath(t)
	counter := func(file, key string) uint64 {
		t.Helper()
		n, err := parent.value("", file, key)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("CPU and memory", func(t *testing.T) {
		before := counter("cpu.stat", "usage_usec")
		got := run(t, h, Spec{Program: command("python3", "-c", "x = bytearray(40 << 20)\nfor i in range(300_000): pass"), Env: testEnv}, "")
		used := time.Duration(counter("cpu.stat", "usage_usec")-before) * time.Microsecond
		if u := got.exit.Usage; u.UserCPU <= 0 || u.SystemCPU <= 0 || u.UserCPU+u.SystemCPU > used {
			t.Errorf("got %s and %s of CPU, the kernel counted %s", u.UserCPU, u.SystemCPU, used)
		}
		peak, err := parent.number("memory", "memory.peak")
		if u := got.exit.Usage; err != nil || u.MemoryPeakBytes < 40<<20 || u.MemoryPeakBytes > peak {
			t.Errorf("got a peak of %d, the kernel counted %d, %v", u.MemoryPeakBytes, peak, err)
		}
	})
	// memory.oom.group: the kernel kills all processes, not only the large child.
	t.Run("out of memory", func(t *testing.T) {
		kills, groups := counter("memory.events", "oom_kill"), counter("memory.events", "oom_group_kill")
		got := run(t, h, Spec{
			Program: bash("sleep 1000 & python3 -c 'x = bytearray(200 << 20)'; echo survived"), Env: testEnv, Limits: Limits{MemoryBytes: 64 << 20},
		}, "")
		kills, groups = counter("memory.events", "oom_kill")-kills, counter("memory.events", "oom_group_kill")-groups
		if got.exit.End != OOMKilled || got.exit.OOMKills != kills || groups != 1 || got.stdout != "" {
			t.Errorf("got %+v and %q; the kernel killed %d processes in %d groups", got.exit, got.stdout, kills, groups)
		}
		if kills < 3 {
			t.Errorf("the kernel killed %d processes, want all: bash, sleep, python3", kills)
		}
	})
	t.Run("forks", func(t *testing.T) {
		// Not bash, which would try again for 15 seconds.
		got := run(t, h, Spec{Program: command("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait"), Env: testEnv, Limits: Limits{Processes: 4, Wall: time.Minute}}, "")
		if got.exit.PidsMax == 0 || got.exit.End == OOMKilled {
			t.Errorf("got %+v, want refused forks", got.exit)
		}
	})
}

// TestUnifiedLimits reads the limits of a running sandbox from its cgroup.
func TestUnifiedLimits(t *testing.T) {
	h, parent := openBeneath(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	defer read.Close()
	out := make(chan string, 1)
	p, err := h.Start(t.Context(), Spec{
		ID: "limits", Program: bash("trap '' TERM; echo ready; read line"), Env: testEnv,
		Limits: Limits{MemoryBytes: 64 << 20, Processes: 9},
	}, IO{Stdin: read, Stdout: writerFunc(func(b []byte) (int, error) { out <- string(b); return len(b), nil })})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-out; got != "ready\n" {
		t.Fatalf("got %q", got)
	}
	g := p.sandbox.group
	if dir := g.dirs[""]; !strings.HasPrefix(dir, parent.dirs[""]+"/") {
		t.Errorf("it is in %s, want it beneath %s", dir, parent.dirs[""])
	}
	for file, want := range map[string]string{
		"memory.max": strconv.Itoa(64 << 20), "memory.swap.max": "0", "memory.oom.group": "1",
		"pids.max": "10", "cgroup.max.descendants": "0", "cgroup.type": "domain",
	} {
		if got, err := g.read("", file); err != nil || got != want {
			if file == "memory.swap.max" && os.IsNotExist(err) {
				continue // a kernel without swap
			}
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
	pids, err := g.pids()
	if err != nil || len(pids) < 2 {
		t.Errorf("processes: got %v, %v, want init and bash", pids, err)
	}
	// cgroup.kill also kills processes that are frozen and ignore SIGTERM.
	if err := os.WriteFile(g.file("", "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	p.Stop(0)
	exit, err := p.Wait()
	if err != nil || exit.End != Stopped {
		t.Errorf("got %+v, %v, want it stopped", exit, err)
	}
	if _, err := os.Stat(g.dirs[""]); !os.IsNotExist(err) {
		t.Errorf("its cgroup is left: %v", err)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			t.Errorf("process %d is left: %v", pid, err)
		}
	}
}
