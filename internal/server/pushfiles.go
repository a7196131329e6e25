package server

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// maxLinkTarget is the kernel's bound on the target of a link (PATH_MAX, symlink(2)).
const maxLinkTarget = 4095

// pushedFiles writes the entries of a push to a new directory. Paths are checked as text first, and
// then os.Root keeps every write beneath the directory. Links come last, so no entry is written
// through one.
type pushedFiles struct {
	root  *os.Root
	bytes int64 // announced, and not yet received
	room  int   // for more entries, with their directories
	names int64 // bytes for more paths, with their directories, and for more targets of links
	// at has every path so far, with the directories: true is a directory. folded has the same
	// paths in lower case, for systems that do not tell the cases apart.
	at     map[string]bool
	folded map[string]string
	links  []linkEntry

	file *os.File // the latest file, while bytes of it are missing
	name string
	left int64 // bytes of file that are missing
}

// A linkEntry is a link that finish creates. It does not keep the message of its entry, which can be much larger.
type linkEntry struct{ path, target string }

func newPushedFiles(dir string, bytes int64, bounds snapshot.Bounds) (*pushedFiles, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &pushedFiles{
		root: root, bytes: bytes, room: bounds.MaxFiles, names: bounds.NameBytes(),
		at: map[string]bool{}, folded: map[string]string{},
	}, nil
}

// close leaves the files; the caller removes the directory.
func (f *pushedFiles) close() {
	if f.file != nil {
		f.file.Close()
	}
	f.root.Close()
}

// take takes one message after the header.
// The sequence is: an entry, then the data of this entry until its announced size is reached, then
// the next entry. An entry may have all its data in the same message.
func (f *pushedFiles) take(m *pb.PushSkillRequest) error {
	switch m := m.GetMessage().(type) {
	case *pb.PushSkillRequest_Entry:
		return f.entry(m.Entry)
	case *pb.PushSkillRequest_Data:
		if f.file == nil {
			return invalid("data", "no file is open for it; send an entry first")
		}
		if len(m.Data) == 0 {
			return errNoData("data")
		}
		return f.write("data", m.Data)
	}
	return invalid("message", "want an entry or data after the header")
}

// finish creates the links, after the last message.
func (f *pushedFiles) finish() error {
	if f.file != nil {
		return invalid("data", "%d bytes of %q are missing", f.left, clip(f.name, maxStatusField))
	}
	for _, l := range f.links {
		if err := f.root.Symlink(l.target, l.path); err != nil {
			return err
		}
	}
	return nil
}

