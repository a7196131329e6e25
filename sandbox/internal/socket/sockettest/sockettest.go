// Package sockettest plays the peer of a socket in tests of package sandbox and its parts. The
// peer may lie.
package sockettest

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peers returns the two ends of a Unix socket, which are closed when the test ends. The first
// is set up like the daemon's.
func Peers(t testing.TB, kind int) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// Say writes the bytes of a lying peer and closes its end.
func Say(peer *os.File, b []byte) {
	go func() {
		_, _ = peer.Write(b)
		peer.Close()
	}()
}

// packets cuts b into packets, each with its length and a number of descriptors in front.
func packets(b []byte) (all [][]byte, fds []int) {
	for len(b) >= 2 && len(all) < 16 {
		n := min(int(b[0]), len(b)-2)
		all, fds = append(all, b[2:2+n]), append(fds, int(b[1]%8))
		b = b[2+n:]
	}
	return all, fds
}

// Packet returns one packet in the form that SendAll takes.
func Packet(fds byte, b []byte) []byte { return append([]byte{byte(len(b)), fds}, b...) }

// SendAll sends the packets of b, a sequence of Packet, each with so many descriptors. It makes
// the system call itself: Go's function sends a byte where a packet has descriptors and
// nothing else.
func SendAll(t testing.TB, peer *os.File, b []byte) {
	t.Helper()
	all, fds := packets(b)
	for i, p := range all {
		rights := unix.UnixRights(make([]int, fds[i])...) // copies of standard input
		p = append(p, 0)
		iov := unix.Iovec{Base: &p[0], Len: uint64(len(p) - 1)}
		m := unix.Msghdr{Iov: &iov, Iovlen: 1}
		if fds[i] > 0 {
			m.Control, m.Controllen = &rights[0], uint64(len(rights))
		}
		if _, _, errno := unix.Syscall(unix.SYS_SENDMSG, peer.Fd(), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL); errno != 0 {
			t.Fatal(errno)
		}
	}
}

// OpenFiles counts the open descriptors of this process.
func OpenFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
