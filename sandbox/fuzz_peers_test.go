package sandbox

import (
	"io"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"
)

// says writes the packets of a lying peer and closes its half of the connection.
func says(t *testing.T, peer *os.File, b []byte) {
	t.Helper()
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

// sendAll sends packets by the system call itself: Go's function sends a byte where a
// packet has descriptors and nothing else.
func sendAll(t *testing.T, peer *os.File, b []byte) {
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

// FuzzInitSays: an init lies to the daemon until the end of an execution. The Exit is always
// one that a program can have.
func FuzzInitSays(f *testing.F) {
	words := func(w ...uint32) []byte { return pid1.PacketHeader(pid1.Packet(w[0]), w[1:]...)[4:] }
	frames := func(last []byte) []byte {
		b := pid1.AppendFrame(pid1.AppendFrame(nil, pid1.FrameHello, nil), pid1.FrameReady, words(2))
		return append(pid1.AppendFrame(b, pid1.FrameStarted, nil), last...)
	}
	f.Add(frames(pid1.AppendFrame(nil, pid1.FrameEnd, words(3<<8, 0))))
	f.Add(frames(pid1.AppendFrame(nil, pid1.FrameEnd, words(9, 1))))
	f.Add(frames(pid1.AppendFrame(nil, pid1.FrameEnd, words(0x137f, 0))))
	f.Add(frames(pid1.AppendFrame(nil, pid1.FrameFailed, words(5, 1))))
	f.Add(pid1.AppendFrame(nil, pid1.FrameFailed, words(0xffffffff, 0xffffffff)))
	f.Add(frames(pid1.AppendFrame(nil, pid1.FrameEnd, make([]byte, 60))))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := peers(t, unix.SOCK_STREAM)
		defer ours.Close()
		says(t, theirs, b)
		c := &pid1.Control{File: ours}
		for _, want := range []struct {
			kind  pid1.Frame
			words int
		}{{pid1.FrameHello, 0}, {pid1.FrameReady, 1}, {pid1.FrameStarted, 0}} {
			got, err := c.Expect(want.kind, want.words)
			if err == nil && len(got) != want.words {
				t.Fatalf("frame %d has %d words", want.kind, len(got))
			}
			if err != nil {
				_ = err.Error() // must not panic
				return
			}
		}
		w := &watch{p: &Process{sandbox: &sandbox{control: c}}}
		w.conclude(w.p.readEnd())
		isAnEnd(t, w.exit)
	})
}

// isAnEnd says whether a program can end so: with an exit code of one byte, or by a signal.
func isAnEnd(t *testing.T, e Exit) {
	t.Helper()
	exited := e.Signal == 0 && e.Code >= 0 && e.Code <= 255
	signaled := e.Signal > 0 && e.Signal <= 64 && e.Code == 0
	if !exited && !signaled {
		t.Errorf("no program ends so: %+v", e)
	}
}

// FuzzZygoteSays: the zygote lies to the daemon. No descriptor that it sends stays open.
func FuzzZygoteSays(f *testing.F) {
	packet := func(fds byte, b []byte) []byte { return append([]byte{byte(len(b)), fds}, b...) }
	answer := pid1.PacketHeader(pid1.PacketMade, 7, 0)
	f.Add(packet(1, answer))
	f.Add(append(packet(2, answer), packet(1, answer)...))
	f.Add(packet(3, nil))
	f.Add(packet(0, pid1.PacketHeader(pid1.PacketMade, 7, uint32(unix.ENOSPC))))
	f.Add(packet(7, pid1.PacketHeader(pid1.PacketMake, 7, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := openFiles(t)
		ours, theirs := peers(t, unix.SOCK_SEQPACKET)
		sendAll(t, theirs, b)
		m := &zygote{host: &Host{instance: &instance{ids: &idBlock{}}}, socket: ours, patience: time.Millisecond}
		for range 2 {
			if cloned, err := m.make(Spec{}.withDefaults(), idPair{index: 7}, make([]int, 6), 2, true); err == nil {
				t.Errorf("a sandbox was made: process %d", cloned.pid)
			}
		}
		ours.Close()
		theirs.Close()
		if after := openFiles(t); after != before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}

// FuzzForkServerSays: a fork server and a child of it lie to the daemon. A wait for the
// child's end always returns.
func FuzzForkServerSays(f *testing.F) {
	packet := func(s string) []byte { return append([]byte{byte(len(s)), 0}, s...) }
	f.Add(packet(`{"op":"ready","python":"3.11","imported":["json"]}`), []byte(`{"op":"started"}`+"\n"))
	f.Add(append(packet(`{"op":"forked","sandbox":7}`), packet(`{"op":"ended","sandbox":7,"status":256}`)...), []byte(`{"op":"started","by":"exec"}`+"\n"))
	f.Add(packet(`{"op":"ended","sandbox":7,"status":-1}`), []byte(`{"op":"failed","stage":"exec","errno":2}`+"\n"))
	f.Add(packet(`{"op":"failed","stage":"`+"\xff"+`","errno":-1}`), []byte("no JSON\n"))
	f.Add([]byte{0, 3}, []byte{})
	f.Fuzz(func(t *testing.T, b, line []byte) {
		before := openFiles(t)
		ours, theirs := peers(t, unix.SOCK_SEQPACKET)
		in := &pythonZygote{socket: ours, gone: make(chan struct{}), answer: make(chan forkAnswer, 1), ended: map[int32]chan int{7: make(chan int, 1)}}
		ended := in.ended[7]
		sendAll(t, theirs, b)
		go in.listen()
		read := make(chan struct{})
		go func() { // reads the request, then closes
			defer close(read)
			_, got, _ := receivePacket(theirs, make([]byte, maxForkPacket))
			closeAll(got)
			theirs.Close()
		}()
		if a, err := in.request(map[string]any{"op": "init"}, nil, time.Minute); err == nil {
			_ = a.err().Error()
		}
		in.socket.Close()
		<-in.gone
		<-read // its descriptor closes when it has read
		if status, known := <-ended; known {
			w := &watch{p: &Process{}}
			w.conclude(endOf(status, false))
			isAnEnd(t, w.exit)
		}
		theirs.Close()
		barrier, child := peers(t, unix.SOCK_STREAM)
		says(t, child, line)
		if err := newForked(barrier).run(pythonSpec(nil, "-c", "")); err != nil {
			_ = err.Error()
		}
		_, _ = io.Copy(io.Discard, barrier)
		barrier.Close()
		if after := openFiles(t); after > before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}
