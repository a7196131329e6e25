package pyzygote

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket"
)

const (
	// ImportPatience bounds a Python zygote's start, with all its imports.
	ImportPatience = 60 * time.Second

	forkPatience  = 10 * time.Second // for one child, until it waits
	latePatience  = time.Second      // for what should have come within forkPatience
	maxForkPacket = 64 << 10
)

// A Config is what all Python zygotes of a Host have in common.
type Config struct {
	Filter   []byte // the compiled filter of scripts, which each child loads
	FastExit bool   // children may skip the destruction of their modules
	Log      *Log   // takes the lines that the zygote prints
}

// A Spawn starts a program of a Python zygote in the zygote's container, with env as its whole
// environment, theirs as descriptor 3 and log as its output. It returns the program's pid on
// the host, and a pidfd. zygote.Zygote.Spawn is one.
type Spawn func(program string, env []string, theirs, log *os.File) (pid int, pidfd *os.File, err error)

// A Zygote is a Python in the zygote's container that has imported modules and forks
// children into sandboxes that wait. It runs only code of the machine's Python. Its methods may
// be called from many goroutines.
type Zygote struct {
	socket *os.File
	pid    int
	pidfd  *os.File
	ready  answer        // the modules that it has imported
	gone   chan struct{} // closed when the zygote is gone

	ask sync.Mutex // one fork at a time

	mu      sync.Mutex
	answers chan answer
	ended   map[int32]chan int // live children: receives the wait status, by the number of the fork
}

func newZygote(ours *os.File) *Zygote {
	return &Zygote{socket: ours, gone: make(chan struct{}), answers: make(chan answer, 1), ended: map[int32]chan int{}}
}

// An answer is a packet of the fork server: of the Python zygote (zygote.py) or of a child
// (barrier.py).
type answer struct {
	Op       string   `json:"op"`
	By       string   `json:"by"`
	Stage    string   `json:"stage"`
	Errno    int      `json:"errno"`
	Fork     int32    `json:"sandbox"`
	Status   int      `json:"status"`
	Python   string   `json:"python"`
	Imported []string `json:"imported"`
	Failed   []string `json:"failed"`
	Has      []string `json:"has"`
}

func (a answer) err() error {
	return fmt.Errorf("%s: %w", a.Stage, unix.Errno(a.Errno))
}

// Start starts a Python zygote and waits for its imports. The caller compares the posture of
// PID before it forks, and calls Close in the end.
func Start(spawn Spawn, k Key, c Config) (*Zygote, error) {
	z, err := open(spawn, k, c.Log)
	if err != nil {
		return nil, err
	}
	if err := z.init(k.Modules(), c); err != nil {
		z.Close()
		return nil, err
	}
	return z, nil
}

// open starts the program of a Python zygote, which waits for init.
func open(spawn Spawn, k Key, log *Log) (*Zygote, error) {
	ours, theirs, err := socket.Pair(unix.SOCK_SEQPACKET, "Python zygote")
	if err != nil {
		return nil, err
	}
	// Open copies would hide the end of the Python zygote.
	defer theirs.Close()
	lines, output, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	go log.Copy(lines)
	defer output.Close()
	z := newZygote(ours)
	if z.pid, z.pidfd, err = spawn(k.Name(), k.Env(), theirs, output); err != nil {
		z.Close()
		return nil, err
	}
	go z.listen()
	return z, nil
}

// init has the zygote import modules, and take the filter of scripts.
func (z *Zygote) init(modules []string, c Config) error {
	filter, err := memoryFile(c.Filter)
	if err != nil {
		return err
	}
	defer filter.Close()
	z.ready, err = z.request(map[string]any{
		"op": "init", "imports": modules, "filter_bytes": len(c.Filter), "fast_exit": c.FastExit,
	}, []int{int(filter.Fd())}, ImportPatience)
	if err == nil && z.ready.Op != "ready" {
		err = z.ready.err()
	}
	return err
}

// memoryFile returns a memory file (memfd_create(2)) with the content b.
func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "filter")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// PID returns the zygote's pid on the host.
func (z *Zygote) PID() int { return z.pid }

// Gone is closed when the zygote is gone.
func (z *Zygote) Gone() <-chan struct{} { return z.gone }

// Version returns the version of the zygote's Python.
func (z *Zygote) Version() string { return z.ready.Python }

// Imported returns the modules of its key that the zygote imported.
func (z *Zygote) Imported() []string { return z.ready.Imported }

// Failed returns the modules of its key that the zygote could not import.
func (z *Zygote) Failed() []string { return z.ready.Failed }

// Has returns all modules of Modules that the zygote has, also the ones that other modules
// imported.
func (z *Zygote) Has() Set { return NewSet(z.ready.Has...) }

// Close ends the Python zygote and its children.
func (z *Zygote) Close() {
	z.socket.Close()
	if z.pidfd != nil {
		// Another call may close the file at the same time, and its number may then be another file's. Control keeps
		// the file open during the signal.
		if conn, err := z.pidfd.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
		}
		z.pidfd.Close()
	}
}

// Children counts the children whose end the Python zygote has not reported.
func (z *Zygote) Children() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return len(z.ended)
}

// request sends one packet and waits for its answer.
func (z *Zygote) request(packet map[string]any, fds []int, patience time.Duration) (answer, error) {
	b, err := json.Marshal(packet)
	if err != nil {
		return answer{}, err
	}
	if len(b) > maxForkPacket {
		return answer{}, fmt.Errorf("request of %d bytes: at most %d", len(b), maxForkPacket)
	}
	if err := socket.Send(z.socket, b, fds); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return answer{}, fmt.Errorf("the Python zygote is gone: %w", err)
	} else if err != nil {
		return answer{}, err
	}
	// The time in which this process is stopped (SIGSTOP, a machine that is paused) counts as one tick at most. The
	// zygote has answered meanwhile, and its end would end all its children.
	const ticks = 10
	tick := time.NewTicker(patience / ticks)
	defer tick.Stop()
	for range ticks {
		select {
		case a := <-z.answers:
			return a, nil
		case <-z.gone:
			return answer{}, errors.New("the Python zygote is gone")
		case <-tick.C:
		}
	}
	z.Close() // a late answer would pass for the answer to the next request
	return answer{}, errors.New("the Python zygote doesn't answer")
}

// listen receives the Python zygote's packets until the Python zygote is gone.
func (z *Zygote) listen() {
	defer func() {
		close(z.gone)
		z.mu.Lock()
		defer z.mu.Unlock()
		for _, status := range z.ended {
			close(status)
		}
		z.ended = nil
	}()
	b := make([]byte, maxForkPacket)
	for {
		n, fds, err := socket.Receive(z.socket, b)
		socket.CloseAll(fds)
		var a answer
		if err == nil {
			err = json.Unmarshal(b[:n], &a)
		}
		if err != nil {
			z.socket.Close()
			return
		}
		if a.Op != "ended" {
			select {
			case z.answers <- a:
			default: // an answer without a request
				z.socket.Close()
				return
			}
			continue
		}
		z.mu.Lock()
		if status := z.ended[a.Fork]; status != nil {
			status <- a.Status
			delete(z.ended, a.Fork)
		}
		z.mu.Unlock()
	}
}
