package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// openGroups opens a Host in which groups have zygotes, prewarmed sandboxes and Python zygotes.
func openGroups(t testing.TB, change func(*Config)) *Host {
	t.Helper()
	c := testConfig(t)
	c.Zygote, c.Prewarmed, c.GroupZygotes, c.PythonZygotes = true, 4, 3, 3
	if change != nil {
		change(&c)
	}
	return openWith(t, c)
}

// freeGroups frees the groups that are idle.
func freeGroups(h *Host) {
	h.groups.mu.Lock()
	defer h.groups.mu.Unlock()
	h.groups.freeIdle(time.Now())
}

// waitsAndReads is a program that says "ready" and ends after a line of input.
func waitsAndReads(group string) Spec { return Spec{Group: group, Program: bash("echo ready; read x")} }

// startIn starts a program in a group and returns when it runs.
func startIn(t *testing.T, h *Host, group string) *talk {
	t.Helper()
	k := startTalk(t, h, waitsAndReads(group), nil)
	k.line("ready\n")
	return k
}

func (k *talk) end() Exit {
	k.t.Helper()
	fmt.Fprintln(k.in)
	return k.wait()
}

// waitForGroupZygote runs programs in a group until its zygote makes their sandboxes.
func waitForGroupZygote(t testing.TB, h *Host, group string) {
	t.Helper()
	until(t, "the group has no zygote", func() bool {
		p, err := h.Start(t.Context(), Spec{ID: fmt.Sprintf("t%d", testIDs.Add(1)), Group: group, Program: command("/usr/bin/true")}, IO{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		return byZygote(p.sandbox)
	})
}

// idRange returns the ids of a group's block, from first up to end.
func idRange(h *Host, group string) (first, end uint32) {
	of, err := h.groups.hold(group)
	if err != nil {
		return 0, 0
	}
	defer h.groups.release(of)
	b := of.ids.Load()
	return b.first, b.first + uint32(2*len(b.used))
}

// No two groups have an id in common, and each sandbox has ids of its group's block, whatever made
// the sandbox.
func TestGroupsShareNoIDs(t *testing.T) {
	h := openGroups(t, nil)
	waitForGroupZygote(t, h, "acme")
	var ends []*talk
	seen := map[uint32]string{}
	for _, group := range []string{"", "acme", "globex", "initech"} {
		for range 3 {
			k := startIn(t, h, group)
			ends = append(ends, k)
			id := k.p.sandbox.ids.root
			if first, end := idRange(h, group); id < first || id >= end {
				t.Errorf("group %q: got id %d, want one from %d up to %d", group, id, first, end)
			}
			status, err := pseudofs.ReadStatus(fmt.Sprint(k.p.sandbox.init.pid))
			if got := strings.Fields(status.Of("Uid")); err != nil || len(got) == 0 || got[0] != fmt.Sprint(id) {
				t.Errorf("group %q: init has the ids %v (%v), want %d", group, got, err, id)
			}
		}
		first, end := idRange(h, group)
		for id := first; id < end; id++ {
			if other, taken := seen[id]; taken {
				t.Fatalf("groups %q and %q both have id %d", group, other, id)
			}
			seen[id] = group
		}
	}
	for _, k := range ends {
		k.end()
	}
	noLeftovers(t, h)
}

// A group's prewarmed sandboxes and Python zygotes are descendants of the group's zygote, so they have
// its ids and no other ones. They serve no other group.
func TestZygotesServeOneGroup(t *testing.T) {
	h := openGroups(t, nil)
	python := pythonSpec(nil, "-c", "pass")
	spaces := map[string]string{}
	for _, group := range []string{"acme", "globex"} {
		waitForGroupZygote(t, h, group)
		python.Group = group
		until(t, "no forked Python waits in the group", func() bool {
			run(t, h, python, "")
			h.pool.mu.Lock()
			defer h.pool.mu.Unlock()
			h.pool.rest = time.Time{}
			key := python.withDefaults().profile()
			key.python = python.pythonKey()
			b := h.pool.buckets[key]
			return b != nil && len(b.waiting) > 0
		})
		h.pool.mu.Lock()
		z := h.pool.zygoteOf(group)
		spaces[group] = z.Spaces()["user"]
		first, end := idRange(h, group)
		if want := fmt.Sprintf("0 %d %d", first, end-first); uidMap(t, z.PID()) != want {
			t.Errorf("%s: the zygote's ids are %q, want %q", group, uidMap(t, z.PID()), want)
		}
		for k, e := range h.pool.pythons {
			if k.group == group && (e.zygote == nil || parentOf(t, e.zygote.PID()) != z.PID()) {
				t.Errorf("%s: a Python zygote is not of the group's zygote", group)
			}
		}
		for key, b := range h.pool.buckets {
			for _, c := range b.waiting {
				if key.group != c.in.name || key.group == group && (c.ids.root < first || c.ids.root >= end || c.init.spaces["user"] != spaces[group]) {
					t.Errorf("a sandbox that waits for group %q is of group %q, with ids %v", key.group, c.in.name, c.ids)
				}
			}
		}
		h.pool.mu.Unlock()
	}
	if spaces["acme"] == spaces["globex"] || spaces["acme"] == zygoteOf(h).Spaces()["user"] {
		t.Errorf("groups share a zygote's user namespace: %v", spaces)
	}
	// initech has had no zygote yet, and acme's waiting sandboxes would fit its first request.
	k := startIn(t, h, "initech")
	if first, end := idRange(h, "initech"); k.p.sandbox.ids.root < first || k.p.sandbox.ids.root >= end || byZygote(k.p.sandbox) {
		t.Errorf("got a sandbox with the ids %v that a zygote made", k.p.sandbox.ids)
	}
	k.end()
	noLeftovers(t, h)
}

// uidMap is the first line of a process's uid_map, with single blanks.
func uidMap(t *testing.T, pid int) string {
	t.Helper()
	text, err := pseudofs.Read(fmt.Sprintf("/proc/%d/uid_map", pid))
	if err != nil {
		t.Error(err)
	}
	return strings.Join(strings.Fields(text), " ")
}

func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	status, err := pseudofs.ReadStatus(fmt.Sprint(pid))
	if err != nil {
		t.Error(err)
	}
	fmt.Sscan(status.Of("PPid"), &parent)
	return parent
}

// Even a process that sees another group's processes can't signal, trace or read them: it has other
// ids. In a sandbox it does not see them either.
func TestGroupsCantReachOneAnother(t *testing.T) {
	h := openGroups(t, nil)
	victim, other := startIn(t, h, "acme"), startIn(t, h, "globex")
	pids, err := victim.p.sandbox.group.Pids()
	if err != nil || len(pids) < 2 {
		t.Fatalf("got processes %v, %v", pids, err)
	}
	for _, pid := range pids {
		attack := exec.Command("/usr/bin/python3", "-c", `
import ctypes, os, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
def tried(name, errno): print(name, os.strerror(errno) if errno else "worked")
for name in "environ", "mem", "root/etc/passwd":
    try: open(f"/proc/{pid}/{name}").close(); tried(name, 0)
    except OSError as e: tried(name, e.errno)
tried("trace", ctypes.get_errno() if libc.ptrace(16, pid, 0, 0) else 0) # PTRACE_ATTACH
try: os.kill(pid, 9); tried("kill", 0)
except OSError as e: tried("kill", e.errno)
`, fmt.Sprint(pid))
		id := other.p.sandbox.ids.script()
		attack.Dir = "/"
		attack.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		out, err := attack.CombinedOutput()
		if err != nil || strings.Contains(string(out), "worked") || !strings.Contains(string(out), "kill Operation not permitted") {
			t.Errorf("process %d: got %q, %v", pid, out, err)
		}
	}
	out := run(t, h, Spec{Group: "globex", Env: testEnv, Program: bash("ls -d /proc/[0-9]* | wc -l")}, "")
	if n := strings.TrimSpace(out.stdout); n != "1" && n != "2" && n != "3" && n != "4" {
		t.Errorf("a sandbox sees %s processes", n)
	}
	if exit := victim.end(); exit.End != Exited {
		t.Errorf("got %+v", exit)
	}
	other.end()
}

// Programs that start processes without end, and programs that take all memory, stop at the group's
// limits, which are lower than the sum of the sandboxes' limits. A sandbox of another group goes on.
func TestGroupLimits(t *testing.T) {
	h := openGroups(t, nil)
	const memory, processes = 256 << 20, 100
	if err := h.SetGroup("hostile", GroupLimits{MemoryBytes: memory, Processes: processes, CPUWeight: 50}); err != nil {
		t.Fatal(err)
	}
	measuring := startTalk(t, h, Spec{Group: "measuring", Program: command("/usr/bin/python3", "-uc", `
import os
for line in iter(input, "end"):
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
    x = bytearray(8 << 20)
    print(line)
`)}, nil)
	goesOn := func(word string) {
		t.Helper()
		fmt.Fprintln(measuring.in, word)
		measuring.line(word + "\n")
	}
	goesOn("before")
	// Not a fork bomb of shells: a shell that cannot fork ends, so their number falls again.
	bomb := command("/usr/bin/python3", "-c", `
import os, time
while True:
    try: os.posix_spawn("/usr/bin/sleep", ["sleep", "1000"], {})
    except OSError: time.sleep(0.01)
`)
	var bombs []*talk
	for range 2 {
		bombs = append(bombs, startTalk(t, h, Spec{Group: "hostile", Program: bomb, Limits: Limits{Processes: 90}}, nil))
	}
	g := h.cgroups.Slim(h.groupName(), groupDirPrefix+"hostile")
	until(t, "the bombs have not reached the group's limit", func() bool {
		n, err := g.Number("pids", "pids.current")
		if err == nil && n > processes+4 { // init enters the cgroup, and so is not refused
			t.Fatalf("got %d processes", n)
		}
		return n >= processes-1
	})
	goesOn("beside the processes")
	if _, err := h.Start(t.Context(), Spec{ID: "no-room", Group: "hostile", Program: command("/usr/bin/true")}, IO{}); !errors.Is(err, ErrGroupFull) {
		t.Errorf("another start: got %v, want %v", err, ErrGroupFull)
	}
	for _, k := range bombs {
		k.p.Stop(0)
		k.wait()
	}
	goesOn("between")
	eat := Spec{Group: "hostile", Program: command("/usr/bin/python3", "-uc", `
x = [b"x" * (1 << 20) for _ in range(90)] # one that eats alone reaches the group's limit, too, and not its own
print("ready")
input()
while True: x.append(b"x" * (1 << 20))
`), Limits: Limits{MemoryBytes: 200 << 20}}
	var eaters []*talk
	for range 2 {
		eaters = append(eaters, startTalk(t, h, eat, nil))
	}
	for _, k := range eaters {
		k.line("ready\n")
	}
	for _, k := range eaters {
		fmt.Fprintln(k.in)
	}
	var scopes []OOMScope
	for _, k := range eaters {
		exit := k.wait()
		if exit.End != OOMKilled || exit.OOMKills == 0 {
			t.Errorf("got %+v", exit)
		}
		scopes = append(scopes, exit.OOMScope)
	}
	// The second one may have reached its own limit after the first one had left it the room.
	if !slices.Contains(scopes, GroupMemory) || slices.Contains(scopes, MachineMemory) {
		t.Errorf("whose memory ran out: got %v, want the group's", scopes)
	}
	if peak := g.Usage().MemoryPeakBytes; peak > memory {
		t.Errorf("the group had %d bytes, want at most %d", peak, memory)
	}
	goesOn("after")
	fmt.Fprintln(measuring.in, "end")
	if exit := measuring.wait(); exit.End != Exited || exit.Code != 0 || exit.OOMKills+exit.PidsMax > 0 {
		t.Errorf("the other group's program: got %+v", exit)
	}
	noLeftovers(t, h)
}

// The exit of a program that the group's number of processes stops does not blame the program's own limit. On cgroup
// v2, Linux 6.11 and later count such a refusal in the group only.
func TestProcessesOfAGroup(t *testing.T) {
	h := openGroups(t, nil)
	if err := h.SetGroup("acme", GroupLimits{Processes: 20}); err != nil {
		t.Fatal(err)
	}
	got := run(t, h, Spec{Group: "acme", Env: testEnv, Limits: Limits{Processes: 90}, Program: command("/usr/bin/python3", "-c", `
import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(1000)
except OSError as e: print(e.strerror)`)}, "")
	if got.stdout != "Resource temporarily unavailable\n" || got.exit.PidsOfGroup != (got.exit.PidsMax > 0) {
		t.Errorf("got %q, %+v", got.stdout, got.exit)
	}
}

// The outcome of a program that reaches its own memory limit does not blame the group's limit.
func TestOwnMemoryInAGroup(t *testing.T) {
	h := openGroups(t, nil)
	if err := h.SetGroup("acme", GroupLimits{MemoryBytes: 512 << 20}); err != nil {
		t.Fatal(err)
	}
	got := run(t, h, Spec{Group: "acme", Env: testEnv, Program: command("/usr/bin/python3", "-c", "x = bytearray(200 << 20)"), Limits: Limits{MemoryBytes: 64 << 20}}, "")
	if got.exit.End != OOMKilled || got.exit.OOMScope != OwnMemory {
		t.Errorf("got %+v", got.exit)
	}
}

// SetGroup changes the limits of sandboxes that run. A limit of 0 removes the limit in the kernel.
func TestSetGroupWhileItRuns(t *testing.T) {
	h := openGroups(t, nil)
	k := startIn(t, h, "acme")
	g := h.cgroups.Slim(h.groupName(), groupDirPrefix+"acme")
	processes := func() string {
		s, err := g.Read("pids", "pids.max")
		if err != nil {
			t.Error(err)
		}
		return s
	}
	for _, n := range []int64{0, 50, 60, 0} {
		if err := h.SetGroup("acme", GroupLimits{Processes: n, MemoryBytes: n << 20, CPUWeight: int(n)}); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(n)
		if n == 0 {
			want = "max"
		}
		if got := processes(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if exit := k.end(); exit.End != Exited {
		t.Errorf("got %+v", exit)
	}
	for _, l := range []GroupLimits{{MemoryBytes: 1}, {MemoryBytes: -1}, {Processes: -1}, {Processes: 1}, {CPUWeight: -1}, {CPUWeight: 10_001}} {
		if err := h.SetGroup("acme", l); err == nil {
			t.Errorf("%+v was taken", l)
		}
		if _, err := h.Start(t.Context(), Spec{ID: "bad", Group: "acme", Program: command("/usr/bin/true")}, IO{}); !errors.Is(err, ErrGroupRemoved) {
			t.Errorf("a start after limits %+v: got %v, want none", l, err)
		}
	}
	for _, name := range []string{"", "a/b", "..", strings.Repeat("x", 65), "_x", "a b"} {
		if err := h.SetGroup(name, GroupLimits{}); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	if _, err := h.Start(t.Context(), Spec{ID: "bad", Group: "../x", Program: command("/usr/bin/true")}, IO{}); err == nil {
		t.Error("a start in group ../x was accepted")
	}
}

// A memory limit below the group's present use is not forgotten: if the kernel refuses it (cgroup v1),
// nothing new starts until it fits.
func TestSetGroupBelowItsUse(t *testing.T) {
	h := openGroups(t, nil)
	if h.cgroups.Unified {
		t.Skip("cgroup v2 takes each limit, and kills processes until the rest fits")
	}
	k := startTalk(t, h, Spec{Group: "acme", Program: command("/usr/bin/python3", "-uc", `x = b"x" * (100 << 20); print("ready"); input()`)}, nil)
	k.line("ready\n")
	lower := GroupLimits{MemoryBytes: 32 << 20}
	if err := h.SetGroup("acme", lower); err == nil || !strings.Contains(err.Error(), "hold more") {
		t.Errorf("got %v, want that its sandboxes hold more", err)
	}
	s := Spec{ID: "next", Group: "acme", Program: command("/usr/bin/true")}
	if _, err := h.Start(t.Context(), s, IO{}); err == nil {
		t.Error("a start above the group's limit was accepted")
	}
	if exit := k.end(); exit.End != Exited {
		t.Errorf("got %+v", exit)
	}
	<-k.p.sandbox.destroyed
	run(t, h, s, "")
	if got, err := h.cgroups.Slim(h.groupName(), groupDirPrefix+"acme").Number("memory", "memory.limit_in_bytes"); err != nil || got != lower.MemoryBytes {
		t.Errorf("got a limit of %d, %v, want %d", got, err, lower.MemoryBytes)
	}
}

// Zygotes are bounded. The least recently used one of an idle group goes first, and none of a group
// whose program runs.
func TestGroupZygotesAreBounded(t *testing.T) {
	h := openGroups(t, func(c *Config) { c.GroupZygotes, c.Prewarmed = 2, 1 })
	waitForGroupZygote(t, h, "first")
	busy := startIn(t, h, "first")
	waitForGroupZygote(t, h, "second")
	age := func(group string, by time.Duration) {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		h.pool.byGroup[group].asked = h.pool.byGroup[group].asked.Add(-by)
		h.pool.zygoteRest = time.Time{}
	}
	have := func() (names []string) {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		for name := range h.pool.byGroup {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	h.pool.mu.Lock()
	h.pool.byGroup["second"].asked = time.Now().Add(time.Hour) // as if it were asked for now, however slow the machine is
	h.pool.mu.Unlock()
	age("first", time.Hour)
	run(t, h, Spec{Group: "third", Program: command("/usr/bin/true")}, "")
	if got := have(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("got zygotes of %q, want first, which is busy, and second, which was just asked for", got)
	}
	age("second", 3*time.Hour)
	waitForGroupZygote(t, h, "third")
	if got := have(); !slices.Equal(got, []string{"first", "third"}) {
		t.Errorf("got zygotes of %q, want first and third", got)
	}
	if exit := busy.end(); exit.End != Exited || exit.Code != 0 {
		t.Errorf("got %+v", exit)
	}
	noLeftovers(t, h)
}

// A removed group starts nothing. Its running sandboxes go on; after the last one everything is freed,
// also the zygote.
func TestRemoveGroup(t *testing.T) {
	h := openGroups(t, nil)
	waitForGroupZygote(t, h, "acme")
	k := startIn(t, h, "acme")
	h.RemoveGroup("acme")
	if _, err := h.Start(t.Context(), Spec{ID: "late", Group: "acme", Program: command("/usr/bin/true")}, IO{}); !errors.Is(err, ErrGroupRemoved) {
		t.Errorf("got %v, want %v", err, ErrGroupRemoved)
	}
	if exit := k.end(); exit.End != Exited || exit.Code != 0 {
		t.Errorf("got %+v", exit)
	}
	until(t, "the group still holds ids", func() bool { return h.Stats().Groups == 0 })
	for _, child := range h.cgroups.Group(h.groupName()).Children() {
		if strings.HasSuffix(child.Path, "acme") {
			t.Errorf("cgroup %s is left", child.Path)
		}
	}
	if s := h.Stats(); s.GroupZygotes != 0 {
		t.Errorf("got %+v", s)
	}
	h.RemoveGroup("never-there")
	if err := h.SetGroup("acme", GroupLimits{}); err != nil {
		t.Fatal(err)
	}
	run(t, h, Spec{Group: "acme", Program: command("/usr/bin/true")}, "")
	noLeftovers(t, h)
}

// A block of ids has one owner at a time. If all blocks are held, a start fails with ErrNoIDs, and
// works again when an owner is gone.
func TestGroupsWithoutIDs(t *testing.T) {
	h := openGroups(t, func(c *Config) {
		// Four pieces: the default group's, two for groups, and the one for another daemon.
		c.FirstID, c.IDs, c.GroupIDs = 3<<29, 4*blockIDs, blockIDs
	})
	if got := Groups(h.config.IDs, h.config.GroupIDs); got != 2 {
		t.Errorf("so many groups fit: got %d, want 2", got)
	}
	a, b := startIn(t, h, "a"), startIn(t, h, "b")
	s := Spec{ID: "c", Group: "c", Program: command("/usr/bin/true")}
	if _, err := h.Start(t.Context(), s, IO{}); !errors.Is(err, ErrNoIDs) {
		t.Errorf("got %v, want %v", err, ErrNoIDs)
	}
	held, _ := idRange(h, "a")
	a.end()
	<-a.p.sandbox.destroyed
	until(t, "the zygote of a, which is idle, did not give its ids up", func() bool {
		p, err := h.Start(t.Context(), s, IO{})
		if err == nil {
			if got, _ := idRange(h, "c"); got != held {
				t.Errorf("got ids from %d, want those from %d", got, held)
			}
			p.Wait()
		} else if !errors.Is(err, ErrNoIDs) { // a's zygote may still be starting
			t.Fatal(err)
		}
		return err == nil
	})
	b.end()
	noLeftovers(t, h)
}

// A hundred groups, one after the other, leave nothing.
func TestManyGroupsLeaveNothing(t *testing.T) {
	h := openGroups(t, nil)
	for n := range 100 {
		group := fmt.Sprintf("g%d", n)
		if err := h.SetGroup(group, GroupLimits{MemoryBytes: 256 << 20, Processes: 100}); err != nil {
			t.Fatal(err)
		}
		if got := run(t, h, Spec{Group: group, Program: command("/usr/bin/true")}, ""); got.exit.Code != 0 {
			t.Fatalf("got %+v", got)
		}
		h.RemoveGroup(group)
	}
	until(t, "groups hold ids", func() bool { return h.Stats().Groups == 0 })
	found, _ := filepath.Glob(filepath.Join(h.containers(), groupDirPrefix+"*"))
	if len(found) > 0 {
		t.Errorf("left: %q", found)
	}
	noLeftovers(t, h)
}

// A zygote of a group that dies takes the group's sandboxes with it, and no others. The group gets
// another one.
func TestGroupZygoteThatIsKilled(t *testing.T) {
	h := openGroups(t, nil)
	waitForGroupZygote(t, h, "acme")
	k, other := startIn(t, h, "acme"), startIn(t, h, "globex")
	h.pool.mu.Lock()
	z := h.pool.zygoteOf("acme")
	h.pool.mu.Unlock()
	if err := unix.Kill(z.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := k.p.Wait(); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want %v", err, ErrLost)
	}
	<-z.Gone()
	waitForGroupZygote(t, h, "acme")
	if exit := other.end(); exit.End != Exited || exit.Code != 0 {
		t.Errorf("the other group: got %+v", exit)
	}
	noLeftovers(t, h)
}

// Starts, changes and removals of groups may come at the same time.
func TestGroupsAtOnce(t *testing.T) {
	h := openGroups(t, func(c *Config) { c.GroupZygotes = 2 })
	done := make(chan error)
	for worker := range 8 {
		go func() {
			done <- func() error {
				for n := range 10 {
					group := fmt.Sprintf("g%d", (worker+n)%5)
					if err := h.SetGroup(group, GroupLimits{Processes: 1000}); err != nil {
						return err
					}
					p, err := h.Start(context.Background(), Spec{ID: fmt.Sprintf("w%d-%d", worker, n), Group: group, Program: command("/usr/bin/true")}, IO{})
					if errors.Is(err, ErrGroupRemoved) {
						continue
					}
					if err != nil {
						return err
					}
					if exit, err := p.Wait(); err != nil || exit.Code != 0 {
						return fmt.Errorf("%+v, %w", exit, err)
					}
					if n%5 == worker%5 {
						h.RemoveGroup(group)
					}
				}
				return nil
			}()
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	noLeftovers(t, h)
}

// An idle group without a zygote costs the daemon at most maxIdleGroup, also after its sandboxes have
// run. The test logs the figures, also for a group with a zygote.
func TestCostOfIdleGroups(t *testing.T) {
	const count, ran, maxIdleGroup = 1000, 40, 256 << 10
	h := openGroups(t, func(c *Config) { c.GroupZygotes = 0 })
	run(t, h, Spec{Group: "first", Program: command("/usr/bin/true")}, "") // makes everything that only the first sandbox makes
	freeGroups(h)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, files := heap(), sockettest.OpenFiles(t)
	for n := range count {
		if err := h.SetGroup(fmt.Sprintf("g%d", n), GroupLimits{MemoryBytes: 1 << 30}); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / count
	t.Logf("a group with limits: %d bytes", each)
	if each > maxIdleGroup {
		t.Errorf("an idle group costs %d bytes, want at most %d", each, maxIdleGroup)
	}
	before = heap()
	for n := range ran {
		run(t, h, Spec{Group: fmt.Sprintf("g%d", n), Program: command("/usr/bin/true")}, "")
	}
	until(t, "groups still hold ids", func() bool { freeGroups(h); return h.Stats().Groups == 0 })
	each = (heap() - before) / ran
	t.Logf("a group that was used once, besides: %d bytes", each)
	if each > maxIdleGroup {
		t.Errorf("an idle group that was used costs %d bytes, want at most %d", each, maxIdleGroup)
	}
	if got := keptFiles(t, files); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
	noLeftovers(t, h)
}

// The test logs the memory of a group's zygote, also with a Python zygote.
func TestCostOfGroupZygote(t *testing.T) {
	h := openGroups(t, func(c *Config) { c.Prewarmed = 0 })
	python := pythonSpec(nil, "-c", "pass")
	python.Group = "acme"
	waitForGroupZygote(t, h, "acme")
	of, err := h.groups.hold("acme")
	if err != nil {
		t.Fatal(err)
	}
	h.groups.release(of)
	bytes := func() int64 {
		n, err := of.zygoteCgroup().Number("memory", "memory.usage_in_bytes")
		if h.cgroups.Unified {
			n, err = of.zygoteCgroup().Number("memory", "memory.current")
		}
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		return n
	}
	alone := bytes()
	until(t, "no Python is forked", func() bool {
		python.ID = fmt.Sprintf("t%d", testIDs.Add(1))
		p, err := h.Start(t.Context(), python, IO{})
		if err != nil {
			t.Fatal(err)
		}
		p.Wait()
		return p.sandbox.forked != nil
	})
	t.Logf("the cgroup of a zygote has %d KiB, with a Python zygote %d KiB", alone>>10, bytes()>>10)
	noLeftovers(t, h)
}
