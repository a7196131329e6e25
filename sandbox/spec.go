package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// A Spec describes one sandbox: the program, its files, its limits and its network.
type Spec struct {
	ID        string // [a-z0-9-]{1,64}, unique among the sandboxes of the Host
	Program   Program
	Env       []string // the whole environment of every command: NAME=value
	Dir       string   // working directory beneath /workspace; "" is /workspace
	Mounts    []Mount
	Workspace Workspace
	Limits    Limits
	Network   Network // nil is loopback alone
	Root      string  // name of a root file system in Config.Roots; "" is the host's
	// Group names the group of sandboxes that this one belongs to (group.go); "" is the default
	// group. Sandboxes of different groups have nothing in common but the machine and the
	// directories that their Specs name.
	Group string
	// Python describes a Python program that a Python zygote may fork. The program is
	// executed instead if Python is nil or no such zygote serves it.
	Python *Python
	// Caller identifies the owner of the program; the package only compares it. The
	// Python zygotes are shared out among callers. "" is a caller like any other.
	Caller string
}

// A Program is a list of steps. The sandbox's init runs them one after the other.
// No shell is involved; a program of one step with one command is a plain exec.
type Program []Step

// A Step is a pipeline and the condition under which it runs. It ends when all
// its commands have ended. Its status is the status of its last command.
type Step struct {
	When     When // ignored for the first step
	Pipeline []Command
}

// When is a condition on the status of the step that ran last.
type When int

// The conditions: ";", "&&" and "||" of a shell.
const (
	Always      When = pid1.WhenAlways
	IfSucceeded When = pid1.WhenSucceeded
	IfFailed    When = pid1.WhenFailed
)

// A Command executes Args[0], looked up in PATH if it holds no slash. If the
// file is not found, the command ends with status 127. If it can't be executed,
// the command ends with status 126. Both print a line on stderr. If the command is the
// whole program, Start fails instead.
type Command struct {
	Args       []string
	Globs      []Glob   // in the order of Args
	Env        []string // overrides Spec.Env
	Redirects  []Redirect
	PipeStderr bool // stderr goes into the pipe as well: "|&"
}

// A Glob marks an argument as a pattern of file names, with * ? and [...] as
// in bash without options. The sandbox's init replaces the argument with the
// matching names, in the order of their bytes, just before the command's redirects
// and its exec. It matches as the script's uid, from the script's working directory.
// If no name matches, the argument stays. A name that begins with "-" gets "./" in
// front, so that no file is taken for an option. Classes such as [:alpha:] know
// ASCII only. If the names exceed a bound of init or of the kernel, in number or in
// total length, the command ends with status 126 and a line on stderr.
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
	Read   RedirectKind = pid1.RedirectRead
	Write  RedirectKind = pid1.RedirectWrite
	Append RedirectKind = pid1.RedirectAppend
	Dup    RedirectKind = pid1.RedirectDup
	Text   RedirectKind = pid1.RedirectText
)

// A Mount is a directory of the host that is visible in the sandbox, read-only.
type Mount struct {
	Source string
	Target string // beneath /skills or /opt
	Owned  bool   // files on disk belong to ScriptID and appear as the script's; else owners aren't mapped
}

// A Workspace describes /workspace: an overlay whose upper layer is a fresh tmpfs.
// The kernel charges that tmpfs to the sandbox's memory.
type Workspace struct {
	Lower     []string // host directories that belong to ScriptID, topmost first; never changed
	SizeBytes int64    // of the upper layer; 0 is 256 MiB
	Files     int64    // inodes of the upper layer; 0 is 16,384
}

// Limits bound a sandbox. Zero means the default in the field's comment.
type Limits struct {
	Wall        time.Duration // 30 s; from the exec of the first command
	CPU         time.Duration // none; user and system time of all processes
	Grace       time.Duration // none; between SIGTERM and SIGKILL at a deadline
	MemoryBytes int64         // 512 MiB; includes the files on the sandbox's tmpfs mounts
	Processes   int           // 64; with threads, besides the program itself
	OpenFiles   int           // 1024; per process, at least 32
	MilliCPUs   int           // none; thousandths of a processor, of all processes together, at least 10
}

