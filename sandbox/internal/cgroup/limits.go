package cgroup

import (
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/cgroups"
)

// LimitProcesses sets pids.max. The number includes the sandbox's init. Threads count as
// processes (pids.rst).
func (g Group) LimitProcesses(n int) error {
	return g.Write("pids", "pids.max", strconv.Itoa(n))
}

// LimitMemory limits the memory of the group's processes, including swap and the buffers of
// sockets.
func (g Group) LimitMemory(bytes int64) error {
	if err := g.LimitSockets(bytes); err != nil {
		return err
	}
	n := strconv.FormatInt(bytes, 10)
	if g.Unified {
		return g.Write("memory", "memory.max", n)
	}
	const both = "memory.memsw.limit_in_bytes"
	if err := g.Write("memory", "memory.limit_in_bytes", n); err != nil {
		// The kernel refuses a memory limit above the limit of memory and swap: raise
		// that one first.
		if !g.swap || g.Write("memory", both, n) != nil {
			return err
		}
		return g.Write("memory", "memory.limit_in_bytes", n)
	}
	if g.swap {
		return g.Write("memory", both, n)
	}
	return nil
}

// Verify reads the limits back and compares them: memory in bytes, as LimitMemory has set it,
// and processes as LimitProcesses has set it. The caller must have set the limits before; a
// difference means that the kernel did not apply one, and the sandbox must not be used.
func (g Group) Verify(memory int64, processes int) error {
	page := int64(os.Getpagesize())
	down := func(bytes int64) int64 { return bytes / page * page } // as the kernel rounds
	sockets, memory := down(socketBytes(memory)), down(memory)
	want := map[[2]string]int64{{"pids", "pids.max"}: int64(processes)}
	if g.Unified {
		want[[2]string{"memory", "memory.max"}] = memory
		want[[2]string{"memory", "memory.oom.group"}] = 1
		if _, err := os.Stat(g.File("memory", "memory.swap.max")); err == nil {
			want[[2]string{"memory", "memory.swap.max"}] = 0
		}
	} else {
		want[[2]string{"memory", "memory.limit_in_bytes"}] = memory
		want[[2]string{"memory", SocketLimit}] = sockets
		if g.swap {
			want[[2]string{"memory", "memory.memsw.limit_in_bytes"}] = memory
		}
	}
	for at, n := range want {
		got, err := g.Number(at[0], at[1])
		if err != nil {
			return err
		}
		if got != n {
			return fmt.Errorf("%s is %d, want %d", at[1], got, n)
		}
	}
	return nil
}

// Resources are the same limits for libcontainer, which makes the group with them.
func (g Group) Resources(memory int64, processes int) *cgroups.Resources {
	r := &cgroups.Resources{Memory: memory, PidsLimit: new(int64(processes)), Devices: DeviceRules()}
	if g.Unified {
		r.MemorySwap = memory // the sum of memory and swap, so no swap
		r.Unified = map[string]string{"memory.oom.group": "1", "cgroup.max.descendants": "0"}
	} else if g.swap {
		r.MemorySwap = memory
	}
	return r
}
