package pid1

// #include "init_program.h"
// #include "wire.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

// Bounds of a program, which the decoder checks, too.
const (
	MaxPayload  = C.MAX_PAYLOAD  // of its frame, in bytes
	MaxCommands = C.MAX_COMMANDS // of a pipeline
	MaxMounts   = C.MAX_MOUNTS   // of an execution, in Control.Assign
)

// Package seccomp can't import this package, so it repeats two numbers of the C code. An index other
// than 0 does not compile.
var (
	_ = [1]int{}[seccomp.MaxInstructions-C.MAX_FILTER]
	_ = [1]int{}[seccomp.InstructionSize-C.sizeof_struct_sock_filter]
)

// When a step runs.
const (
	WhenAlways    = C.WHEN_ALWAYS
	WhenSucceeded = C.WHEN_SUCCEEDED // only if the step before it succeeded
	WhenFailed    = C.WHEN_FAILED    // only if the step before it failed
)

// Where a redirect leads.
const (
	RedirectRead   = C.REDIRECT_READ
	RedirectWrite  = C.REDIRECT_WRITE
	RedirectAppend = C.REDIRECT_APPEND
	RedirectDup    = C.REDIRECT_DUP
	RedirectText   = C.REDIRECT_TEXT
)

// A Plan is what init runs: steps, one after the other.
type Plan struct {
	Deadline time.Duration // from the receipt; then init ends the sandbox
	Dir      string        // beneath /workspace
	Steps    []Step
}

// A Step is a pipeline, with a condition on the status of the step that ran last.
type Step struct {
	When     uint32 // WhenAlways, WhenSucceeded or WhenFailed
	Commands []Command
}

// A Command is one program of a pipeline.
type Command struct {
	Args       []string
	Globs      []Glob // in the order of Args
	Env        []string
	PipeStderr bool
	Redirects  []Redirect
}

// A Glob marks an argument as a pattern of file names.
type Glob struct {
	Arg     uint32 // index in Args, not 0
	Pattern string // a backslash marks the next character as literal
}

// A Redirect leads a descriptor of a command elsewhere.
type Redirect struct {
	FD, Kind, From uint32 // Kind is RedirectRead and so on
	Text           string // a path, or the text itself
}

// Encode returns the payload of FrameProgram. init_program.c decodes it.
func (p Plan) Encode() ([]byte, error) {
	var e encoder
	e.u32(milliseconds(p.Deadline))
	e.text(p.Dir)
	e.u32(uint32(len(p.Steps)))
	for _, step := range p.Steps {
		e.u32(step.When)
		e.u32(uint32(len(step.Commands)))
		for _, c := range step.Commands {
			e.command(c)
		}
	}
	if len(e.b) > MaxPayload {
		return nil, fmt.Errorf("program: %d bytes: at most %d", len(e.b), MaxPayload)
	}
	return e.b, nil
}

// EncodeFilters is the payload of FrameFilters: the compiled filters, the resource limits of init, and
// the RLIMIT_NOFILE of the script. Soft limits are not sent: they are as the hard ones.
func EncodeFilters(f seccomp.Filters, openFiles int, limits []configs.Rlimit) []byte {
	var e encoder
	e.u32(uint32(openFiles))
	e.u32(uint32(len(limits)))
	for _, l := range limits {
		e.u32(uint32(l.Type))
		e.u32(uint32(l.Hard))
		e.u32(uint32(l.Hard >> 32))
	}
	e.filter(f.Init)
	e.filter(f.Script)
	return e.b
}

// EncodeForked is the payload of FrameForked: the pid, in the sandbox, of the process that a
// Python zygote forked, and init's deadline for it.
func EncodeForked(pid uint32, deadline time.Duration) []byte {
	b := binary.LittleEndian.AppendUint32(nil, pid)
	return binary.LittleEndian.AppendUint32(b, milliseconds(deadline))
}

// milliseconds returns a deadline as init reads it. Longer ones are cut to 24 days.
func milliseconds(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), 1<<31)) }

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

// list appends the number of texts, then each text.
func (e *encoder) list(l []string) {
	e.u32(uint32(len(l)))
	for _, s := range l {
		e.text(s)
	}
}

// command must have the order of the fields in init_program.c.
func (e *encoder) command(c Command) {
	e.list(c.Args)
	e.globs(c.Globs)
	e.list(c.Env)
	stderr := uint32(0)
	if c.PipeStderr {
		stderr = 1
	}
	e.u32(stderr)
	e.u32(uint32(len(c.Redirects)))
	for _, r := range c.Redirects {
		e.u32(r.FD)
		e.u32(r.Kind)
		e.u32(r.From)
		e.text(r.Text)
	}
}

// globs appends the patterns; take_globs in init_program.c reads them.
func (e *encoder) globs(l []Glob) {
	e.u32(uint32(len(l)))
	for _, g := range l {
		e.u32(g.Arg)
		e.text(g.Pattern)
	}
}

// filter appends the number of instructions, then the instructions.
func (e *encoder) filter(f []byte) {
	e.u32(uint32(len(f) / seccomp.InstructionSize))
	e.b = append(e.b, f...)
}
