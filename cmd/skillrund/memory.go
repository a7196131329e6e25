package main

import (
	"bufio"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What of the memory that the daemon may use goes where, unless the config says.
const (
	// maxRequestBytes is more than what a daemon with much memory needs.
	maxRequestBytes = 1 << 30
	// requestShare is what requests may be: while one is decoded it is there three
	// times, and what it has left is collected later.
	requestShare = 8
	// heapPercent is from where the runtime collects rather than grows: the rest is
	// for what is not its heap.
	heapPercent = 75
)

// requestBytes is what messages may hold together.
func (c *config) requestBytes() int64 {
	if c.RequestBytes > 0 {
		return int64(c.RequestBytes)
	}
	return max(min(memoryLimit("/proc", "/sys/fs/cgroup")/requestShare, maxRequestBytes), int64(c.MessageBytes))
}

// limitHeap has the runtime stay below what the daemon's cgroup allows, unless
// GOMEMLIMIT says otherwise.
func limitHeap(log *slog.Logger) {
	limit := memoryLimit("/proc", "/sys/fs/cgroup")
	if os.Getenv("GOMEMLIMIT") != "" || limit >= physicalMemory() {
		return
	}
	debug.SetMemoryLimit(limit / 100 * heapPercent)
	log.Info("memory is limited by the daemon's cgroup", "bytes", limit)
}

// memoryLimit returns how many bytes of memory this process may use: what the
// machine has, or what its cgroup or one above it allows. proc and cgroups are where
// the kernel says so, cgroups(7).
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
		case parts[0] == "0":
			for dir := filepath.Clean(parts[2]); ; dir = filepath.Dir(dir) {
				limit = min(limit, readLimit(filepath.Join(cgroups, dir, "memory.max"), ""))
				if dir == "/" || dir == "." {
					break
				}
			}
		case parts[1] == "memory":
			// In a container the path is not beneath what is mounted.
			for _, dir := range []string{parts[2], "/"} {
				limit = min(limit, readLimit(filepath.Join(cgroups, "memory", dir, "memory.stat"), "hierarchical_memory_limit "))
			}
		}
	}
	return limit
}

// readLimit returns the number in the line of a file that begins with prefix, or
// the largest there is.
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

func physicalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}
