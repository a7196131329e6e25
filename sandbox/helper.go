package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// A helper is a process of the daemon that works for the sandboxes of one tenant, such as the carrier of
// their packets. Its cgroup bounds it, and has the sweep find it after the daemon's death.

// HelperLimits bound a helper. MemoryBytes and Processes must be set.
type HelperLimits struct {
	MemoryBytes int64
	Processes   int // with threads
	CPUWeight   int // share of busy processors, relative to the groups of sandboxes; 0: a group's default
}

// HelperIDs is how many ids there are for helpers, from Config.FirstHelperID on, and so how many helpers
// all daemons of the machine can have.
const HelperIDs = 4096

// A HelperGroup is the cgroup of one helper, and an id that no other helper of the machine has. The cgroup
// is next to the cgroup of the tenant's sandboxes, and not
// in it: programs of the tenant must not use up the helper's memory, and when their memory runs out, the
// kernel must not choose the helper. A helper also outlives that cgroup, which goes when no sandbox needs
// it. It is in the cgroup of the instance, which the next daemon clears.
type HelperGroup struct {
	group cgroup.Group
	id    uint32   // user and group id of the helper
	lock  *os.File // of the id
}

// helperNumber makes the names differ: the cgroup of a helper that dies may stay for a moment.
var helperNumber atomic.Uint32

// NewHelperGroup makes a cgroup without a process. name appears in the cgroup's name; it is like the name
// of a group of sandboxes.
func (h *Host) NewHelperGroup(name string, l HelperLimits) (_ *HelperGroup, err error) {
	if err := errors.Join(checkGroup(name), h.cgroups.MakeParent(h.groupName())); err != nil {
		return nil, fmt.Errorf("sandbox: cgroup of a helper: %w", err)
	}
	number := helperNumber.Add(1)
	g := h.cgroups.Slim(h.groupName(), fmt.Sprintf("helper-%s-%d", name, number))
	err = errors.Join(g.Create(), g.LimitMemory(l.MemoryBytes), g.LimitProcesses(l.Processes), g.WeighCPU(l.CPUWeight))
	if err == nil {
		err = g.Verify(l.MemoryBytes, l.Processes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: cgroup of a helper: %w", err), g.RemoveDirs())
	}
	made := &HelperGroup{group: g}
	if made.id, made.lock, err = claimHelperID(h.config.FirstHelperID, number); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: id of a helper: %w", err), g.RemoveDirs())
	}
	return made, nil
}

// ID is the user and group of the helper.
func (g *HelperGroup) ID() int { return int(g.id) }

// claimHelperID locks an id. The search begins at number, where the id is mostly free.
func claimHelperID(first, number uint32) (id uint32, lock *os.File, err error) {
	if uint64(first)+HelperIDs > 1<<32-1 { // the last one means "unchanged", setreuid(2)
		return 0, nil, fmt.Errorf("%d ids from %d on go past the last one", HelperIDs, first)
	}
	locks, err := openIDLocks(idLocks)
	if err != nil {
		return 0, nil, err
	}
	for i := range uint32(HelperIDs) {
		id := first + (number+i)%HelperIDs
		if err = lockIDs(locks, id, 1); err == nil {
			return id, locks, nil
		}
		if !errors.Is(err, filelock.ErrHeld) {
			break
		}
	}
	return 0, nil, errors.Join(fmt.Errorf("no id from %d to %d: %w", first, first+HelperIDs-1, err), locks.Close())
}

// Enter moves a process into the cgroup. The process keeps its memory of before in the old one.
func (g *HelperGroup) Enter(pid int) error {
	if err := g.group.Enter(pid); err != nil {
		return fmt.Errorf("sandbox: cgroup of a helper: %w", err)
	}
	return nil
}

// OutOfMemory reports whether the kernel has killed a process of the cgroup because its memory ran out.
func (g *HelperGroup) OutOfMemory() bool {
	n, err := g.group.OOMKills()
	return err == nil && n > 0
}

// helperPatience bounds how long Close waits for a process that dies.
const helperPatience = 10 * time.Second

// Close kills the processes in the cgroup, and removes it. If it can't, the id stays taken.
func (g *HelperGroup) Close() error {
	err := g.group.Clear(helperPatience)
	if err == nil {
		g.lock.Close()
	}
	return err
}
