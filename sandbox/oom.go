package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An oomNotifier fires when the kernel reports that a cgroup's memory has run out. The
// kernel reports that before it kills a process.
type oomNotifier struct {
	fired  chan struct{} // holds at most one report
	down   chan struct{} // closed when listen has ended
	events *os.File
}

// notifyOOM starts an oomNotifier. The group must exist. The caller calls stop.
func (g group) notifyOOM() (*oomNotifier, error) {
	var fd int
	var err error
	if g.unified {
		fd, err = g.watchMemoryEvents()
	} else {
		fd, err = g.watchOOMControl()
	}
	if err != nil {
		return nil, fmt.Errorf("notice of memory that runs out: %w", err)
	}
	b := &oomNotifier{fired: make(chan struct{}, 1), down: make(chan struct{}), events: os.NewFile(uintptr(fd), "oom")}
	go b.listen()
	return b, nil
}

// watchMemoryEvents returns an inotify descriptor for cgroup v2. The kernel modifies
// memory.events with each event (cgroup-v2.rst).
func (g group) watchMemoryEvents() (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if _, err := unix.InotifyAddWatch(fd, g.file("memory", "memory.events"), unix.IN_MODIFY); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// watchOOMControl returns an eventfd for cgroup v1 (cgroup-v1/memory.rst, section 9).
func (g group) watchOOMControl() (int, error) {
	control, err := openFile(unix.AT_FDCWD, g.file("memory", "memory.oom_control"), unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(control)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if err := g.write("memory", "cgroup.event_control", fmt.Sprintf("%d %d", fd, control)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (b *oomNotifier) listen() {
	defer close(b.down)
	buffer := make([]byte, 4096)
	for {
		if _, err := b.events.Read(buffer); err != nil {
			return // stop closed the file
		}
		select {
		case b.fired <- struct{}{}:
		default:
		}
	}
}

// stop may be called on nil.
func (b *oomNotifier) stop() {
	if b != nil {
		b.events.Close()
	}
}
