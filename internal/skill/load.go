package skill

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// ErrNoManifest says that a folder has no SKILL.md.
//
//lint:ignore ST1005 a published text
var ErrNoManifest = errors.New("Missing required file: SKILL.md")

// changingPause is the time between two attempts at a folder that changes: an installer writes
// for longer than one attempt takes.
const changingPause = 50 * time.Millisecond

// reading is everything that one read of a folder found. needsFindings are the findings about
// needs; doc has the others.
type reading struct {
	tree *snapshot.Tree
	doc  *manifest.Document

	needs         manifest.Needs
	needsFindings []manifest.Finding

	listing  Listing
	unlisted error // an *UnlistedError, or nil
}

// read scans a folder and parses its manifest. The skill should be named folder, see
// manifest.Parse. If the folder changes during the read, it is read again, up to
// scanAttempts times.
func read(ctx context.Context, src snapshot.Source, folder string, b snapshot.Bounds) (*reading, error) {
	var r *reading
	err := whileChanging(ctx, func() (err error) {
		r, err = readOnce(ctx, src, folder, b)
		return err
	})
	return r, err
}

// whileChanging repeats f as long as it returns snapshot.ErrChanging, up to scanAttempts times.
func whileChanging(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if !errors.Is(err, snapshot.ErrChanging) || attempt == scanAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(changingPause):
		}
	}
}

// readOnce reads a folder and returns snapshot.ErrChanging if the folder changed during the read. A
// manifest larger than manifest.MaxBytes is not parsed.
func readOnce(ctx context.Context, src snapshot.Source, folder string, b snapshot.Bounds) (*reading, error) {
	// A folder without a manifest can be anything, and large, so it is not scanned.
	if has, err := hasManifest(int(src.Dir.Fd())); err != nil {
		return nil, err
	} else if !has {
		return nil, ErrNoManifest
	}
	t, err := snapshot.Scan(ctx, src, b)
	if err != nil {
		return nil, err
	}
	name := manifestName(t)
	if name == "" {
		return nil, snapshot.ErrChanging
	}
	e, err := t.Lookup(name) // the manifest may be a link inside the skill
	if err != nil {
		return nil, err
	}
	if e.Size > manifest.MaxBytes {
		f := manifest.Findings{File: name}
		f.Stop(0, manifest.RuleManifestSize, "is %d bytes long, the maximum is %d", e.Size, manifest.MaxBytes)
		return nil, f.Err()
	}
	text, err := snapshot.ReadFile(src, e)
	if err != nil {
		return nil, err
	}
	doc := manifest.Parse(text, name, folder)
	if name != manifest.Names[0] {
		doc.Warn(0, manifest.RuleManifestName, "is named %s: rename it to %s", name, manifest.Names[0])
	}
	r := &reading{tree: t, doc: doc}
	r.listing, r.unlisted = r.list()
	r.needs, r.needsFindings, err = manifest.ReadNeeds(doc, t, func(e snapshot.Entry) ([]byte, error) { return snapshot.ReadFile(src, e) })
	return r, err
}

// hasManifest reports whether the directory has an entry with a manifest's name, of any
// kind.
func hasManifest(dir int) (bool, error) {
	for _, name := range manifest.Names {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
			return err == nil, err
		}
	}
	return false, nil
}

// manifestName returns the first of manifest.Names that the tree has, or "".
func manifestName(t *snapshot.Tree) string {
	for _, name := range manifest.Names {
		if t.Has(name) {
			return name
		}
	}
	return ""
}

// importFolder imports a folder. If st is not nil, the snapshot is complete but has a temporary
// name, and the caller must publish or remove it.
func importFolder(ctx context.Context, s *snapshot.Store, f folder, b snapshot.Bounds) (sk *Skill, st *snapshot.Staged, err error) {
	err = whileChanging(ctx, func() error {
		dir, err := f.open()
		if err != nil {
			return err
		}
		defer dir.Close()
		var before unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &before); err != nil {
			return err
		}
		src := f.source(dir)
		r, err := readOnce(ctx, src, f.name, b)
		if err != nil {
			return err
		}
		if err := r.doc.Err(); err != nil {
			return err
		}
		at, staged, err := s.Stage(ctx, src, r.tree, b)
		if err != nil {
			return err
		}
		// An installer that exchanges two folders may go on writing to the old one, and exchange
		// them again. Between two writes a half-written skill looks unchanged, so check that
		// dir was in its place all the time.
		if err := snapshot.Still(f.root, f.relative, before); err != nil {
			if staged != nil {
				staged.Discard()
			}
			return err
		}
		sk, st = newSkill(r, at, f.namespace), staged
		return nil
	})
	return sk, st, err
}

// newSkill builds a Skill from a reading. dir is the snapshot; namespace may be empty. Nothing changes the Skill
// afterwards, so it needs no lock.
func newSkill(r *reading, dir, namespace string) *Skill {
	all := r.validate()
	name := r.doc.Name
	if namespace != "" {
		name = namespace + "/" + name
	}
	return &Skill{
		Name:      name,
		Digest:    r.tree.Digest,
		Manifest:  r.doc.Manifest,
		Body:      r.doc.Body,
		Dir:       dir,
		Scripts:   r.tree.Scripts,
		Warnings:  manifest.AsWarnings(all),
		Refused:   r.tree.Refused,
		FileCount: r.tree.FileCount,
		SizeBytes: r.tree.SizeBytes,
		tree:      *r.tree,
		findings:  all,
		needs:     r.needs,
		listing:   r.listing,
		unlisted:  r.unlisted,
	}
}
