package cgroup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// An OOMNotifier fires when the kernel reports that a cgroup's memory has run out. The
// kernel reports that before it kills a process.
type OOMNotifier struct {
	Fired  <-chan struct{} // holds at most one report
	Ended  <-chan struct{} // closed when the goroutine of the notifier has ended
	events *os.File
}

// NotifyOOM starts an OOMNotifier. The group must exist. The caller calls Stop.
func (g Group) NotifyOOM() (*OOMNotifier, error) {
	var fd int
	var err error
	if g.Unified {
		fd, err = g.watchMemoryEvents()
	} else {
		fd, err = g.watchOOMControl()
	}
	if err != nil {
		return nil, fmt.Errorf("OOM notifier: %w", err)
	}
	fired, ended := make(chan struct{}, 1), make(chan struct{})
	n := &OOMNotifier{Fired: fired, Ended: ended, events: os.NewFile(uintptr(fd), "oom")}
	go n.listen(fired, ended)
	return n, nil
}

// watchMemoryEvents returns an inotify descriptor for cgroup v2. The kernel modifies
// memory.events with each event (cgroup-v2.rst).
func (g Group) watchMemoryEvents() (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if _, err := unix.InotifyAddWatch(fd, g.File("memory", "memory.events"), unix.IN_MODIFY); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
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
	// Room for some events of inotify(7), 16 bytes each because none has a name, or the 8 bytes of an eventfd. The buffer
	// is on the goroutine's stack: 4 KiB would make that four times as large, for each sandbox.
	buffer := make([]byte, 4*unix.SizeofInotifyEvent)
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
	if n != nil {
		n.events.Close()
	}
}
