package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// Bounds on a request's form. The largest single argument is the kernel's
// MAX_ARG_STRLEN, execve(2).
const (
	MaxArgs       = 1000
	MaxArgBytes   = 128<<10 - 1
	MaxArgsBytes  = 1 << 20 // together; the kernel takes a quarter of the stack's limit
	MaxLabels     = 32
	MaxLabelKey   = 63
	MaxLabelValue = 255
	MaxKey        = 128
	MaxQueue      = 600 * time.Second
	maxDirBytes   = 4096
)

// An execution is one accepted request on its way to its outcome.
type execution struct {
	id           string
	hash         []byte // nil without an idempotency key
	req          Request
	skill        *skill.Skill
	grant        permission.Grant
	invocation   runtime.Invocation // of a command, only what it needs beside its plan
	python       *sandbox.Python    // nil: the program is not one Python
	limits       Limits
	stdin        io.Reader
	queueTimeout time.Duration
	grace        time.Duration      // between SIGTERM and SIGKILL when time is up
	lease        *environment.Lease // of packages; nil: none
	workspace    *workspace.Workspace
	log          *record.Log
	created      time.Time
	queued       time.Duration // waited for a slot
	collected    collected
	logger       *slog.Logger

	ctx     context.Context
	end     context.CancelCauseFunc
	once    sync.Once     // of recordStarted
	started chan struct{} // closed when the program runs
	settled chan struct{} // closed when the sandbox has been made, or has not
	done    chan struct{} // closed when it has ended
	proc    process       // set before settled is closed; nil: none
}

// A cancellation is the cause of a cancelled execution's context.
type cancellation struct {
	by, reason string
	grace      time.Duration
}

func (c *cancellation) Error() string { return "cancelled by " + c.by }

// newExecution checks the form of a request and derives what it will run with.
func (x *Executor) newExecution(req Request, sk *skill.Skill, grant permission.Grant) (*execution, error) {
	if err := checkForm(req); err != nil {
		return nil, err
	}
	if err := permission.CheckEnv(req.Source.Kind, req.Env); err != nil {
		return nil, err
	}
	if err := permission.CheckEnv(req.Source.Kind, plain(req.SecretEnv)); err != nil {
		return nil, err
	}
	limits, err := x.Bounds.effective(req.Limits, req.Source.Kind, sk.Manifest)
	if err != nil {
		return nil, err
	}
	e := &execution{
		id: record.NewID(), req: req, skill: sk, grant: grant, limits: limits,
		queueTimeout: req.QueueTimeout, grace: x.Grace, created: time.Now(), logger: x.Log,
		started: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{}),
	}
	if e.queueTimeout == 0 {
		e.queueTimeout = x.QueueTimeout
	}
	runtimes := x.Runtimes.With(req.Python)
	switch req.Source.Kind {
	case permission.Script:
		e.invocation, err = runtimes.ForScript(sk, req.Source.Script)
	case permission.Code:
		e.invocation, err = runtimes.ForCode(sk, req.Source.Language, req.Source.Code)
	case permission.Command:
		e.invocation, err = runtimes.ForCommand(sk, programsOf(grant.Plan()))
	}
	if err != nil {
		return nil, err
	}
	e.python = e.pythonOf()
	if e.stdin, err = req.Stdin.reader(); err != nil {
		return nil, err
	}
	if req.Key != "" {
		if e.hash, err = req.hash(x.hashKey); err != nil {
			return nil, fmt.Errorf("request hash: %w", err)
		}
	}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	return e, nil
}

func plain(secrets map[string]Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for name, value := range secrets {
		out[name] = string(value)
	}
	return out
}

