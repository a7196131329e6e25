package sandbox

import (
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

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
		ours, theirs := sockettest.Peers(t, unix.SOCK_STREAM)
		defer ours.Close()
		sockettest.Say(theirs, b)
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
