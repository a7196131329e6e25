package snapshot

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"sort"
	"strings"
)

// A Child is a file or a directory in a directory.
type Child struct {
	Name  string
	Entry Entry // with links followed: Entry.Path may lie in another directory
}

// Children lists up to most entries of a directory that come after the name after, in byte order
// of their names. The empty path is the skill's folder. next is the name after which the list goes
// on, or empty at its end.
//
// Links are followed, as Lookup does. A link to a directory that the path has gone through is left
// out, so that no walk is endless. Refused entries are left out, too. Any error is a *PathError.
func (t *Tree) Children(p, after string, most int) (list []Child, next string, err error) {
	trail, err := t.trail(p)
	if err != nil {
		return nil, "", err
	}
	seen, last := 0, after
	for c, ok := range t.each(trail, after) {
		if len(list) == most || seen == maxListed {
			return list, last, nil
		}
		seen, last = seen+1, c.Name
		if ok {
			list = append(list, c)
		}
	}
	return list, "", nil
}

// each yields the entries of the last directory of a trail that come after the name after. It
// yields false with an entry that is left out, so that the caller can bound its work.
func (t *Tree) each(trail []string, after string) iter.Seq2[Child, bool] {
	prefix := trail[len(trail)-1]
	if prefix != "" {
		prefix += "/"
	}
	return func(yield func(Child, bool) bool) {
		for i := t.search(prefix+after, false); i < len(t.Entries) && strings.HasPrefix(t.Entries[i].Path, prefix); {
			e := t.Entries[i]
			name, _, deeper := strings.Cut(e.Path[len(prefix):], "/")
			if deeper {
				// Skip the content of a directory: "0" is the byte after "/".
				i = t.search(prefix+name+"0", true)
				continue
			}
			i++
			ok := true
			if e.Kind == KindLink {
				at := t.Resolve(e.Path)
				ok = at.Reason == 0 && (at.Entry.Kind == KindFile || !slices.Contains(trail, at.Path))
				e = at.Entry
			}
			if !yield(Child{Name: name, Entry: e}, ok) {
				return
			}
		}
	}
}

// search returns the index of the first entry whose path is greater than p or, if equal is set,
// not smaller.
func (t *Tree) search(p string, equal bool) int {
	return sort.Search(len(t.Entries), func(i int) bool {
		return t.Entries[i].Path > p || equal && t.Entries[i].Path == p
	})
}

// trail returns the directories that a path goes through, with links followed: the skill's folder
// "" first, the path's own directory last.
func (t *Tree) trail(p string) ([]string, error) {
	fail := func(reason Reason, at Spot) ([]string, error) {
		return nil, &PathError{Path: p, Reason: reason, Resolved: at.Path, Refused: at.Refused}
	}
	clean := path.Clean("/" + p)[1:]
	switch {
	case badName(p) || len(p) > MaxPathBytes:
		return fail(ReasonBadPath, Spot{})
	case clean != p:
		return fail(ReasonNotFound, Spot{Path: p})
	}
	trail := []string{""}
	for end := 0; end < len(clean); end++ {
		next := strings.IndexByte(clean[end:], '/')
		if next < 0 {
			next = len(clean) - end
		}
		end += next
		at := t.Resolve(clean[:end])
		switch {
		case at.Reason != 0:
			return fail(at.Reason, at)
		case at.Entry.Kind != KindDir:
			return fail(ReasonNotDirectory, at)
		case slices.Contains(trail, at.Path):
			return fail(ReasonLoop, at)
		}
		trail = append(trail, at.Path)
	}
	return trail, nil
}

// A File is a regular file with a path that leads to it.
type File struct {
	Path  string // may lead through links
	Entry Entry
}

// Files lists the files that the walk of a directory tree finds if it follows links as Children
// does, in byte order of their paths. A file that a link leads to is listed at each of its paths.
// It leaves out the directory at the path omit, if that is not empty. It returns false if there are
// more than most, or if the walk is too long (maxListed).
func (t *Tree) Files(most int, omit string) ([]File, bool) {
	w := walk{tree: t, most: most, omit: omit}
	ok := w.dir("", []string{""})
	slices.SortFunc(w.files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return w.files, ok
}

type walk struct {
	tree  *Tree
	most  int
	omit  string
	files []File
	seen  int // entries, also the omitted ones
}

// dir adds the files of the directory at a path with a trail. It returns false if a limit is
// exceeded.
func (w *walk) dir(p string, trail []string) bool {
	for c, ok := range w.tree.each(trail, "") {
		at := join(p, c.Name)
		switch w.seen++; {
		case at == w.omit:
		case w.seen > maxListed || len(at) > MaxPathBytes:
			return false
		case !ok:
		case c.Entry.Kind == KindDir:
			if !w.dir(at, append(slices.Clone(trail), c.Entry.Path)) {
				return false
			}
		case len(w.files) == w.most:
			return false
		default:
			w.files = append(w.files, File{at, c.Entry})
		}
	}
	return true
}
