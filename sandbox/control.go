package sandbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"
)

// The frames between daemon and init. init.h has the same numbers and explains them.
const (
	frameMagic   = 0x32726b73
	frameProgram = 1
	frameFilters = 2
	frameSignal  = 3
	frameTerm    = 4
	frameKill    = 5
	frameMounts  = 6
	frameForked  = 7
	frameFinish  = 8
	frameHello   = 16
	frameReady   = 17
	frameStarted = 18
	frameFailed  = 19
	frameMounted = 20
	frameEnd     = 21
)

// stages are the names of init.h's enum stage.
var stages = []string{"none", "protocol", "filter", "fork", "descriptors", "capabilities", "ids", "directory", "exec", "cgroup", "mounts", "network", "limits", "ready"}

// maxInitFrame bounds a frame of init in bytes. The daemon does not trust init.
const maxInitFrame = 64

// control is the daemon's end of the socket to one init.
type control struct {
	file *os.File
	// mu makes the frames of several writers whole: the start, the watch and Signal. Reads need
	// no lock: Start reads until the program runs, and after that only readEnd reads.
	mu sync.Mutex
}

// newControl returns the daemon's end and init's end.
func newControl() (*control, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	// Non-blocking, so that the Go runtime polls it and Close ends a Read.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	return &control{file: os.NewFile(uintptr(fds[0]), "control")}, os.NewFile(uintptr(fds[1]), "init control"), nil
}

// writePatience bounds a write to an init that doesn't read. A working init reads at once.
const writePatience = 10 * time.Second

// write sends one frame. After an error the stream may hold half of it, so the sandbox can only
// be destroyed.
func (c *control) write(kind uint32, payload []byte) error {
	b := appendFrame(make([]byte, 0, frameHeader+len(payload)), kind, payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.file.SetWriteDeadline(time.Now().Add(writePatience))
	_, err := c.file.Write(b)
	return err
}

// frameHeader is sizeof(struct frame).
const frameHeader = 12

func appendFrame(b []byte, kind uint32, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, frameMagic)
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// assign sends init its new name and the mounts of an execution, as descriptors with
// targets, and then another frame.
func (c *control) assign(name string, mounts []int, targets []string, kind uint32, payload []byte) error {
	b := appendFrame(nil, frameMounts, []byte(name+"\x00"+strings.Join(targets, "\x00")+"\x00"))
	b = appendFrame(b, kind, payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.file.SetWriteDeadline(time.Now().Add(writePatience))
	conn, err := c.file.SyscallConn()
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
		_, err = c.file.Write(b[sent:])
	}
	return err
}

// read returns the next frame's kind and words. It returns io.EOF when init is gone.
func (c *control) read() (kind uint32, words []uint32, err error) {
	var h [12]byte
	if _, err := io.ReadFull(c.file, h[:]); err != nil {
		if errors.Is(err, syscall.ECONNRESET) { // init died with frames unread
			err = io.EOF
		}
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(h[8:])
	if binary.LittleEndian.Uint32(h[:]) != frameMagic || n > maxInitFrame || n%4 != 0 {
		return 0, nil, errors.New("init: malformed frame")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.file, b); err != nil {
		return 0, nil, fmt.Errorf("init: short frame: %w", err)
	}
	for ; len(b) > 0; b = b[4:] {
		words = append(words, binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint32(h[4:]), words, nil
}

// expect reads a frame, which must have the given kind and count words.
func (c *control) expect(kind uint32, count int) ([]uint32, error) {
	got, words, err := c.read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("init is gone")
	case err != nil:
		return nil, err
	case got == frameFailed && len(words) == 2:
		return nil, &SetupError{Step: name(stages, int(words[0])), Err: syscall.Errno(words[1])}
	case got != kind || len(words) != count:
		return nil, fmt.Errorf("init: frame %d with %d words, want %d with %d", got, len(words), kind, count)
	}
	return words, nil
}

// encodeFilters is the payload of frameFilters; init_program.c decodes it.
func encodeFilters(f seccomp.Filters, openFiles int) []byte {
	var e encoder
	e.u32(uint32(openFiles))
	e.filter(f.Init)
	e.filter(f.Script)
	return e.b
}

// encodeProgram is the payload of frameProgram; init_program.c decodes it.
func encodeProgram(s Spec, deadline time.Duration) ([]byte, error) {
	var e encoder
	e.u32(uint32(min(deadline.Milliseconds(), 1<<31)))
	e.text(cmp.Or(s.Dir, "."))
	e.u32(uint32(len(s.Program)))
	for _, step := range s.Program {
		e.u32(uint32(step.When))
		e.u32(uint32(len(step.Pipeline)))
		for _, c := range step.Pipeline {
			e.list(c.Args)
			e.globs(c.Globs)
			e.list(environ(s.Env, c.Env))
			e.u32(boolWord(c.PipeStderr))
			e.u32(uint32(len(c.Redirects)))
			for _, r := range c.Redirects {
				e.u32(uint32(r.FD))
				e.u32(uint32(r.Kind))
				e.u32(uint32(r.From))
				if r.Kind == Text {
					e.text(r.Text)
				} else {
					e.text(r.Path)
				}
			}
		}
	}
	if len(e.b) > maxProgramBytes {
		return nil, fmt.Errorf("program: %d bytes: at most %d", len(e.b), maxProgramBytes)
	}
	return e.b, nil
}

// encodeForked is the payload of frameForked.
func encodeForked(pid uint32, deadline time.Duration) []byte {
	b := binary.LittleEndian.AppendUint32(nil, pid)
	return binary.LittleEndian.AppendUint32(b, uint32(min(deadline.Milliseconds(), 1<<31)))
}

func boolWord(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// An encoder builds the payload of a frame: little-endian words of 32 bits, texts and filters. A
// text ends with a NUL, so that init can use it in place (take_string in init_program.c).
type encoder struct{ b []byte }

func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }

// text appends length, bytes, a NUL and padding to four bytes.
func (e *encoder) text(s string) {
	e.u32(uint32(len(s)))
	e.b = append(e.b, s...)
	e.b = append(e.b, make([]byte, 4-len(s)%4)...)
}

func (e *encoder) list(l []string) {
	e.u32(uint32(len(l)))
	for _, s := range l {
		e.text(s)
	}
}

func (e *encoder) globs(l []Glob) {
	e.u32(uint32(len(l)))
	for _, g := range l {
		e.u32(uint32(g.Arg))
		e.text(g.Pattern)
	}
}

func (e *encoder) filter(f []byte) {
	e.u32(uint32(len(f) / seccomp.InstructionSize))
	e.b = append(e.b, f...)
}
