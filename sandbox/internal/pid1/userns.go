package pid1

// #include "userns.h"
// #include "wire.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// ScriptID is the user id and group id of the script inside a sandbox.
const ScriptID = C.SCRIPT_ID

// OpenUserNamespace returns a user namespace that maps the script's id to hostID,
// and no other id. A mount that uses the namespace keeps it alive. The caller
// closes the file.
func OpenUserNamespace(hostID uint32) (*os.File, error) {
	n, err := MakeNamespaces(0, []configs.IDMap{{ContainerID: ScriptID, HostID: int64(hostID), Size: 1}}, "")
	return n.User, err
}

// Namespaces are namespaces that no process is in. The files keep them alive.
type Namespaces struct {
	User *os.File
	Time *os.File // nil: not asked for
}

// Close closes the files. Nil files are skipped.
func (n Namespaces) Close() {
	n.User.Close()
	n.Time.Close()
}

// MakeNamespaces makes a user namespace with the user and group ids of the map. Its owner is the
// user id owner of this process's user namespace. If offsets is not empty, there is also a time
// namespace with these offsets, in the form of /proc/pid/timens_offsets (time_namespaces(7)). The
// caller closes the files.
func MakeNamespaces(owner uint32, ids []configs.IDMap, offsets string) (n Namespaces, err error) {
	defer func() {
		if err != nil {
			n.Close()
			n, err = Namespaces{}, fmt.Errorf("user namespace: %w", err)
		}
	}()
	// The kernel kills the child at the end of the thread that forked it (PR_SET_PDEATHSIG, prctl(2)), and
	// another goroutine could end this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var text *byte // nil: no time namespace
	if offsets != "" {
		if text, err = unix.BytePtrFromString(offsets); err != nil {
			return n, err
		}
	}
	pid, err := C.skillrun_userns(C.uint(owner), (*C.char)(unsafe.Pointer(text)))
	if pid < 0 {
		return n, err
	}
	status, err := wait(int(pid), unix.WUNTRACED)
	if err == nil && !status.Stopped() { // it has ended
		return n, unix.Errno(status.ExitStatus())
	}
	// The child only keeps the namespaces until the files of /proc are open. It is this process's
	// unreaped child, so the pid is still its own.
	defer func() {
		_ = unix.Kill(int(pid), unix.SIGKILL)
		_, _ = wait(int(pid), 0)
	}()
	if err != nil {
		return n, err
	}
	var lines []byte
	for _, m := range ids {
		lines = fmt.Appendf(lines, "%d %d %d\n", m.ContainerID, m.HostID, m.Size)
	}
	for _, f := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f), lines, 0); err != nil {
			return n, err
		}
	}
	if n.User, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid)); err != nil || offsets == "" {
		return n, err
	}
	n.Time, err = os.Open(fmt.Sprintf("/proc/%d/ns/time_for_children", pid))
	return n, err
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
	status, err := wait(pid, 0)
	if err == nil && status.ExitStatus() != 0 {
		err = unix.Errno(status.ExitStatus())
	}
	return err
}

// wait reaps a child, or with WUNTRACED waits for its stop, too (wait4(2)). C code forked it, so
// os.Process does not know it.
func wait(pid, options int) (status unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(pid, &status, options, nil); err != unix.EINTR {
			return status, err
		}
	}
}
