package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// A posture is the state that the kernel should report of the program's first process while the
// process waits before its exec. The posture does not change later: no_new_privs keeps
// exec from adding a privilege.
type posture struct {
	ids     idPair
	group   cgroup.Group
	rlimits map[int]uint64    // by RLIMIT_ number, in the units of getrlimit(2)
	initPid int               // of the host
	memory  int64             // limit, in bytes
	pids    int               // the cgroup's limit of processes
	filters int               // number of the daemon's filters on the process
	devices cgroup.Group      // initProcess.devices
	spaces  map[string]string // initProcess.spaces
}

// posture is the posture that c's first process should have.
func (c *sandbox) posture() posture {
	l := c.spec.Limits
	return posture{
		ids: c.ids, group: c.group, rlimits: wantRlimits(c.spec), memory: l.MemoryBytes, pids: l.pids(),
		initPid: c.init.pid, filters: c.init.filters, spaces: c.init.spaces, devices: c.init.devices,
	}
}

// check finds the first process and compares it with p. Its pid in the sandbox must be
// insidePid, unless insidePid is 0. The error has all differences of the status, and the
// first difference of each other kind. check returns the process's pid in the sandbox.
func (p posture) check(insidePid uint32) (uint32, error) {
	pid, err := p.find()
	if err != nil {
		return 0, err
	}
	status, err := pseudofs.ReadStatus(strconv.Itoa(pid))
	if err != nil {
		return 0, err
	}
	if insidePid, err = pidInside(status, insidePid); err != nil {
		return 0, err
	}
	all := pseudofs.Differences(nil).And(p.checkStatus(status))
	steps := []func(int) error{p.checkOOMScore, p.checkNamespaces, p.checkGroups, p.checkRlimits, p.checkDescriptors}
	for _, step := range steps {
		all = all.And(step(pid))
	}
	return insidePid, all.And(p.group.Verify(p.memory, p.pids)).OrNil()
}

// find looks for the process in the sandbox's cgroup, which must hold only it and init.
func (p posture) find() (int, error) {
	pids, err := p.group.Pids()
	if err != nil {
		return 0, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == p.initPid })
	if len(pids) != 1 {
		return 0, fmt.Errorf("processes beside init: got %d, want 1", len(pids))
	}
	return pids[0], nil
}

// pidInside is the process's pid in the sandbox, which must be want unless that is 0.
func pidInside(status pseudofs.Status, want uint32) (uint32, error) {
	levels := strings.Fields(status.Of("NSpid"))
	if len(levels) < 2 {
		return 0, fmt.Errorf("NSpid: got %q, want a pid of the sandbox", levels)
	}
	n, err := strconv.ParseUint(levels[len(levels)-1], 10, 32)
	if err != nil || want != 0 && uint32(n) != want {
		return 0, fmt.Errorf("NSpid: got %q, want it to end with %d", levels, want)
	}
	return uint32(n), nil
}

// checkStatus compares the lines of /proc/<pid>/status that show privileges. Four ids each are
// real, effective, saved and file system ids; 16 zeros are an empty set of capabilities
// (proc(5)).
func (p posture) checkStatus(status pseudofs.Status) error {
	id := strconv.Itoa(int(p.ids.script()))
	four := strings.Join([]string{id, id, id, id}, "\t")
	none := strings.Repeat("0", 16)
	own, err := pseudofs.OwnFilters()
	if err != nil {
		return err
	}
	filters := strconv.Itoa(own + p.filters)
	return status.Compare([][2]string{
		{"Uid", four}, {"Gid", four}, {"Groups", ""},
		{"CapInh", none}, {"CapPrm", none}, {"CapEff", none}, {"CapBnd", none}, {"CapAmb", none},
		{"NoNewPrivs", "1"}, {"Seccomp", "2"}, {"Seccomp_filters", filters}, {"Umask", "0077"}, {"TracerPid", "0"},
	})
}

