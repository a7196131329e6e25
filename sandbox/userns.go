package sandbox

// long skillrun_userns(void);
import "C"

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The ids inside a sandbox. init.h knows the script's, too.
const (
	rootID   = 0
	scriptID = 1000
)

// openUserNamespace returns a user namespace in which the script's id on disk
// is the given id of the host, and no other id is anything. Mounts keep it
// alive; its caller closes the file.
func openUserNamespace(hostID uint32) (_ *os.File, err error) {
	pid, err := C.skillrun_userns()
	if pid < 0 {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	defer func() {
		_ = unix.Kill(int(pid), unix.SIGKILL)
		for {
			if _, err := unix.Wait4(int(pid), nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	line := fmt.Appendf(nil, "%d %d 1\n", scriptID, hostID)
	for _, f := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f), line, 0); err != nil {
			return nil, fmt.Errorf("user namespace: %w", err)
		}
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}
