package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// An Exit says how a program ended. A failure of this package is an error, never an Exit.
type Exit struct {
	End      End
	Code     int            // exit code of the last command, 0 if it was signaled
	Signal   syscall.Signal // the signal that ended the last command, 0 if it exited
	Deadline Deadline       // the limit that was reached, for TimedOut
	OOMKills uint64         // processes that the kernel killed for memory
	OOMScope OOMScope       // whose memory ran out, if OOMKills > 0
	PidsMax  uint64         // forks that the kernel refused for Limits.Processes, or before Linux 6.11 and on cgroup v1 for the group's limit
	// PidsOfGroup: GroupLimits.Processes refused the forks of PidsMax, and not Limits.Processes.
	PidsOfGroup bool
	Usage       Usage
	// CollectErr is the error that IO.Collect returned.
	CollectErr error
}

// Usage says how much time and memory a sandbox used.
type Usage struct {
	UserCPU, SystemCPU time.Duration // of all its processes
	Wall               time.Duration // from the exec of the first command to the end of the last process
	Setup              time.Duration // from Start to that exec
	MemoryPeakBytes    int64         // includes page cache and tmpfs
}

// End is the first cause of a program's end.
type End int

// The ends.
const (
	Exited    End = iota // the program exited: Exit.Code
	Signaled             // a signal from inside or from Process.Signal ended it: Exit.Signal
	TimedOut             // it reached a limit of time: Exit.Deadline
	OOMKilled            // its memory ran out: Exit.OOMKills; or, if that is 0, its sockets held too much
	Stopped              // Process.Stop ended it
)

func (e End) String() string {
	return name([]string{"exited", "signaled", "timed out", "oom killed", "stopped"}, int(e))
}

// OOMScope says whose memory ran out when the kernel killed a process. If a sandbox has reached its
// own limit at any time, it is OwnMemory.
type OOMScope int

// The scopes.
const (
	OwnMemory     OOMScope = iota // Limits.MemoryBytes
	GroupMemory                   // GroupLimits.MemoryBytes: the sandboxes of the group together reached it
	MachineMemory                 // the machine's memory, or the limit of a cgroup above all sandboxes
)

func (s OOMScope) String() string { return name([]string{"own", "group", "machine"}, int(s)) }

// Deadline is the limit of time that a program reached.
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
	Stdin          io.Reader // nil: empty. It may be read before the program reads
	Stdout, Stderr io.Writer // nil: dropped. Called from one goroutine each; an error stops the writing, not the program. See Skipper
	// Collect is called once, after every process is dead and before the
	// workspace is destroyed. changes is the overlay's upper layer: the files that
	// the program made or changed. A deleted file is a 0:0 character device there.
	Collect func(changes *os.Root) error
}

// A SetupError means that the program did not run. Step names the step of the
// start that failed; "exec" means that the program could not be executed.
type SetupError struct {
	Step string
	Err  error
}

func (e *SetupError) Error() string { return "sandbox: " + e.Step + ": " + e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// ErrEnded is returned by Process.Signal when the program has ended.
var ErrEnded = errors.New("sandbox: program has ended")

// errClosed is returned by Start after Close.
var errClosed = errors.New("host is closed")