// pids is the limit of the sandbox's cgroup, which also counts the program itself and init:
// Processes counts only the processes that the program starts. So a program with 64 children, as many
// pools of workers have, needs a limit of 64.
func (l Limits) pids() int { return l.Processes + 2 }

// Bounds of a Spec.
const (
	maxSteps        = 256
	maxCommands     = pid1.MaxCommands // of a pipeline
	maxRedirects    = 32               // of a command
	maxProgramBytes = pid1.MaxPayload  // encoded
	maxMounts       = pid1.MaxMounts - ownMounts
	maxLowers       = 32
	minOpenFiles    = 32
	maxFD           = 9
)

// ownMounts is room for the mounts that a sandbox has without its Spec's: /workspace, /skills, /opt,
// the root's links.
const ownMounts = 16

const (
	defaultWall      = 30 * time.Second
	defaultMemory    = 512 << 20
	defaultProcesses = 64
	defaultOpenFiles = 1024
	defaultWorkspace = 256 << 20
	defaultFiles     = 16384
)

var validID = lazyregexp.New(`^[a-z0-9-]{1,64}$`)

// withDefaults replaces zero limits with their defaults.
func (s Spec) withDefaults() Spec {
	set(&s.Limits.Wall, defaultWall)
	set(&s.Limits.MemoryBytes, defaultMemory)
	set(&s.Limits.Processes, defaultProcesses)
	set(&s.Limits.OpenFiles, defaultOpenFiles)
	set(&s.Workspace.SizeBytes, defaultWorkspace)
	set(&s.Workspace.Files, defaultFiles)
	return s
}

// set replaces a zero value.
func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// check reports the first mistake in s.
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
	if err := checkGroup(s.Group); err != nil {
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

// checkBounds refuses values that would mean something else further down: the kernel and libcontainer take a negative
// limit for no limit.
func (s Spec) checkBounds() error {
	l, w := s.Limits, s.Workspace
	switch {
	case l.Wall <= 0 || l.CPU < 0 || l.Grace < 0:
		return fmt.Errorf("limits: negative time")
	case l.MemoryBytes < 0 || l.Processes < 0:
		return fmt.Errorf("limits: negative memory or processes")
	case l.OpenFiles < minOpenFiles:
		return fmt.Errorf("limits: %d open files: at least %d", l.OpenFiles, minOpenFiles)
	case l.MilliCPUs != 0 && (l.MilliCPUs < cgroup.MinMilliCPUs || l.MilliCPUs > cgroup.MaxMilliCPUs):
		return fmt.Errorf("limits: %d thousandths of a processor: %d to %d", l.MilliCPUs, cgroup.MinMilliCPUs, cgroup.MaxMilliCPUs)
	case w.SizeBytes < 0 || w.Files < 0:
		return fmt.Errorf("workspace: negative size")
	case len(w.Lower) > maxLowers:
		return fmt.Errorf("workspace: %d lower directories: at most %d", len(w.Lower), maxLowers)
	case slices.ContainsFunc(w.Lower, func(dir string) bool { return !filepath.IsAbs(dir) }):
		return fmt.Errorf("workspace: a lower directory is not absolute")
	}
	return nil
}

// check refuses targets outside /skills and /opt, and in /opt/skillrun, which has the root's links:
// a mount there would hide them.
func (m Mount) check() error {
	if !filepath.IsAbs(m.Source) {
		return fmt.Errorf("mount %q: source is not absolute", m.Source)
	}
	top, rest, _ := strings.Cut(strings.TrimPrefix(m.Target, "/"), "/")
	if m.Target != filepath.Clean(m.Target) || !filepath.IsAbs(m.Target) || rest == "" || strings.ContainsRune(m.Target, 0) ||
		top != "skills" && top != "opt" || strings.HasPrefix(m.Target+"/", filepath.Dir(mount.LinksDir)+"/") {
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

// check refuses NUL bytes: they end a text for execve(2), so the program would get another argument than the one that
// was checked.
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

// checkGlobs compares each pattern with its argument. Users are shown the arguments,
// and init expands the patterns: they must say the same.
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

// literal returns a pattern without its escaping backslashes.
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

// check refuses paths that lead out of the working directory by their text. Links in the path are the sandbox's concern.
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

// environ returns base, with the variables of over replaced or added.
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
