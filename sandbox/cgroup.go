package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// A hierarchy is the base for the cgroups of sandboxes: one directory on cgroup v2, one
// directory per controller on v1.
type hierarchy struct {
	unified bool
	prefix  string            // prefix of the paths for libcontainer
	base    map[string]string // controller -> directory; v2 has one, ""
	swap    bool              // v1: the kernel can limit memory and swap together
}

// daemonGroup is the leaf into which a daemon moves itself on v2, because a
// cgroup with processes can't pass controllers on to its children.
const daemonGroup = "skillrun-daemon"

// unifiedRoot is where cgroup v2 is mounted.
const unifiedRoot = "/sys/fs/cgroup"

// groupPrefix begins the name of an instance's cgroup.
const groupPrefix = "skillrun-"

// openHierarchy returns the hierarchy beneath parent, or beneath the process's own cgroup
// if parent is empty.
func openHierarchy(parent string) (*hierarchy, error) {
	h := &hierarchy{unified: cgroups.IsCgroup2UnifiedMode(), prefix: parent}
	if h.unified && parent == "" {
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		if h.prefix, err = ownGroup(unifiedRoot, own[""]); err != nil {
			return nil, err
		}
	}
	// Libcontainer finds the mount points. On v1 it resolves the path relative to the
	// process's own cgroups, which differ between controllers.
	m, err := manager.New(&cgroups.Cgroup{Path: filepath.Join(h.prefix, "x"), Resources: &cgroups.Resources{}})
	if err != nil {
		return nil, err
	}
	h.base = map[string]string{}
	for controller, dir := range m.GetPaths() {
		h.base[controller] = filepath.Dir(dir)
	}
	_, err = os.Stat(filepath.Join(h.base["memory"], "memory.memsw.limit_in_bytes"))
	h.swap = err == nil && !h.unified
	return h, nil
}

// ownGroup returns the cgroup v2 that this process may divide. That is its own cgroup, at
// path beneath root. If other processes share it, as a shell does with a daemon in a
// terminal, it is the topmost cgroup. A cgroup with processes can't pass controllers on.
func ownGroup(root, path string) (string, error) {
	if filepath.Base(path) == daemonGroup {
		return filepath.Dir(path), nil
	}
	pids, err := readPids(filepath.Join(root, path))
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(pids, func(pid int) bool { return pid != os.Getpid() }) {
		return "/", nil
	}
	return path, nil
}

// save writes h to a file, for loadHierarchy.
func (h *hierarchy) save(path string) error {
	b, err := json.Marshal(savedHierarchy{h.unified, h.base})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// loadHierarchy reads a hierarchy that save wrote. It only serves to clear groups.
func loadHierarchy(path string) (*hierarchy, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s savedHierarchy
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &hierarchy{unified: s.Unified, base: s.Base}, nil
}

type savedHierarchy struct {
	Unified bool
	Base    map[string]string
}

// prepare makes the base ready to hold sandboxes.
func (h *hierarchy) prepare() error {
	if !h.unified {
		return nil
	}
	dir := h.base[""]
	if err := h.divisible(); err != nil {
		return err
	}
	if !isMachineRoot(dir) {
		if err := h.moveAway(dir); err != nil {
			return err
		}
	}
	for _, c := range []string{"+memory", "+pids", "+cpu"} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(c), 0); err != nil {
			return fmt.Errorf("pass on controller %s of %s: %w", c[1:], dir, err)
		}
	}
	return nil
}

// isMachineRoot reports whether dir is the machine's root cgroup and not the root of a
// cgroup namespace. Only the machine's root may hold processes and pass controllers on, and
// only it has no cgroup.type (cgroups(7)).
func isMachineRoot(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}

// divisible returns an error if the base can't have children with controllers, because on
// v2 another process is in it.
func (h *hierarchy) divisible() error {
	dir := h.base[""]
	if !h.unified || isMachineRoot(dir) {
		return nil
	}
	pids, err := readPids(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid != os.Getpid() {
			return fmt.Errorf("%s holds other processes, such as %d, and so can't be divided", dir, pid)
		}
	}
	return nil
}

