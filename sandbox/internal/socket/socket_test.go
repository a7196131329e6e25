package socket_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket"
	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// A packet arrives with its descriptors, and each side notices the other one's end.
func TestPackets(t *testing.T) {
	before := sockettest.OpenFiles(t)
	ours, theirs, err := socket.Pair(unix.SOCK_SEQPACKET, "test")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if !socket.Quiet(ours) {
		t.Error("nothing was sent, and it is not quiet")
	}
	_ = ours.SetReadDeadline(time.Now())
	if _, _, err := socket.Receive(ours, b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing was sent: got %v", err)
	}
	if err := socket.Send(theirs, []byte("packet"), []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	if socket.Quiet(ours) {
		t.Error("a packet was sent, and it is quiet")
	}
	_ = ours.SetReadDeadline(time.Time{})
	n, fds, err := socket.Receive(ours, b)
	if err != nil || string(b[:n]) != "packet" || len(fds) != 2 {
		t.Errorf("got %q, %d descriptors, %v", b[:n], len(fds), err)
	}
	socket.CloseAll(fds)
	theirs.Close()
	if socket.Quiet(ours) {
		t.Error("the peer is gone, and it is quiet")
	}
	if _, _, err := socket.Receive(ours, b); err == nil {
		t.Error("a peer that is gone has sent a packet")
	}
	if err := socket.Send(ours, []byte("packet"), nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("to a peer that is gone: got %v", err)
	}
	ours.Close()
	if socket.Quiet(ours) {
		t.Error("it is closed and quiet")
	}
	if err := socket.Send(ours, []byte("packet"), nil); err == nil {
		t.Error("a closed socket sends")
	}
	if _, _, err := socket.Receive(ours, b); err == nil {
		t.Error("a closed socket receives")
	}
	if after := sockettest.OpenFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// A socket that was never opened neither sends nor receives, and is not quiet.
func TestNoSocket(t *testing.T) {
	if err := socket.Send(nil, []byte("packet"), nil); err == nil {
		t.Error("it sends")
	}
	if _, _, err := socket.Receive(nil, make([]byte, 16)); err == nil {
		t.Error("it receives")
	}
	if socket.Quiet(nil) {
		t.Error("it is quiet")
	}
}

// A control message that has no descriptors, here the peer's credentials (unix(7)), is refused.
func TestOtherControlMessages(t *testing.T) {
	ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
	conn, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var serr error
	err = conn.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err := errors.Join(err, serr, socket.Send(theirs, []byte("packet"), nil)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := socket.Receive(ours, make([]byte, 16)); err == nil {
		t.Error("it is received")
	}
}
