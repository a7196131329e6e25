package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on input files.
const (
	// MaxInputs is the maximum number of input files and of directories for them.
	MaxInputs = 10_000
	// MaxInputParts is the maximum number of components in the paths of all inputs together. The file system resolves
	// every component of a path, several times for each file, so deep paths cost processor time.
	MaxInputParts = 200_000
	// MaxInputBytes is the maximum size of all contents together.
	MaxInputBytes = 1 << 30
	// MaxPathBytes is the maximum length of the path of an input or artifact. It is
	// PATH_MAX, the longest path that one system call takes.
	MaxPathBytes = 4096
	// MaxNameBytes is the maximum length of a path component. It is NAME_MAX.
	MaxNameBytes = 255
)

// Input is a file to put into the workspace.
type Input struct {
	// Path is relative to the workspace. It is UTF-8 without control characters, and no
	// component is empty, "." or "..".
	Path    string
	Content []byte
	// Source, if not empty, is a regular file on the host that replaces Content. Stage
	// moves it into the workspace, or copies it if it is on another file system.
	Source string
	// Open, if not nil, opens a file that replaces Content. Stage calls it once, when all paths are
	// checked, copies the file from its beginning, and closes it before it opens the next one. So a request
	// with many such files needs one descriptor. An *InputError of Open becomes the error of Stage.
	Open       func() (*os.File, error)
	Executable bool
	// Whiteout hides the file that a layer below the snapshot has at Path, and puts no file in its place. The path comes
	// from that layer, so its names may have any bytes. If an input or the skill has a file at the path, beneath it or
	// above it, this file hides the layer already, and the whiteout is left out. Whiteouts do not count as inputs.
	Whiteout bool
}

// InputError says that an input file cannot have its path. It is the caller's mistake. Other
// errors of Stage are the daemon's.
type InputError struct {
	Path   string
	Reason string
}

func (e *InputError) Error() string { return fmt.Sprintf("input %q: %s", e.Path, e.Reason) }

const skillHasIt = "the skill has a file or directory there"

// pathReason says why p cannot be the path of an input, or is empty.
func pathReason(p string) string {
	switch {
	case p == "":
		return "the path is empty"
	case len(p) > MaxPathBytes:
		return fmt.Sprintf("the path is longer than %d bytes", MaxPathBytes)
	case !utf8.ValidString(p):
		return "the path is not UTF-8"
	case strings.ContainsFunc(p, unicode.IsControl):
		return "the path has a control character"
	case p[0] == '/':
		return "the path is absolute"
	}
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "":
			return "the path has an empty component"
		case name == "." || name == "..":
			return fmt.Sprintf("the path has the component %q", name)
		case len(name) > MaxNameBytes:
			return fmt.Sprintf("the path has a component of more than %d bytes", MaxNameBytes)
		}
	}
	return ""
}

// plan lists what Stage will write. All paths are valid and distinct.
type plan struct {
	files []Input
	dirs  map[string]plannedDir // parents of the files
}

// A plannedDir is a directory for inputs.
type plannedDir struct {
	mode  fs.FileMode
	there bool // the snapshot has it
}

// newPlan checks the inputs against each other and against the snapshot. Both snapshot and
// has may be nil.
func newPlan(snapshot *os.Root, has func(string) bool, inputs []Input) (plan, error) {
	p := plan{dirs: map[string]plannedDir{}}
	files := make(map[string]bool, len(inputs))
	var bytes int64
	parts := 0
	for _, in := range inputs {
		if in.Whiteout {
			continue
		}
		parts += strings.Count(in.Path, "/") + 1
		p.files = append(p.files, in)
		size, err := in.size()
		if err != nil {
			return plan{}, err
		}
		reason := pathReason(in.Path)
		switch bytes += size; {
		case reason != "":
		case files[in.Path]:
			reason = "the path is given twice"
		case parts > MaxInputParts:
			reason = fmt.Sprintf("the paths of the input files have more than %d components together", MaxInputParts)
		case bytes > MaxInputBytes:
			reason = fmt.Sprintf("the input files are more than %d bytes", MaxInputBytes)
		case has != nil && has(in.Path):
			reason = skillHasIt
		default:
			reason, err = p.addDirs(snapshot, in.Path)
		}
		if err != nil {
			return plan{}, err
		}
		files[in.Path] = true
		if reason == "" && len(files)+len(p.dirs) > MaxInputs {
			reason = fmt.Sprintf("the input files and their directories are more than %d", MaxInputs)
		}
		if reason != "" {
			return plan{}, &InputError{Path: in.Path, Reason: reason}
		}
	}
	for _, in := range p.files {
		if _, ok := p.dirs[in.Path]; ok {
			return plan{}, &InputError{Path: in.Path, Reason: "another input uses the path as a directory"}
		}
	}
	return p, p.addWhiteouts(snapshot, has, files, inputs)
}

// addWhiteouts adds the whiteouts that are needed. files are the paths of the other inputs. In a layer no file is
// beneath another file, so no whiteout is the directory of a later one.
func (p *plan) addWhiteouts(snapshot *os.Root, has func(string) bool, files map[string]bool, inputs []Input) error {
	for _, in := range inputs {
		if !in.Whiteout || has != nil && has(in.Path) {
			continue
		}
		_, covered := p.dirs[in.Path]
		for i := range len(in.Path) + 1 {
			covered = covered || (i == len(in.Path) || in.Path[i] == '/') && files[in.Path[:i]]
		}
		if covered {
			continue
		}
		if _, planned := p.dirs[path.Dir(in.Path)]; planned && has != nil {
			p.files = append(p.files, in) // the folder needs no addDirs again; one folder can have thousands of whiteouts
			continue
		}
		reason, err := p.addDirs(snapshot, in.Path)
		if err != nil {
			return err
		}
		if reason == "" {
			p.files = append(p.files, in)
		}
	}
	return nil
}

// addDirs adds the parents of file to the plan. reason says which entry of the snapshot
// prevents the file or a parent. It checks parents from the top, so that Lstat never goes
// through a link. It looks at each directory once, however many inputs are in it. It returns an error only if the
// snapshot can't be read.
func (p *plan) addDirs(snapshot *os.Root, file string) (reason string, err error) {
	there := snapshot != nil
	for i, c := range []byte(file) {
		if c != '/' {
			continue
		}
		dir, mode := file[:i], fs.FileMode(0o755)
		if known, ok := p.dirs[dir]; ok {
			there = known.there
			continue
		}
		if there {
			fi, err := snapshot.Lstat(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				there = false
			case err != nil:
				return "", err
			case !fi.IsDir():
				return fmt.Sprintf("the skill's %q is not a directory", dir), nil
			default:
				// The overlay shows the mode of the upper directory, so copy the
				// snapshot's.
				mode = fi.Mode().Perm()
			}
		}
		p.dirs[dir] = plannedDir{mode, there}
	}
	if !there {
		return "", nil
	}
	switch _, err := snapshot.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return skillHasIt, nil
}

// size returns the length of the input's content in bytes. A source must be a regular file: the
// length of another kind says nothing, and a link could lead anywhere.
func (in Input) size() (int64, error) {
	if in.Source == "" {
		return int64(len(in.Content)), nil
	}
	fi, err := os.Lstat(in.Source)
	if err != nil {
		return 0, fmt.Errorf("input %q: %w", in.Path, err)
	}
	if !fi.Mode().IsRegular() {
		return 0, fmt.Errorf("input %q: %s: not a regular file", in.Path, in.Source)
	}
	return fi.Size(), nil
}
