package sandbox

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// The tests of this file compare whole sandboxes on cgroup v2 with the kernel's files and
// counters. Package cgroup tests its own part on any machine.

// openBeneath opens a Host with a named cgroup v2 as the parent of its sandboxes, and returns
// that cgroup. The cgroup's counters include its children's, even after they were removed.
func openBeneath(t *testing.T) (*Host, cgroup.Group) {
	t.Helper()
	if !cgroups.IsCgroup2UnifiedMode() {
		t.Skip("this machine has cgroup v1: make test-cgroup2 runs it on v2")
	}
	root := &cgroup.Hierarchy{Unified: true, Base: map[string]string{"": cgroup.UnifiedRoot}}
	if err := root.Prepare(); err != nil { // for the parent to have controllers
		t.Fatal(err)
	}
	parent := root.Group("skillrun-test-" + rand.Text())
	if err := os.Mkdir(parent.Dirs[""], 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parent.Remove(); err != nil {
			t.Error(err)
		}
	})
	c := testConfig(t)
	c.CgroupParent = strings.TrimPrefix(parent.Dirs[""], cgroup.UnifiedRoot)
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if left := parent.Children(); len(left) > 0 {
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
		n, err := parent.Value("", file, key)
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
		peak, err := parent.Number("memory", "memory.peak")
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

// TestUnifiedSandboxTakesNoInotify counts this process's inotify instances while a sandbox runs.
func TestUnifiedSandboxTakesNoInotify(t *testing.T) {
	h, _ := openBeneath(t)
	p, err := h.Start(t.Context(), Spec{ID: "watched", Program: command("sleep", "1000"), Env: testEnv}, IO{})
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		t.Errorf("descriptors: %v, %v", links, err)
	}
	for _, link := range links {
		if got, _ := os.Readlink(link); got == "anon_inode:inotify" {
			t.Errorf("%s is %s", link, got)
		}
	}
	p.Stop(0)
	if exit, err := p.Wait(); err != nil || exit.End != Stopped {
		t.Errorf("got %+v, %v, want it stopped", exit, err)
	}
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
	if dir := g.Dirs[""]; !strings.HasPrefix(dir, parent.Dirs[""]+"/") {
		t.Errorf("it is in %s, want it beneath %s", dir, parent.Dirs[""])
	}
	for file, want := range map[string]string{
		"memory.max": strconv.Itoa(64 << 20), "memory.swap.max": "0", "memory.oom.group": "1",
		"pids.max": "11", "cgroup.max.descendants": "0", "cgroup.type": "domain",
	} {
		if got, err := g.Read("", file); err != nil || got != want {
			if file == "memory.swap.max" && os.IsNotExist(err) {
				continue // a kernel without swap
			}
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
	pids, err := g.Pids()
	if err != nil || len(pids) < 2 {
		t.Errorf("processes: got %v, %v, want init and bash", pids, err)
	}
	// cgroup.kill also kills processes that are frozen and ignore SIGTERM.
	if err := os.WriteFile(g.File("", "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	p.Stop(0)
	exit, err := p.Wait()
	if err != nil || exit.End != Stopped {
		t.Errorf("got %+v, %v, want it stopped", exit, err)
	}
	if _, err := os.Stat(g.Dirs[""]); !os.IsNotExist(err) {
		t.Errorf("its cgroup is left: %v", err)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			t.Errorf("process %d is left: %v", pid, err)
		}
	}
}
