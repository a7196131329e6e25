package snapshot

import (
	"path"
	"strings"
)

// Lookup finds a regular file of the skill. The path is relative to the skill's folder; "."
// and ".." are resolved as text, and links are followed inside the skill. The entry's Path
// is the file that the links lead to. Any error is a *PathError.
func (t *Tree) Lookup(p string) (Entry, error) {
	fail := func(reason Reason, resolved string, r *Refused) (Entry, error) {
		return Entry{}, &PathError{Path: p, Reason: reason, Resolved: resolved, Refused: r}
	}
	clean := path.Clean(p)
	switch {
	case badName(p) || len(p) > 4*MaxPathBytes:
		return fail(ReasonBadPath, "", nil)
	case p == "" || clean == ".":
		return fail(ReasonOutside, "", nil)
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return fail(ReasonEscapes, clean, nil)
	}
	at := t.Resolve(clean)
	switch {
	case at.Reason != 0:
		return fail(at.Reason, at.Path, at.Refused)
	case at.Path == "":
		return fail(ReasonOutside, "", nil)
	case at.Entry.Kind == KindDir:
		return fail(ReasonDirectory, at.Path, nil)
	}
	return at.Entry, nil
}

// Has reports whether a file at the relative path p would collide with the tree: the tree has
// an entry at p, refused or not, or one of p's parents is not a directory. Links are not
// followed.
func (t *Tree) Has(p string) bool {
	p = path.Clean(p)
	if p == "." {
		return true
	}
	if _, ok := t.at[p]; ok {
		return true
	}
	for dir := path.Dir(p); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if pl, ok := t.at[dir]; ok && (pl.refused || t.Entries[pl.index].Kind != KindDir) {
			return true
		}
	}
	return false
}