// entry begins a file or notes a link.
func (f *pushedFiles) entry(e *pb.PushSkillEntry) error {
	if f.file != nil {
		return invalid("entry", "%d bytes of %q are missing before it", f.left, clip(f.name, maxStatusField))
	}
	p := e.GetPath()
	if why := badPath(p); why != "" {
		return invalid("entry.path", "%q %s", clip(p, maxStatusField), why)
	}
	if err := f.place(p); err != nil {
		return err
	}
	if dir := filepath.Dir(p); dir != "." {
		if err := f.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if target := e.GetLinkTarget(); target != "" {
		if len(e.GetData()) > 0 || e.GetSizeBytes() > 0 || len(target) > maxLinkTarget || strings.ContainsFunc(target, misleads) {
			return invalid("entry.link_target", "%q: a link has no data, and a target of at most %d bytes without control characters or characters that reverse text",
				clip(p, maxStatusField), maxLinkTarget)
		}
		f.links = append(f.links, linkEntry{p, target})
		return f.keep(target)
	}
	if e.GetSizeBytes() > math.MaxInt64 || int64(e.GetSizeBytes()) > f.bytes {
		return invalid("entry.size_bytes", "%d of %q is more than the header announced; %d bytes are left", e.GetSizeBytes(), clip(p, maxStatusField), f.bytes)
	}
	return f.create(e)
}

// O_EXCL is a second guard: place has refused a path that comes twice. An empty file is closed by
// the write of no bytes.
func (f *pushedFiles) create(e *pb.PushSkillEntry) error {
	mode := os.FileMode(0o600)
	if e.GetExecutable() {
		mode = 0o700
	}
	file, err := f.root.OpenFile(e.GetPath(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	f.file, f.name, f.left = file, e.GetPath(), int64(e.GetSizeBytes())
	// The size counts now, although the bytes come later: the sum of all announced sizes must fit.
	f.bytes -= f.left
	return f.write("entry.data", e.GetData())
}

// write appends to the latest file, and closes it after its last byte.
func (f *pushedFiles) write(field string, data []byte) error {
	if int64(len(data)) > f.left {
		return invalid(field, "%q has more bytes than announced", clip(f.name, maxStatusField))
	}
	if _, err := f.file.Write(data); err != nil {
		return err
	}
	if f.left -= int64(len(data)); f.left > 0 {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// place notes a path and its directories. It refuses what could not be on one disk together.
// Directories count against room, too: a path of 4,096 components would make as many inodes.
func (f *pushedFiles) place(p string) error {
	for i := range len(p) {
		if p[i] == '/' {
			if err := f.note(p[:i], p, true); err != nil {
				return err
			}
		}
	}
	return f.note(p, p, false)
}

// note notes one path, which is p or one of its directories.
func (f *pushedFiles) note(at, p string, dir bool) error {
	was, known := f.at[at]
	switch {
	case known && was && dir:
		return nil
	case known && at == p:
		return invalid("entry.path", "%q comes twice", clip(p, maxStatusField))
	case known:
		return invalid("entry.path", "%q: %q is not a directory", clip(p, maxStatusField), clip(at, maxStatusField))
	}
	folded := strings.ToLower(at)
	if other, taken := f.folded[folded]; taken {
		return invalid("entry.path", "%q differs from %q only in case", clip(p, maxStatusField), clip(other, maxStatusField))
	}
	if f.room--; f.room < 0 {
		return invalid("entry", "the skill has too many files and directories (snapshots.files in the daemon's configuration)")
	}
	f.at[at], f.folded[folded] = dir, at
	return f.keep(at)
}

// keep counts a path or the target of a link, which stays in memory until the end of the push.
func (f *pushedFiles) keep(text string) error {
	if f.names -= int64(len(text)); f.names < 0 {
		return invalid("entry", "the paths and link targets of the skill have too many bytes together "+
			"(the bound grows with snapshots.files in the daemon's configuration)")
	}
	return nil
}

// misleads reports whether a terminal or a log may show a text with r as another text. The embeddings, overrides and
// isolates of bidirectional text reverse what follows (Unicode, UAX 9). A folder's skill may have them: there, a path
// that is refused changes the digest.
func misleads(r rune) bool {
	return snapshot.IsControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// badPath returns why a path cannot be in a skill, or "". The limits on length and depth are the limits of
// an import, which would refuse the entry.
func badPath(p string) string {
	switch {
	case p == "":
		return "is empty"
	case !utf8.ValidString(p) || strings.ContainsFunc(p, misleads):
		return "has characters that no path of a skill may have"
	case strings.Contains(p, `\`):
		return `has a backslash; separate components by "/"`
	case filepath.IsAbs(p):
		return "is absolute; paths are relative to the skill"
	case p != filepath.Clean(p) || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return `has an empty component, "." or ".."`
	case len(p) > snapshot.MaxPathBytes || strings.Count(p, "/") >= snapshot.MaxPathDepth:
		return "is too long or nested too deep"
	}
	for component := range strings.SplitSeq(p, "/") {
		if len(component) > maxComponent {
			return "has a component that is too long"
		}
	}
	return ""
}

// maxComponent is the longest name in a directory (NAME_MAX, limits.h).
const maxComponent = 255
