package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/exeseal"
	"golang.org/x/sys/unix"
)

// isolatedVar marks the second run of a daemon. It is removed at once.
const isolatedVar = "_SKILLRUN_ISOLATED"

// timerSlack is by how much the kernel may let a daemon's sleeps be longer, in
// nanoseconds. Go's runtime looks after its threads every 20 microseconds while they are
// in system calls, as they are when sandboxes are made and taken apart: with the kernel's
// own 50 microseconds that was a quarter of all switches of context on a busy machine,
// and an eighth of the daemon's processor time. What runs in sandboxes has the kernel's.
const timerSlack = 1_000_000

// Isolate moves the process into a mount namespace of its own and makes it run
// from a sealed copy of its binary in memory. It executes the program again,
// with the same pid, arguments, environment and inherited descriptors, so a
// daemon calls it first in main, before it starts or opens anything: it comes
// back nil in the second run, or with an error in the first.
//
// The namespace hides the mounts of sandboxes from the machine and lets them
// vanish with the process. Mounts that the machine makes or removes later
// still arrive, so that nothing of the machine is kept busy by a daemon. From
// the sealed copy libcontainer starts sandboxes without making one for each,
// and what runs in a sandbox can't write to the daemon's binary through
// /proc/self/exe. os.Executable is of no use afterwards.
func Isolate() error {
	if os.Getenv(isolatedVar) != "" && exeseal.IsSelfExeCloned() {
		// The kernel named the process after a descriptor. Main's thread is
		// the first, whose name is the process's (reexec.go).
		name, err := unix.BytePtrFromString(filepath.Base(os.Args[0]))
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
		}
		return errors.Join(err, os.Unsetenv(isolatedVar))
	}
	binary, err := sealedSelf()
	if err != nil {
		return fmt.Errorf("sandbox: copy of the binary: %w", err)
	}
	defer binary.Close()
	// Only this thread changes its namespace. It is the one that survives the
	// exec, which makes it the whole process.
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
	// All threads of the second run have this from their first.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: timer slack: %w", err)
	}
	env := append(os.Environ(), isolatedVar+"=1")
	err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", binary.Fd()), os.Args, env)
	return fmt.Errorf("sandbox: execute again: %w", err)
}

// sealedSelf returns a copy of the running binary that nobody can change.
func sealedSelf() (_ *os.File, err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("skillrun", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all could be executed
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
	// io.Copy would read and write, and that is a tenth of the time to start.
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

// seal lets nobody write to f any more. On a loaded machine the kernel may still hold
// pages that were just written, and says EBUSY until it lets them go
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
