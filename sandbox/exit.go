package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// An Exit is how a program ended. It is never an error of ours.
type Exit struct {
	End      End
	Code     int            // exit code of the last command, 0 if it was signaled
	Signal   syscall.Signal // that ended the last command, 0 if it exited
	Deadline Deadline       // which, for TimedOut
	OOMKills uint64         // processes that the kernel killed for memory
	PidsMax  uint64         // forks that the kernel refused for Limits.Processes
	Usage    Usage
	// CollectErr is what IO.Collect returned.
	CollectErr error
}

// Usage is what a sandbox took.
type Usage struct {
	UserCPU, SystemCPU time.Duration // of all its processes
	Wall               time.Duration // from the exec of the first command to the end of the last process
	Setup              time.Duration // from Start to that exec
	MemoryPeakBytes    int64         // with page cache and tmpfs
}

// End is the first cause of a program's end.
type End int

// The ends.
const (
	Exited    End = iota // by itself: Exit.Code
	Signaled             // by a signal from inside, or by Process.Signal: Exit.Signal
	TimedOut             // at Exit.Deadline
	OOMKilled            // memory ran out: Exit.OOMKills
	Stopped              // by Process.Stop
)

func (e End) String() string {
	return name([]string{"exited", "signaled", "timed out", "oom killed", "stopped"}, int(e))
}

// Deadline is the limit that a timed out program ran into.
type Deadline int

// The deadlines.
const (
	NoDeadline Deadline = iota
	Wall
	CPU
)

func (d Deadline) String() string { return name([]string{"none", "wall", "cpu"}, int(d)) }

func name(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprint(i)
	}
	return names[i]
}

// IO connects a program with its caller.
type IO struct {
	Stdin          io.Reader // nil: empty. It may be read ahead of the program
	Stdout, Stderr io.Writer // nil: dropped. Called from one goroutine each; an error stops the writing, not the program
	// Collect is called once, after every process is dead and before the
	// workspace goes. changes is the overlay's upper layer: what the program
	// made or changed, with deletions as 0:0 character devices.
	Collect func(changes *os.Root) error
}

// A SetupError means that the program did not run. Step says how far the
// sandbox came; "exec" means that the program itself could not be executed.
type SetupError struct {
	Step string
	Err  error
}

func (e *SetupError) Error() string { return "sandbox: " + e.Step + ": " + e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// ErrEnded is returned when a program that has ended is signaled.
var ErrEnded = errors.New("sandbox: program has ended")

// errClosed is returned by Start after Close.
var errClosed = errors.New("host is closed")