// moveAway moves this process from dir into the leaf daemonGroup, if it is in dir itself.
func (h *hierarchy) moveAway(dir string) error {
	procs, err := readPids(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(procs, os.Getpid()) {
		return nil
	}
	leaf := filepath.Join(dir, daemonGroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// group returns the cgroup of the given path beneath the base. It need not exist.
func (h *hierarchy) group(elem ...string) group {
	path := filepath.Join(elem...)
	g := group{unified: h.unified, swap: h.swap, path: filepath.Join(h.prefix, path), dirs: map[string]string{}}
	for controller, base := range h.base {
		g.dirs[controller] = filepath.Join(base, path)
	}
	return g
}

// slim returns the cgroup of a sandbox that the zygote makes. On v1 the sandbox has its own
// cgroup only for controllers that limit or count. For the others it stays in the zygote's
// cgroup.
func (h *hierarchy) slim(elem ...string) group {
	g := h.group(elem...)
	if !h.unified {
		maps.DeleteFunc(g.dirs, func(controller, _ string) bool {
			return !slices.Contains([]string{"memory", "pids", "cpu", "cpuacct"}, controller)
		})
	}
	return g
}

// find searches all hierarchies of the machine for the cgroup of that name. It need not
// exist.
func (h *hierarchy) find(name string) group {
	g := h.group(name)
	_ = filepath.WalkDir(unifiedRoot, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // a cgroup may be removed during the walk
		}
		if e.Name() != name {
			return nil
		}
		controller := ""
		if !h.unified { // one mount for each
			controller, _, _ = strings.Cut(strings.TrimPrefix(path, unifiedRoot+"/"), "/")
		}
		g.dirs[controller] = path
		return fs.SkipDir
	})
	return g
}

// A group is one cgroup, in all hierarchies that it is in.
type group struct {
	unified bool
	swap    bool              // hierarchy.swap
	path    string            // for libcontainer
	dirs    map[string]string // by controller, absolute
}

// file is a path in the group's directory for a controller.
func (g group) file(controller, name string) string {
	if g.unified {
		controller = ""
	}
	return g.dirs[controller] + "/" + name
}

func (g group) read(controller, name string) (string, error) {
	s, err := readAll(unix.AT_FDCWD, g.file(controller, name))
	return strings.TrimSpace(s), err
}

func (g group) number(controller, name string) (int64, error) {
	s, err := g.read(controller, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}

// value returns the number of key in a file of "key number" lines.
func (g group) value(controller, name, key string) (uint64, error) {
	s, err := g.read(controller, name)
	if err != nil {
		return 0, err
	}
	if v, ok := lineValue(s, key); ok {
		return strconv.ParseUint(v, 10, 64)
	}
	return 0, fmt.Errorf("%s: no %s", g.file(controller, name), key)
}

// lineValue returns the value of key in such lines.
func lineValue(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// oomKills counts the processes of the group that the kernel killed for memory.
func (g group) oomKills() (uint64, error) {
	if g.unified {
		return g.value("memory", "memory.events", "oom_kill")
	}
	return g.value("memory", "memory.oom_control", "oom_kill")
}

// usage reads the resources that the group's processes have used so far. Values that the
// kernel doesn't report stay zero.
func (g group) usage() Usage {
	u := g.cpuUsage()
	peak := "memory.max_usage_in_bytes"
	if g.unified {
		peak = "memory.peak" // since Linux 5.19
	}
	u.MemoryPeakBytes, _ = g.number("memory", peak)
	return u
}

// cpuUsage is the CPU part of usage.
func (g group) cpuUsage() (u Usage) {
	if g.unified {
		text, _ := g.read("cpu", "cpu.stat")
		u.UserCPU, u.SystemCPU = microseconds(text, "user_usec"), microseconds(text, "system_usec")
		return u
	}
	// Only the sum is exact. The kernel samples user and system time when the clock ticks,
	// about 250 times a second. A process that a CPU limit stops at a tick is counted too
	// high, and a process that runs for less than a tick is counted too low. So the sum is
	// divided in the ratio of the samples, as the kernel does on v2 (cputime_adjust in
	// kernel/sched/cputime.c).
	sum, err := g.number("cpuacct", "cpuacct.usage")
	if err != nil {
		return u
	}
	// The file has a heading, then for each processor its number and the nanoseconds of
	// user and system time.
	text, _ := g.read("cpuacct", "cpuacct.usage_all")
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 {
			user, _ := strconv.ParseInt(f[1], 10, 64)
			system, _ := strconv.ParseInt(f[2], 10, 64)
			u.UserCPU, u.SystemCPU = u.UserCPU+time.Duration(user), u.SystemCPU+time.Duration(system)
		}
	}
	system := 0.0
	if ticks := u.UserCPU + u.SystemCPU; ticks > 0 {
		system = float64(u.SystemCPU) / float64(ticks)
	}
	u.SystemCPU = time.Duration(float64(sum) * system)
	u.UserCPU = time.Duration(sum) - u.SystemCPU
	return u
}

// cpuSince subtracts the earlier usage. The kernel may have corrected the earlier split
// between user and system time since, so a difference can be negative. cpuSince then takes
// it from the other part.
func (u Usage) cpuSince(before Usage) Usage {
	u.UserCPU, u.SystemCPU = u.UserCPU-before.UserCPU, u.SystemCPU-before.SystemCPU
	if u.SystemCPU < 0 {
		u.UserCPU, u.SystemCPU = u.UserCPU+u.SystemCPU, 0
	}
	if u.UserCPU < 0 {
		u.UserCPU, u.SystemCPU = 0, max(u.SystemCPU+u.UserCPU, 0)
	}
	return u
}

func microseconds(text, key string) time.Duration {
	v, _ := lineValue(text, key)
	n, _ := strconv.ParseInt(v, 10, 64)
	return time.Duration(n) * time.Microsecond
}

// refusedForks counts the forks that pids.max refused.
func (g group) refusedForks() uint64 {
	n, _ := g.value("pids", "pids.events", "max")
	return n
}

// limitProcesses sets pids.max.
func (g group) limitProcesses(n int) error {
	return g.write("pids", "pids.max", strconv.Itoa(n))
}

// create makes the group's directories. Their parents must exist.
func (g group) create() error {
	made := map[string]bool{} // controllers may share one
	for _, dir := range g.dirs {
		if made[dir] {
			continue
		}
		made[dir] = true
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup %s: %w", dir, err)
		}
	}
	if !g.unified {
		return nil
	}
	for _, f := range [][2]string{{"memory.oom.group", "1"}, {"cgroup.max.descendants", "0"}} {
		if err := g.write("", f[0], f[1]); err != nil {
			return err
		}
	}
	if err := g.write("", "memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // a kernel without swap has no such file
	}
	return nil
}

// limitDevices allows the processes of the group and of its descendants only a sandbox's
// devices. On v1 it does nothing: there the zygote's sandboxes are in the zygote's cgroup
// of the devices hierarchy, which libcontainer limits.
func (g group) limitDevices() error {
	if !g.unified {
		return nil
	}
	if err := cgroups.DevicesSetV2(g.dirs[""], &cgroups.Resources{Devices: deviceRules()}); err != nil {
		return fmt.Errorf("device rules of %s: %w", g.dirs[""], err)
	}
	return nil
}

// limitMemory limits the memory of the group's processes, including swap and the buffers of
// sockets.
func (g group) limitMemory(bytes int64) error {
	if err := g.limitSockets(bytes); err != nil {
		return err
	}
	n := strconv.FormatInt(bytes, 10)
	if g.unified {
		return g.write("memory", "memory.max", n)
	}
	const both = "memory.memsw.limit_in_bytes"
	if err := g.write("memory", "memory.limit_in_bytes", n); err != nil {
		// The kernel refuses a memory limit above the limit of memory and swap: raise
		// that one first.
		if !g.swap || g.write("memory", both, n) != nil {
			return err
		}
		return g.write("memory", "memory.limit_in_bytes", n)
	}
	if g.swap {
		return g.write("memory", both, n)
	}
	return nil
}

func (g group) write(controller, name, value string) error {
	return writeAll(g.file(controller, name), value)
}

// procsFiles opens the files through which a process enters the group.
func (g group) procsFiles() (files []*os.File, err error) {
	name := "tasks"
	if g.unified {
		name = "cgroup.procs"
	}
	opened := map[string]bool{}
	for _, dir := range g.dirs {
		if opened[dir] {
			continue
		}
		opened[dir] = true
		f, err := openQuiet(dir+"/"+name, unix.O_WRONLY)
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// verify compares the kernel's limits with the limits that they should be.
func (g group) verify(memory int64, processes int) error {
	page := int64(os.Getpagesize())
	down := func(bytes int64) int64 { return bytes / page * page } // as the kernel rounds
	sockets, memory := down(socketBytes(memory)), down(memory)
	want := map[[2]string]int64{{"pids", "pids.max"}: int64(processes)}
	if g.unified {
		want[[2]string{"memory", "memory.max"}] = memory
		want[[2]string{"memory", "memory.oom.group"}] = 1
		if _, err := os.Stat(g.file("memory", "memory.swap.max")); err == nil {
			want[[2]string{"memory", "memory.swap.max"}] = 0
		}
	} else {
		want[[2]string{"memory", "memory.limit_in_bytes"}] = memory
		want[[2]string{"memory", socketLimit}] = sockets
		if g.swap {
			want[[2]string{"memory", "memory.memsw.limit_in_bytes"}] = memory
		}
	}
	for at, n := range want {
		got, err := g.number(at[0], at[1])
		if err != nil {
			return err
		}
		if got != n {
			return fmt.Errorf("%s is %d, want %d", at[1], got, n)
		}
	}
	return nil
}

// pids lists the group's processes.
func (g group) pids() ([]int, error) {
	pids, err := readPids(filepath.Dir(g.file("pids", "x")))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return pids, err
}

func readPids(dir string) ([]int, error) {
	s, err := readAll(unix.AT_FDCWD, dir+"/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(s) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// kill sends SIGKILL to every process of the group, once.
func (g group) kill() error {
	if g.unified && os.WriteFile(g.file("", "cgroup.kill"), []byte("1"), 0) == nil { // since Linux 5.14
		return nil
	}
	if !g.unified && g.dirs["freezer"] != "" {
		// A frozen process does not die. The daemon freezes no cgroup, but another program may.
		_ = g.write("freezer", "freezer.state", "THAWED")
	}
	pids, err := g.pids()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended since
	}
	return err
}

// clear kills until no process is left, then removes the group with its children.
func (g group) clear(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := g.killTree()
		if err == nil {
			err = g.remove()
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
	}
}

// removeSoon removes a group without processes. It retries while the last process ends. A
// group without children is removed even if descriptors are exhausted.
func (g group) removeSoon(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := g.remove()
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// killTree kills the processes of the group and of its descendants.
func (g group) killTree() error {
	for _, child := range g.children() {
		if err := child.killTree(); err != nil {
			return err
		}
	}
	return g.kill()
}

func (g group) children() []group {
	names := map[string]bool{}
	for _, dir := range g.dirs {
		entries, _ := os.ReadDir(dir) // a group that is gone has no children
		for _, e := range entries {
			if e.IsDir() {
				names[e.Name()] = true
			}
		}
	}
	var children []group
	for n := range names {
		c := group{unified: g.unified, swap: g.swap, path: filepath.Join(g.path, n), dirs: map[string]string{}}
		for controller, dir := range g.dirs {
			c.dirs[controller] = filepath.Join(dir, n)
		}
		children = append(children, c)
	}
	return children
}

// remove removes the group and its children, which must have no processes.
func (g group) remove() error {
	for _, child := range g.children() {
		if err := child.remove(); err != nil {
			return err
		}
	}
	return g.removeDirs()
}

// removeDirs removes a group that has no children.
func (g group) removeDirs() error {
	for _, dir := range g.dirs {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return nil
}
