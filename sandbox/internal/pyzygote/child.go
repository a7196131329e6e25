package pyzygote

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
)

const (
	maxBarrierLine = 4 << 10
	runPatience    = 60 * time.Second // for a child, from its command line until its program runs
)

// A Place is where a child is forked: a sandbox that waits. The caller closes all files.
type Place struct {
	Streams    [3]*os.File
	Namespaces []*os.File  // in the order in which the child enters them
	Kinds      []int       // of each namespace: unix.CLONE_NEWPID first, and so on
	Procs      []*os.File  // cgroup.procs files that the child enters
	Rlimits    [][3]uint64 // resource, soft and hard limit
}

// A Child is a process that a Python zygote forked into a sandbox. It waits for its
// command line.
type Child struct {
	barrier *os.File
	lines   *bufio.Reader // of barrier
	ended   chan int
	gone    <-chan struct{} // closed when the Python zygote is gone
}

func newChild(barrier *os.File, gone <-chan struct{}) *Child {
	return &Child{barrier: barrier, lines: bufio.NewReaderSize(barrier, maxBarrierLine), ended: make(chan int, 1), gone: gone}
}

// Fork has the Python zygote fork a child. It returns when the child waits for its command
// line. The caller closes the Child.
func (z *Zygote) Fork(p Place) (_ *Child, err error) {
	ours, theirs, err := socket.Pair(unix.SOCK_STREAM, "barrier")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := newChild(ours, z.gone)
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	var passed []int
	for _, f := range slices.Concat([]*os.File{theirs}, p.Streams[:], p.Namespaces, p.Procs) {
		passed = append(passed, int(f.Fd()))
	}
	if err := z.forkOne(c, passed, p.Rlimits, p.Kinds); err != nil {
		return nil, err
	}
	theirs.Close() // an open copy would hide the child's end
	_ = c.barrier.SetReadDeadline(time.Now().Add(forkPatience))
	a, err := c.line()
	if errors.Is(err, os.ErrDeadlineExceeded) { // perhaps because this process was stopped; then the line is there
		_ = c.barrier.SetReadDeadline(time.Now().Add(latePatience))
		a, err = c.line()
	}
	if err == nil && a.Op != "waiting" {
		err = a.err()
	}
	// The child asks for its parent's end (PR_SET_PDEATHSIG) before it waits. If the Python
	// zygote ended before that, the child continues, and its wait status is lost.
	if err == nil && !socket.Quiet(z.pidfd) {
		err = errors.New("the Python zygote ended before its child waited")
	}
	return c, err
}

// forkOne has the Python zygote fork one child. It returns before the child waits, so the
// next fork can begin.
func (z *Zygote) forkOne(c *Child, passed []int, limits [][3]uint64, kinds []int) error {
	z.ask.Lock()
	defer z.ask.Unlock()
	z.mu.Lock()
	if z.ended == nil {
		z.mu.Unlock()
		return errors.New("the Python zygote is gone")
	}
	// The number of a fork is random. The sandbox's ids won't do: another sandbox may get them before
	// the Python zygote reports the end of the last one's process. A counter won't do: the
	// child has a copy of the request, and could guess other numbers.
	fork := rand.Int32()
	for z.ended[fork] != nil {
		fork = rand.Int32()
	}
	z.ended[fork] = c.ended
	z.mu.Unlock()
	a, err := z.request(map[string]any{"op": "fork", "sandbox": fork, "rlimits": limits, "namespaces": kinds}, passed, forkPatience)
	if err == nil && (a.Op != "forked" || a.Fork != fork) {
		err = a.err()
	}
	if err != nil {
		z.mu.Lock()
		delete(z.ended, fork)
		z.mu.Unlock()
	}
	return err
}

// Ended receives the child's wait status. It is closed instead if the Python zygote is gone.
func (c *Child) Ended() <-chan int { return c.ended }

// Waits reports whether the child still waits for its command line. A dying child closes its
// barrier, which can happen before the Python zygote reports the child's end. After the end of
// the Python zygote the kernel kills the child, which may take longer than the next request.
func (c *Child) Waits() bool {
	select {
	case <-c.gone:
		return false
	default:
		return len(c.ended) == 0 && socket.Quiet(c.barrier)
	}
}

// Close closes the daemon's end of the barrier. A child that waits then ends.
func (c *Child) Close() { c.barrier.Close() }

// line reads the child's next line.
func (c *Child) line() (a answer, err error) {
	text, err := c.lines.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// A Command is the command line of a child. Its texts must be valid UTF-8.
type Command struct {
	Args      []string          `json:"argv"`
	Env       map[string]string `json:"env"`
	Dir       string            `json:"dir"`       // beneath the workspace
	Elsewhere bool              `json:"elsewhere"` // the program may search for modules beneath the workspace
	Lines     bool              `json:"lines"`     // standard output and error pass on whole lines
	// Venv is the virtual environment whose bin has Args[0], and Base the name of the zygote
	// that runs its interpreter. Both are "" without a virtual environment.
	Venv string `json:"venv"`
	Base string `json:"base"`
}

// Encode returns the command as a child receives it.
func (c Command) Encode() ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(text) > pid1.MaxPayload {
		return nil, fmt.Errorf("%d bytes: at most %d", len(text), pid1.MaxPayload)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...), nil
}

// Run sends the child a command of Encode and returns when the child's program runs, forked or
// executed. If a step of the program's start fails, the error is a *pid1.Failure, as if init
// had started the program.
func (c *Child) Run(command []byte) error {
	_ = c.barrier.SetDeadline(time.Now().Add(runPatience))
	if _, err := c.barrier.Write(command); err != nil {
		return err
	}
	a, err := c.line()
	if err != nil {
		return err
	}
	if a.Op == "started" && a.By == "exec" {
		// A successful exec closes the barrier. Else the child sends the error.
		if a, err = c.line(); err != nil {
			return nil
		}
	}
	switch {
	case a.Op == "started":
		return nil
	case slices.Contains(pid1.Stages, a.Stage):
		return &pid1.Failure{Stage: a.Stage, Err: unix.Errno(a.Errno)}
	}
	return a.err()
}
