package sandbox

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Spec says what to run, in what, and within which bounds.
type Spec struct {
	ID        string // [a-z0-9-]{1,64}, unique among the sandboxes of the Host
	Program   Program
	Env       []string // the whole environment of every command: NAME=value
	Dir       string   // working directory beneath /workspace; "" is /workspace
	Mounts    []Mount
	Workspace Workspace
	Limits    Limits
	Network   Network
	Root      string // of Config.Roots; "" is the host's own
	// Python, if the program is one and may be forked from an interpreter that is
	// ready. Nil, or none ready: it is executed.
	Python *Python
	// Caller is whose program this is, as the user of this package tells callers apart.
	// What is kept for future programs is shared out among callers; "" is one of them.
	Caller string

	unprepared bool // made by libcontainer, whatever is there
}

// A Program is a list of steps, run one after the other by the sandbox's init.
// No shell is involved; a plan of one step with one command is a plain exec.
type Program []Step

// A Step is a pipeline and the condition under which it runs. It has ended
// when all its commands have; its status is the last command's.
type Step struct {
	When     When // ignored for the first step
	Pipeline []Command
}

// When refers to the status of the step that ran last.
type When int

// The conditions: ";", "&&" and "||" of a shell.
const (
	Always When = iota
	IfSucceeded
	IfFailed
)

// A Command is executed by Args[0], looked up in PATH if it holds no slash. A
// name that is not found ends with status 127, one that can't be executed
// with 126 and a line on stderr, except when it is the whole program: then
// Start fails.
type Command struct {
	Args       []string
	Globs      []Glob   // in the order of Args
	Env        []string // overrides Spec.Env
	Redirects  []Redirect
	PipeStderr bool // stderr goes into the pipe as well: "|&"
}

// A Glob says that an argument is a pattern of file names, with * ? and [...] as
// in bash without options. The sandbox's init puts the names in its place just
// before the command's redirects and its exec, as the script's uid and from its
// working directory, in the order of their bytes. If there is none the argument
// stays. A name that begins with "-" gets "./" in front, so that no file is taken
// for an option. Classes such as [:alpha:] know ASCII only. Names that are more, or
// longer together, than init's bounds or the kernel's end the command with status
// 126 and a line on stderr.
type Glob struct {
	Arg     int    // index in Args, not 0
	Pattern string // Args[Arg] with a backslash before each character that is literal where it could be special
}

// A Redirect is applied in order, after the pipes are in place.
type Redirect struct {
	FD   int // 0 to 9
	Kind RedirectKind
	Path string // for Read, Write, Append: beneath the working directory, or exactly "/dev/null"
	From int    // for Dup
	Text string // for Text
}

// RedirectKind says where a descriptor leads.
type RedirectKind int

// The kinds: "<", ">", ">>", "n>&m" and "<<".
const (
	Read RedirectKind = iota
	Write
	Append
	Dup
	Text
)

// A Mount is a directory of the host, read-only, in the sandbox.
type Mount struct {
	Source string
	Target string // beneath /skills or /opt
	Owned  bool   // files on disk belong to 1000:1000 and appear as the script's; else as they are
}

// A Workspace is what /workspace is made of: an overlay whose upper layer is a
// fresh tmpfs, charged to the sandbox's memory.
type Workspace struct {
	Lower     []string // host directories owned 1000:1000, topmost first; never changed
	SizeBytes int64    // of the upper layer; 0 is 256 MiB
	Files     int64    // inodes of the upper layer; 0 is 16,384
}

// Limits bound a sandbox. Zero means the default that stands with the field.
type Limits struct {
	Wall        time.Duration // 30 s; from the exec of the first command
	CPU         time.Duration // none; user and system time of all processes
	Grace       time.Duration // none; between SIGTERM and SIGKILL at a deadline
	MemoryBytes int64         // 512 MiB; with what lies on the sandbox's own tmpfs
	Processes   int           // 64; with threads
	OpenFiles   int           // 1024; per process, at least 32
	MilliCPUs   int           // none; thousandths of a processor, of all processes together, at least 10
}

