package sandbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// A helper is a process of the daemon that works for the sandboxes of one tenant, such as the carrier of
// their packets. Its cgroup bounds it, and has the sweep find it after the daemon's death.

// HelperLimits bound a helper. Both are necessary.
type HelperLimits struct {
	MemoryBytes int64
	Processes   int // with threads
}

// A HelperGroup is the cgroup of one helper. It is beside the cgroup of the tenant's sandboxes, and not
// in it: programs of the tenant must not use up the helper's memory, and when their memory runs out, the
// kernel must not choose the helper. A helper also outlives that cgroup, which goes when no sandbox needs
// it. It is in the cgroup of the instance, which the next daemon clears.
type HelperGroup struct{ group cgroup.Group }

// helperNumber makes the names differ: the cgroup of a helper that dies may stay for a moment.
var helperNumber atomic.Int64

// NewHelperGroup makes a cgroup without a process. name appears in the cgroup's name; it is like the name
// of a group of sandboxes.
func (h *Host) NewHelperGroup(name string, l HelperLimits) (_ *HelperGroup, err error) {
	if err := errors.Join(checkGroup(name), h.cgroups.MakeParent(h.groupName())); err != nil {
		return nil, fmt.Errorf("sandbox: cgroup of a helper: %w", err)
	}
	g := h.cgroups.Slim(h.groupName(), fmt.Sprintf("helper-%s-%d", name, helperNumber.Add(1)))
	err = errors.Join(g.Create(), g.LimitMemory(l.MemoryBytes), g.LimitProcesses(l.Processes))
	if err == nil {
		err = g.Verify(l.MemoryBytes, l.Processes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: cgroup of a helper: %w", err), g.RemoveDirs())
	}
	return &HelperGroup{g}, nil
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

// Close kills what is in the cgroup, and removes it.
func (g *HelperGroup) Close() error { return g.group.Clear(helperPatience) }
