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

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// ErrLinkedFolder says that a root has a link in place of a skill folder. If links were
// followed, a user with write access to a root could import any folder that the daemon can
// read.
// Configure the link's target as a root instead.
var ErrLinkedFolder = errors.New("is a link, and links are not followed; configure its target instead")

// ErrTooDeep says that a folder of a recursive root is not searched.
var ErrTooDeep = fmt.Errorf("is more than %d levels beneath its root, and is not searched; configure it as a separate root", maxRootDepth)

// DuplicateError says that a folder's skill has the name of another folder's skill.
type DuplicateError struct {
	Name   string // the full name
	Kept   string // the folder that is loaded under the name
	Folder string // the folder that is not loaded
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("skill %q is already loaded from %s; %s is ignored", e.Name, e.Kept, e.Folder)
}

// NamespaceError says that a skill without a namespace has the name of a namespace. The two would
// share URIs: skill://pdf/forms/SKILL.md would be a file of the skill pdf, and the skill pdf/forms.
type NamespaceError struct{ Name string }

func (e *NamespaceError) Error() string {
	return fmt.Sprintf("%q is the namespace of another root; rename the skill, or give its root a namespace, too", e.Name)
}

// RegistryConfig says where the skills are and where their snapshots go.
type RegistryConfig struct {
	// If two skills have the same full name, the skill of the earlier root wins, then the one whose folder has
	// the skill's name, then the one whose folder comes first in byte order.
	Roots []Root
	// Private are the roots of single tenants, by tenant. SetPrivate replaces them.
	Private map[string][]Root
	// Dir is the directory of the snapshots. OpenRegistry creates it if it is missing.
	// Nothing else may use it, except for registries of other processes.
	Dir string
	// Owner owns every entry of a snapshot. It must be given, and cannot be root.
	Owner    snapshot.Owner
	MaxFiles int   // see snapshot.Bounds
	MaxBytes int64 // see snapshot.Bounds
	// TenantsDir has a directory for each tenant with pushed skills. Empty: pushes are refused.
	TenantsDir string
	// Rules returns the rules of a tenant. Nil: every tenant sees and pushes everything, without quotas.
	// It is called often, and must be quick.
	Rules func(tenant string) Rules
	// Reserved are names of shared skills that every tenant sees and none can push.
	Reserved []string
	// Removed is called when a snapshot of a skill was removed, with its directory. It must be quick. Nil: not called.
	Removed func(dir string)
	// Takeover says that an earlier process has the directories open, and will hand them over. See takeover.go.
	Takeover bool
	Log      *slog.Logger // nil: no log
}

// Registry holds the skills of its roots, each in the last version that loaded, and the skills that
// tenants pushed (tenant.go). All tenants share the skills of the roots, except for private roots
// (private.go). Code that acts for a tenant
// looks skills up in a View, which For returns. It is safe for concurrent use, and looking up a skill
// of the roots never waits for loading.
type Registry struct {
	config RegistryConfig
	bounds snapshot.Bounds
	store  *snapshot.Store
	// publish is store.Publish; tests put another in its place. The tenant has the roots; empty: they are shared.
	publish func(tenant string, staged []*snapshot.Staged) error

	unwatched int // directories, when Watch looked last; only Watch uses it

	// Serializes Reload and Close; readers don't take it.
	loading sync.Mutex   // held while roots are read
	removes bool         // former versions: no other process may use them; guarded by loading
	copies  copies       // of the skills of roots
	phase   atomic.Int32 // see takeover.go
	// The last result. Readers load it once, so all they see is of one reload.
	now     atomic.Pointer[snapshotOfRoots]
	private atomic.Pointer[private]
	rewatch chan struct{} // a signal for Watch: the roots have changed
	changes notice
	owners  sync.Map // of *owned, by tenant
}

// snapshotOfRoots is the result of one reload. It is immutable.
type snapshotOfRoots struct {
	roots    []Root              // of which it is
	byName   map[string]*Skill   // by full name
	byBare   map[string][]*Skill // skills with a namespace, by name, in the order of list
	list     []*Skill            // in the order of full names
	byFolder map[place]*Skill    // each folder's last version that loaded
	problems []Problem
}

// A place is a folder of a root with a namespace or with none. Two roots may have the same folder.
type place struct{ namespace, folder string }

// Changes names the skills that a reload changed. Each list is sorted.
type Changes struct{ Added, Updated, Removed []string }

