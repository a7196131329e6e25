package environment

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/environment/download"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/sandbox"
)

//go:embed build.py
var buildProgram []byte

// Bounds of a build's sandbox that are not configured.
const (
	// pip itself needs few processes; the rest is for compilers that source distributions
	// start.
	buildProcesses = 128
	buildOpenFiles = 1024
	// Inodes of the workspace: the result, and as many temporary files of pip.
	buildFiles = 2 * maxFrozenFiles
	buildGrace = time.Second
	// One build may download downloadFactor times its memory, in bytes. The result lies in
	// that memory, so a build that downloads more can't keep it. The factor leaves room for
	// files that pip reads and rejects.
	downloadFactor = 2
)

// Places in a build's sandbox.
const (
	buildTarget  = "/opt/build"
	pipTarget    = "/opt/pip"
	wheelsTarget = "/opt/wheels"
)

// builds numbers the sandboxes of this process. A sandbox's ID must be unique on the
// machine, so the ID also has the process's number.
var builds atomic.Uint64 // for names of sandboxes

// A plan is what to build.
// newPlan makes it from the skill alone, before anything runs. So the same skill gives the
// same key in Prepare, which builds, and in Acquire, which looks for the result.
type plan struct {
	skill        string
	python       runtime.Invocation
	requirements []byte                       // pip's format
	wanted       []manifest.PythonRequirement // what of it applies to this interpreter
	key          string
	node         *nodePlan // if it is for Node packages; else nil
	group        string    // of the sandboxes that build it; "": the default group
}

// image is the root file system of the interpreter.
func (p *plan) image() runtime.Image {
	if p.node != nil {
		return p.node.Image
	}
	return p.python.Image
}

// interpreter names the program that uses the packages: "system 3.11.2", "node 20.20.2".
func (p *plan) interpreter() string {
	if p.node != nil {
		return p.node.name()
	}
	return pythonIn(p.python.Python, p.python.Image)
}

// newPlan lists the contents of a skill's environment: all Python requirements that the skill
// and its scripts declare.
func (s *Store) newPlan(sk *skill.Skill, python runtime.Invocation) (*plan, error) {
	if err := unreadable(sk); err != nil {
		return nil, err
	}
	return s.planOf(sk, sk.Requirements(), python)
}

