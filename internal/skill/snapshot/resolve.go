package snapshot

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Reason says why a path names no usable file.
type Reason uint8

const (
	// ReasonOutside: the path is empty or leads to the skill's folder itself.
	ReasonOutside Reason = iota + 1
	// ReasonEscapes: the path is absolute, climbs out with "..", or goes through a
	// link that leaves the skill.
	ReasonEscapes
	// ReasonNotFound: the skill has nothing at the path.
	ReasonNotFound
	// ReasonDirectory: the path leads to a directory.
	ReasonDirectory
	// ReasonRefused: the path leads to a refused entry; see PathError.Refused.
	ReasonRefused
	// ReasonLoop: following the path's links exceeds maxLinks or maxLinkSteps.
	ReasonLoop
	// ReasonBadPath: the path has NUL or control characters, is not UTF-8, or is too long.
	ReasonBadPath
	// ReasonNotDirectory: the path leads to a file, and a directory is needed.
	ReasonNotDirectory
)

// PathError says why a path names no usable file of a skill.
type PathError struct {
	Path   string // as it was given
	Reason Reason
	// Resolved is the path as far as it could be followed. With ReasonNotFound, the
	// remaining components are appended. With ReasonEscapes it is where the path leads: an
	// absolute path, or one relative to the skill that starts with "..".
	Resolved string
	// Refused is the refused entry on the path, or nil.
	Refused *Refused
}

// Error shows the path in the form that a terminal can print: the path comes from a request, and Resolved from a skill.
func (e *PathError) Error() string {
	p := Printable(e.Path)
	switch e.Reason {
	case ReasonOutside:
		return "path '" + p + "' is not a file of the skill"
	case ReasonEscapes:
		if path.IsAbs(e.Path) {
			return p + ": lies outside of the skill; give a path relative to the skill, or beneath its own folder"
		}
		return p + ": escapes the skill: it leads to " + Printable(e.Resolved)
	case ReasonNotFound:
		return p + ": not found in the skill"
	case ReasonDirectory:
		return p + ": is a directory"
	case ReasonRefused:
		return p + ": refused, since " + e.Refused.Path + " " + e.Refused.Reason
	case ReasonLoop:
		return p + ": too many links"
	case ReasonNotDirectory:
		return p + ": is not a directory"
	}
	return "path '" + p + "' is not a valid path"
}

// Spot is the end of following a path. If Reason is 0, Entry is a file, a directory or
// (Path "") the root, never a link.
type Spot struct {
	Path    string
	Entry   Entry
	Reason  Reason
	Refused *Refused
}

// Resolve follows p from the skill's root through links and "..", as the kernel would, but
// inside the tree. maxLinks and maxLinkSteps bound the cost, however long the targets are.
func (t *Tree) Resolve(p string) Spot {
	pending := []string{p} // the parts still to follow, the next one last
	at := Spot{Entry: Entry{Kind: KindDir}}
	links := 0
	for steps := 0; len(pending) > 0; steps++ {
		if steps > maxLinkSteps || links > maxLinks {
			return Spot{Path: at.Path, Reason: ReasonLoop}
		}
		last := len(pending) - 1
		name, rest, more := strings.Cut(pending[last], "/")
		pending[last] = rest
		if !more {
			pending = pending[:last]
		}
		if at.Entry.Kind != KindDir {
			return Spot{Path: outside(path.Join(at.Path, name), pending), Reason: ReasonNotFound}
		}
		switch name {
		case "", ".":
			continue
		case "..":
			if at.Path == "" {
				return Spot{Path: outside("..", pending), Reason: ReasonEscapes}
			}
			at = t.dir(parent(at.Path))
			continue
		}
		next := join(at.Path, name)
		pl, ok := t.at[next]
		if !ok {
			return Spot{Path: outside(next, pending), Reason: ReasonNotFound}
		}
		if pl.refused {
			return stopped(next, &t.Refused[pl.index], pending)
		}
		e := t.Entries[pl.index]
		if e.Kind != KindLink {
			at = Spot{Path: next, Entry: e}
			continue
		}
		links++
		if path.IsAbs(e.Target) {
			return Spot{Path: outside(e.Target, pending), Reason: ReasonEscapes}
		}
		pending = append(pending, e.Target)
	}
	return at
}

// outside joins the point where a path left the tree with the parts that were still to
// follow.
func outside(left string, pending []string) string {
	for _, p := range slices.Backward(pending) {
		left = path.Join(left, p)
	}
	return left
}

// dir returns the spot of a directory that was passed before.
func (t *Tree) dir(p string) Spot {
	if p == "" {
		return Spot{Entry: Entry{Kind: KindDir}}
	}
	return Spot{Path: p, Entry: t.Entries[t.at[p].index]}
}

// stopped returns the end of a path that meets a refused entry.
func stopped(p string, r *Refused, pending []string) Spot {
	s := Spot{Path: p, Reason: ReasonRefused, Refused: r}
	switch r.Why {
	case LeavesSkill, VenvInterpreter:
		s.Reason, s.Path = ReasonEscapes, outside(r.Target, pending)
	case LinkLoop:
		s.Reason = ReasonLoop
	}
	return s
}

// badName reports whether a path cannot be shown and compared as text.
func badName(p string) bool {
	return !utf8.ValidString(p) || strings.ContainsFunc(p, IsControl)
}
