package sandbox

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
)

// A maker makes sandboxes. There are two:
//
//	cloner   The zygote clones a process, which sets itself up in a few milliseconds
//	         (cloner.go, internal/zygote, pid1/init_cloned.c).
//	direct   libcontainer builds a container in about 20 ms (direct.go), when the pool gives no
//	         sandbox: no zygote runs, or the zygote has failed to clone one.
//
// Both make the same blank sandbox: a root, /proc, /dev, /tmp and a home directory, an
// init, and a first process that has dropped its privileges and waits. Init forks the
// first process, or a Python zygote does (python.go, internal/pyzygote). The rest of a sandbox's life
// does not depend on its maker: the daemon reads the posture (verify), sends the mounts
// and the program (assign), waits for the end (watch.go) and removes the sandbox
// (teardown.go).
type maker interface {
	// start makes c's cgroup, init and first process, and returns when the first process
	// waits. c has ids, staging, pipes and a control socket; theirs is init's end of that
	// socket. start sets c.group and c.init as soon as there is something to remove, so
	// the caller can destroy c after an error. When ctx ends, the caller closes the control
	// socket, and start fails.
	start(ctx context.Context, c *sandbox, theirs *os.File) error
}

// An initProcess is PID 1 of a sandbox, with the facts that its maker knows.
type initProcess struct {
	pid   int      // of the host
	pidfd *os.File // nil: init never ran
	// free removes the maker's state of the sandbox after all processes are gone. nil: the
	// maker keeps no state.
	free func() error
	// Expectations of the first process's posture.
	filters int               // number of the daemon's seccomp filters
	spaces  map[string]string // the zygote's namespaces, by name; the process must be in none
	devices cgroup.Group      // cgroup v1: the cgroup with the device rules; zero: the sandbox's own
}

// open sets pid and pidfd. It closes pidfd if it fails.
func (i *initProcess) open(pid, pidfd int) error {
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that the Go runtime polls it
		unix.Close(pidfd)
		return err
	}
	i.pid, i.pidfd = pid, os.NewFile(uintptr(pidfd), "pidfd")
	return nil
}

// wait returns when init is gone, and with init every process of its PID namespace.
func (i *initProcess) wait() error {
	conn, err := i.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err != unix.EINTR && (err != nil || n > 0)
	})
}

// ended reports whether init is gone. It also answers true if poll(2) fails.
func (i *initProcess) ended() bool { return !socket.Quiet(i.pidfd) }

// kill ends every process of the sandbox. It opens no file: descriptors may be exhausted.
func (i *initProcess) kill() error {
	conn, err := i.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var kerr error
	err = conn.Control(func(fd uintptr) { kerr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(err, kerr)
}
