package executor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// Bounds on a request's form; the contract publishes them. The largest single argument is the
// kernel's MAX_ARG_STRLEN, 128 KiB with the NUL (execve(2)).
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

// An execution is one accepted request. Once accept has returned it, it never changes: a run has the
// state that changes. Only its grant has the skill, source, command plan, network and principal.
type execution struct {
	settings
	grant  permission.Grant
	hash   []byte // nil without an idempotency key
	key    string
	labels map[string]string
	asked  Summary
	// Nil: empty.
	stdin        io.Reader
	queueTimeout time.Duration
	lease        *environment.Lease // of packages; nil: none
	releaseSkill func()             // lets the snapshot go if the skill was deleted
	log          *record.Log
	// The time of acceptance. It has Go's monotonic reading, so that differences stay right after a
	// change of the machine's clock.
	created time.Time
	ended   func()       // Request.Ended; nil: no call
	turn    *sessionTurn // nil: without a session
	// hidden are whiteouts of files of the session, and sessionWarnings says so.
	hidden          []workspace.Input
	sessionWarnings []string
	inputs          []string // paths of the request's input files
	logger          *slog.Logger
	span            executionSpan
}

// settings hold everything that an execution runs with, except for the grant.
type settings struct {
	id         string
	group      string             // of sandboxes, groupOf
	invocation runtime.Invocation // of the grant's source; a command has only environment and mounts here
	python     *sandbox.Python    // nil: the program is not one Python
	args       []string           // after a script or code
	runner     string             // see Request.Runner
	// Relative to /workspace, without ".."; empty: /workspace.
	dir       string
	env       map[string]string
	secretEnv map[string]Secret
	trace     map[string]string // variables with the trace context; nil: none
	limits    Limits
	grace     time.Duration // between SIGTERM and SIGKILL when time is up
	workspace *workspace.Workspace
	// Where the grant's skill lies on this machine: its snapshot, or a copy that also has
	// compiled files.
	skillDir string
	// The secrets of its requests; nil: none.
	credentials *credential.Set
	trusted     string // this machine's directory for trustedDir; empty: the sandbox trusts the usual authorities
}

// newExecution checks the form of a request and derives the settings of its execution. The
// skill and the source come from the grant only. Maps and slices are copied: a caller may
// change the request afterwards. accept adds the parts that must be released: lease, workspace
// and log.
//
// A request with several mistakes gets the error of the first check, and the form is checked
// first.
// The order of the checks goes from cheap to expensive. The hash of an idempotent request comes
// last, since it reads all input.
func (x *Executor) newExecution(t *tenant.Tenant, req Request, grant permission.Grant) (*execution, error) {
	kind := grant.Source().Kind
	if err := checkForm(req, kind); err != nil {
		return nil, err
	}
	paths := req.inputPaths()
	if len(paths) > workspace.MaxInputs {
		return nil, &InputError{Path: paths[workspace.MaxInputs], Reason: fmt.Sprintf("the request has more than %d input files", workspace.MaxInputs)}
	}
	for _, path := range paths {
		if reason := grant.RefusesFile(req.Dir, path); reason != "" {
			return nil, &InputError{Path: path, Reason: reason}
		}
	}
	if err := permission.CheckEnv(kind, req.Env); err != nil {
		return nil, err
	}
	if err := permission.CheckEnv(kind, plain(req.SecretEnv)); err != nil {
		if refused, ok := errors.AsType[*permission.EnvError](err); ok {
			// The error names the field secret_env instead of env.
			refused.Secret = true
		}
		return nil, err
	}
	limits, err := effective(t.Bounds, req.Limits, kind, grant.Skill().Manifest)
	if err != nil {
		return nil, err
	}
	invocation, err := invoke(x.Runtimes.With(req.Python), grant)
	if err != nil {
		return nil, err
	}
	e := &execution{
		settings: settings{
			group: groupOf(t, grant.Principal()),
			id:    cmp.Or(req.id, record.NewID()), invocation: invocation, python: pythonOf(grant, invocation, req),
			args: slices.Clone(req.Args), runner: req.Runner, dir: req.Dir,
			env: maps.Clone(req.Env), secretEnv: maps.Clone(req.SecretEnv),
			limits: limits, grace: x.Grace, skillDir: grant.Skill().Dir,
		},
		grant: grant, key: req.Key, labels: maps.Clone(req.Labels), asked: newSummary(req, grant.Source()),
		queueTimeout: cmp.Or(req.QueueTimeout, t.QueueTimeout),
		created:      time.Now(), ended: req.Ended, logger: x.Log, turn: req.turn, inputs: paths,
	}
	if e.python != nil {
		e.python.Lines = !e.setsBuffering()
	}
	// The reader keeps the request's bytes: the caller must not change them until Ended.
	if e.stdin, err = req.Stdin.reader(); err != nil {
		return nil, err
	}
	if req.Key != "" {
		if e.hash, err = req.hash(tenantKey(x.hashKey, req.Principal.Tenant)); err != nil {
			return nil, fmt.Errorf("request hash: %w", err)
		}
	}
	return e, nil
}

