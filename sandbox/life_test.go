package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// daemonVar makes the test binary a daemon. Its value is the StateDir. The daemon starts
// a sandbox, prints its names and waits for its end by SIGKILL.
const daemonVar = "SKILLRUN_TEST_DAEMON"

func init() {
	if os.Getenv(daemonVar) != "" {
		mainOfTests = daemon
	}
}

func daemon() {
	h, err := Open(context.Background(), Config{StateDir: os.Getenv(daemonVar), Zygote: true, GroupZygotes: 1})
	if err == nil {
		_, err = h.Start(context.Background(), Spec{ID: "orphan", Env: testEnv, Program: bash("setsid sleep 1000 & trap '' TERM HUP; while :; do sleep 1; done")}, IO{})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// The same in a group, which has a separate zygote.
	start := func(id string) *Process {
		p, err := h.Start(context.Background(), Spec{ID: id, Group: "acme", Env: testEnv, Program: bash("setsid sleep 1000 & trap '' TERM HUP; while :; do sleep 1; done")}, IO{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return p
	}
	for n := 0; !byZygote(start(fmt.Sprintf("of-group-%d", n)).sandbox); n++ {
	}
	// A helper that is stopped and ignores its parent's death: only the sweep ends it.
	helper := exec.Command("sleep", "1000")
	g, err := h.NewHelperGroup("acme", HelperLimits{MemoryBytes: 64 << 20, Processes: 8})
	if err == nil {
		err = helper.Start()
	}
	if err == nil {
		err = errors.Join(g.Enter(helper.Process.Pid), helper.Process.Signal(unix.SIGSTOP))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(h.instance.name, h.ids.first, h.running["orphan"].sandbox.group.File("pids", "cgroup.procs"), g.group.File("pids", "cgroup.procs"))
	select {}
}

// TestDaemonDeath kills a daemon and searches for its remains.
func TestDaemonDeath(t *testing.T) {
	needsRoot(t)
	state := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), daemonVar+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var name, procs, helper string
	var first uint32
	if _, serr := fmt.Sscan(line, &name, &first, &procs, &helper); err != nil || serr != nil {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("got %q, %v, %v", line, err, serr)
	}
	if b, err := os.ReadFile(procs); err != nil || len(b) == 0 {
		t.Errorf("the sandbox has no processes: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()

	// The sandbox ends before any sweep.
	if err := eventually(func() error {
		if b, err := os.ReadFile(procs); err == nil && len(b) > 0 {
			return fmt.Errorf("processes %q live", b)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(helper); err != nil || len(b) == 0 {
		t.Errorf("the helper has ended: %v", err)
	}
	if _, err := os.Stat(filepath.Join(state, "instances", name)); err != nil {
		t.Errorf("nothing to sweep: %v", err)
	}

	h, err := Open(context.Background(), Config{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, path := range []string{filepath.Join(state, "instances", name), filepath.Join(h.config.RunDir, name), filepath.Dir(filepath.Dir(procs))} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if points, _ := mount.Points(filepath.Join(h.config.RunDir, name)); len(points) > 0 {
		t.Errorf("mounts are left: %v", points)
	}
	// Only if no other process on the machine took the block since.
	if busy, err := idsInUse(first, blockIDs); err != nil || first == h.ids.first && busy {
		t.Errorf("processes with its ids are left (%v)", err)
	}
}

// eventually calls f until it returns no error or a minute has passed. Between two calls it waits four times as long as
// the last one took: without the pause, the calls would use the processors that the awaited process needs.
func eventually(f func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		began := time.Now()
		err := f()
		if err == nil || began.After(deadline) {
			return err
		}
		<-time.After(max(time.Millisecond, 4*time.Since(began)))
	}
}

// until is eventually for a condition. It fails the test with what.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	if err := eventually(func() error {
		if done() {
			return nil
		}
		return errors.New(what)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestManyDaemonsOpenAtOnce: no daemon takes another one's directories for dead.
func TestManyDaemonsOpenAtOnce(t *testing.T) {
	c := testConfig(t)
	type opened struct {
		h   *Host
		err error
	}
	all := make(chan opened)
	for range 6 {
		go func() {
			h, err := Open(context.Background(), c)
			all <- opened{h, err}
		}()
	}
	firsts := map[uint32]bool{}
	var hosts []*Host
	for range 6 {
		o := <-all
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		hosts = append(hosts, o.h)
		if firsts[o.h.ids.first] {
			t.Errorf("two instances have the ids from %d", o.h.ids.first)
		}
		firsts[o.h.ids.first] = true
	}
	for _, h := range hosts {
		if got := run(t, h, Spec{Program: command("echo", "x"), Env: testEnv}, ""); got.stdout != "x\n" {
			t.Errorf("got %+v", got)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSweep makes remains that a dead instance can leave, and files that it can't.
func TestSweep(t *testing.T) {
	c := testConfig(t).withDefaults()
	alive, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	k := startTalk(t, alive, Spec{Program: bash("echo ready; read x; echo $x")}, nil)
	k.line("ready\n")

	// A dead instance: a directory whose lock is free, with a process in its
	// cgroup, a mount, and hostile names.
	dead := filepath.Join(c.StateDir, "instances", "dead")
	run := filepath.Join(c.RunDir, "dead")
	for _, d := range []string{dead, run, run + "/s0", run + "/s1"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(precious), run+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := mount.Tmpfs(run+"/s0", "size=64k"); err != nil {
		t.Fatal(err)
	}
	if err := mount.BindMapped(filepath.Dir(precious), run+"/s1", nil); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	// Its cgroups are in another place than ours.
	elsewhere := &cgroup.Hierarchy{Unified: alive.cgroups.Unified, Base: map[string]string{}}
	for controller, base := range alive.cgroups.Base {
		elsewhere.Base[controller] = filepath.Join(base, "skillrun.elsewhere")
		defer os.Remove(elsewhere.Base[controller])
	}
	if err := elsewhere.Save(filepath.Join(dead, groupsFile)); err != nil {
		t.Fatal(err)
	}
	g := elsewhere.Group(groupPrefix+"dead", "x")
	for _, dir := range g.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(dir, "cpuset") {
			continue // takes no process before it is configured
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, sleeper.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}

	h, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := sleeper.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process: got %v, want it killed", err)
	}
	for _, path := range append([]string{dead, run}, g.Dirs["memory"], g.Dirs["pids"]) {
		if _, err := os.Lstat(path); path != "" && err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if h.ids.first == alive.ids.first {
		t.Error("two instances have the same ids")
	}
	// The living instance was not touched.
	fmt.Fprintln(k.in, "still here")
	k.line("still here\n")
	k.wait()
}
