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

// manifestNames are the names under which a manifest is found, the right one first.
var manifestNames = []string{"SKILL.md", "skill.md"}

const changingPause = 50 * time.Millisecond

// reading is a folder that was read, before anything is decided about it.
type reading struct {
	tree *tree
	doc  *document

	needs         needs
	needsFindings []Finding
}

// read scans a folder and parses its manifest. folder is the name that the skill
// should have, see parseDocument. A folder that changes meanwhile is read again, a
// few times.
func read(ctx context.Context, dir *os.File, folder string, b Bounds) (*reading, error) {
	var r *reading
	err := whileChanging(ctx, func() (err error) {
		r, err = readOnce(ctx, dir, folder, b)
		return err
	})
	return r, err
}

// whileChanging repeats f while it says ErrChanging.
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

func readOnce(ctx context.Context, dir *os.File, folder string, b Bounds) (*reading, error) {
	// A folder that is no skill may be anything, and large: look before reading.
	if !hasManifest(int(dir.Fd())) {
		return nil, ErrNoManifest
	}
	t, err := scanTree(ctx, dir, "", b)
	if err != nil {
		return nil, err
	}
	name := manifestName(t)
	if name == "" {
		return nil, ErrChanging
	}
	e, err := (&Skill{tree: *t}).Lookup(name) // it may be a link inside the skill
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

// hasManifest looks for a manifest's name, whatever it is the name of.
func hasManifest(dir int) bool {
	return slices.ContainsFunc(manifestNames, func(name string) bool {
		var st unix.Stat_t
		return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	})
}

// manifestName is the first of manifestNames that the tree has, or "".
func manifestName(t *tree) string {
	for _, name := range manifestNames {
		if _, ok := t.at[name]; ok {
			return name
		}
	}
	return ""
}

// readBeneath reads a file that a scan has seen, and makes sure that it is the
// same.
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

// load imports a folder. The skill's snapshot is complete, but has its name only
// when st, if it is not nil, is published.
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
		// Who installs a skill by exchanging folders may write to the old one from
		// then on, and what is half written stands still between two writes.
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

// newSkill puts together what reading a folder gave.
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

// folder is where a skill may be: a directory in a root, or a root itself.
type folder struct {
	root *os.File
	name string // of the directory, for the rule that the skill has its name
	path string // for people
	self bool   // the root itself
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

// still reports ErrChanging if dir is no longer what has the folder's name.
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

// foldersOf lists what may be skills in a root, by name. Files and hidden
// directories are none; a link is not followed, and is returned as a problem.
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
			continue // gone by now
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