// Network is what the program can reach.
type Network int

const (
	// NetworkNone is a network namespace with nothing but a loopback of its own.
	NetworkNone Network = iota
	// NetworkHost is the host's network. For trusted programs only: they reach
	// every port that listens on the host.
	NetworkHost
)

// Bounds of a Spec. init.h has the same where init needs them.
const (
	maxSteps        = 256
	maxCommands     = 64       // of a pipeline
	maxRedirects    = 32       // of a command
	maxProgramBytes = 16 << 20 // encoded
	maxMounts       = 64
	maxLowers       = 32
	minOpenFiles    = 32
	maxFD           = 9
)

const (
	defaultWall      = 30 * time.Second
	defaultMemory    = 512 << 20
	defaultProcesses = 64
	defaultOpenFiles = 1024
	defaultWorkspace = 256 << 20
	defaultFiles     = 16384
)

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// withDefaults fills in what is zero.
func (s Spec) withDefaults() Spec {
	set(&s.Limits.Wall, defaultWall)
	set(&s.Limits.MemoryBytes, defaultMemory)
	set(&s.Limits.Processes, defaultProcesses)
	set(&s.Limits.OpenFiles, defaultOpenFiles)
	set(&s.Workspace.SizeBytes, defaultWorkspace)
	set(&s.Workspace.Files, defaultFiles)
	return s
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// check reports the first thing in s that can't be run.
func (s Spec) check() error {
	if !validID.MatchString(s.ID) {
		return fmt.Errorf("id %q: want [a-z0-9-]{1,64}", s.ID)
	}
	if err := s.Program.check(); err != nil {
		return err
	}
	if err := checkEnv(s.Env); err != nil {
		return err
	}
	if s.Dir != "" && !filepath.IsLocal(s.Dir) || strings.ContainsRune(s.Dir, 0) {
		return fmt.Errorf("dir %q: not beneath /workspace", s.Dir)
	}
	if len(s.Mounts) > maxMounts {
		return fmt.Errorf("%d mounts: at most %d", len(s.Mounts), maxMounts)
	}
	seen := map[string]bool{}
	for _, m := range s.Mounts {
		if err := m.check(); err != nil {
			return err
		}
		if seen[m.Target] {
			return fmt.Errorf("mount %s: target is used twice", m.Target)
		}
		seen[m.Target] = true
	}
	return s.checkBounds()
}

func (s Spec) checkBounds() error {
	l, w := s.Limits, s.Workspace
	switch {
	case l.Wall <= 0 || l.CPU < 0 || l.Grace < 0:
		return fmt.Errorf("limits: negative time")
	case l.MemoryBytes < 0 || l.Processes < 0:
		return fmt.Errorf("limits: negative memory or processes")
	case l.OpenFiles < minOpenFiles:
		return fmt.Errorf("limits: %d open files: at least %d", l.OpenFiles, minOpenFiles)
	case l.MilliCPUs != 0 && (l.MilliCPUs < minMilliCPUs || l.MilliCPUs > maxMilliCPUs):
		return fmt.Errorf("limits: %d thousandths of a processor: %d to %d", l.MilliCPUs, minMilliCPUs, maxMilliCPUs)
	case w.SizeBytes < 0 || w.Files < 0:
		return fmt.Errorf("workspace: negative size")
	case len(w.Lower) > maxLowers:
		return fmt.Errorf("workspace: %d lower directories: at most %d", len(w.Lower), maxLowers)
	case slices.ContainsFunc(w.Lower, func(dir string) bool { return !filepath.IsAbs(dir) }):
		return fmt.Errorf("workspace: a lower directory is not absolute")
	case s.Network != NetworkNone && s.Network != NetworkHost:
		return fmt.Errorf("network %d: unknown", s.Network)
	}
	return nil
}

func (m Mount) check() error {
	if !filepath.IsAbs(m.Source) {
		return fmt.Errorf("mount %q: source is not absolute", m.Source)
	}
	top, rest, _ := strings.Cut(strings.TrimPrefix(m.Target, "/"), "/")
	if m.Target != filepath.Clean(m.Target) || !filepath.IsAbs(m.Target) || rest == "" || strings.ContainsRune(m.Target, 0) ||
		top != "skills" && top != "opt" || strings.HasPrefix(m.Target+"/", filepath.Dir(linksDir)+"/") {
		return fmt.Errorf("mount %q: target is not beneath /skills or /opt", m.Target)
	}
	return nil
}

func (p Program) check() error {
	if len(p) == 0 || len(p) > maxSteps {
		return fmt.Errorf("program: %d steps: want 1 to %d", len(p), maxSteps)
	}
	for _, step := range p {
		if step.When < Always || step.When > IfFailed {
			return fmt.Errorf("program: condition %d: unknown", step.When)
		}
		if n := len(step.Pipeline); n == 0 || n > maxCommands {
			return fmt.Errorf("program: %d commands in a pipeline: want 1 to %d", n, maxCommands)
		}
		for _, c := range step.Pipeline {
			if err := c.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Command) check() error {
	if len(c.Args) == 0 {
		return fmt.Errorf("program: command without arguments")
	}
	for _, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("program: argument %q: NUL byte", a)
		}
	}
	if err := c.checkGlobs(); err != nil {
		return err
	}
	if err := checkEnv(c.Env); err != nil {
		return err
	}
	if len(c.Redirects) > maxRedirects {
		return fmt.Errorf("program: %d redirects: at most %d", len(c.Redirects), maxRedirects)
	}
	for _, r := range c.Redirects {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// checkGlobs holds patterns to the arguments that they stand for, so that what
// is expanded can't differ from what is shown.
func (c Command) checkGlobs() error {
	before := 0
	for _, g := range c.Globs {
		if g.Arg <= before || g.Arg >= len(c.Args) {
			return fmt.Errorf("program: pattern of argument %d: out of order, or no such argument", g.Arg)
		}
		if literal(g.Pattern) != c.Args[g.Arg] {
			return fmt.Errorf("program: pattern %q: not of argument %q", g.Pattern, c.Args[g.Arg])
		}
		before = g.Arg
	}
	return nil
}

// literal is a pattern without the backslashes that escape.
func literal(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

func (r Redirect) check() error {
	if r.FD < 0 || r.FD > maxFD {
		return fmt.Errorf("redirect: descriptor %d: want 0 to %d", r.FD, maxFD)
	}
	switch r.Kind {
	case Read, Write, Append:
		// "" and names with a trailing slash fail in the sandbox as in a shell.
		if r.Path != "/dev/null" && (!filepath.IsLocal(r.Path) || strings.ContainsRune(r.Path, 0)) {
			return fmt.Errorf("redirect: %q: not beneath the working directory", r.Path)
		}
	case Dup:
		if r.From < 0 || r.From > maxFD {
			return fmt.Errorf("redirect: descriptor %d: want 0 to %d", r.From, maxFD)
		}
	case Text:
	default:
		return fmt.Errorf("redirect: kind %d: unknown", r.Kind)
	}
	return nil
}

func checkEnv(env []string) error {
	for _, e := range env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			return fmt.Errorf("environment: %q: not NAME=value", name)
		}
	}
	return nil
}

// environ is base with the variables of over replaced or added.
func environ(base, over []string) []string {
	out := make([]string, 0, len(base)+len(over))
	index := map[string]int{}
	for _, e := range append(append([]string(nil), base...), over...) {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := index[name]; ok {
			out[i] = e
			continue
		}
		index[name] = len(out)
		out = append(out, e)
	}
	return out
}
