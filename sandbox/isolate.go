package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/exeseal"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
)

// isolatedVar marks the second run of a daemon. The second run removes it at once.
const isolatedVar = "_SKILLRUN_ISOLATED"

// firstFD is the first descriptor after the standard streams.
const firstFD = 3

// timerSlack is how many nanoseconds the kernel may prolong a sleep of the daemon
// (PR_SET_TIMERSLACK, prctl(2)). Go's runtime checks its threads every 20 microseconds while
// they are in system calls, as during the setup and teardown of sandboxes. With the kernel's
// default of 50 microseconds, these checks made a quarter of all context switches on a busy
// machine, and took an eighth of the daemon's processor time. Sandboxes keep the default.
const timerSlack = 1_000_000

// Isolate moves the process into a new mount namespace and makes it run from a
// sealed copy of its binary in memory. It executes the program again, with the
// same PID, arguments, environment and inherited descriptors. A daemon calls it
// first in main, before it starts or opens anything. Isolate returns nil in the
// second run. In the first run it returns only errors. Programs that the second run
// starts do not inherit the descriptors, except the standard streams.
//
// The namespace hides the mounts of sandboxes from the machine, and the kernel
// removes them when the process ends. The machine's later mounts and unmounts still
// reach the namespace, so a daemon keeps no file system of the machine busy. A crash of the second
// run leaves no core dump.
// libcontainer starts sandboxes from the sealed copy instead of making a copy for
// each. A program in a sandbox can't write to the daemon's binary through
// /proc/self/exe. After Isolate the path of os.Executable is useless, and the umask is 022.
func Isolate() error {
	if os.Getenv(isolatedVar) != "" && exeseal.IsSelfExeCloned() {
		// The kernel named the process after a descriptor's number. This is the
		// first thread (pid1/reexec.go), whose name is the name of the process.
		name, err := unix.BytePtrFromString(filepath.Base(os.Args[0]))
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
		}
		// Descriptors that the daemon's starter left open must not reach network helpers or zygotes.
		return errors.Join(err, unix.CloseRange(firstFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC), os.Unsetenv(isolatedVar))
	}
	binary, err := sealedSelf()
	if err != nil {
		return fmt.Errorf("sandbox: copy of the binary: %w", err)
	}
	defer binary.Close()
	// Unshare changes the namespace of this thread only. This thread alone survives
	// the exec (execve(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("sandbox: new mount namespace: %w", err)
	}
	// Slave, not private: a private copy of a mount would keep its file
	// system busy after the machine has unmounted it.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sandbox: detach from the machine's mounts: %w", err)
	}
	// The value survives the exec, and all threads of the second run inherit it
	// (PR_SET_TIMERSLACK, prctl(2)).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: timer slack: %w", err)
	}
	if err := noDumps(); err != nil {
		return fmt.Errorf("sandbox: limit of core dumps: %w", err)
	}
	// Sandboxes enter the directories of their roots as other users. The second run inherits
	// the umask (umask(2)). Files that others may not read are made with a stricter mode.
	unix.Umask(0o022)
	env := append(os.Environ(), isolatedVar+"=1")
	err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", binary.Fd()), os.Args, env)
	return fmt.Errorf("sandbox: execute again: %w", err)
}

// noDumps keeps a crash of the daemon from writing its memory, which has secrets of callers, into
// a core dump. The hard limit stays: the limits of sandboxes must not need a privilege.
func noDumps() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return err
	}
	limit.Cur = min(preflight.NoDump, limit.Max)
	return unix.Setrlimit(unix.RLIMIT_CORE, &limit)
}

// sealedSelf returns a copy of the running binary that no process can change.
func sealedSelf() (_ *os.File, err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("skillrun", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every memfd was executable
		fd, err = unix.MemfdCreate("skillrun", flags)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "skillrun")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// io.Copy would read and write, which took a tenth of the daemon's start.
	for {
		n, err := unix.Sendfile(fd, int(self.Fd()), nil, 1<<30)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return f, seal(f)
		}
	}
}

const (
	sealTries = 20
	sealPause = 50 * time.Millisecond
)

// seal makes f immutable. On a loaded machine the kernel may still hold references to
// pages that were just written, and returns EBUSY until it drops them
// (memfd_wait_for_pins in mm/memfd.c).
func seal(f *os.File) error {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for try := 1; ; try++ {
		_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
		if !errors.Is(err, unix.EBUSY) || try == sealTries {
			return err
		}
		time.Sleep(sealPause)
	}
}
