package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"
)

// Kind is the type of an entry.
type Kind uint8

const (
	KindDir Kind = iota + 1
	KindFile
	KindLink
)

// Entry is an entry of a skill that is not refused.
type Entry struct {
	Path       string // relative to the skill, without links in it
	Kind       Kind
	Size       int64  // in bytes; only of a file
	Executable bool   // only of a file; mode 0755 in the snapshot, else 0644
	SHA256     string // of a file's content, in lowercase hex
	Target     string // of a link, as written
}

// Tree is the content of a skill's folder. [Scan] fills it; afterwards it is immutable. The
// zero Tree is empty.
type Tree struct {
	Entries   []Entry   // in byte order of Path, without the root and without refused entries
	Refused   []Refused // in byte order of the bytes of the path
	Scripts   []Script  // in byte order of Path
	FileCount int       // regular files that are not refused
	SizeBytes int64     // of these files
	Digest    string    // "sha256:" and 64 hex digits, see digestHeader

	at map[string]place // of every entry, refused or not
}

// place is the position of a path in Entries or, if refused is set, in Refused.
type place struct {
	index   int
	refused bool
}

// digestHeader begins version 1 of a tree's digest. The digest is the SHA-256 of
//
//	"skillrun tree 1" NUL
//
// followed, for each entry beneath the root in byte order of its path, by
//
//	kind NUL path NUL value NUL
//
// path is relative, with components joined by "/". kind and value are
//
//	dir      nothing
//	file     SHA-256 of the content, in lowercase hex; no execute permission bit is set
//	exec     the same; at least one execute permission bit is set
//	link     the target, as written
//	refused  the reason (RefusedWhy), and for a link ":" and its target as written
//
// Owner, group, times, other permissions, extended attributes and hard links do not
// count. Excluded names (see Excluded) do not count either. A refused directory stands for
// everything in it. The content of a refused entry does not count, since no snapshot
// holds it.
const digestHeader = "skillrun tree 1"

// seal sorts the tree, refuses bad links, and computes index and digest. It runs after the
// scan, because a link can only be judged when every other entry is known.
func (t *Tree) seal() {
	slices.SortFunc(t.Entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(t.Refused, func(a, b Refused) int { return cmp.Compare(a.raw, b.raw) })
	t.index()
	t.refuseLinks()
	slices.SortFunc(t.Refused, func(a, b Refused) int { return cmp.Compare(a.raw, b.raw) })
	slices.SortFunc(t.Scripts, func(a, b Script) int { return cmp.Compare(a.Path, b.Path) })
	t.index()
	t.Digest = t.computeDigest()
}

// index makes at, by the raw bytes of each path.
func (t *Tree) index() {
	t.at = make(map[string]place, len(t.Entries)+len(t.Refused))
	for i, e := range t.Entries {
		t.at[e.Path] = place{index: i}
	}
	for i, r := range t.Refused {
		t.at[r.raw] = place{index: i, refused: true}
	}
}

// refuseLinks moves links from entries to refused if they leave the skill or exceed the
// limits on following links.
func (t *Tree) refuseLinks() {
	var bad []Refused
	kept := make([]Entry, 0, len(t.Entries))
	for _, e := range t.Entries {
		if e.Kind != KindLink {
			kept = append(kept, e)
			continue
		}
		switch s := t.Resolve(e.Path); s.Reason {
		case ReasonEscapes:
			bad = append(bad, refusedLink(e, LeavesSkill, s.Path))
		case ReasonLoop:
			bad = append(bad, refusedLink(e, LinkLoop, ""))
		default:
			kept = append(kept, e)
		}
	}
	t.Entries, t.Refused = kept, append(t.Refused, bad...)
}

// computeDigest merges Entries and Refused, which are both sorted. Digests of stored snapshots
// depend on every byte of it; digestHeader has the format.
func (t *Tree) computeDigest() string {
	h := sha256.New()
	field := func(parts ...string) {
		for _, p := range parts {
			io.WriteString(h, p)
		}
		h.Write([]byte{0})
	}
	field(digestHeader)
	e, r := t.Entries, t.Refused
	for len(e)+len(r) > 0 {
		if len(r) == 0 || len(e) > 0 && e[0].Path < r[0].raw {
			field(e[0].digestKind())
			field(e[0].Path)
			field(e[0].SHA256, e[0].Target)
			e = e[1:]
			continue
		}
		field("refused")
		field(r[0].raw)
		if r[0].target != "" {
			field(r[0].Why.String(), ":", r[0].target)
		} else {
			field(r[0].Why.String())
		}
		r = r[1:]
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// digestKind is the word for the entry in the digest.
func (e Entry) digestKind() string {
	switch {
	case e.Kind == KindDir:
		return "dir"
	case e.Kind == KindLink:
		return "link"
	case e.Executable:
		return "exec"
	}
	return "file"
}

// Excluded reports whether a name is never part of a skill: private data of version
// control, and caches that tools write next to the sources. Caches would change the digest
// although the skill is the same. node_modules and virtual environments are included, since
// scripts use them.
func Excluded(name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".jj", ".bzr", "CVS",
		"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache",
		".DS_Store":
		return true
	}
	return false
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// join is path.Join for a clean directory. "" is the root.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// parent returns the directory of a clean path. "" is the root.
func parent(p string) string {
	return p[:max(strings.LastIndexByte(p, '/'), 0)]
}
