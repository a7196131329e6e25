package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is put into a workspace.
const (
	// MaxInputs bounds the input files together with the directories they need.
	MaxInputs = 10_000
	// MaxInputBytes bounds their contents together.
	MaxInputBytes = 1 << 30
	// MaxPathBytes bounds a path, of inputs and of artifacts: the kernel takes no
	// longer one at once.
	MaxPathBytes = 4096
	// MaxNameBytes bounds each of its components, as file systems do.
	MaxNameBytes = 255
)

// Input is a file to put into the workspace.
type Input struct {
	// Path is relative to the workspace: UTF-8, without control characters and
	// without components that are empty, "." or "..".
	Path    string
	Content []byte
	// Source, if set, is a regular file on the host that becomes the input in
	// place of Content: Stage moves it, or copies it if it is on another file
	// system.
	Source     string
	Executable bool
}

// InputError says that an input can't be put where it was asked to be.
type InputError struct {
	Path   string
	Reason string
}

func (e *InputError) Error() string { return fmt.Sprintf("input %q: %s", e.Path, e.Reason) }

const skillHasIt = "the skill has something there"

// pathReason says why p can't be an input's path; empty: it can.
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

// plan is what will be staged: every path is good and at one place.
type plan struct {
	files []Input
	dirs  map[string]fs.FileMode // that the files need, with the mode each gets
}

// newPlan checks the inputs against each other and against the snapshot, which
// may be nil, as may has.
func newPlan(snapshot *os.Root, has func(string) bool, inputs []Input) (plan, error) {
	p := plan{files: inputs, dirs: map[string]fs.FileMode{}}
	files := make(map[string]bool, len(inputs))
	var bytes int64
	for _, in := range inputs {
		size, err := in.size()
		if err != nil {
			return plan{}, err
		}
		reason := pathReason(in.Path)
		switch bytes += size; {
		case reason != "":
		case files[in.Path]:
			reason = "the path is there twice"
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
	for _, in := range inputs {
		if _, ok := p.dirs[in.Path]; ok {
			return plan{}, &InputError{Path: in.Path, Reason: "another input has it as a directory"}
		}
	}
	return p, nil
}

// addDirs notes the directories that file needs. reason says what in the
// snapshot is in the way of it or of them. It goes from the top, so that no link
// is ever passed through.
func (p *plan) addDirs(snapshot *os.Root, file string) (reason string, err error) {
	there := snapshot != nil
	for i, c := range []byte(file) {
		if c != '/' {
			continue
		}
		dir, mode := file[:i], fs.FileMode(0o755)
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
				// The overlay shows the upper one of two directories.
				mode = fi.Mode().Perm()
			}
		}
		p.dirs[dir] = mode
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

// size is how long the input is.
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
