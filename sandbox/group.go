package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

// Sandboxes of a group share a block of ids, a parent cgroup, a zygote, prewarmed sandboxes and
// Python zygotes. They share none of these with another group. The package does not know what a
// group stands for; the daemon gives each tenant one.
//
// A group without sandboxes and without a zygote holds only its limits, in memory. Its ids and its
// cgroup are made at the next Start and given back after the last sandbox is gone.
//
// The group "" is the default group. It always exists, and no GroupLimits bound it.

// GroupLimits bound the sandboxes of a group together. Zero means no limit.
type GroupLimits struct {
	MemoryBytes int64 // includes the files on tmpfs mounts; at least 16 MiB
	Processes   int64 // with threads and an init for each sandbox
	// CPUWeight is the group's share of the processors against other groups when all are busy:
	// 1 to 10,000; 0 is 100. Each sandbox of the default group counts like a group with 100.
	CPUWeight int
}

// groupIdle is how long a group without sandboxes and without a zygote keeps its ids and its cgroup.
const groupIdle = 5 * time.Second

// leastGroupMemory is enough for one sandbox. With less, no sandbox of the group could start.
const leastGroupMemory = 16 << 20

func (l GroupLimits) check() error {
	switch {
	case l.MemoryBytes < 0 || l.MemoryBytes > 0 && l.MemoryBytes < leastGroupMemory:
		return fmt.Errorf("%d bytes of memory: want at least %d, or 0 for no limit", l.MemoryBytes, leastGroupMemory)
	case l.Processes < 0 || l.Processes == 1:
		return fmt.Errorf("%d processes: want at least 2, or 0 for no limit", l.Processes)
	case l.CPUWeight < 0 || l.CPUWeight > cgroup.MaxCPUWeight:
		return fmt.Errorf("weight of processors %d: want 1 to %d, or 0 for the default", l.CPUWeight, cgroup.MaxCPUWeight)
	}
	return nil
}

// groupStep is the step of a *SetupError whose cause is the group and not the sandbox.
const groupStep = "sandbox group"

// Errors of a Start in a group. They are in a *SetupError with the step "sandbox group".
var (
	// ErrGroupRemoved means that RemoveGroup was called for the group.
	ErrGroupRemoved = errors.New("the group was removed")
	// ErrNoIDs means that other groups hold all blocks of ids. Config.IDs and Config.GroupIDs
	// say how many there are.
	ErrNoIDs = errors.New("no block of ids is left for another group")
	// ErrGroupFull means that the group's sandboxes have all processes or all memory that its
	// limits allow.
	ErrGroupFull = errors.New("its sandboxes have used up the group's limit")
)

var validGroup = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// checkGroup accepts a name that is a part of a file name. "" is the default group.
func checkGroup(name string) error {
	if name != "" && !validGroup.MatchString(name) {
		return fmt.Errorf("group %q: want letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit", name)
	}
	return nil
}

// A group is one group of sandboxes. Its fields from refs on are guarded by groups.mu.
type group struct {
	name string
	host *Host
	// ids are set while refs > 0, and until the group is freed. For the default group, always.
	ids atomic.Pointer[idBlock]

	limits  GroupLimits
	removed bool // no new sandbox may start
	set     bool // SetGroup was called: the entry stays while the group is idle
	// applied says that the cgroup has the limits. If it has not, Start tries again before it
	// makes a sandbox.
	applied bool
	refs    int // starts and processes, pairs of ids, and the zygote
	active  int // starts and processes only
	idle    time.Time
}

// groups are all groups of a Host but the default one.
type groups struct {
	host   *Host
	common *group // the default group
	mu     sync.Mutex
	named  map[string]*group
	blocks blocks
}

func newGroups(h *Host) *groups {
	g := &groups{host: h, common: &group{host: h}, named: map[string]*group{}, blocks: blocks{config: h.config}}
	g.common.ids.Store(h.ids)
	return g
}

