package skill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
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
	replaced chan struct{} // closed when the next one is there
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
	r.now.Store(&snapshotOfRoots{replaced: make(chan struct{})})
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

// Changed returns a channel that is closed after the next reload, whether or not it
// changed a skill. Call it before List, and no change is missed.
func (r *Registry) Changed() <-chan struct{} { return r.now.Load().replaced }

// Problems returns the folders and roots that did not load, in the order in which
// they are read.
func (r *Registry) Problems() []Problem { return slices.Clone(r.now.Load().problems) }
