package cgroup

import (
	"strconv"
	"strings"
	"time"
)

// A Usage is the CPU time and memory that the processes of a group have used so far.
type Usage struct {
	UserCPU, SystemCPU time.Duration
	MemoryPeakBytes    int64
}

// CPU is the sum of both kinds of CPU time.
func (u Usage) CPU() time.Duration { return u.UserCPU + u.SystemCPU }

// OOMKills counts the processes of the group that the kernel killed for memory.
func (g Group) OOMKills() (uint64, error) {
	if g.Unified {
		return g.Value("memory", "memory.events", "oom_kill")
	}
	return g.Value("memory", "memory.oom_control", "oom_kill")
}

// Usage reads the kernel's counters. Values that the kernel doesn't report stay zero. The cgroup
// must still exist: its counters go with it.
func (g Group) Usage() Usage {
	u := g.CPUUsage()
	peak := "memory.max_usage_in_bytes"
	if g.Unified {
		peak = "memory.peak" // since Linux 5.19
	}
	u.MemoryPeakBytes, _ = g.Number("memory", peak)
	return u
}

// CPUUsage is the CPU time of Usage: it reads fewer files.
func (g Group) CPUUsage() (u Usage) {
	if g.Unified {
		text, _ := g.Read("cpu", "cpu.stat")
		u.UserCPU, u.SystemCPU = microseconds(text, "user_usec"), microseconds(text, "system_usec")
		return u
	}
	// Only the sum is exact. The kernel samples user and system time when the clock ticks,
	// about 250 times a second. A process that a CPU limit stops at a tick is counted too
	// high, and a process that runs for less than a tick is counted too low. So the sum is
	// divided in the ratio of the samples, as the kernel does on v2 (cputime_adjust in
	// kernel/sched/cputime.c).
	sum, err := g.Number("cpuacct", "cpuacct.usage")
	if err != nil {
		return u
	}
	// The file has a heading, then for each processor its number and the nanoseconds of
	// user and system time.
	text, _ := g.Read("cpuacct", "cpuacct.usage_all")
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 {
			user, _ := strconv.ParseInt(f[1], 10, 64)
			system, _ := strconv.ParseInt(f[2], 10, 64)
			u.UserCPU, u.SystemCPU = u.UserCPU+time.Duration(user), u.SystemCPU+time.Duration(system)
		}
	}
	system := 0.0
	if ticks := u.UserCPU + u.SystemCPU; ticks > 0 {
		system = float64(u.SystemCPU) / float64(ticks)
	}
	u.SystemCPU = time.Duration(float64(sum) * system)
	u.UserCPU = time.Duration(sum) - u.SystemCPU
	return u
}

// CPUTime is the sum of CPUUsage. It reads one file, and fails if the kernel does not report it.
func (g Group) CPUTime() (time.Duration, error) {
	if g.Unified {
		n, err := g.Value("cpu", "cpu.stat", "usage_usec")
		return time.Duration(n) * time.Microsecond, err
	}
	n, err := g.Number("cpuacct", "cpuacct.usage")
	return time.Duration(n), err
}

// Since subtracts the CPU time of an earlier Usage. The kernel may have corrected the earlier
// split between user and system time in the meantime, so a difference can be negative. Since
// then takes it from the other part.
func (u Usage) Since(before Usage) Usage {
	u.UserCPU, u.SystemCPU = u.UserCPU-before.UserCPU, u.SystemCPU-before.SystemCPU
	if u.SystemCPU < 0 {
		u.UserCPU, u.SystemCPU = u.UserCPU+u.SystemCPU, 0
	}
	if u.UserCPU < 0 {
		u.UserCPU, u.SystemCPU = 0, max(u.SystemCPU+u.UserCPU, 0)
	}
	return u
}

// microseconds returns 0 for a key that the kernel does not report.
func microseconds(text, key string) time.Duration {
	v, _ := lineValue(text, key)
	n, _ := strconv.ParseInt(v, 10, 64)
	return time.Duration(n) * time.Microsecond
}

// RefusedForks counts the forks that pids.max refused.
func (g Group) RefusedForks() uint64 {
	n, _ := g.Value("pids", "pids.events", "max")
	return n
}

// NeverFull reports that the group has never had as many processes as it may have, so that a parent's limit refused
// its forks. Without pids.peak, before Linux 6.1, it reports false.
func (g Group) NeverFull() bool {
	peak, err := g.Number("pids", "pids.peak")
	if err != nil {
		return false
	}
	most, err := g.Number("pids", "pids.max")
	return err == nil && peak < most
}