// OpenRegistry loads every skill of the roots. A folder or root that cannot be loaded is a
// Problem, not an error. OpenRegistry also removes unused snapshots, as Adopt does;
// it keeps them if another process uses the directory. The caller must call Close.
func OpenRegistry(ctx context.Context, c RegistryConfig) (*Registry, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.Roots, err = absolute(c.Roots); err != nil {
		return nil, err
	}
	roots, err := allAbsolute(c.Private)
	if err != nil {
		return nil, err
	}
	if c.TenantsDir != "" {
		if c.TenantsDir, err = filepath.Abs(c.TenantsDir); err != nil {
			return nil, err
		}
	}
	st, alone, err := snapshot.OpenStore(ctx, c.Dir, c.Owner)
	if err != nil {
		return nil, fmt.Errorf("skill snapshots: %w", err)
	}
	r := &Registry{config: c, bounds: snapshot.Bounds{MaxFiles: c.MaxFiles, MaxBytes: c.MaxBytes}, store: st, rewatch: make(chan struct{}, 1)}
	r.publish = func(_ string, staged []*snapshot.Staged) error { return st.Publish(staged) }
	r.now.Store(&snapshotOfRoots{})
	r.private.Store(&private{roots: roots})
	if c.Takeover {
		r.phase.Store(unadopted)
	}
	if _, err := r.Reload(ctx); err != nil {
		st.Close()
		return nil, err
	}
	if r.removes = alone && !c.Takeover; r.removes {
		r.logSwept(st.Sweep(r.copies.inUse()))
	}
	if alone {
		// This lets other processes in.
		if err := st.Share(); err != nil {
			st.Close()
			return nil, fmt.Errorf("skill snapshots: %w", err)
		}
	}
	return r, nil
}

// logSwept logs the result of a sweep of the skills of the roots. A snapshot that remains only costs disk space.
func (r *Registry) logSwept(removed int, err error) {
	if err != nil {
		r.config.Log.Warn("unused skill snapshots remain", "err", err)
	}
	if removed > 0 {
		r.config.Log.Info("unused skill snapshots removed", "count", removed)
	}
}

// Close releases the directory of the snapshots. Skills stay usable until another process
// removes their snapshots.
func (r *Registry) Close() error {
	r.loading.Lock()
	defer r.loading.Unlock()
	return errors.Join(r.closeOwned(), r.store.Close())
}

// Resolve finds a shared skill by its full name, or by its name if that is unique. Either may have a pin,
// "@sha256:<digest>". The full name of a skill without a namespace wins over the same name in a
// namespace, because that skill has no other name. The error is an *manifest.InvalidNameError, an
// *InvalidPinError, an *AmbiguousError, a *DigestMismatch, or a *NotFoundError. Only
// the loaded version of a shared skill can be resolved: a pin protects against a change, and does not
// bring back a version that its operator has replaced.
func (r *Registry) Resolve(ref string) (*Skill, error) {
	name, digest, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	return r.resolve(name, digest, nil)
}

// resolve finds a shared skill that visible accepts. A nil visible accepts all.
func (r *Registry) resolve(name, digest string, visible func(name string) bool) (*Skill, error) {
	now := r.now.Load()
	if namespace, _ := manifest.SplitName(name); namespace != "" && !r.showsNamespace(now, namespace, visible) {
		return nil, manifest.ValidName(name)
	}
	s, err := now.find(name, visible)
	if err != nil {
		return nil, err
	}
	if digest != "" && digest != s.Digest {
		return nil, &DigestMismatch{Name: name, Want: digest, Have: s.Digest}
	}
	return s, nil
}

// find finds a skill by its full name or by its name.
func (n *snapshotOfRoots) find(name string, visible func(name string) bool) (*Skill, error) {
	see := func(s *Skill) bool { return s != nil && (visible == nil || visible(s.Name)) }
	if s := n.byName[name]; see(s) {
		return s, nil
	}
	all := n.byBare[name]
	if visible != nil {
		all = slices.DeleteFunc(slices.Clone(all), func(s *Skill) bool { return !see(s) })
	}
	switch len(all) {
	case 0:
		return nil, &NotFoundError{Name: name}
	case 1:
		return all[0], nil
	default:
		e := &AmbiguousError{Name: name}
		for _, s := range all {
			e.Candidates = append(e.Candidates, s.Name)
		}
		return nil, e
	}
}

// showsNamespace reports whether a shared root has the namespace and, unless visible is nil, a visible skill in it. So
// an error does not tell a namespace of hidden skills from one that does not exist.
func (r *Registry) showsNamespace(now *snapshotOfRoots, namespace string, visible func(name string) bool) bool {
	return r.HasNamespace(namespace) && (visible == nil || slices.ContainsFunc(now.list, func(s *Skill) bool {
		in, _ := manifest.SplitName(s.Name)
		return in == namespace && visible(s.Name)
	}))
}

// HasNamespace reports whether a shared root has the namespace.
func (r *Registry) HasNamespace(namespace string) bool {
	return hasNamespace(r.config.Roots, namespace)
}

func hasNamespace(roots []Root, namespace string) bool {
	return slices.ContainsFunc(roots, func(root Root) bool { return namespace != "" && root.Namespace == namespace })
}

// List returns all shared skills, sorted by full name.
func (r *Registry) List() []*Skill { return slices.Clone(r.now.Load().list) }

// OfRoots returns the skills of all roots, shared and private.
func (r *Registry) OfRoots() []*Skill {
	list := r.List()
	for _, private := range r.mine().now {
		list = append(list, private.list...)
	}
	return list
}

// Changed returns a channel that is closed after the next reload, whether or not a skill
// changed, and after a tenant pushed or deleted a skill. To miss no change, call Changed before List.
func (r *Registry) Changed() <-chan struct{} { return r.changes.next() }

// Bounds returns the bounds of one skill.
func (r *Registry) Bounds() snapshot.Bounds { return r.bounds.WithDefaults() }

// A notice tells any number of waiters that something has changed.
type notice struct {
	mu sync.Mutex
	ch chan struct{} // nil: no caller waits
}

func (n *notice) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notice) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
