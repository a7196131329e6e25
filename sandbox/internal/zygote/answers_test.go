package zygote

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// someSandbox is the sandbox with number 7, with six descriptors.
func someSandbox() Sandbox {
	in := os.Stdin
	return Sandbox{Number: 7, Executes: true, Control: in, Streams: [3]*os.File{in, in, in}, Root: []int{0, 0}}
}

// TestZygoteIsNotBelieved gives the daemon answers that no zygote gives.
func TestZygoteIsNotBelieved(t *testing.T) {
	answer := func(kind pid1.Packet, words ...uint32) []byte { return pid1.PacketHeader(kind, words...) }
	for _, tt := range []struct {
		name   string
		answer []byte
		fds    []int
		want   string
	}{
		{"a number of another question", answer(pid1.PacketMade, 8, 0), nil, "malformed"},
		{"another kind", answer(pid1.PacketMake, 7, 0), nil, "malformed"},
		{"half an answer", answer(pid1.PacketMade, 7), nil, "malformed"},
		{"two descriptors", answer(pid1.PacketMade, 7, 0), []int{0, 1}, "malformed"},
		{"an error", answer(pid1.PacketMade, 7, uint32(unix.ENOSPC)), nil, "no space left"},
		{"no descriptor", answer(pid1.PacketMade, 7, 0), nil, "answer has no pidfd"},
		{"a descriptor that is none of a process", answer(pid1.PacketMade, 7, 0), []int{0}, "pidfd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
			if err := socket.Send(theirs, tt.answer, tt.fds); err != nil {
				t.Fatal(err)
			}
			z := zygoteBehind(ours)
			_, _, err := z.Make(t.Context(), someSandbox())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
	theirs.Close()
	z := zygoteBehind(ours)
	if _, err := z.ask(t.Context(), nothing(), 0, nil); err == nil {
		t.Error("a zygote that is gone answered")
	}
}

// TestZygoteIsLate: a zygote that answered too late can be asked again. The late answer is
// dropped.
func TestZygoteIsLate(t *testing.T) {
	ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
	z := zygoteBehind(ours)
	b := make([]byte, 64)
	answer := func() {
		if err := socket.Send(theirs, pid1.PacketHeader(pid1.PacketMade, 7, 0), []int{0}); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		ctx, end := context.WithCancel(t.Context())
		go func() {
			defer end()
			_, _, _ = socket.Receive(theirs, b) // so it owes an answer
		}()
		if _, err := z.ask(ctx, nothing(), 7, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want that it doesn't answer", err)
		}
		if _, err := z.ask(t.Context(), nothing(), 8, nil); err == nil || !strings.Contains(err.Error(), "last request") {
			t.Fatalf("got %v, want that it still owes an answer", err)
		}
		answer()
		go func() {
			if _, _, err := socket.Receive(theirs, b); err == nil {
				answer()
			}
		}()
		fd, err := z.ask(t.Context(), nothing(), 7, nil)
		if err != nil {
			t.Fatalf("got %v, want the answer", err)
		}
		unix.Close(fd)
	}
}

// A caller whose context ends waits no longer for a stuck zygote, neither for an answer nor for
// another caller's request. The zygote then owes an answer.
func TestZygoteIsStuck(t *testing.T) {
	ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
	z := zygoteBehind(ours)
	first, endFirst := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := z.ask(first, nothing(), 7, nil)
		failed <- err
	}()
	if _, _, err := socket.Receive(theirs, make([]byte, 64)); err != nil { // so the request runs
		t.Fatal(err)
	}
	if _, err := z.ask(soon(t), nothing(), 8, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second request: got %v, want the end of its context", err)
	}
	endFirst()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the first request: got %v, want the end of its context", err)
	}
	if !z.owes {
		t.Error("the zygote owes no answer")
	}
}

// zygoteBehind is a running zygote at the other end of a socket.
func zygoteBehind(ours *os.File) *Zygote {
	return &Zygote{socket: ours, turn: make(chan struct{}, 1)}
}

// soon is a context that ends in a millisecond.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func nothing() []byte { return pid1.PacketHeader(pid1.PacketBegin) }

// FuzzZygoteSays: the zygote lies to the daemon. No descriptor that it sends stays open.
func FuzzZygoteSays(f *testing.F) {
	answer := pid1.PacketHeader(pid1.PacketMade, 7, 0)
	f.Add(sockettest.Packet(1, answer))
	f.Add(append(sockettest.Packet(2, answer), sockettest.Packet(1, answer)...))
	f.Add(sockettest.Packet(3, nil))
	f.Add(sockettest.Packet(0, pid1.PacketHeader(pid1.PacketMade, 7, uint32(unix.ENOSPC))))
	f.Add(sockettest.Packet(7, pid1.PacketHeader(pid1.PacketMake, 7, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := sockettest.OpenFiles(t)
		ours, theirs := sockettest.Peers(t, unix.SOCK_SEQPACKET)
		sockettest.SendAll(t, theirs, b)
		z := zygoteBehind(ours)
		for range 2 {
			if pid, _, err := z.Make(soon(t), someSandbox()); err == nil {
				t.Errorf("a sandbox was made: process %d", pid)
			}
		}
		ours.Close()
		theirs.Close()
		if after := sockettest.OpenFiles(t); after != before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}