// planOf lists the contents of an environment with some requirements of a skill. It writes each
// requirement anew, so that no text of a skill is an option of pip. A requirement whose marker is
// false stays in the text, because pip evaluates markers itself and the key then doesn't depend on
// them. Only requirements that apply are wanted: complete checks the result for them. Duplicates go
// and lines are sorted, so that the order in SKILL.md doesn't change the key.
func (s *Store) planOf(sk *skill.Skill, requirements []manifest.Requirement, python runtime.Invocation) (*plan, error) {
	on := newPlatform(python.Python.Version, s.machine)
	var lines []string
	var wanted []manifest.PythonRequirement
	for _, r := range requirements {
		if r.System {
			continue
		}
		line, parsed, err := requirementLine(r, on)
		if err != nil {
			return nil, err
		}
		applies, _ := on.applies(parsed.Marker)
		if isInterpreter(parsed) {
			if err := interpreterFits(sk, r, parsed, python); applies && err != nil {
				return nil, err
			}
			continue
		}
		if in, err := s.inLibrary(python, parsed.Name); err != nil {
			return nil, err
		} else if in {
			continue
		}
		if applies {
			wanted = append(wanted, parsed)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	text := strings.Join(lines, "")
	return &plan{
		skill: sk.Name, python: python, requirements: []byte(text), wanted: wanted,
		key: s.keyOf(python, text),
	}, nil
}

var (
	// In pip's file a backslash continues a line, # begins a comment and ${NAME} is replaced
	// by an environment variable (pip's "Requirements File Format"). A marker that needs one
	// of these characters is refused.
	safeMarker = lazyregexp.New(`^[A-Za-z0-9_.+*!~<>=/,'"()\t -]*$`)
	hashForm   = lazyregexp.New(`^sha(256|384|512):[0-9a-f]{64,128}$`)
)

// unreadable returns an error with the requirements of a skill that can't be parsed.
func unreadable(sk *skill.Skill) error {
	for _, u := range sk.UnreadableRequirements() {
		return &RequirementError{File: u.File, Line: u.Line, Reason: u.Reason}
	}
	return nil
}

// requirementLine returns the line of pip's file for a requirement, with a newline, and the
// parsed requirement. The error is always a *RequirementError, with the file and line of the
// skill.
func requirementLine(r manifest.Requirement, on platform) (string, manifest.PythonRequirement, error) {
	fail := func(reason string) (string, manifest.PythonRequirement, error) {
		return "", manifest.PythonRequirement{}, &RequirementError{Text: r.Text, File: r.File, Line: r.Line, Reason: reason}
	}
	p, err := manifest.ParseRequirement(r.Text)
	if err != nil {
		return fail("is not valid; write it as in pandas>=2.0,<3")
	}
	if p.URL != "" {
		return fail("names a URL; packages come from the daemon's index only: name a version instead, as in pandas>=2.0,<3, or put it into a virtual environment of the skill, venv/")
	}
	line := p.Name
	if len(p.Extras) > 0 {
		line += "[" + strings.Join(p.Extras, ",") + "]"
	}
	line += p.Specifier
	if p.Marker != "" {
		// pip takes a blank and a dash for the begin of an option.
		if _, err := on.applies(p.Marker); err != nil || !safeMarker.MatchString(p.Marker) || strings.Contains(p.Marker, " -") || strings.Contains(p.Marker, "\t") {
			return fail("its environment marker is not valid")
		}
		line += " ; " + p.Marker
	}
	for _, h := range r.Hashes {
		if !hashForm.MatchString(h) {
			return fail("--hash is not sha256:, sha384: or sha512: and hex digits")
		}
		line += " --hash=" + h
	}
	return line + "\n", p, nil
}

// build makes an environment in a new sandbox and copies it out into dir, which must exist.
// log gets pip's output.
// The order is fixed: the sandbox ends, then the downloads are cancelled, then the relay is
// closed. close waits for the requests under way, so it would wait for their downloads if
// they were not cancelled. An error leaves files in dir; the caller removes them.
func (s *Store) build(ctx context.Context, p *plan, dir string, log io.Writer) (frozen, error) {
	inputs, err := s.buildInputs(p)
	if err != nil {
		return frozen{}, err
	}
	defer s.discard(inputs)
	spec, err := s.spec(p, inputs)
	if err != nil {
		return frozen{}, err
	}
	fetch := s.fetcher(p)
	var get func(context.Context, string) download.Response
	if fetch != nil {
		defer fetch.Close()
		get = fetch.Get
	}
	if p.node != nil && s.tarballs != nil {
		// The build's sandbox, which has the same bound, has not started yet.
		loading, done := context.WithTimeoutCause(ctx, s.config.Wall, &BuildError{Skill: p.skill,
			Reason: fmt.Sprintf("the files of environments.tarballs were not read after %s, the limit of environments.wall_time; prepare again, which goes on from there", s.config.Wall)})
		get, err = s.tarballs.Load(loading, log, get)
		done()
		if err != nil {
			return frozen{}, err
		}
	}
	relayed, stop := context.WithCancel(ctx)
	defer stop()
	r, stdin := download.NewRelay(relayed, get)
	last := &tail{to: log}
	var result frozen
	var freezeErr error
	froze := false
	// Wall bounds the start, the build, the copying and the compiling together.
	deadline := time.Now().Add(s.config.Wall)
	copying, done := context.WithDeadlineCause(ctx, deadline, s.overtime(p))
	defer done()
	process, err := s.config.Host.Start(ctx, spec, sandbox.IO{
		// Collect runs even if pip failed. Its error is kept here until explain has judged
		// pip's end: a failed build often leaves a tree that can't be frozen, and pip's own
		// words explain more.
		Stdin: stdin, Stdout: r, Stderr: last,
		Collect: func(changes *os.Root) error {
			froze = true
			result, freezeErr = freeze(copying, changes, dir, p, s.config.Bytes)
			return nil
		},
	})
	if err != nil {
		r.Close(stdin)
		return frozen{}, startFailure(p, err)
	}
	// Start's context bounds the start only, so the end of the last caller's wait has to
	// stop the sandbox.
	unwatch := context.AfterFunc(ctx, func() { process.Stop(0) })
	exit, err := process.Wait()
	unwatch()
	stop()
	r.Close(stdin)
	if err != nil {
		return frozen{}, fmt.Errorf("build of an environment: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return frozen{}, context.Cause(ctx)
	}
	if err := s.explain(p, exit, fetch, last); err != nil {
		return frozen{}, err
	}
	if !froze {
		return frozen{}, errors.New("build of an environment: nothing was collected")
	}
	if err := buildFailure(p, freezeErr); err != nil {
		return frozen{}, err
	}
	if p.node != nil {
		return result, errors.Join(s.completeNode(p, dir), p.linkProgram(dir))
	}
	if err := s.complete(p, result); err != nil {
		return frozen{}, err
	}
	if err := writeVenv(dir, p.python.Python); err != nil {
		return frozen{}, err
	}
	return s.compile(ctx, p, dir, result, time.Until(deadline))
}

// fetcher returns the Fetcher of a build, or nil if no index or registry is configured.
func (s *Store) fetcher(p *plan) *download.Fetcher {
	from := s.index
	if p.node != nil {
		from = s.registry
	}
	if from == nil {
		return nil
	}
	return download.New(download.Config{
		Index: from, Registry: p.node != nil, Sources: s.config.Sdists, MaxBytes: s.config.MemoryBytes * downloadFactor,
		Stall: s.stall, Roots: s.roots, Dial: s.config.Dial,
	})
}

// complete compares the installed packages with the plan: install code may have removed some.
// Only then is it published: an environment that lacks a package would be found again and
// again by its key, and each execution would fail.
func (s *Store) complete(p *plan, got frozen) error {
	have := installed{}
	for _, text := range got.packages {
		name, version, _ := strings.Cut(text, "==")
		have[manifest.NormalName(name)] = version
	}
	for _, r := range p.wanted {
		if lack := have.lacks(r); lack != "" {
			return &BuildError{Skill: p.skill, Reason: "it can't be used: it lacks " + lack}
		}
	}
	return nil
}

// buildFailure turns an error about the result of a build into a typed one.
// An *errOversize or *entryError is the skill's or its packages' doing, and users read it.
// Any other error is the daemon's.
func buildFailure(p *plan, err error) error {
	var over *errOversize
	var entry *entryError
	var late *BuildError
	switch {
	case errors.As(err, &late):
		return late
	case errors.As(err, &over):
		return &TooLargeError{Skill: p.skill, What: over.what, Limit: over.limit}
	case errors.As(err, &entry):
		return &BuildError{Skill: p.skill, Reason: "it can't be used: " + entry.Error()}
	case err != nil:
		return fmt.Errorf("freeze an environment: %w", err)
	}
	return nil
}

// startFailure says why the sandbox of a build did not start. The tenant or its operator can do something about a group
// of sandboxes. Any other error is the daemon's.
func startFailure(p *plan, err error) error {
	reason := ""
	switch {
	case errors.Is(err, sandbox.ErrGroupFull):
		reason = "the tenant's executions have used up its limit of processes or memory for all of them together; prepare again when some have ended"
	case errors.Is(err, sandbox.ErrGroupRemoved):
		reason = "the tenant was removed"
	case errors.Is(err, sandbox.ErrNoIDs):
		reason = "too many tenants have executions or builds at the same time for the daemon's ids (ids.count); prepare again later"
	default:
		return fmt.Errorf("build of an environment: %w", err)
	}
	return &BuildError{Skill: p.skill, Reason: reason}
}

// overtime is the error of a build that is not done when Wall is over.
func (s *Store) overtime(p *plan) error {
	return &BuildError{Skill: p.skill, Reason: fmt.Sprintf("not done after %s, the limit of environments.wall_time", s.config.Wall)}
}

// explain says why a build did not succeed, or nil.
// The first cause that is known wins. An error of the index comes before pip's words,
// because pip only sees a 502 from the relay. fetch and last may be nil if the sandbox ended
// by a limit: compile calls it so.
func (s *Store) explain(p *plan, exit sandbox.Exit, fetch *download.Fetcher, last *tail) error {
	if exit.End == sandbox.Exited && exit.Code == 0 {
		return nil
	}
	fail := func(format string, args ...any) error {
		return &BuildError{Skill: p.skill, Reason: fmt.Sprintf(format, args...)}
	}
	switch exit.End {
	case sandbox.TimedOut:
		if fetch != nil && fetch.Err() != nil {
			return fetch.Err()
		}
		// The time ran out for the build's own work, not for a download that stalled.
		return s.overtime(p)
	case sandbox.OOMKilled:
		if exit.OOMScope == sandbox.GroupMemory {
			return fail("together with the tenant's executions it needs more than the tenant's memory (cgroup.memory), in which the packages lie, too")
		}
		return fail("more memory than %d bytes, the limit of environments.memory, in which the packages lie, too", s.config.MemoryBytes)
	}
	if fetch != nil {
		if err := fetch.Err(); err != nil {
			return err
		}
	}
	if p.node != nil {
		return s.explainNode(p, last)
	}
	if name := last.missing(); name != "" {
		return s.noPackage(name, p, fetch)
	}
	return fail("pip: %s", cmp.Or(last.elsewhere(), last.reason()))
}

// noPackage explains that pip found no distribution of a package, by the files that the source has.
func (s *Store) noPackage(name string, p *plan, fetch *download.Fetcher) error {
	e := &NoPackageError{Name: name, Source: s.source(p), Python: pythonIn(p.python.Python, p.python.Image)}
	var files download.Offer
	if fetch != nil {
		files = fetch.Offered(manifest.NormalName(name))
	}
	if s.config.Wheels != "" {
		entries, err := os.ReadDir(s.config.Wheels)
		if err != nil {
			return fmt.Errorf("wheels: %w", err)
		}
		for _, d := range entries {
			if isOf(d.Name(), manifest.NormalName(name)) {
				files.Add(d.Name())
			}
		}
	}
	switch {
	case files.Wheel != "":
		e.Wheel = files.Wheel
	case !s.config.Sdists:
		e.Sdist = files.Sdist
	}
	return e
}

// isOf reports whether a file is of a project, by its name. A version, which follows the project's
// name, begins with a digit (PEP 440); an epoch is one, too.
func isOf(file, project string) bool {
	rest, ok := strings.CutPrefix(manifest.NormalName(file), project+"-")
	return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// source names where packages come from.
// It shows the index without credentials, since users see the text.
func (s *Store) source(p *plan) string {
	if p.node != nil {
		return s.nodeSource()
	}
	var from []string
	if s.index != nil {
		shown := *s.index
		shown.User = nil
		from = append(from, "the package index "+shown.String())
	}
	if s.config.Wheels != "" {
		from = append(from, "the daemon's wheels (environments.wheels)")
	}
	return strings.Join(from, " and ")
}

// nodeSource is source for Node packages.
func (s *Store) nodeSource() string {
	var from []string
	if s.registry != nil {
		shown := *s.registry
		shown.User = nil // a user without a password is a token
		from = append(from, "the registry "+shown.String())
	}
	if s.tarballs != nil {
		from = append(from, "the daemon's files (environments.tarballs)")
	}
	return strings.Join(from, " and ")
}

// buildInputs makes the directory that a build reads from.
// The prefix makes load remove the directory if the daemon dies during the build.
func (s *Store) buildInputs(p *plan) (string, error) {
	dir, err := os.MkdirTemp(s.config.Dir, s.prefix(newPrefix))
	if err != nil {
		return "", err
	}
	files := map[string][]byte{"requirements.txt": p.requirements, "build.py": s.runner}
	if p.node != nil {
		files = p.node.inputs()
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	if err = errors.Join(err, readable(dir)); err != nil {
		s.discard(dir)
		return "", err
	}
	return dir, nil
}

// spec is the sandbox of a build. It has no network and no files of the skill or of any
// tenant. It has the same files of the host as an execution.
func (s *Store) spec(p *plan, inputs string) (sandbox.Spec, error) {
	if p.node != nil {
		return s.nodeSpec(p, inputs), nil
	}
	options, _ := json.Marshal([]any{s.index != nil, s.config.Wheels != "", s.config.Sdists}) // can't fail
	// -I keeps the user's site directory and PYTHON variables out of build.py; build.py sets
	// PYTHONUSERBASE and PYTHONPATH for pip alone.
	spec := s.baseSpec(p, []string{p.python.Python.Path, "-I", buildTarget + "/build.py", string(options)}, s.config.Wall)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: inputs, Target: buildTarget}, sandbox.Mount{Source: s.config.Pip, Target: pipTarget})
	if s.config.Wheels != "" {
		wheels, err := filepath.EvalSymlinks(s.config.Wheels) // a mount follows none
		if err != nil {
			return sandbox.Spec{}, fmt.Errorf("wheels: %w", err)
		}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: wheels, Target: wheelsTarget})
	}
	return spec, nil
}

// baseSpec is a sandbox that runs the interpreter of a plan and sees nothing else.
func (s *Store) baseSpec(p *plan, args []string, wall time.Duration) sandbox.Spec {
	spec := sandbox.Spec{
		ID: fmt.Sprintf("build-%d-%d", os.Getpid(), builds.Add(1)),
		Program: sandbox.Program{{Pipeline: []sandbox.Command{{
			Args: args,
		}}}},
		Env: []string{
			"PATH=" + strings.Join(append(slices.Clone(p.python.Path), "/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin"), ":"),
			"HOME=/home/skill", "USER=skill", "LOGNAME=skill", "LANG=C.UTF-8", "TMPDIR=/workspace/tmp", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
		},
		// The kernel charges the workspace's tmpfs to the sandbox's memory. A quarter of the
		// memory stays for pip's processes, so that a large package ends in "no space left"
		// rather than in an OOM kill.
		Workspace: sandbox.Workspace{
			SizeBytes: s.config.MemoryBytes / 4 * 3, Files: buildFiles,
		},
		Limits: sandbox.Limits{
			Wall: wall, Grace: buildGrace, MemoryBytes: s.config.MemoryBytes, Processes: buildProcesses, OpenFiles: buildOpenFiles,
		},
		Root:  p.image().Name,
		Group: p.group,
	}
	for _, m := range p.python.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
	}
	return spec
}

