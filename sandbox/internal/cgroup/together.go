package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Together are limits of all sandboxes in a parent group together. Zero means no limit, and for
// CPUWeight the kernel's default.
type Together struct {
	MemoryBytes, Processes int64
	CPUWeight              int // 1 to MaxCPUWeight
}

// DefaultCPUWeight is the kernel's weight of a cgroup; MaxCPUWeight is the largest (cgroup-v2.rst).
const (
	DefaultCPUWeight = 100
	MaxCPUWeight     = 10_000
)

// sharesPerWeight converts a weight to cpu.shares of v1, whose default is 1024 (sched-design-CFS.rst).
const sharesPerWeight = 1024.0 / DefaultCPUWeight

// MakeParent makes the group with the path of elem beneath the base, and the groups above it. Its
// children will be cgroups of sandboxes. On v1 it makes the directories of the controllers that
// limit or count; libcontainer makes the others when it needs them.
func (h *Hierarchy) MakeParent(elem ...string) error {
	for n := range elem {
		for _, dir := range h.Slim(elem[:n+1]...).Dirs {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
			if !h.Unified {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0); err != nil {
				return fmt.Errorf("enable controllers in %s: %w", dir, err)
			}
		}
	}
	return nil
}

// LimitTogether sets the limits of a parent group, and reads them back. The kernel refuses a
// memory limit below the memory in use with EBUSY on v1, if it can't reclaim enough. On v2 it takes
// the limit, and kills processes until the rest fits.
func (g Group) LimitTogether(l Together) error {
	memory, memoryFile := l.MemoryBytes, "memory.limit_in_bytes"
	if g.Unified {
		memoryFile = "memory.max"
	}
	if memory > 0 {
		memory = memory / int64(os.Getpagesize()) * int64(os.Getpagesize()) // as the kernel rounds
		if err := g.LimitMemory(memory); err != nil {
			return err
		}
	} else if err := g.unlimitMemory(); err != nil {
		return err
	}
	processes := "max"
	if l.Processes > 0 {
		processes = strconv.FormatInt(l.Processes, 10)
	}
	if err := g.Write("pids", "pids.max", processes); err != nil {
		return err
	}
	if err := g.WeighCPU(l.CPUWeight); err != nil {
		return err
	}
	for _, want := range [][3]string{{"pids", "pids.max", processes}, {"memory", memoryFile, strconv.FormatInt(memory, 10)}} {
		if want[0] == "memory" && l.MemoryBytes <= 0 {
			continue
		}
		if got, err := g.Read(want[0], want[1]); err != nil || got != want[2] {
			return fmt.Errorf("%s: got %s (%v), want %s", g.File(want[0], want[1]), got, err, want[2])
		}
	}
	return nil
}

// unlimitMemory removes the limits that LimitMemory sets. The limit of memory and swap goes first: it
// may never be less than the limit of memory.
func (g Group) unlimitMemory() error {
	if g.Unified {
		return g.Write("memory", "memory.max", "max")
	}
	files := []string{"memory.limit_in_bytes", SocketLimit}
	if g.swap {
		files = append([]string{"memory.memsw.limit_in_bytes"}, files...)
	}
	for _, name := range files {
		if err := g.Write("memory", name, "-1"); err != nil {
			return err
		}
	}
	return nil
}

// WeighCPU sets the group's weight on busy processors, relative to its sibling groups, and reads it back. Zero means the
// kernel's default.
func (g Group) WeighCPU(weight int) error {
	file, text := g.weight(weight)
	if err := g.Write("cpu", file, text); err != nil {
		return err
	}
	if got, err := g.Read("cpu", file); err != nil || got != text {
		return fmt.Errorf("%s: got %s (%v), want %s", g.File("cpu", file), got, err, text)
	}
	return nil
}

// weight returns the file for the group's share of the processors, and the text of a weight.
func (g Group) weight(weight int) (file, text string) {
	if weight == 0 {
		weight = DefaultCPUWeight
	}
	if g.Unified {
		return "cpu.weight", strconv.Itoa(weight)
	}
	return "cpu.shares", strconv.Itoa(int(float64(weight) * sharesPerWeight))
}

// ReachedMemoryLimit reports whether the group has ever reached its own memory limit. The limits of
// child groups and parent groups do not count. On v2 the kernel counts these events. On v1 it only keeps the
// largest use, and some kernels don't count in memory.failcnt.
func (g Group) ReachedMemoryLimit() bool {
	if g.Unified {
		n, _ := g.Value("memory", "memory.events.local", "oom")
		return n > 0
	}
	limit, err := g.Number("memory", "memory.limit_in_bytes")
	peak, perr := g.Number("memory", "memory.max_usage_in_bytes")
	return err == nil && perr == nil && peak >= limit-largestCharge
}

// largestCharge is the most by which the largest use may stay below the limit when memory ran out:
// the kernel charges some pages at once, and one charge more would have been too much.
const largestCharge = 256 << 10
