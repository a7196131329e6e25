package skill

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Lookup finds a regular file of the skill, see [snapshot.Tree.Lookup]. Any error is a
// *snapshot.PathError.
func (s *Skill) Lookup(p string) (snapshot.Entry, error) { return s.tree.Lookup(p) }

// Open opens the file that Lookup finds. It never blocks: a file with a lease gives
// snapshot.ErrBusy. The error is a *snapshot.PathError if Lookup fails, and a *NotFoundError if the
// version was deleted or replaced since it was resolved. The caller closes the file.
func (s *Skill) Open(p string) (*os.File, snapshot.Entry, error) {
	e, err := s.Lookup(p)
	if err != nil {
		return nil, snapshot.Entry{}, err
	}
	f, err := snapshot.Open(s.Dir, e)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(s.Dir); gone != nil { // the version was removed since it was resolved
			return nil, snapshot.Entry{}, &NotFoundError{Name: s.Name}
		}
	}
	if err != nil {
		return nil, snapshot.Entry{}, fmt.Errorf("snapshot of %s: %w", s.Name, err)
	}
	return f, e, nil
}

// Script returns the script at p, a path as path.Clean returns it: one of Scripts, or any other file
// with the extension of a language. It follows no links.
func (s *Skill) Script(p string) (snapshot.Script, bool) {
	if i := slices.IndexFunc(s.Scripts, func(sc snapshot.Script) bool { return sc.Path == p }); i >= 0 {
		return s.Scripts[i], true
	}
	if e, err := s.Lookup(p); err != nil || e.Path != p {
		return snapshot.Script{}, false
	}
	return snapshot.ScriptByName(p)
}

// Has reports whether an input file at the relative path p would collide with the skill, see
// [snapshot.Tree.Has].
func (s *Skill) Has(p string) bool { return s.tree.Has(p) }

// Entries yields every entry that is not refused, in byte order of the paths.
func (s *Skill) Entries() iter.Seq[snapshot.Entry] { return slices.Values(s.tree.Entries) }

// Requirements returns the packages that the skill declares, see [manifest.Needs]. The slice is a
// copy, and so are the slices of the next two methods.
func (s *Skill) Requirements() []manifest.Requirement { return slices.Clone(s.needs.List) }

// Tools returns the packages that command lines of SKILL.md run as tools.
func (s *Skill) Tools() []manifest.Requirement { return slices.Clone(s.needs.Tools) }

// NodeTools returns the Node packages whose programs command lines of SKILL.md run.
func (s *Skill) NodeTools() []manifest.Requirement { return slices.Clone(s.needs.NodeTools) }

// Node returns the Node packages that the skill declares. The caller must not change the slices in it.
func (s *Skill) Node() manifest.NodeNeeds { return s.needs.Node }

// ShipsNode reports whether the skill itself has a package that its package.json declares.
func (s *Skill) ShipsNode(name string) bool {
	for _, dir := range []string{path.Dir(s.needs.Node.File), "."} {
		if _, err := s.Lookup(path.Join(dir, "node_modules", name, "package.json")); err == nil {
			return true
		}
	}
	return false
}

// PythonVersions returns the interpreter versions that scripts require.
func (s *Skill) PythonVersions() []manifest.PythonVersion { return slices.Clone(s.needs.Versions) }

// UnreadableRequirements returns the declarations that Requirements left out.
func (s *Skill) UnreadableRequirements() []manifest.UnreadableRequirement {
	return slices.Clone(s.needs.Unreadable)
}