// maxTail is how much of a build's last words is kept to explain a failure.
const maxTail = 16 << 10

// A tail passes on a build's output and keeps the end of it.
// The sandbox writes it from one goroutine, and build reads it after Process.Wait. So it
// needs no lock.
type tail struct {
	to   io.Writer
	last []byte
}

// Write copies the last bytes into a new slice when it drops the others, so that the old slice can be freed.
func (t *tail) Write(p []byte) (int, error) {
	t.last = append(t.last, p...)
	if over := len(t.last) - maxTail; over > 0 {
		t.last = append([]byte(nil), t.last[over:]...)
	}
	return t.to.Write(p)
}

// maxReason bounds pip's line in an error, in bytes.
const maxReason = 500

// reason is pip's last error, or the last line.
// pip marks errors with "ERROR: " (its log), "error: " (a summary of a failed subprocess) or
// "× " (its boxed diagnostics). A later error replaces an earlier one.
//
// Two of pip's last errors say less than the lines above them: which requirements conflict, and which
// versions there are.
func (t *tail) reason() string {
	if m := conflict.FindSubmatch(t.last); m != nil {
		lines := strings.FieldsFunc(string(m[1]), isLineEnd)
		for i, l := range lines {
			lines[i] = strings.TrimSpace(l)
		}
		return clip("its requirements conflict: " + strings.Join(lines, "; "))
	}
	said, isError := "", false
	for line := range bytes.Lines(t.last) {
		l := strings.TrimSpace(string(line))
		rest, ok := l, false
		if isError && strings.HasPrefix(l, "ERROR: No matching distribution found") {
			continue
		}
		for _, prefix := range []string{"ERROR: ", "error: ", "× "} {
			if cut, is := strings.CutPrefix(l, prefix); is {
				rest, ok = cut, true
			}
		}
		if ok || l != "" && !isError {
			said, isError = rest, ok
		}
	}
	if said == "" {
		said = "it said nothing"
	}
	return clip(said)
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }

// clip bounds a text of pip.
func clip(said string) string {
	if len(said) > maxReason {
		said = said[:maxReason] + "..."
	}
	return strings.ToValidUTF8(said, "\uFFFD")
}

// conflict finds the requirements that pip can't meet together, one a line and indented.
var conflict = lazyregexp.New(`(?m)^The conflict is caused by:\n((?: +.*\n)+)`)

var noMatch = lazyregexp.New(`ERROR: No matching distribution found for ([A-Za-z0-9._-]+)`)

// missing is the package that pip did not find at all, or empty.
// "from versions: none" tells a name that the index doesn't have from a name without a
// matching version; only the first is a *NoPackageError.
func (t *tail) missing() string {
	if m := noMatch.FindSubmatch(t.last); m != nil && bytes.Contains(t.last, []byte("(from versions: none)")) {
		return string(m[1])
	}
	return ""
}
