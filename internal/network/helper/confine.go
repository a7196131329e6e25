package helper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/wire"
)

// limits of a helper's process. The files are the devices of 1,000 sandboxes, and two sockets for
// each of the tenant's connections. GOMEMLIMIT, which the Manager sets, is below the bound on data.
var processLimits = map[int]uint64{
	unix.RLIMIT_NOFILE: 16384,
	unix.RLIMIT_CORE:   0,
	unix.RLIMIT_FSIZE:  0,
	unix.RLIMIT_DATA:   4 << 30, // bytes
}

// oomScore is the helper's oom_score_adj. The daemon's own, which the helper inherits, may keep the
// kernel from killing it, and the connections of one tenant may take gigabytes. Sandboxes have 1000.
const oomScore = "900"

// confine drops every privilege that a helper does not need. Its caller runs as root, and the working
// directory is empty. id is the user and group of the process afterwards.
func confine(id int) error {
	if id <= 0 {
		return fmt.Errorf("user id %d: a helper can't run as root", id)
	}
	// Before the empty root and the filter, which would make it fail.
	learnAddressFamilies()
	// The name for ps(1): the kernel took the number of a descriptor.
	if err := os.WriteFile("/proc/self/comm", []byte(wire.Program), 0); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0); err != nil {
		return fmt.Errorf("priority when memory runs out: %w", err)
	}
	for resource, limit := range processLimits {
		if err := lower(resource, limit); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	// The directory is empty and belongs to root, and the filter has no call that opens a file.
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("empty root directory: %w", err)
	}
	// These change all threads. The kernel takes the capabilities away with the user root.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id), syscall.Setresuid(id, id, id)); err != nil {
		return fmt.Errorf("user %d: %w", id, err)
	}
	// Now no other process of this user can trace the helper or read its memory (PR_SET_DUMPABLE, prctl(2)).
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// Without it a helper that is stopped, or that an attacker controls, would outlive the daemon. A
	// change of the user takes it back, so it comes after that. It belongs to this thread (prctl(2)), which lives as long as
	// the process: Go ends only threads that a goroutine has locked.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return loadFilter()
}

// lower sets a limit. If the daemon already has a lower one, that one stays: raising it requires a
// capability.
func lower(resource int, limit uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit})
}

// learnAddressFamilies makes package net try which families the machine has. It does that once, and
// binds a socket, which the filter refuses.
func learnAddressFamilies() {
	if c, err := net.Dial("udp", "127.0.0.1:9"); err == nil {
		c.Close()
	}
}

// loadFilter loads the filter of system calls for all threads, or for none.
func loadFilter() error {
	program, err := filter()
	if err != nil {
		return err
	}
	// PR_SET_NO_NEW_PRIVS is for one thread, and the next call must come from the same one. TSYNC then gives both to
	// all threads (seccomp(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	// With TSYNC a positive result is the id of a thread that could not take the filter; then no thread has it.
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}
