package cgroup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// An OOMNotifier fires when the kernel reports that the memory of a cgroup v1 has run out. The
// kernel reports that before it kills a process. On v2 it never fires: there the kernel kills all
// processes of the group, init included (memory.oom.group, which Create sets and Verify reads). So
// the end of init is the report, and OOMKills has the count.
type OOMNotifier struct {
	Fired  <-chan struct{} // holds at most one report; nil on v2
	Ended  <-chan struct{} // closed when the goroutine of the notifier has ended
	events *os.File        // nil on v2
}

// NotifyOOM starts an OOMNotifier. The group must exist. The caller calls Stop.
//
// On v2 it takes no inotify instance for memory.events: a user may have only 128 instances by
// default, and the daemon shares root's with the machine's services (inotify(7)).
func (g Group) NotifyOOM() (*OOMNotifier, error) {
	fired, ended := make(chan struct{}, 1), make(chan struct{})
	if g.Unified {
		close(ended)
		return &OOMNotifier{Ended: ended}, nil
	}
	fd, err := g.watchOOMControl()
	if err != nil {
		return nil, fmt.Errorf("OOM notifier: %w", err)
	}
	n := &OOMNotifier{Fired: fired, Ended: ended, events: os.NewFile(uintptr(fd), "oom")}
	go n.listen(fired, ended)
	return n, nil
}

// watchOOMControl returns an eventfd for cgroup v1 (cgroup-v1/memory.rst, section 9).
func (g Group) watchOOMControl() (int, error) {
	control, err := pseudofs.OpenFD(g.File("memory", "memory.oom_control"), unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(control)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if err := g.Write("memory", "cgroup.event_control", fmt.Sprintf("%d %d", fd, control)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// listen reports each event at most once while nothing has taken the last report. Its reads end
// when Stop closes the file.
func (n *OOMNotifier) listen(fired, ended chan<- struct{}) {
	defer close(ended)
	buffer := make([]byte, 8) // an eventfd's counter
	for {
		if _, err := n.events.Read(buffer); err != nil {
			return // Stop closed the file
		}
		select {
		case fired <- struct{}{}:
		default:
		}
	}
}

// Stop ends the notifier. It may be called on nil.
func (n *OOMNotifier) Stop() {
	if n != nil && n.events != nil {
		n.events.Close()
	}
}