// SetGroup sets the limits of a group of sandboxes (Spec.Group), also of one whose sandboxes run. A
// group that was never set has no limits. If the kernel can't apply the limits now, because the
// group's sandboxes hold more, SetGroup returns an error and the group starts no new sandbox until
// the limits fit. A group with limits that are not valid starts nothing either.
func (h *Host) SetGroup(name string, l GroupLimits) error {
	if err := checkGroup(name); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if name == "" {
		return errors.New("sandbox: the default group has no limits")
	}
	g := h.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.entry(name)
	err := l.check()
	of.limits, of.set, of.removed, of.applied = l, true, err != nil, false
	if err == nil && of.ids.Load() != nil {
		err = of.apply()
	}
	if err != nil {
		err = fmt.Errorf("sandbox: group %s: %w", name, err)
	}
	return err
}

// RemoveGroup lets no new sandbox of the group start, until SetGroup is called again. Sandboxes that
// run go on. The group's ids, cgroup and zygote are freed when its last sandbox has ended.
func (h *Host) RemoveGroup(name string) {
	if name == "" {
		return // the default group stays
	}
	g := h.groups
	g.mu.Lock()
	of := g.entry(name)
	of.removed, of.set = true, true // the entry refuses later starts
	g.mu.Unlock()
	h.pool.dropZygoteOf(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if of.refs == 0 {
		g.free(of)
	}
}

// entry returns the group with that name, and adds it if it is missing. g.mu is held.
func (g *groups) entry(name string) *group {
	of := g.named[name]
	if of == nil {
		of = &group{name: name, host: g.host}
		g.named[name] = of
	}
	return of
}

// enter returns the group for a new process, which calls leave in the end. If all blocks of ids are
// taken, an idle zygote of another group gives its block up.
func (g *groups) enter(name string) (*group, error) {
	if name == "" {
		return g.common, nil
	}
	of, err := g.tryEnter(name)
	if errors.Is(err, ErrNoIDs) && g.host.pool.evictZygote() {
		of, err = g.tryEnter(name)
	}
	if err != nil {
		return nil, &SetupError{Step: groupStep, Err: fmt.Errorf("%s: %w", name, err)}
	}
	return of, nil
}

// tryEnter reads the number of processes without the lock: a file of a cgroup can take long on a busy machine, and the
// starts of all other groups would wait.
func (g *groups) tryEnter(name string) (*group, error) {
	of, most, err := g.join(name)
	if err != nil || most == 0 {
		return of, err
	}
	if n, err := of.cgroup().Number("pids", "pids.current"); err != nil || n+2 > most {
		g.leave(of)
		return nil, fmt.Errorf("%w of %d processes (%d exist)", ErrGroupFull, most, n)
	}
	return of, nil
}

// join is tryEnter without the check of the number of processes. It returns the limit of processes.
func (g *groups) join(name string) (of *group, most int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of = g.entry(name)
	if of.removed {
		return nil, 0, ErrGroupRemoved
	}
	if err := g.prepare(of); err != nil {
		if of.refs == 0 {
			g.free(of)
		}
		return nil, 0, err
	}
	of.refs++
	of.active++
	return of, of.limits.Processes, nil
}

// prepare gives a group its ids and its cgroup, if it lacks them. g.mu is held.
func (g *groups) prepare(of *group) error {
	if of.ids.Load() == nil {
		b, err := g.blocks.take()
		if errors.Is(err, ErrNoIDs) && g.freeIdle(time.Now()) > 0 {
			b, err = g.blocks.take()
		}
		if err != nil {
			return err
		}
		of.ids.Store(b)
	}
	if of.applied {
		return nil
	}
	if err := g.host.cgroups.MakeParent(of.elem()...); err != nil {
		return err
	}
	return of.apply()
}

// apply sets the limits of the group's cgroup. groups.mu is held.
func (of *group) apply() error {
	l := cgroup.Together(of.limits)
	err := of.cgroup().LimitTogether(l)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("its sandboxes hold more than its new memory limit of %d bytes: %w", l.MemoryBytes, err)
	}
	of.applied = err == nil
	return err
}

