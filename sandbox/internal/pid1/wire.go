package pid1

// #include "wire.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket"
)

// FrameMagic begins every frame. It holds the version of the protocol.
const FrameMagic = C.FRAME_MAGIC

// A Frame is the kind of a message between the daemon and init. wire.h has the
// numbers.
type Frame uint32

// The frames from the daemon.
const (
	FrameProgram Frame = C.FRAME_PROGRAM // Plan.Encode
	FrameFilters Frame = C.FRAME_FILTERS // EncodeFilters; only to an init that libcontainer made
	FrameSignal  Frame = C.FRAME_SIGNAL  // a word: the signal to the main process
	FrameTerm    Frame = C.FRAME_TERM    // SIGTERM to all; no further step starts
	FrameKill    Frame = C.FRAME_KILL    // SIGKILL to all; no further step starts
	FrameMounts  Frame = C.FRAME_MOUNTS  // Control.Assign
	FrameForked  Frame = C.FRAME_FORKED  // EncodeForked
	FrameFinish  Frame = C.FRAME_FINISH  // the forked process has ended
)

// The frames from init.
const (
	FrameHello   Frame = C.FRAME_HELLO   // init waits for a forked process
	FrameReady   Frame = C.FRAME_READY   // a word: the pid, in the sandbox, of the first child, which waits for its program
	FrameStarted Frame = C.FRAME_STARTED // the first child's exec succeeded
	FrameFailed  Frame = C.FRAME_FAILED  // two words: the stage and the errno; the sandbox could not be set up
	FrameMounted Frame = C.FRAME_MOUNTED // after FrameForked: the mounts are attached
	FrameEnd     Frame = C.FRAME_END     // two words: the wait status of the last command, and 1 if by init's own deadline
)

// A Failure is what init says when a sandbox can't be set up.
type Failure struct {
	Stage string // one of Stages
	Err   error  // a syscall.Errno
}

func (f *Failure) Error() string { return "init: " + f.Stage + ": " + f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Stages are the names of wire.h's enum stage.
var Stages = []string{"none", "protocol", "filter", "fork", "descriptors", "capabilities", "ids", "directory", "exec", "cgroup", "mounts", "network", "limits", "ready"}

// stage returns the name of a stage, or its number if it has none.
func stage(n uint32) string {
	if int64(n) < int64(len(Stages)) {
		return Stages[n]
	}
	return strconv.FormatUint(uint64(n), 10)
}

// lastSignal is Linux's SIGRTMAX.
const lastSignal = 64

// EndStatus returns the wait status that init or a Python zygote reported. A status of a live
// process, or with an unknown signal, is a lie, and EndStatus returns an error.
func EndStatus(status int) (syscall.WaitStatus, error) {
	s := syscall.WaitStatus(status)
	if !s.Exited() && (!s.Signaled() || s.Signal() > lastSignal) {
		return 0, fmt.Errorf("wait status %#x is not the end of a process", uint32(s))
	}
	return s, nil
}

// maxInitFrame bounds a frame of init in bytes. The daemon does not trust init.
const maxInitFrame = 64

// Control is the daemon's end of the socket to one init. After File is closed, init ends the
// sandbox. Its methods may be called at the same time.
type Control struct {
	File *os.File
	// mu makes the frames of several writers whole: the start, the watch and Signal. Reads need
	// no lock: Start reads until the program runs, and after that only the watch reads.
	mu sync.Mutex
}

// NewControl returns the daemon's end and init's end.
func NewControl() (*Control, *os.File, error) {
	ours, theirs, err := socket.Pair(unix.SOCK_STREAM, "control")
	if err != nil {
		return nil, nil, err
	}
	return &Control{File: ours}, theirs, nil
}

// writePatience bounds a write to an init that doesn't read. A working init reads at once.
const writePatience = 10 * time.Second

// Write sends one frame. After an error the stream may hold half of it, so the sandbox can only
// be destroyed.
func (c *Control) Write(kind Frame, payload []byte) error {
	b := AppendFrame(make([]byte, 0, frameHeader+len(payload)), kind, payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.File.SetWriteDeadline(time.Now().Add(writePatience))
	_, err := c.File.Write(b)
	return err
}

// frameHeader is the size of a frame's header, in bytes.
const frameHeader = int(C.sizeof_struct_frame)

// AppendFrame appends a frame to b. wire.h has the header: magic, kind and the payload's length
// in bytes, each 32 bits.
func AppendFrame(b []byte, kind Frame, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, FrameMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// Assign sends init its new name and the mounts of an execution, as descriptors with
// targets, and then another frame.
func (c *Control) Assign(name string, mounts []int, targets []string, kind Frame, payload []byte) error {
	b := AppendFrame(nil, FrameMounts, []byte(name+"\x00"+strings.Join(targets, "\x00")+"\x00"))
	b = AppendFrame(b, kind, payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.File.SetWriteDeadline(time.Now().Add(writePatience))
	conn, err := c.File.SyscallConn()
	if err != nil {
		return err
	}
	var sent int
	var serr error
	err = conn.Write(func(fd uintptr) bool {
		// MSG_NOSIGNAL: if init is gone, the result is EPIPE instead of a signal.
		sent, serr = unix.SendmsgN(int(fd), b, unix.UnixRights(mounts...), nil, unix.MSG_NOSIGNAL)
		return serr != unix.EAGAIN
	})
	if err == nil {
		err = serr
	}
	if err == nil && sent < len(b) { // the socket's buffer is full; the first part carried the descriptors
		_, err = c.File.Write(b[sent:])
	}
	return err
}

// read returns the next frame's kind and words. It returns io.EOF when init is gone.
func (c *Control) read() (kind Frame, words []uint32, err error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(c.File, h[:]); err != nil {
		if errors.Is(err, syscall.ECONNRESET) { // init died with frames unread
			err = io.EOF
		}
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(h[8:])
	if binary.LittleEndian.Uint32(h[:]) != FrameMagic || n > maxInitFrame || n%4 != 0 {
		return 0, nil, errors.New("init: malformed frame")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.File, b); err != nil {
		return 0, nil, fmt.Errorf("init: short frame: %w", err)
	}
	for ; len(b) > 0; b = b[4:] {
		words = append(words, binary.LittleEndian.Uint32(b))
	}
	return Frame(binary.LittleEndian.Uint32(h[4:])), words, nil
}

// Expect reads a frame, which must have the given kind and count words. If init reports a
// failure instead, the error is a *Failure. The daemon does not trust init: any other frame is an
// error, and the sandbox is destroyed.
func (c *Control) Expect(kind Frame, count int) ([]uint32, error) {
	got, words, err := c.read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("init is gone")
	case err != nil:
		return nil, err
	case got == FrameFailed && len(words) == 2:
		return nil, &Failure{Stage: stage(words[0]), Err: syscall.Errno(words[1])}
	case got != kind || len(words) != count:
		return nil, fmt.Errorf("init: frame %d with %d words, want %d with %d", got, len(words), kind, count)
	}
	return words, nil
}
