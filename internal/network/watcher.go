package network

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A watcher waits for the first packet in each of many devices. It has its own epoll instance (epoll(7)), which is in the
// poller of the Go runtime. If the devices themselves were there, each packet would wake the daemon.
type watcher struct {
	epoll *os.File

	mu      sync.Mutex
	waiting map[int32]*Network // by the descriptor of the device
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// Only non-blocking files are in the poller (os.NewFile).
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &watcher{epoll: os.NewFile(uintptr(fd), "epoll"), waiting: map[int32]*Network{}}, nil
}

// add has the watcher call n.begin in a goroutine when n's device has a packet. The device must stay open until remove.
func (w *watcher) add(n *Network) error {
	device, err := n.device.SyscallConn()
	if err != nil {
		return err
	}
	if err := device.Control(func(fd uintptr) { n.descriptor = int32(fd) }); err != nil { // #nosec G115 -- a descriptor is an int32
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.control(unix.EPOLL_CTL_ADD, n.descriptor, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: n.descriptor}); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.waiting[n.descriptor] = n
	return nil
}

// remove ends the wait for a packet. It returns false if the packet has come: then begin was called, or will be.
func (w *watcher) remove(n *Network) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := w.waiting[n.descriptor] == n
	if waited {
		w.end(n.descriptor)
	}
	return waited
}

// end ends the wait for a device's packet. Closing the device would not: helpers have copies of it. The caller holds mu.
func (w *watcher) end(device int32) {
	delete(w.waiting, device)
	_ = w.control(unix.EPOLL_CTL_DEL, device, nil) // it fails after close
}

// control is epoll_ctl(2).
func (w *watcher) control(op int, device int32, e *unix.EpollEvent) error {
	epoll, err := w.epoll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = epoll.Control(func(fd uintptr) { failed = unix.EpollCtl(int(fd), op, int(device), e) })
	return errors.Join(err, failed)
}

// run calls begin of networks until close.
func (w *watcher) run() {
	epoll, err := w.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	_ = epoll.Read(func(fd uintptr) (done bool) {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if n <= 0 || err != nil { // the runtime's poller tells of the next
				return false
			}
			w.begin(events[:n])
		}
	})
}

func (w *watcher) begin(events []unix.EpollEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		n := w.waiting[e.Fd]
		w.end(e.Fd)
		if n != nil { // else remove has come in between
			go n.begin()
		}
	}
}

func (w *watcher) close() { w.epoll.Close() }
