package main

import (
	"bufio"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/admission"
)

// Shares of the memory limit, for values that the configuration does not set.
const (
	// maxRequestBytes bounds the default of request_bytes on machines with much memory.
	maxRequestBytes = 1 << 30
	// requestShare divides the memory limit: requests may hold an eighth. A request that
	// is decoded exists three times in memory, and the collector frees the copies later.
	requestShare = 8
	// heapPercent is the percentage of the memory limit, without the program's copy, that Go's
	// runtime may use. The rest is for memory outside of the runtime, such as SQLite's.
	heapPercent = 75
)

// arenasVar bounds the arenas from which the C library allocates (mallopt(3)). It reads the variable at the start of
// the second run, which then removes it. By default up to eight arenas for each processor keep memory that was freed,
// but only SQLite allocates there, and its writers take turns.
const arenasVar = "MALLOC_ARENA_MAX"

// requestBytes returns how many bytes the messages of all requests may hold together. The
// default is a share of the memory limit, but at least one message of message_bytes.
func (c *config) requestBytes() int64 {
	if c.RequestBytes > 0 {
		return int64(c.RequestBytes)
	}
	return max(min(memoryLimit("/proc", "/sys/fs/cgroup")/requestShare, maxRequestBytes), int64(c.MessageBytes))
}

// resources are the bounds of all running executions together.
func (c *config) resources() admission.Resources {
	return admission.Resources{MemoryBytes: int64(c.Concurrency.Memory), MilliCPUs: int64(c.Concurrency.CPUs)}
}

// capacity returns the machine's memory and processors. Shares of tenants are fractions of these where the
// configuration has no bound.
func capacity() admission.Resources {
	return admission.Resources{MemoryBytes: memoryLimit("/proc", "/sys/fs/cgroup"), MilliCPUs: int64(runtime.NumCPU()) * 1000}
}

// limitHeap sets the runtime's soft memory limit below the limit of the daemon's cgroup, unless
// GOMEMLIMIT is set. The collector then works harder near the limit, where the kernel would
// otherwise kill the daemon (runtime/debug.SetMemoryLimit).
func limitHeap(log *slog.Logger) {
	limit := memoryLimit("/proc", "/sys/fs/cgroup")
	if os.Getenv("GOMEMLIMIT") != "" || limit >= physicalMemory() {
		return
	}
	debug.SetMemoryLimit(max(limit-programBytes(), limit/4) / 100 * heapPercent)
	log.Info("memory is limited by the daemon's cgroup", "bytes", limit)
}

// programBytes is the size of the daemon's program. The daemon runs from a copy of it in memory
// (sandbox.Isolate), which counts in the cgroup, and which the kernel can't write anywhere else.
func programBytes() int64 {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return 0
	}
	return info.Size()
}

// memoryLimit returns how many bytes of memory this process may use: the machine's memory,
// or the smallest limit of its cgroup and of the cgroups above it, if that is less. proc
// and cgroups are the mount points of procfs and of the cgroups, cgroups(7).
func memoryLimit(proc, cgroups string) int64 {
	limit := physicalMemory()
	f, err := os.Open(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return limit
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		switch {
		// cgroup v2: the limits of all cgroups above count, too. readLimit ignores a memory.max of
		// "max", which is not a number.
		case parts[0] == "0":
			for dir := filepath.Clean(parts[2]); ; dir = filepath.Dir(dir) {
				limit = min(limit, readLimit(filepath.Join(cgroups, dir, "memory.max"), ""))
				if dir == "/" || dir == "." {
					break
				}
			}
		// cgroup v1: hierarchical_memory_limit already has the limits of the cgroups above.
		case parts[1] == "memory":
			// In a container the mounted hierarchy may begin at the container's cgroup, so that
			// the path does not exist beneath it.
			for _, dir := range []string{parts[2], "/"} {
				limit = min(limit, readLimit(filepath.Join(cgroups, "memory", dir, "memory.stat"), "hierarchical_memory_limit "))
			}
		}
	}
	return limit
}

// readLimit returns the number after prefix in the first such line of the file at path,
// else the largest int64.
func readLimit(path, prefix string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return math.MaxInt64
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, prefix)
		if n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); ok && err == nil && n > 0 {
			return n
		}
	}
	return math.MaxInt64
}

// physicalMemory is the machine's memory in bytes; sysinfo(2) counts it in units of Unit bytes.
func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}
