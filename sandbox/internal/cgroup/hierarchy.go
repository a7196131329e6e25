package cgroup

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

// A Hierarchy is the base for the cgroups of sandboxes: one directory on cgroup v2, one
// directory per controller on v1. It never changes, so any goroutine may use it.
type Hierarchy struct {
	Unified bool              // cgroup v2
	Base    map[string]string // controller -> directory; v2 has one, ""
	prefix  string            // prefix of the paths for libcontainer
	swap    bool              // v1: the kernel can limit memory and swap together
}

// UnifiedRoot is where cgroup v2 is mounted.
const UnifiedRoot = "/sys/fs/cgroup"

// daemonLeaf is the leaf into which a daemon moves itself on v2, because a
// cgroup with processes can't pass controllers on to its children.
const daemonLeaf = "skillrun-daemon"

// Open returns the Hierarchy beneath parent, a path below the mount points of cgroups, or
// beneath the process's own cgroup if parent is empty. It changes nothing: see Prepare.
func Open(parent string) (*Hierarchy, error) {
	h := &Hierarchy{Unified: cgroups.IsCgroup2UnifiedMode(), prefix: parent}
	if h.Unified && parent == "" {
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			return nil, err
		}
		if h.prefix, err = ownGroup(UnifiedRoot, own[""]); err != nil {
			return nil, err
		}
	}
	// Libcontainer finds the mount points. On v1 it resolves the path relative to the
	// process's own cgroups, which differ between controllers.
	m, err := manager.New(&cgroups.Cgroup{Path: filepath.Join(h.prefix, "x"), Resources: &cgroups.Resources{}})
	if err != nil {
		return nil, err
	}
	h.Base = map[string]string{}
	for controller, dir := range m.GetPaths() {
		h.Base[controller] = filepath.Dir(dir)
	}
	_, err = os.Stat(filepath.Join(h.Base["memory"], "memory.memsw.limit_in_bytes"))
	h.swap = err == nil && !h.Unified
	return h, nil
}

// ownGroup returns the cgroup v2 that this process may divide. That is its own cgroup, at
// path beneath root. If other processes share it, as a shell does with a daemon in a
// terminal, it is the topmost cgroup. A cgroup with processes can't pass controllers on.
func ownGroup(root, path string) (string, error) {
	if filepath.Base(path) == daemonLeaf {
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

// Save writes h to a file, for Load.
func (h *Hierarchy) Save(path string) error {
	b, err := json.Marshal(savedHierarchy{h.Unified, h.Base})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// Load reads a Hierarchy that Save wrote. It only serves to clear groups.
func Load(path string) (*Hierarchy, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s savedHierarchy
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Hierarchy{Unified: s.Unified, Base: s.Base}, nil
}

// A savedHierarchy is a Hierarchy on disk, in JSON. The next daemon reads it to clear the groups
// of a dead one.
type savedHierarchy struct {
	Unified bool
	Base    map[string]string
}

// Prepare makes the base ready to hold sandboxes. On v2 it moves this process into a leaf
// beneath the base, if the base is not the machine's root, and passes the controllers on.
func (h *Hierarchy) Prepare() error {
	if !h.Unified {
		return nil
	}
	dir := h.Base[""]
	if err := h.divisible(); err != nil {
		return err
	}
	if !isMachineRoot(dir) {
		if err := h.moveAway(dir); err != nil {
			return err
		}
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if err := passOn(dir, c); err != nil {
			return fmt.Errorf("enable controller %s in %s: %w", c, dir, err)
		}
	}
	return nil
}

// lastThread is how long a thread may take to end. It removes the mounts of its namespace, which waits for other
// processors.
const lastThread = 10 * time.Second

// passOn lets children of dir have the controller. A move to another cgroup leaves behind a thread that is just ending,
// such as one that tried a mount, and the kernel returns EBUSY while it is in dir.
func passOn(dir, controller string) error {
	deadline := time.Now().Add(lastThread)
	for {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
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
func (h *Hierarchy) divisible() error {
	dir := h.Base[""]
	if !h.Unified || isMachineRoot(dir) {
		return nil
	}
	pids, err := readPids(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid != os.Getpid() {
			return fmt.Errorf("%s has other processes, such as %d, so sandboxes can't have cgroups in it", dir, pid)
		}
	}
	return nil
}

// moveAway moves this process from dir into the leaf daemonLeaf, if it is in dir itself.
func (h *Hierarchy) moveAway(dir string) error {
	procs, err := readPids(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(procs, os.Getpid()) {
		return nil
	}
	leaf := filepath.Join(dir, daemonLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// Group returns the cgroup with the path of elem beneath the base. It need not exist.
func (h *Hierarchy) Group(elem ...string) Group {
	path := filepath.Join(elem...)
	g := Group{Unified: h.Unified, swap: h.swap, Path: filepath.Join(h.prefix, path), Dirs: map[string]string{}}
	for controller, base := range h.Base {
		g.Dirs[controller] = filepath.Join(base, path)
	}
	return g
}

// Slim returns the cgroup of a sandbox that the zygote makes. On v1 the sandbox has its own
// cgroup only for controllers that limit or count. For the others it stays in the zygote's
// cgroup.
func (h *Hierarchy) Slim(elem ...string) Group {
	g := h.Group(elem...)
	if !h.Unified {
		maps.DeleteFunc(g.Dirs, func(controller, _ string) bool {
			return !slices.Contains([]string{"memory", "pids", "cpu", "cpuacct"}, controller)
		})
	}
	return g
}

// Find searches all hierarchies of the machine for the cgroup of that name. It need not
// exist.
func (h *Hierarchy) Find(name string) Group {
	g := h.Group(name)
	_ = filepath.WalkDir(UnifiedRoot, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // a cgroup may be removed during the walk
		}
		if e.Name() != name {
			return nil
		}
		controller := ""
		if !h.Unified { // one mount for each
			controller, _, _ = strings.Cut(strings.TrimPrefix(path, UnifiedRoot+"/"), "/")
		}
		g.Dirs[controller] = path
		return fs.SkipDir
	})
	return g
}

// Exists returns an error if the base does not exist, so that Prepare would fail. On v1 the
// first sandbox creates a missing base.
func (h *Hierarchy) Exists() error {
	if !h.Unified {
		return nil
	}
	_, err := os.Stat(h.Base[""])
	return err
}
