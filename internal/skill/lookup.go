package skill

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Lookup finds a regular file of the skill. The path is relative to the skill's folder; "."
// and ".." are resolved as text, and links are followed inside the skill. The entry's Path
// is the file that the links lead to. Any error is a *PathError.
func (s *Skill) Lookup(p string) (Entry, error) {
	fail := func(reason Reason, resolved string, r *Refused) (Entry, error) {
		return Entry{}, &PathError{Path: p, Reason: reason, Resolved: resolved, Refused: r}
	}
	clean := path.Clean(p)
	switch {
	case badName(p) || len(p) > 4*maxPathBytes:
		return fail(ReasonBadPath, "", nil)
	case p == "" || clean == ".":
		return fail(ReasonOutside, "", nil)
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return fail(ReasonEscapes, clean, nil)
	}
	at := s.tree.resolve(clean)
	switch {
	case at.reason != 0:
		return fail(at.reason, at.path, at.refused)
	case at.path == "":
		return fail(ReasonOutside, "", nil)
	case at.entry.Kind == KindDir:
		return fail(ReasonDirectory, at.path, nil)
	}
	return at.entry, nil
}

// ErrBusy says that a file of a snapshot cannot be opened now because a process holds a
// lease on it (fcntl(2), F_SETLEASE). Try again later.
var ErrBusy = errors.New("file is busy")

// Open opens the file that Lookup finds. It never blocks: a file with a lease gives
// ErrBusy.
// The error is a *PathError if Lookup fails. The caller closes the file.
func (s *Skill) Open(p string) (*os.File, Entry, error) {
	e, err := s.Lookup(p)
	if err != nil {
		return nil, Entry{}, err
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, Entry{}, fmt.Errorf("snapshot of %s: %w", s.Name, err)
	}
	defer root.Close()
	f, err := root.OpenFile(e.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, Entry{}, fmt.Errorf("snapshot of %s: %s: %w", s.Name, e.Path, ErrBusy)
	}
	if err != nil {
		return nil, Entry{}, fmt.Errorf("snapshot of %s: %w", s.Name, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() != e.Size {
		f.Close()
		return nil, Entry{}, fmt.Errorf("snapshot of %s: %s is not what was imported", s.Name, e.Path)
	}
	return f, e, nil
}

// Has reports whether an input file at the relative path p would collide with the skill:
// the skill has an entry at p, refused or not, or one of p's parents is not a directory in
// the skill. Links are not followed.
func (s *Skill) Has(p string) bool { return s.tree.has(p) }

// Entries yields every entry that is not refused, in byte order of the paths.
func (s *Skill) Entries() iter.Seq[Entry] { return slices.Values(s.tree.entries) }

// RefusedAt returns the refused entry at a relative path, without following links.
func (s *Skill) RefusedAt(p string) (Refused, bool) {
	pl, ok := s.tree.at[path.Clean(p)]
	if !ok || !pl.refused {
		return Refused{}, false
	}
	return s.tree.refused[pl.index], true
}
