package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrLinkedFolder says that a root has a link where a skill folder could be.
// Following it would let whoever may write to a root import any folder that the
// daemon can read; its target can be made a root of its own.
var ErrLinkedFolder = errors.New("is a link, which is not followed: make its target a root")

// DuplicateError says that a skill's name is taken by a folder that comes earlier.
type DuplicateError struct {
	Name   string
	Kept   string // the folder whose skill has the name
	Folder string // the one that doesn't load
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("skill %q is already loaded from %s: %s is left out", e.Name, e.Kept, e.Folder)
}

// Problem is a folder, or a root, that did not load.
type Problem struct {
	Folder string
	// Kept is the name of the skill that stays loaded from the folder's previous
	// content, or empty.
	Kept string
	// Err tells why: ErrNoManifest, ErrChanging or ErrLinkedFolder, a
	// *ManifestError, *BoundError, *DuplicateError, or *PathError (the manifest is
	// refused), or what the system said.
	Err error
}

// RegistryConfig says where skills are and where their snapshots go.
type RegistryConfig struct {
	// Roots are directories that hold skill folders, or are skill folders. In case
	// of two skills of one name the first root wins, then the first folder name.
	Roots []string
	// Dir is the directory of the snapshots. It is made if need be, and must not be
	// used for anything else. Several processes may share it.
	Dir      string
	MaxFiles int   // see Bounds
	MaxBytes int64 // see Bounds
	Log      *slog.Logger
}

// Registry holds the skills of its roots, each in the last version that could be
// loaded. It is safe for concurrent use. Looking up never waits for loading.
type Registry struct {
	config RegistryConfig
	bounds Bounds
	store  *store

	loading sync.Mutex // held while roots are read
	now     atomic.Pointer[snapshotOfRoots]
}

// snapshotOfRoots is what a reload found. It is immutable.
type snapshotOfRoots struct {
	byName   map[string]*Skill
	list     []*Skill
	byFolder map[string]*Skill // what each folder's last good version is
	problems []Problem
}

// Changes are the names of the skills that a reload changed, each list in order.
type Changes struct{ Added, Updated, Removed []string }

// OpenRegistry loads every skill of the roots. A folder or root that can't be
// loaded is a Problem, not an error. Snapshots that no skill needs any more are
// removed here, and only here, unless another process uses the directory.
func OpenRegistry(ctx context.Context, c RegistryConfig) (*Registry, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Roots = slices.Clone(c.Roots)
	for i, root := range c.Roots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, err
		}
		c.Roots[i] = abs
	}
	st, alone, err := openStore(ctx, c.Dir)
	if err != nil {
		return nil, fmt.Errorf("skill snapshots: %w", err)
	}
	r := &Registry{config: c, bounds: Bounds{c.MaxFiles, c.MaxBytes}.withDefaults(), store: st}
	r.now.Store(&snapshotOfRoots{})
	if _, err := r.Reload(ctx); err != nil {
		st.close()
		return nil, err
	}
	if alone {
		if err := r.sweep(); err != nil {
			st.close()
			return nil, fmt.Errorf("skill snapshots: %w", err)
		}
	}
	return r, nil
}

// sweep removes unused snapshots and then lets other processes in.
func (r *Registry) sweep() error {
	inUse := map[string]bool{}
	for _, s := range r.List() {
		inUse[s.Digest] = true
	}
	removed, err := r.store.sweep(inUse)
	if err != nil {
		// What can't be removed costs space and nothing else.
		r.config.Log.Warn("unused skill snapshots remain", "error", err)
	}
	if removed > 0 {
		r.config.Log.Info("unused skill snapshots removed", "count", removed)
	}
	return r.store.share()
}

// Close gives the directory of the snapshots free. Skills stay usable until
// another process sweeps it.
func (r *Registry) Close() error {
	r.loading.Lock()
	defer r.loading.Unlock()
	return r.store.close()
}