// checkOOMScore wants the highest score: if the machine runs out of memory, the kernel ends
// scripts first (proc(5)).
func (p posture) checkOOMScore(pid int) error {
	text, err := pseudofs.Read(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(text); got != "1000" {
		return fmt.Errorf("oom_score_adj: got %s, want 1000", got)
	}
	return nil
}

// checkNamespaces wants the process in init's namespaces. They must differ from the daemon's
// and the zygote's.
func (p posture) checkNamespaces(pid int) error {
	names := []string{"user", "mnt", "pid", "ipc", "uts", "cgroup", "net"}
	if preflight.TimeNamespaces() {
		names = append(names, "time")
	}
	own, err := ownNamespaces()
	if err != nil {
		return err
	}
	got, err := readNamespaces(pid, names)
	if err != nil {
		return err
	}
	want, err := readNamespaces(p.initPid, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if got[name] == own[name] {
			return fmt.Errorf("%s namespace: got the daemon's", name)
		}
		if got[name] == p.spaces[name] {
			return fmt.Errorf("%s namespace: got the zygote's", name)
		}
		if got[name] != want[name] {
			return fmt.Errorf("%s namespace: got %s, want init's %s", name, got[name], want[name])
		}
	}
	return nil
}

// ownNamespaces are this process's namespaces. They don't change: the process calls
// Isolate before anything else.
var ownNamespaces = sync.OnceValues(func() (map[string]string, error) {
	names, err := pseudofs.Names("/proc/self/ns")
	if err != nil {
		return nil, err
	}
	return readNamespaces(os.Getpid(), names)
})

// readNamespaces returns the process's namespaces with the given names, as texts such as
// net:[4026531840]. Two processes are in the same namespace if the texts are equal
// (namespaces(7)).
func readNamespaces(pid int, names []string) (map[string]string, error) {
	dir, err := pseudofs.OpenFD(fmt.Sprintf("/proc/%d/ns", pid), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	links := make(map[string]string, len(names))
	for _, name := range names {
		if links[name], err = pseudofs.ReadLink(dir, name); err != nil {
			return nil, fmt.Errorf("%s namespace of %d: %w", name, pid, err)
		}
	}
	return links, nil
}

// checkGroups wants the process in the sandbox's cgroup in every hierarchy with a limit.
func (p posture) checkGroups(pid int) error {
	text, err := pseudofs.Read(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	got := groupsOf(text)
	controllers := []string{"memory", "pids", "cpuacct", "devices"}
	if p.group.Unified {
		controllers = []string{""}
	}
	// The file shows paths from the root of the daemon's cgroup namespace; the
	// directories have the mount point in front. Sandboxes differ in the last elements.
	for _, c := range controllers {
		path := p.group.Path
		if c == "devices" && p.devices.Path != "" {
			path = p.devices.Path
		}
		parent := filepath.Dir(path)
		end := filepath.Join(filepath.Base(parent), filepath.Base(path))
		if strings.HasPrefix(end, groupDirPrefix) {
			end = filepath.Join(filepath.Base(filepath.Dir(parent)), end)
		}
		if !strings.HasSuffix(got[c], "/"+end) {
			return fmt.Errorf("cgroup of %q: got %s, want .../%s", c, got[c], end)
		}
	}
	return nil
}

// groupsOf parses /proc/<pid>/cgroup: it returns the path of each controller. On v2 the only
// key is "".
func groupsOf(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for c := range strings.SplitSeq(controllers, ",") {
			paths[c] = path
		}
	}
	return paths
}

// checkRlimits wants each limit both soft and hard: a script can raise a soft limit to the hard
// one (getrlimit(2)). prlimit(2) would need CAP_SYS_RESOURCE.
func (p posture) checkRlimits(pid int) error {
	text, err := pseudofs.Read(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return err
	}
	got, err := limitsOf(text)
	if err != nil {
		return err
	}
	for resource, want := range p.rlimits {
		if resource >= len(got) {
			return fmt.Errorf("rlimit %d: the kernel shows only %d", resource, len(got))
		}
		soft, hard, want := got[resource][0], got[resource][1], strconv.FormatUint(want, 10)
		if soft != want || hard != want {
			return fmt.Errorf("rlimit %d: got %s/%s, want %s", resource, soft, hard, want)
		}
	}
	return nil
}

// limitsOf parses /proc/<pid>/limits: it returns the soft and the hard limit of each resource, by its
// number. The lines have the order of the numbers, after a header (proc_pid_limits in fs/proc/base.c).
func limitsOf(text string) (limits [][2]string, err error) {
	const name = 26 // width of the column
	for line := range strings.Lines(text) {
		fields := strings.Fields(line[min(name, len(line)):])
		if len(fields) < 2 {
			return nil, fmt.Errorf("limits: malformed line %q", line)
		}
		limits = append(limits, [2]string(fields[:2]))
	}
	return limits[min(1, len(limits)):], nil
}

// checkDescriptors wants three pipes, and every other descriptor to close on exec.
func (p posture) checkDescriptors(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := pseudofs.Names(dir)
	if err != nil {
		return err
	}
	slices.Sort(names) // so that the error always names the same descriptor
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		if fd <= 2 {
			link, err := pseudofs.ReadLink(unix.AT_FDCWD, dir+"/"+name)
			if err != nil || !strings.HasPrefix(link, "pipe:") {
				return fmt.Errorf("descriptor %d: got %q (%v), want a pipe", fd, link, err)
			}
			continue
		}
		closes, err := closesOnExec(pid, fd)
		if err != nil {
			return err
		}
		if !closes {
			return fmt.Errorf("descriptor %d: stays open over exec", fd)
		}
	}
	return nil
}

// closesOnExec reads the flags of a descriptor. /proc shows them in octal, O_CLOEXEC included
// (proc(5)).
func closesOnExec(pid, fd int) (bool, error) {
	text, err := pseudofs.Read(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		if flags, ok := strings.CutPrefix(line, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			return n&unix.O_CLOEXEC != 0, err
		}
	}
	return false, fmt.Errorf("descriptor %d: no flags", fd)
}
