package pid1

// #include "userns.h"
// #include "wire.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ScriptID is the user id and group id of the script inside a sandbox.
const ScriptID = C.SCRIPT_ID

// OpenUserNamespace returns a user namespace that maps the script's id to hostID,
// and no other id. A mount that uses the namespace keeps it alive. The caller
// closes the file.
func OpenUserNamespace(hostID uint32) (_ *os.File, err error) {
	pid, err := C.skillrun_userns()
	if pid < 0 {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	// The child only keeps the namespace until the file of /proc is open. It is this process's
	// unreaped child, so the pid is still its own.
	defer func() {
		_ = unix.Kill(int(pid), unix.SIGKILL)
		_, _ = wait(int(pid))
	}()
	line := fmt.Appendf(nil, "%d %d 1\n", ScriptID, hostID)
	for _, f := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f), line, 0); err != nil {
			return nil, fmt.Errorf("user namespace: %w", err)
		}
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}

// TryUnshare returns an error if a child of this process can't make such namespaces.
func TryUnshare(flags int) error {
	pid, err := C.skillrun_try_unshare(C.long(flags))
	if pid < 0 {
		return err
	}
	return waitErrno(int(pid))
}

// TryMountProc returns an error if a process in new namespaces can't mount a proc at dir.
func TryMountProc(dir string) error {
	path, err := unix.BytePtrFromString(dir)
	if err != nil {
		return err
	}
	pid, err := C.skillrun_try_proc((*C.char)(unsafe.Pointer(path)))
	if pid < 0 {
		return err
	}
	return waitErrno(int(pid))
}

// waitErrno waits for a child whose exit code is an errno.
func waitErrno(pid int) error {
	status, err := wait(pid)
	if err == nil && status.ExitStatus() != 0 {
		err = unix.Errno(status.ExitStatus())
	}
	return err
}

// wait reaps a child. C code forked it, so os.Process does not know it.
func wait(pid int) (status unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			return status, err
		}
	}
}