// reader returns what the program will read, or nil for nothing.
func (s Stdin) reader() (io.Reader, error) {
	var parts []io.Reader
	if len(s.Bytes) > 0 {
		parts = append(parts, bytes.NewReader(s.Bytes))
	}
	if s.JSON != nil {
		encoded, err := EncodeArguments(*s.JSON)
		if err != nil {
			return nil, err
		}
		parts = append(parts, bytes.NewReader(encoded))
	}
	if s.Stream != nil {
		parts = append(parts, s.Stream)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return io.MultiReader(parts...), nil
}

// checkForm refuses what no skill, policy or machine could make right.
func checkForm(req Request) error {
	switch {
	case len(req.Args) > MaxArgs:
		return &RequestError{"args", fmt.Sprintf("%d of them; at most %d", len(req.Args), MaxArgs)}
	case len(req.Args) > 0 && req.Source.Kind == permission.Command:
		return &RequestError{"args", "not with a command: write them into the command line"}
	case len(req.Dir) > maxDirBytes:
		return &RequestError{"working_directory", "too long"}
	case strings.ContainsRune(req.Dir, 0):
		return &RequestError{"working_directory", "has a NUL byte"}
	case strings.HasPrefix(req.Dir, "/"):
		return &RequestError{"working_directory", "must be relative to /workspace"}
	case len(req.Labels) > MaxLabels:
		return &RequestError{"labels", fmt.Sprintf("%d of them; at most %d", len(req.Labels), MaxLabels)}
	case len(req.Key) > MaxKey || strings.ContainsFunc(req.Key, func(r rune) bool { return r < 0x21 || r > 0x7e }):
		return &RequestError{"idempotency_key", fmt.Sprintf("must be up to %d printable ASCII characters", MaxKey)}
	case req.Key != "" && req.Stdin.Stream != nil:
		return &RequestError{"idempotency_key", "not with a streamed standard input: two streams can't be compared"}
	case !req.Python.Valid():
		return &RequestError{"python", fmt.Sprintf("%.80q; must be auto, system or embedded", string(req.Python))}
	case req.QueueTimeout < 0 || req.QueueTimeout > MaxQueue:
		return &RequestError{"queue_timeout", fmt.Sprintf("must be between 0 and %s", MaxQueue)}
	}
	for _, part := range strings.Split(req.Dir, "/") {
		if part == ".." {
			return &RequestError{"working_directory", `has ".."; it must stay beneath /workspace`}
		}
	}
	total := 0
	for i, arg := range req.Args {
		if total += len(arg) + 1; total > MaxArgsBytes {
			return &RequestError{"args", fmt.Sprintf("more than %d bytes together: pass them on standard input or as a file", MaxArgsBytes)}
		}
		if strings.ContainsRune(arg, 0) {
			return &RequestError{fmt.Sprintf("args[%d]", i), "has a NUL byte"}
		}
		if len(arg) > MaxArgBytes {
			return &RequestError{fmt.Sprintf("args[%d]", i), fmt.Sprintf("%d bytes; at most %d: pass it on standard input or as a file", len(arg), MaxArgBytes)}
		}
	}
	for key, value := range req.Labels {
		if n := utf8.RuneCountInString(key); n == 0 || n > MaxLabelKey {
			return &RequestError{"labels", fmt.Sprintf("the key %.80q has %d characters; 1 to %d are allowed", key, n, MaxLabelKey)}
		}
		if n := utf8.RuneCountInString(value); n > MaxLabelValue {
			return &RequestError{"labels", fmt.Sprintf("the value of %q has %d characters; up to %d are allowed", key, n, MaxLabelValue)}
		}
	}
	return nil
}

// cancel asks the execution to end. Of several the first cause stays, and the
// soonest end of a grace holds.
func (e *execution) cancel(c *cancellation) {
	e.end(c)
	select {
	case <-e.settled:
		if e.proc != nil {
			e.proc.Stop(c.grace)
		}
	default: // run stops it, with the first cause's grace
	}
}

// cancelled returns why the context has ended, or nil.
func (e *execution) cancelled() *cancellation {
	var c *cancellation
	errors.As(context.Cause(e.ctx), &c)
	return c
}

// settle says that the sandbox's start is over. A nil p means that there is no
// program.
func (e *execution) settle(p process) {
	e.proc = p
	close(e.settled)
}

// running returns the running program, or nil. From the event that says so until
// its end there is one.
func (e *execution) running(ctx context.Context) process {
	select {
	case <-e.started:
	default:
		return nil
	}
	select {
	case <-e.settled:
		return e.proc
	case <-ctx.Done():
		return nil
	}
}

func (e *execution) removeWorkspace() {
	if err := e.workspace.Remove(); err != nil {
		e.logger.Error("staged inputs left behind", "execution", e.id, "err", err)
	}
}

// commands returns the argument vectors that will run. The text of inline code
// is left out: it is not to be stored.
func (e *execution) commands() [][]string {
	if e.req.Source.Kind == permission.Command {
		return planArgs(e.grant.Plan())
	}
	args := slices.Clone(e.invocation.Args)
	for i, arg := range args {
		if e.req.Source.Kind == permission.Code && strings.Contains(arg, e.req.Source.Code) {
			args[i] = "(code)"
		}
	}
	return [][]string{append(args, e.req.Args...)}
}

func planArgs(plan permission.Plan) [][]string {
	var out [][]string
	for _, step := range plan {
		for _, c := range step.Pipeline {
			out = append(out, c.Args)
		}
	}
	return out
}

// programsOf returns what the commands of a plan start.
func programsOf(plan permission.Plan) []string {
	var out []string
	for _, args := range planArgs(plan) {
		if len(args) > 0 {
			out = append(out, args[0])
		}
	}
	return out
}

// program is what the sandbox's init runs.
func (e *execution) program() sandbox.Program {
	if e.req.Source.Kind == permission.Command {
		return toProgram(e.grant.Plan())
	}
	args := slices.Concat(e.invocation.Args, e.req.Args)
	if e.req.Runner != "" {
		args = slices.Insert(args, 1, "-c", e.req.Runner)
	}
	return sandbox.Program{{Pipeline: []sandbox.Command{{Args: args}}}}
}