// invoke returns how the source that a grant approves is started.
// It reads no request: the grant alone decides which program starts. An interpreter that is missing
// is refused here, before the execution has a record.
func invoke(runtimes *runtime.Set, grant permission.Grant) (runtime.Invocation, error) {
	sk, source := grant.Skill(), grant.Source()
	switch source.Kind {
	case permission.Script:
		return runtimes.ForScript(sk, source.Script)
	case permission.Code:
		return runtimes.ForCode(sk, source.Language, source.Code)
	default: // the plan has a command's arguments; the runtimes add only environment and mounts
		plan, launches, err := launched(grant.Plan())
		if err != nil {
			return runtime.Invocation{}, err
		}
		programs := programsOf(plan)
		for _, l := range launches {
			if l.Node {
				programs = append(programs, "node")
				continue
			}
			programs = append(programs, "python3") // a tool's program runs on Python
		}
		return runtimes.ForCommand(sk, programs)
	}
}

// plain returns secrets as texts that print. Only checks may use it.
func plain(secrets map[string]Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for name, value := range secrets {
		out[name] = string(value)
	}
	return out
}

// reader returns the program's standard input, or nil if it is empty.
// Bytes come first, then the JSON arguments, then the stream. In the contract a request has only
// one of them.
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

// checkForm refuses requests that are wrong for every skill, policy and machine. It reads only the
// request.
func checkForm(req Request, kind permission.SourceKind) error {
	switch {
	case len(req.Args) > MaxArgs:
		return &RequestError{"args", fmt.Sprintf("%d of them; at most %d", len(req.Args), MaxArgs)}
	case len(req.Args) > 0 && kind == permission.Command:
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

// removeWorkspace removes the staged input files. It only logs a failure: the outcome is recorded, and
// New of the next daemon empties the staging directory.
func (e *execution) removeWorkspace() {
	if err := e.workspace.Remove(); err != nil {
		e.logger.Error("input files were not removed", "execution", e.id, "err", err)
	}
	if e.trusted == "" {
		return
	}
	if err := os.RemoveAll(e.trusted); err != nil {
		e.logger.Error("certificates were not removed", "execution", e.id, "err", err)
	}
}

// commands returns the argument vectors that will run, for the header. The text of inline code
// is left out: it must not be stored. The header also leaves out the environment and the
// runner.
// These are the words after the checks and the replacement of launchers, so a reader sees the
// commands that ran, not the commands that were asked for.
func (e *execution) commands() [][]string {
	source := e.grant.Source()
	if source.Kind == permission.Command {
		return planArgs(planOf(e.grant))
	}
	args := slices.Clone(e.invocation.Args)
	for i, arg := range args {
		// An interpreter gets code as one word, perhaps with a text before it.
		if source.Kind == permission.Code && strings.Contains(arg, source.Code) {
			args[i] = "(code)"
		}
	}
	return [][]string{append(args, e.args...)}
}

// planArgs returns the argument vectors of every simple command of a plan, in order.
func planArgs(plan permission.Plan) [][]string {
	var out [][]string
	for _, step := range plan {
		for _, c := range step.Pipeline {
			out = append(out, c.Args)
		}
	}
	return out
}

// programsOf returns the first word of every command in a plan.
func programsOf(plan permission.Plan) []string {
	var out []string
	for _, args := range planArgs(plan) {
		if len(args) > 0 {
			out = append(out, args[0])
		}
	}
	return out
}
