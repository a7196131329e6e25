package session

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// A NewFile is a file for the next version.
type NewFile struct {
	File
	// Source is a regular file of the daemon, with the content. Commit links or copies it. Commit sets the
	// owner and the mode of a linked file. No process may write to the file afterwards.
	Source string
}

// A Change says what becomes of the files of a Writer's version.
type Change struct {
	Files []NewFile // new or changed
	// Deleted are paths of files, or of directories with all that was in them. Files may be in such a
	// directory again.
	Deleted []string
	// Foreign reports whether a path is not the session's, because the skill has something there: such
	// files are neither added nor deleted. Nil: none is.
	Foreign func(path string) bool
	// Unseen reports whether a file of the version was hidden from the program. A new file of the program can replace
	// such a file, or the directory that has it. But if the program deletes the file's directory, the file stays. Nil: the
	// program saw all files.
	Unseen func(path string) bool
}

// A plan says how a Change makes the files of the next version.
type plan struct {
	Change
	number  int               // of the next version
	gone    map[string]bool   // paths that are deleted, with everything beneath them
	added   map[string]bool   // paths of Files that are not foreign
	dirs    map[string]bool   // directories of added files
	sources map[string]string // of new objects, by their names; apply fills it
	changed []Changed         // apply fills it
	done    Committed         // apply fills it, without the version
}

// newPlan checks a change. A new file replaces a directory with everything in it, and a new directory
// replaces a file. The error is a *PathError.
func newPlan(number int, c Change) (*plan, error) {
	if c.Foreign == nil {
		c.Foreign = func(string) bool { return false }
	}
	if c.Unseen == nil {
		c.Unseen = func(string) bool { return false }
	}
	p := &plan{Change: c, number: number, gone: map[string]bool{}, added: map[string]bool{}, dirs: map[string]bool{}, sources: map[string]string{}}
	for _, path := range c.Deleted {
		p.gone[path] = true
	}
	for _, f := range c.Files {
		if err := f.checkNew(); err != nil {
			return nil, err
		}
		// A new file at the path of a directory removes all that was in the directory.
		p.gone[f.Path] = true
		if c.Foreign(f.Path) {
			continue
		}
		if p.added[f.Path] {
			return nil, &PathError{f.Path, "is there twice"}
		}
		p.added[f.Path] = true
		for dir := range parents(f.Path) {
			p.dirs[dir] = true
		}
	}
	for path := range p.added {
		if p.dirs[path] {
			return nil, &PathError{path, "is a file and a directory"}
		}
	}
	return p, nil
}

// checkNew checks the fields of a file that has no object yet.
func (f NewFile) checkNew() error {
	if err := checkPath(f.Path); err != nil {
		return err
	}
	if f.SizeBytes < 0 || len(f.SHA256) != 2*sha256.Size {
		return &PathError{f.Path, "has no valid size or hash"}
	}
	return nil
}

// apply makes the files of the next version from the files of its base.
func (p *plan) apply(base []File) (files []File) {
	was := map[string]File{} // that the change may replace
	for _, f := range base {
		switch {
		// add decides whether the file has changed.
		case p.added[f.Path]:
			was[f.Path] = f
		case p.deletes(f.Path):
			p.done.Deleted++
			p.changed = append(p.changed, Changed{f, Deleted})
		default:
			files = append(files, f)
		}
	}
	for _, f := range p.Files {
		if p.added[f.Path] {
			old, existed := was[f.Path]
			files = append(files, p.add(f, old, existed))
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// deletes reports whether a file of the base is not in the next version.
func (p *plan) deletes(path string) bool {
	if p.dirs[path] || isBeneath(path, p.added) {
		return true // even a foreign or unseen one: a directory is there now, or a file in the place of its directory
	}
	return (p.gone[path] || isBeneath(path, p.gone)) && !p.Foreign(path) && !p.Unseen(path)
}

// add returns an added file with its object, which is the old one if it has the same content.
func (p *plan) add(f NewFile, old File, existed bool) File {
	if existed && old.same(f.File) {
		return old
	}
	kind := Added
	if existed {
		kind = Replaced
		p.done.Changed++
	} else {
		p.done.Added++
	}
	p.changed = append(p.changed, Changed{f.File, kind})
	p.done.WrittenBytes += f.SizeBytes
	// An object's name has the number of a version, and numbers never come again. So no commit meets an object of an
	// older one.
	f.object = objectName(p.number, len(p.sources))
	p.sources[f.object] = f.Source
	return f.File
}
