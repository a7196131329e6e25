package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A box is the cgroup of one sandbox or of the zygote, in every hierarchy that has it. A box
// that is named after a pair of ids is of a prewarmed sandbox. There the name of the init says
// whether the sandbox waits or which execution uses it.
type box struct {
	name  string
	paths []string
	pids  []string
	init  string // pid of the sandbox's PID 1; "" if the box has no such process
	comm  string // the name of init
}

const (
	instanceBox = "skillrun-" // of an instance: with an id
	zygoteBox   = "_zygote"   // of a tenant: with "-" and its name
	groupBox    = "_group-"   // contains the boxes of a tenant's sandboxes
	waitingInit = "init"      // the name of init until the sandbox is used
	zygoteComm  = "zygote"
	initName    = 15 // bytes that the kernel keeps of a name, PR_SET_NAME in prctl(2)
)

// boxesOf lists the cgroups of an instance.
func boxesOf(instance string) []*box {
	if instance == "" {
		return nil
	}
	byName := map[string]*box{}
	var all []*box
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		_, inside, ok := strings.Cut(path, instance+"/")
		if !ok {
			// Tests wait for boxes in a loop, and the cgroups of daemons of other tests are many.
			if strings.HasPrefix(e.Name(), instanceBox) && e.Name() != instanceBox+instance {
				return fs.SkipDir
			}
			return nil
		}
		name, inside, _ := strings.Cut(inside, "/")
		if strings.HasPrefix(name, groupBox) {
			if name, _, _ = strings.Cut(inside, "/"); name == "" {
				return nil // the parent itself has no process
			}
		}
		b := byName[name]
		if b == nil {
			b = &box{name: name}
			byName[name] = b
			all = append(all, b)
		}
		b.paths = append(b.paths, path)
		return nil
	})
	for _, b := range all {
		b.look()
	}
	return all
}

// look finds the processes of b. On cgroup v1 the zygote's sandboxes have no cgroup in some
// hierarchies and stay in the zygote's cgroup there. So look counts as the zygote's only the
// processes in a hierarchy in which each sandbox has a cgroup.
func (b *box) look() {
	seen := map[string]bool{}
	for _, path := range b.paths {
		if b.zygote() && !strings.Contains(path, "/pids/") && !unified() {
			continue
		}
		for _, pid := range processesIn([]string{path}) {
			if !seen[pid] {
				seen[pid] = true
				b.pids = append(b.pids, pid)
			}
		}
	}
	for _, pid := range b.pids {
		status := statusOf(pid)
		if ids := strings.Fields(status["NSpid"]); len(ids) > 1 && ids[len(ids)-1] == "1" {
			b.init, b.comm = pid, status["Name"]
		}
	}
}

func statusOf(pid string) map[string]string {
	data, _ := os.ReadFile("/proc/" + pid + "/status")
	status := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	return status
}

// sandbox reports whether b is of a sandbox.
func (b *box) sandbox() bool { return strings.HasPrefix(b.name, "_") && !b.zygote() }

// zygote reports whether b is of a zygote.
func (b *box) zygote() bool { return strings.HasPrefix(b.name, zygoteBox) }

// waits reports whether no program has run in b yet: its init does not have an execution's
// name, at most one more process waits in it, and it has no workspace.
func (b *box) waits() bool {
	if !b.sandbox() || b.comm != waitingInit || len(b.pids) > 2 {
		return false
	}
	mounts, err := os.ReadFile("/proc/" + b.init + "/mountinfo")
	return err == nil && !strings.Contains(string(mounts), " /workspace ")
}

// of reports whether b belongs to the execution.
func (b *box) of(id string) bool {
	return b.comm == id[max(0, len(id)-initName):]
}

func (b *box) String() string {
	return fmt.Sprintf("cgroup %s in %d hierarchies, init %q (%s), processes %v", b.name, len(b.paths), b.comm, b.init, b.pids)
}

// identity returns a string that differs from the identity of a later box with the same
// name.
func (b *box) identity() string {
	info, err := os.Stat(b.paths[0])
	if err != nil {
		return "gone"
	}
	return fmt.Sprint(b.paths[0], info.Sys().(*syscall.Stat_t).Ino)
}

// usedBoxes lists the boxes of an instance, except the boxes of zygotes and of waiting
// sandboxes.
func usedBoxes(instance string) (used []*box) {
	for _, b := range boxesOf(instance) {
		if !b.zygote() && !b.waits() {
			used = append(used, b)
		}
	}
	return used
}

// boxesOfExecution lists the boxes of one execution.
func (d *running) boxesOfExecution(id string) (its []*box) {
	for _, b := range boxesOf(d.instance()) {
		if b.of(id) {
			its = append(its, b)
		}
	}
	return its
}

// waitingBoxes returns the names of the waiting sandboxes, such as s17.
func (d *running) waitingBoxes() map[string]bool {
	waiting := map[string]bool{}
	for _, b := range boxesOf(d.instance()) {
		if b.waits() {
			waiting[strings.TrimPrefix(b.name, "_")] = true
		}
	}
	return waiting
}

// sandboxOf returns the name of the sandbox whose directory a line of the daemon's mounts, or a
// path beneath the run directory, contains; "" for none.
func (d *running) sandboxOf(text string) string {
	_, inside, ok := strings.Cut(text, "/run/"+d.instance()+"/sandboxes/")
	if !ok || d.instance() == "" {
		return ""
	}
	name := inside[:strings.IndexAny(inside+"/", "/ \n")]
	if len(name) < 2 || name[0] != 's' || strings.Trim(name[1:], "0123456789") != "" {
		return ""
	}
	return name
}

// mountLines returns the mounts of the daemon's mount namespace.
func (d *running) mountLines() []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.cmd.Process.Pid))
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
