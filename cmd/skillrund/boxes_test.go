package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A box is a cgroup that a daemon made beneath its own, in every hierarchy that has
// it. One that is named after a slot was made ahead: the name of the init in it tells
// whether it waits, or whose it is.
type box struct {
	name  string
	paths []string
	pids  []string
	init  string // pid of the one that is PID 1 of a sandbox; "" if there is none
	comm  string // its name
}

const (
	zygoteBox   = "_zygote"
	waitingInit = "init" // its name until the sandbox is used
	zygoteComm  = "zygote"
	initName    = 15 // bytes of a name that the kernel keeps
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
			return nil
		}
		name, _, _ := strings.Cut(inside, "/")
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

// look finds the processes of b. On cgroup v1 those of the zygote's sandboxes are in
// hers, too, of the hierarchies that they have no cgroup of their own in: so hers are
// those where they have one.
func (b *box) look() {
	seen := map[string]bool{}
	for _, path := range b.paths {
		if b.name == zygoteBox && !strings.Contains(path, "/pids/") && !unified() {
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

// ahead says whether b was made before anybody asked for it, and made by the zygote.
func (b *box) ahead() bool { return strings.HasPrefix(b.name, "_") && b.name != zygoteBox }

// waits says whether nothing has run in b yet: its init has no execution's name, it
// has at most the one process beside it that waits for its program, and no workspace.
func (b *box) waits() bool {
	if !b.ahead() || b.comm != waitingInit || len(b.pids) > 2 {
		return false
	}
	mounts, err := os.ReadFile("/proc/" + b.init + "/mountinfo")
	return err == nil && !strings.Contains(string(mounts), " /workspace ")
}

// of says whether b is the execution's.
func (b *box) of(id string) bool {
	if !b.ahead() {
		return strings.Contains(b.name, id)
	}
	return b.comm == id[max(0, len(id)-initName):]
}

func (b *box) String() string {
	return fmt.Sprintf("cgroup %s in %d hierarchies, init %q (%s), processes %v", b.name, len(b.paths), b.comm, b.init, b.pids)
}

// identity tells b from another one that gets its name later.
func (b *box) identity() string {
	info, err := os.Stat(b.paths[0])
	if err != nil {
		return "gone"
	}
	return fmt.Sprint(b.paths[0], info.Sys().(*syscall.Stat_t).Ino)
}

// usedBoxes lists the cgroups of an instance that are neither the zygote's nor of
// sandboxes that wait.
func usedBoxes(instance string) (used []*box) {
	for _, b := range boxesOf(instance) {
		if b.name != zygoteBox && !b.waits() {
			used = append(used, b)
		}
	}
	return used
}

// boxesOfExecution lists the cgroups of one execution.
func (d *running) boxesOfExecution(id string) (its []*box) {
	for _, b := range boxesOf(d.instance()) {
		if b.of(id) {
			its = append(its, b)
		}
	}
	return its
}

// waitingBoxes are the sandboxes that wait, by the name of their slots.
func (d *running) waitingBoxes() map[string]bool {
	waiting := map[string]bool{}
	for _, b := range boxesOf(d.instance()) {
		if b.waits() {
			waiting[strings.TrimPrefix(b.name, "_")] = true
		}
	}
	return waiting
}

// slotOf is which slot's directory a line of the daemon's mounts, or a path beneath
// its run directory, is about; "" for none.
func (d *running) slotOf(text string) string {
	_, inside, ok := strings.Cut(text, "/run/"+d.instance()+"/sandboxes/")
	if !ok || d.instance() == "" {
		return ""
	}
	slot := inside[:strings.IndexAny(inside+"/", "/ \n")]
	if len(slot) < 2 || slot[0] != 's' || strings.Trim(slot[1:], "0123456789") != "" {
		return ""
	}
	return slot
}

// mountLines are the mounts of the daemon's namespace.
func (d *running) mountLines() []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.cmd.Process.Pid))
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
