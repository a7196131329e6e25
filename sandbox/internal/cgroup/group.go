package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// A Group is one cgroup, in all hierarchies that it is in. It is only a set of names: the
// cgroup need not exist, and nothing has to be closed. The zero Group is no cgroup.
type Group struct {
	Unified bool              // cgroup v2
	Path    string            // for libcontainer
	Dirs    map[string]string // by controller, absolute; v2 has one, ""
	swap    bool              // Hierarchy.swap
}

// File is a path in the group's directory for a controller.
func (g Group) File(controller, name string) string {
	if g.Unified {
		controller = ""
	}
	return g.Dirs[controller] + "/" + name
}

// Read returns the text of a file in the group's directory for a controller, without the
// blanks around it. On v1 the controller chooses the directory; on v2 there is only one and the
// controller is ignored.
func (g Group) Read(controller, name string) (string, error) {
	s, err := pseudofs.Read(g.File(controller, name))
	return strings.TrimSpace(s), err
}

// Number returns the number that is all of a file. "max" is not a number, so an absent limit is
// an error.
func (g Group) Number(controller, name string) (int64, error) {
	s, err := g.Read(controller, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}

// Value returns the number of key in a file of "key number" lines.
func (g Group) Value(controller, name, key string) (uint64, error) {
	s, err := g.Read(controller, name)
	if err != nil {
		return 0, err
	}
	if v, ok := lineValue(s, key); ok {
		return strconv.ParseUint(v, 10, 64)
	}
	return 0, fmt.Errorf("%s: no %s", g.File(controller, name), key)
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

// Write writes to a file in the group's directory for a controller.
func (g Group) Write(controller, name, value string) error {
	return pseudofs.Write(g.File(controller, name), value)
}

// Create makes the group's directories. Their parents must exist. On v2 it also makes the kernel
// kill all processes of the sandbox when memory runs out (memory.oom.group), forbids cgroups in
// the sandbox, and turns swap off for it.
func (g Group) Create() error {
	made := map[string]bool{} // controllers may share one
	for _, dir := range g.Dirs {
		if made[dir] {
			continue
		}
		made[dir] = true
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup %s: %w", dir, err)
		}
	}
	if !g.Unified {
		return nil
	}
	for _, f := range [][2]string{{"memory.oom.group", "1"}, {"cgroup.max.descendants", "0"}} {
		if err := g.Write("", f[0], f[1]); err != nil {
			return err
		}
	}
	if err := g.Write("", "memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // a kernel without swap has no such file
	}
	return nil
}

// ProcsFiles opens the files through which a process enters the group: it writes 0 to each
// (cgroups(7)). The caller closes them.
func (g Group) ProcsFiles() (files []*os.File, err error) {
	name := "tasks"
	if g.Unified {
		name = "cgroup.procs"
	}
	opened := map[string]bool{}
	for _, dir := range g.Dirs {
		if opened[dir] {
			continue
		}
		opened[dir] = true
		f, err := pseudofs.Open(dir+"/"+name, unix.O_WRONLY)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Enter moves a process into the group, with all of its threads.
func (g Group) Enter(pid int) error {
	for _, dir := range g.Dirs { // controllers that share one take it twice
		if err := pseudofs.Write(dir+"/cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// Pids lists the group's processes. For a removed group it returns none.
func (g Group) Pids() ([]int, error) {
	pids, err := readPids(filepath.Dir(g.File("pids", "x")))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return pids, err
}

// readPids fails with ENODEV if the cgroup is removed during the read.
func readPids(dir string) ([]int, error) {
	s, err := pseudofs.Read(dir + "/cgroup.procs")
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

// Kill sends SIGKILL to every process of the group, once. cgroup.kill also reaches processes that
// are forking at that moment (cgroup-v2.rst); the loop over pids does not.
func (g Group) Kill() error {
	if g.Unified && os.WriteFile(g.File("", "cgroup.kill"), []byte("1"), 0) == nil { // since Linux 5.14
		return nil
	}
	if !g.Unified && g.Dirs["freezer"] != "" {
		// A frozen process does not die. The daemon freezes no cgroup, but another program may.
		_ = g.Write("freezer", "freezer.state", "THAWED")
	}
	pids, err := g.Pids()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended since
	}
	return err
}

// killTree kills the processes of the group and of its descendants.
func (g Group) killTree() error {
	for _, child := range g.Children() {
		if err := child.killTree(); err != nil {
			return err
		}
	}
	return g.Kill()
}

// Clear kills until no process is left, then removes the group with its children. It returns
// the last error when patience is over. It sleeps between two attempts, from 1 ms doubling to 50
// ms.
func (g Group) Clear(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := g.killTree()
		if err == nil {
			err = g.Remove()
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
	}
}

// RemoveSoon removes a group without processes. It retries while the last process ends. A
// group without children is removed even if descriptors are exhausted.
func (g Group) RemoveSoon(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := g.Remove()
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// Children returns the cgroups in the group.
func (g Group) Children() []Group {
	names := map[string]bool{}
	for _, dir := range g.Dirs {
		entries, _ := os.ReadDir(dir) // a group that is gone has no children
		for _, e := range entries {
			if e.IsDir() {
				names[e.Name()] = true
			}
		}
	}
	var children []Group
	for n := range names {
		c := Group{Unified: g.Unified, swap: g.swap, Path: filepath.Join(g.Path, n), Dirs: map[string]string{}}
		for controller, dir := range g.Dirs {
			c.Dirs[controller] = filepath.Join(dir, n)
		}
		children = append(children, c)
	}
	return children
}

// Remove removes the group and its children, which must have no processes.
func (g Group) Remove() error {
	for _, child := range g.Children() {
		if err := child.Remove(); err != nil {
			return err
		}
	}
	return g.RemoveDirs()
}

// RemoveDirs removes a group that has no children. It opens no file: descriptors may be
// exhausted.
func (g Group) RemoveDirs() error {
	for _, dir := range g.Dirs {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Unremoved names a directory of the group that is still there, or "".
func (g Group) Unremoved() string {
	for _, dir := range g.Dirs {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s is still there (%v)", dir, err)
		}
	}
	return ""
}
