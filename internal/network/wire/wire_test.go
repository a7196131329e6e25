package wire

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A helper that sends more descriptors than one leaves none in the daemon.
func TestDescriptorsOfAPacket(t *testing.T) {
	ours, theirs, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.File.Close()
	defer theirs.Close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	rights := unix.UnixRights(int(out.Fd()), int(out.Fd()))
	if err := unix.Sendmsg(int(theirs.Fd()), []byte("{}"), rights, nil, 0); err != nil {
		t.Fatal(err)
	}
	out.Close()
	first, err := ours.Receive(&Report{})
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	_ = in.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a descriptor stays open: %v", err)
	}
}
