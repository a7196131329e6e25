// Package socket makes the sockets between the daemon and the processes that it starts, and
// sends packets with descriptors on them.
package socket

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a Unix socket, close-on-exec. kind is unix.SOCK_STREAM or
// unix.SOCK_SEQPACKET. ours is non-blocking, so that the Go runtime polls it: deadlines work,
// and Close ends a read. theirs is for another process; the caller closes both.
func Pair(kind int, name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s socket: %w", name, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		CloseAll(fds[:])
		return nil, nil, fmt.Errorf("%s socket: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name+" of the peer"), nil
}

// Send sends one packet with descriptors. It waits while the socket's buffer is full, until the write deadline of f.
// The caller still closes its copies of the descriptors: the kernel has made others for the peer (unix(7)).
func Send(f *os.File, packet []byte, fds []int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	var serr error
	err = conn.Write(func(fd uintptr) bool {
		// MSG_NOSIGNAL: if the peer is gone, the result is EPIPE instead of a signal.
		serr = unix.Sendmsg(int(fd), packet, rights, nil, unix.MSG_NOSIGNAL)
		return serr != unix.EAGAIN
	})
	return errors.Join(err, serr)
}

// Receive receives one packet into b and returns its length and its descriptors, which the
// caller closes. After an error none of the descriptors stays open. Of a packet that is longer than b, the rest is
// lost, so the caller must compare n with the length that it expects.
func Receive(f *os.File, b []byte) (n int, fds []int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	// Room for four descriptors. If the peer sends more, the kernel closes the others here (unix(7), SCM_RIGHTS).
	oob := make([]byte, unix.CmsgSpace(4*4))
	var oobn int
	var rerr error
	err = conn.Read(func(fd uintptr) bool {
		// MSG_CMSG_CLOEXEC, not a later fcntl: another thread may start a program at any moment (recvmsg(2)).
		n, oobn, _, _, rerr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN
	})
	if err = errors.Join(err, rerr); err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			CloseAll(fds)
			return 0, nil, err
		}
		fds = append(fds, got...)
	}
	if n == 0 { // end of file; no peer sends an empty packet
		CloseAll(fds)
		return 0, nil, errors.New("gone")
	}
	return n, fds, nil
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Quiet reports whether a socket or a pidfd has nothing to read, not even an end of file. It
// does not wait. A file that is closed or can't be polled is not quiet.
func Quiet(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = conn.Control(func(fd uintptr) {
		// poll(2) reports POLLHUP, POLLERR and POLLNVAL without being asked.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		nothing = n == 0 && err == nil
	})
	return err == nil && nothing
}
