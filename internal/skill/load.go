package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoManifest says that a folder has no SKILL.md.
//
//lint:ignore ST1005 a published text
var ErrNoManifest = errors.New("Missing required file: SKILL.md")

// manifestNames are the accepted names of a manifest, the preferred one first.
var manifestNames = []string{"SKILL.md", "skill.md"}

const changingPause = 50 * time.Millisecond

// reading is everything that one read of a folder found.
type reading struct {
	tree *tree
	doc  *document

	needs         needs
	needsFindings []Finding
}

// read scans a folder and parses its manifest. The skill should be named folder, see
// parseDocument. If the folder changes during the read, it is read again, up to
// scanAttempts times.
func read(ctx context.Context, dir *os.File, folder string, b Bounds) (*reading, error) {
	var r *reading
	err := whileChanging(ctx, func() (err error) {
		r, err = readOnce(ctx, dir, folder, b)
		return err
	})
	return r, err
}

// whileChanging repeats f as long as it returns ErrChanging, up to scanAttempts times.
func whileChanging(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if !errors.Is(err, ErrChanging) || attempt == scanAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(changingPause):
		}
	}
}

// readOnce reads a folder and returns ErrChanging if the folder changed during the read. A
// manifest larger than MaxManifestBytes is not parsed.
func readOnce(ctx context.Context, dir *os.File, folder string, b Bounds) (*reading, error) {
	// A folder without a manifest can be anything, and large, so it is not scanned.
	if !hasManifest(int(dir.Fd())) {
		return nil, ErrNoManifest
	}
	t, err := scanTree(ctx, dir, nil, b)
	if err != nil {
		return nil, err
	}
	name := manifestName(t)
	if name == "" {
		return nil, ErrChanging
	}
	e, err := (&Skill{tree: *t}).Lookup(name) // the manifest may be a link inside the skill
	if err != nil {
		return nil, err
	}
	if e.Size > MaxManifestBytes {
		f := findings{file: name}
		f.stop(0, RuleManifestSize, "is %d bytes long, the maximum is %d", e.Size, MaxManifestBytes)
		return nil, f.err()
	}
	text, err := readBeneath(int(dir.Fd()), e)
	if err != nil {
		return nil, err
	}
	doc := parseDocument(text, name, folder)
	if name != manifestNames[0] {
		doc.warn(0, RuleManifestName, "is named %s: rename it to %s", name, manifestNames[0])
	}
	r := &reading{tree: t, doc: doc}
	r.needs, r.needsFindings, err = readNeeds(r, func(e Entry) ([]byte, error) { return readBeneath(int(dir.Fd()), e) })
	return r, err
}

// hasManifest reports whether the directory has an entry with a manifest's name, of any
// kind.
func hasManifest(dir int) bool {
	return slices.ContainsFunc(manifestNames, func(name string) bool {
		var st unix.Stat_t
		return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	})
}

// manifestName returns the first of manifestNames that the tree has, or "".
func manifestName(t *tree) string {
	for _, name := range manifestNames {
		if _, ok := t.at[name]; ok {
			return name
		}
	}
	return ""
}

// readBeneath reads a file that a scan has seen. It returns ErrChanging unless the content
// has the hash that the scan computed.
func readBeneath(dir int, e Entry) ([]byte, error) {
	fd, err := unix.Openat2(dir, e.Path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, orChanging(err))
	}
	f := os.NewFile(uintptr(fd), e.Path)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", e.Path, ErrChanging)
	}
	text, err := io.ReadAll(io.LimitReader(f, e.Size+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, err)
	}
	if hexSHA256(text) != e.SHA256 {
		return nil, fmt.Errorf("%s: %w", e.Path, ErrChanging)
	}
	return text, nil
}

// load imports a folder. If st is not nil, the snapshot is complete but has a temporary
// name, and the caller must publish or remove it.
func (s *store) load(ctx context.Context, f folder, b Bounds) (sk *Skill, st *staged, err error) {
	err = whileChanging(ctx, func() error {
		dir, err := f.open()
		if err != nil {
			return err
		}
		defer dir.Close()
		r, err := readOnce(ctx, dir, f.name, b)
		if err != nil {
			return err
		}
		if err := r.doc.err(); err != nil {
			return err
		}
		at, staged, err := s.stage(ctx, dir, r.tree, b)
		if err != nil {
			return err
		}
		// An installer that exchanges two folders may go on writing to the old one. Between
		// two writes a half-written skill looks unchanged, so check that dir is not the old
		// one.
		if err := f.still(dir); err != nil {
			if staged != nil {
				os.RemoveAll(staged.tmp)
			}
			return err
		}
		sk, st = newSkill(r, at), staged
		return nil
	})
	return sk, st, err
}

// newSkill builds a Skill from a reading. dir is the snapshot.
func newSkill(r *reading, dir string) *Skill {
	all := r.validate()
	return &Skill{
		Name:      r.doc.Name,
		Digest:    r.tree.digest,
		Manifest:  r.doc.Manifest,
		Body:      r.doc.body,
		Dir:       dir,
		Scripts:   r.tree.scripts,
		Warnings:  asWarnings(all),
		Refused:   r.tree.refused,
		FileCount: r.tree.files,
		SizeBytes: r.tree.bytes,
		tree:      *r.tree,
		findings:  all,
		needs:     r.needs,
	}
}

// folder is a directory that may be a skill: one in a root, or the root itself.
type folder struct {
	root *os.File
	name string // of the directory; the skill should have the same name
	path string // for messages
	self bool   // it is the root itself
}

func (f folder) open() (*os.File, error) {
	name := f.name
	if f.self {
		name = "."
	}
	fd, err := openat(int(f.root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return os.NewFile(uintptr(fd), f.path), nil
}

// still returns ErrChanging if the folder's path no longer leads to dir.
func (f folder) still(dir *os.File) error {
	now, err := f.open()
	if err != nil {
		return orChanging(err)
	}
	defer now.Close()
	was, err := dir.Stat()
	if err != nil {
		return err
	}
	is, err := now.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(was, is) {
		return ErrChanging
	}
	return nil
}

// foldersOf lists the directories of a root that may be skills, by name. If the root itself
// has a manifest, it is the only one. Files and hidden directories are skipped. A link is
// not followed; it is returned as a problem.
func foldersOf(root *os.File) (found []folder, problems []Problem, err error) {
	if hasManifest(int(root.Fd())) {
		return []folder{{root: root, name: filepath.Base(root.Name()), path: root.Name(), self: true}}, nil, nil
	}
	names, err := root.Readdirnames(maxRootNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(names) > maxRootNames {
		return nil, nil, &BoundError{"folders", maxRootNames}
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || excluded(name) || name == "node_modules" {
			continue
		}
		f := folder{root: root, name: name, path: strings.TrimSuffix(root.Name(), "/") + "/" + name}
		var st unix.Stat_t
		if err := unix.Fstatat(int(root.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // removed since the directory was read
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			found = append(found, f)
		case unix.S_IFLNK:
			problems = append(problems, Problem{Folder: f.path, Err: ErrLinkedFolder})
		}
	}
	return found, problems, nil
}
