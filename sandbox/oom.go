package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An oomNotifier rings when the kernel says that a group's memory runs out, which it
// does before it kills anybody.
type oomNotifier struct {
	fired  chan struct{} // holds at most one
	down   chan struct{} // closed when nobody listens any more
	events *os.File
}

// notifyOOM asks the kernel for it. The group must exist.
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

// watchMemoryEvents is for cgroup v2: the file is modified with each event.
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

// watchOOMControl is for cgroup v1, memory.rst section 9.
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
			return // it was taken down
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