// leave is called for each enter, after the process has ended.
func (g *groups) leave(of *group) {
	if of.name == "" {
		return
	}
	g.mu.Lock()
	of.active--
	last := of.removed && of.active == 0
	g.mu.Unlock()
	if last {
		g.host.pool.dropZygoteOf(of.name)
	}
	g.release(of)
}

// hold returns the group for a sandbox or a zygote, which calls release in the end. Until then
// the group keeps its ids and its cgroup. hold fails if the group lacks them.
func (g *groups) hold(name string) (*group, error) {
	if name == "" {
		return g.common, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.named[name]
	if of == nil || of.ids.Load() == nil {
		return nil, fmt.Errorf("%s: is not in use", name)
	}
	of.refs++
	return of, nil
}

// release ends a hold. An idle group keeps its ids and its cgroup for a moment, because a caller
// often sends one request after another. The pool frees it then (freeIdle).
func (g *groups) release(of *group) {
	if of.name == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of.refs--
	of.idle = time.Now()
	if of.refs == 0 && (of.removed || g.host.pool == nil) {
		g.free(of)
	}
}

// freeSurplus frees the groups that have been idle for groupIdle.
func (g *groups) freeSurplus() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.freeIdle(time.Now().Add(-groupIdle))
}

// freeIdle frees the groups that have been idle since the given time. It returns how many.
// g.mu is held.
func (g *groups) freeIdle(since time.Time) (n int) {
	for _, of := range g.named {
		if of.refs == 0 && of.ids.Load() != nil && !of.idle.After(since) && g.free(of) {
			n++
		}
	}
	return n
}

// free removes the cgroup and the directory of a group without sandboxes, and then gives its ids
// back. If the cgroup can't be removed, the group keeps its ids. g.mu is held.
func (g *groups) free(of *group) bool {
	if b := of.ids.Load(); b != nil {
		err := g.host.cgroups.Group(of.elem()...).RemoveDirs()
		if err == nil {
			err = os.RemoveAll(of.containers())
		}
		if err != nil {
			g.host.log().Error("a group of sandboxes was not removed; it keeps its ids", "group", of.name, "err", err)
			return false
		}
		of.ids.Store(nil)
		of.applied = false
		g.blocks.release(b)
	}
	if !of.set {
		delete(g.named, of.name)
	}
	return true
}

// busy reports whether the group has processes other than waiting ones.
func (g *groups) busy(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := g.named[name]
	return of != nil && of.active > 0
}

// close gives the ids of all groups back. No sandbox is left.
func (g *groups) close() {
	if g != nil {
		g.blocks.close()
	}
}

// groupDirPrefix begins the names of groups' directories. The kernel's files in a cgroup begin with
// no "_".
const groupDirPrefix = "_group-"

// elem is the path of the cgroup that has the group's sandboxes, for Hierarchy.Group.
func (of *group) elem(more ...string) []string {
	path := []string{of.host.groupName()}
	if of.name != "" {
		path = append(path, groupDirPrefix+of.name)
	}
	return append(path, more...)
}

func (of *group) cgroup() cgroup.Group { return of.host.cgroups.Slim(of.elem()...) }

// zygoteCgroup is the cgroup of the group's zygote and of its Python zygotes. It is no child of the
// group's cgroup: the zygotes run no code of the group, so the group's limits don't count them, and
// running out of memory within the group never ends them. Config bounds their number.
func (of *group) zygoteCgroup() cgroup.Group {
	name := zygote.Name
	if of.name != "" {
		name += "-" + of.name
	}
	return of.host.cgroups.Group(of.host.groupName(), name)
}

// containers is the directory of libcontainer's state of the group's containers.
func (of *group) containers() string {
	if of.name == "" {
		return of.host.containers()
	}
	return filepath.Join(of.host.containers(), groupDirPrefix+of.name)
}