// Resolve finds a skill by name, or by name@sha256:<digest>. The error is an
// *InvalidNameError, an *InvalidPinError, a *DigestMismatch, or wraps ErrNotFound.
func (r *Registry) Resolve(ref string) (*Skill, error) {
	name, digest, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	s, ok := r.now.Load().byName[name]
	if !ok {
		return nil, fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	if digest != "" && digest != s.Digest {
		return nil, &DigestMismatch{Name: name, Want: digest, Have: s.Digest}
	}
	return s, nil
}

// List returns every skill, by name.
func (r *Registry) List() []*Skill { return slices.Clone(r.now.Load().list) }

// Problems returns the folders and roots that did not load, in the order in which
// they are read.
func (r *Registry) Problems() []Problem { return slices.Clone(r.now.Load().problems) }

// Reload reads the roots again. A folder that can't be loaded any more keeps the
// skill that it had, and is a Problem; one that is gone takes its skill with it.
// Whoever holds a Skill can go on using it. The error is only about the registry
// itself, or ctx; nothing has changed then.
func (r *Registry) Reload(ctx context.Context) (Changes, error) {
	r.loading.Lock()
	defer r.loading.Unlock()

	old := r.now.Load()
	l := &loading{registry: r, old: old, next: &snapshotOfRoots{byName: map[string]*Skill{}, byFolder: map[string]*Skill{}}}
	for _, root := range r.config.Roots {
		l.root(ctx, root)
		if err := ctx.Err(); err != nil {
			l.discard()
			return Changes{}, err
		}
	}
	if err := l.publish(); err != nil {
		return Changes{}, fmt.Errorf("skill snapshots: %w", err)
	}
	l.settle()
	r.now.Store(l.next)
	changes := compare(old, l.next)
	r.log(old, l.next, changes)
	return changes, nil
}

// loading is one reading of the roots.
type loading struct {
	registry *Registry
	old      *snapshotOfRoots
	next     *snapshotOfRoots
	found    []candidate
}

// candidate is a folder that has a skill: a new one, or the one that it had.
type candidate struct {
	folder string
	skill  *Skill
	staged *staged // to be published before the skill may be used
}

// root loads what is in one root.
func (l *loading) root(ctx context.Context, root string) {
	dir, err := os.Open(root)
	if err != nil {
		l.lostRoot(root, err)
		return
	}
	defer dir.Close()
	folders, problems, err := foldersOf(dir)
	if err != nil {
		l.lostRoot(root, err)
		return
	}
	l.next.problems = append(l.next.problems, problems...)
	for _, f := range folders {
		sk, st, err := l.registry.store.load(ctx, f, l.registry.bounds)
		if err != nil {
			l.keep(f.path, err)
			continue
		}
		if had := l.old.byFolder[f.path]; had != nil && had.Digest == sk.Digest && had.Dir == sk.Dir && st == nil {
			sk = had
		}
		l.found = append(l.found, candidate{f.path, sk, st})
	}
}

// keep goes on with the skill that a folder had before, if it had one.
func (l *loading) keep(folder string, err error) {
	p := Problem{Folder: folder, Err: err}
	if had := l.old.byFolder[folder]; had != nil {
		p.Kept = had.Name
		l.found = append(l.found, candidate{folder: folder, skill: had})
	}
	l.next.problems = append(l.next.problems, p)
}

// lostRoot keeps the skills of a root that can't be read. One that doesn't exist
// has none.
func (l *loading) lostRoot(root string, err error) {
	l.next.problems = append(l.next.problems, Problem{Folder: root, Err: err})
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, folder := range sortedKeys(l.old.byFolder) {
		if folder == root || filepath.Dir(folder) == root {
			l.found = append(l.found, candidate{folder: folder, skill: l.old.byFolder[folder]})
		}
	}
}

// publish makes the new snapshots durable and gives them their names. A skill
// whose snapshot can't be published is a problem of its own.
func (l *loading) publish() error {
	store := l.registry.store
	staged := slices.ContainsFunc(l.found, func(c candidate) bool { return c.staged != nil })
	if !staged {
		return nil
	}
	if err := store.flush(); err != nil {
		l.discard()
		return err
	}
	for _, c := range l.found {
		if c.staged == nil {
			continue
		}
		if err := store.publish(c.staged); err != nil {
			l.discard()
			return err
		}
	}
	return store.sync()
}

// discard removes what was staged and is not needed.
func (l *loading) discard() {
	for _, c := range l.found {
		if c.staged != nil {
			os.RemoveAll(c.staged.tmp)
		}
	}
}

// settle decides which folder has which name, and sorts.
func (l *loading) settle() {
	n := l.next
	folderOf := map[string]string{}
	for _, c := range l.found {
		name := c.skill.Name
		if kept, taken := folderOf[name]; taken {
			if kept != c.folder {
				err := &DuplicateError{Name: name, Kept: kept, Folder: c.folder}
				n.problems = append(n.problems, Problem{Folder: c.folder, Err: err})
			}
			continue
		}
		folderOf[name] = c.folder
		n.byName[name] = c.skill
		n.byFolder[c.folder] = c.skill
	}
	n.list = slices.SortedFunc(maps.Values(n.byName), func(a, b *Skill) int { return strings.Compare(a.Name, b.Name) })
}

func compare(old, next *snapshotOfRoots) Changes {
	var c Changes
	for _, name := range sortedKeys(next.byName) {
		switch had := old.byName[name]; {
		case had == nil:
			c.Added = append(c.Added, name)
		case had.Digest != next.byName[name].Digest:
			c.Updated = append(c.Updated, name)
		}
	}
	for _, name := range sortedKeys(old.byName) {
		if next.byName[name] == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	return c
}

// log tells what changed, and which problems are new.
func (r *Registry) log(old, next *snapshotOfRoots, c Changes) {
	if len(c.Added)+len(c.Updated)+len(c.Removed) > 0 {
		r.config.Log.Info("skills loaded", "added", c.Added, "updated", c.Updated, "removed", c.Removed, "total", len(next.list))
	}
	known := map[string]bool{}
	for _, p := range old.problems {
		known[p.Folder+"\x00"+p.Err.Error()] = true
	}
	for _, p := range next.problems {
		if !known[p.Folder+"\x00"+p.Err.Error()] {
			r.config.Log.Warn("skill not loaded", "folder", p.Folder, "kept", p.Kept, "error", p.Err)
		}
	}
}
