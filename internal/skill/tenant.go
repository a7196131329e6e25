package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Skills that tenants push. Theory of operation.
//
// Each tenant has a directory with a snapshot.Store and the file index. The file lists the kept
// versions in the order of their pushes. Only listed versions exist. A push publishes the snapshot and
// then replaces the file. The first push makes the file before the snapshot, so snapshots without the file are
// damage. A deletion replaces the file and then removes the snapshot. After a crash
// between the two steps, the next open removes the snapshot, because the file does not list it.
//
// Two locks order the changes. The holder of owned.changing may change the index and remove
// snapshots. owned.mu guards the count of holds. A held snapshot stays on disk after its version was
// deleted, and counts in the quota until the last release. Lookups take neither lock.

// A Version is one kept version of a skill.
type Version struct {
	Name   string    `json:"name"`
	Digest string    `json:"digest"`
	Pushed time.Time `json:"pushed,omitzero"`
	Source string    `json:"source,omitempty"`
	// Bytes is the size on disk, see diskBytes. 0: it does not count in a quota.
	Bytes int64 `json:"bytes"`
}

// indexName is the file in a store's directory that lists its versions.
const indexName = "index"

// owned are the pushed skills of one tenant.
type owned struct {
	registry *Registry
	tenant   string
	dir      string
	opening  sync.Mutex
	opened   atomic.Bool
	failed   atomic.Pointer[error] // of opening; nil: none
	logged   string                // the error of opening that the log has
	store    *snapshot.Store       // nil: the tenant has pushed nothing yet

	changing chan struct{}           // a lock that a context can give up waiting for
	now      atomic.Pointer[[]*kept] // in the order of the pushes; never changed, only replaced

	mu      sync.Mutex
	holds   map[string]int   // by digest
	unkept  map[string]int64 // digest -> bytes of snapshots that wait for their last hold
	removal sync.WaitGroup
}

// A kept version loads its skill when someone asks for it.
type kept struct {
	Version
	mu     sync.Mutex
	skill  *Skill
	err    error  // of loading; final
	logged string // the error of loading that the log has
}

// owner returns the pushed skills of a tenant. It returns nil if this tenant cannot push.
// The name of a tenant becomes a directory, so a name that is no single path component has no
// pushed skills.
func (r *Registry) owner(tenant string) *owned {
	if r.config.TenantsDir == "" || tenant == "" || tenant == "." || strings.ContainsAny(tenant, "/\x00") || !filepath.IsLocal(tenant) {
		return nil
	}
	if o, ok := r.owners.Load(tenant); ok {
		return o.(*owned)
	}
	o, _ := r.owners.LoadOrStore(tenant, &owned{
		registry: r, tenant: tenant, dir: filepath.Join(r.config.TenantsDir, tenant, "skills"),
		changing: make(chan struct{}, 1), holds: map[string]int{}, unkept: map[string]int64{},
	})
	return o.(*owned)
}

// closeOwned waits for removals and releases the stores.
func (r *Registry) closeOwned() (err error) {
	r.owners.Range(func(_, v any) bool {
		o := v.(*owned)
		o.removal.Wait()
		o.opening.Lock()
		defer o.opening.Unlock()
		if o.store != nil {
			err = errors.Join(err, o.store.Close())
		}
		return true
	})
	return err
}

// versions returns the kept versions, the oldest first. It reads the index the first time.
func (o *owned) versions() ([]*kept, error) {
	if !o.opened.Load() {
		if err := o.open(context.Background(), false); err != nil {
			return nil, err
		}
	}
	return o.current(), o.failure()
}

// failure returns the error of opening.
func (o *owned) failure() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// current returns the kept versions of an opened owned, the oldest first.
func (o *owned) current() []*kept {
	if list := o.now.Load(); list != nil {
		return *list
	}
	return nil
}

// open reads the index and removes snapshots that the index does not list. Without make, open creates no
// directory for a tenant without pushes. An error is logged once. The next call tries again if the error may pass;
// another error is final, and the operator must repair the directory and restart the daemon.
func (o *owned) open(ctx context.Context, make bool) error {
	o.opening.Lock()
	defer o.opening.Unlock()
	if o.failure() != nil || o.store != nil || o.opened.Load() && !make {
		return o.failure()
	}
	if !make {
		if _, err := os.Lstat(o.dir); errors.Is(err, fs.ErrNotExist) {
			o.opened.Store(true)
			return nil
		}
	}
	err := o.openStore(ctx)
	if err != nil && ctx.Err() == nil {
		if !durable.MayPass(err) {
			o.failed.Store(&err)
		}
		if err.Error() != o.logged {
			o.logged = err.Error()
			o.registry.config.Log.Error("the skills of a tenant cannot be used", "dir", o.dir, "err", err)
		}
	}
	o.opened.Store(err == nil || o.failure() != nil)
	return err
}

// openStore opens the snapshots of a tenant. It removes unused ones only if no other process has the directory
// open (alone), because a daemon that drains may still run skills from it. In a takeover it removes none even then,
// because the other daemon may be about to open the directory.
func (o *owned) openStore(ctx context.Context) error {
	store, alone, err := snapshot.OpenStore(ctx, o.dir, o.registry.config.Owner)
	if err != nil {
		return fmt.Errorf("pushed skills: %w", err)
	}
	list, err := o.readIndex()
	if err == nil && alone && o.registry.phase.Load() == sole {
		_, err = store.Sweep(digestsOf(list))
	}
	if err == nil && alone {
		err = store.Share()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pushed skills: %w", err), store.Close())
	}
	o.store = store
	o.now.Store(&list)
	return nil
}

func digestsOf(list []*kept) map[string]bool {
	all := map[string]bool{}
	for _, k := range list {
		all[k.Digest] = true
	}
	return all
}

// readIndex returns nil if there is neither an index nor a snapshot: the tenant has pushed nothing yet. Names and
// digests become parts of paths, so an index with any other text in their place is an error.
func (o *owned) readIndex() ([]*kept, error) {
	data, err := os.ReadFile(filepath.Join(o.dir, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, o.blank()
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		Versions []*kept `json:"versions"`
	}
	// Snapshots of versions that the index does not have are removed.
	if data, err = durable.Checked(data); err == nil {
		err = json.Unmarshal(data, &index)
	}
	for _, k := range index.Versions {
		if err == nil && (k == nil || manifest.ValidName(k.Name) != nil || !digestGrammar.MatchString(k.Digest)) {
			err = errors.New("not a list of versions")
		}
	}
	if err != nil {
		return nil, &DamagedError{Err: err}
	}
	return index.Versions, nil
}

// blank returns an error if the directory has a snapshot. Each push writes the index before its snapshot, so the index
// was lost.
func (o *owned) blank() error {
	entries, err := os.ReadDir(o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if digestGrammar.MatchString("sha256:" + e.Name()) {
			return &DamagedError{Err: errors.New("it is missing, but there are skills, whose files are kept")}
		}
	}
	return err
}

func (o *owned) writeIndex(list []*kept) error {
	versions := []Version{}
	for _, k := range list {
		versions = append(versions, k.Version)
	}
	data, err := json.MarshalIndent(map[string]any{"versions": versions}, "", "\t")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(o.dir, indexName), durable.WithSum(data))
}

// resolve returns the newest version of a skill, or the pinned one. It is nil without an error if the
// tenant has pushed no skill of this name.
func (o *owned) resolve(name, digest string) (*Skill, error) {
	list, err := o.versions()
	if err != nil {
		return nil, err
	}
	newest := ""
	for _, k := range slices.Backward(list) {
		switch {
		case k.Name != name:
		case digest == "" || k.Digest == digest:
			return o.load(k)
		case newest == "":
			newest = k.Digest
		}
	}
	if newest != "" {
		return nil, &DigestMismatch{Name: name, Want: digest, Have: newest}
	}
	return nil, nil
}

// list returns the newest version of each skill. It leaves out a skill that cannot be loaded.
func (o *owned) list() (all []*Skill) {
	list, _ := o.versions() // open has logged the error
	seen := map[string]bool{}
	for _, k := range slices.Backward(list) {
		if seen[k.Name] {
			continue
		}
		seen[k.Name] = true
		if sk, err := o.load(k); err == nil {
			all = append(all, sk)
		}
	}
	return all
}

func (o *owned) versionsOf(name string) (all []Version, err error) {
	list, err := o.versions()
	for _, k := range slices.Backward(list) {
		if k.Name == name {
			all = append(all, k.Version)
		}
	}
	return all, err
}

// load returns a version's skill.
// The lock is of one version, so that a large skill does not delay the look-ups of others.
func (o *owned) load(k *kept) (*Skill, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.skill != nil || k.err != nil {
		return k.skill, k.err
	}
	sk, err := o.read(k.Version)
	if err != nil && err.Error() != k.logged {
		k.logged = err.Error()
		o.registry.config.Log.Error("a pushed skill cannot be used", "dir", o.dir, "err", err)
	}
	if !durable.MayPass(err) { // else the next call tries again
		k.skill, k.err = sk, err
	}
	return sk, err
}

// read reads a version's snapshot. It computes the digest again, so a damaged snapshot is an error.
func (o *owned) read(v Version) (*Skill, error) {
	fail := func(err error) (*Skill, error) { return nil, fmt.Errorf("skill %s@%s: %w", v.Name, v.Digest, err) }
	dir, err := os.Open(filepath.Join(o.dir, strings.TrimPrefix(v.Digest, "sha256:")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &DamagedError{v.Name, v.Digest, errors.New("its files are gone")}
	}
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	// The bounds of the configuration may be smaller now than at the push.
	unbounded := snapshot.Bounds{MaxFiles: math.MaxInt, MaxBytes: math.MaxInt64}
	r, err := readOnce(context.Background(), snapshot.Source{Dir: dir}, v.Name, unbounded)
	if err != nil {
		return fail(err)
	}
	if r.tree.Digest != v.Digest {
		return nil, &DamagedError{v.Name, v.Digest, fmt.Errorf("it has the digest %s", r.tree.Digest)}
	}
	if err := r.doc.Err(); err != nil {
		return fail(err)
	}
	if r.doc.Name != v.Name {
		return nil, &DamagedError{v.Name, v.Digest, fmt.Errorf("it has the name %q", r.doc.Name)}
	}
	sk := newSkill(r, dir.Name(), "")
	sk.pushedBy = o.tenant
	return sk, nil
}

// hold keeps the snapshot of a version on disk until release is called. It returns false if the
// version is not kept any longer.
// The look at the list and the count are one step under o.mu, in which replace also changes the
// list. So a version is either held or gone.
func (o *owned) hold(digest string) (release func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.ContainsFunc(o.current(), func(k *kept) bool { return k.Digest == digest }) {
		return nil, false
	}
	o.holds[digest]++
	return sync.OnceFunc(func() { o.release(digest) }), true
}

// release ends a hold. The last one removes a snapshot that no version has, in the background.
func (o *owned) release(digest string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holds[digest]--; o.holds[digest] > 0 {
		return
	}
	delete(o.holds, digest)
	if _, waits := o.unkept[digest]; waits {
		o.removeLater()
	}
}

// removeLater calls removeUnkept in the background.
func (o *owned) removeLater() {
	o.removal.Go(func() {
		o.changing <- struct{}{}
		defer func() { <-o.changing }()
		o.removeUnkept()
	})
}

// removeUnkept removes the snapshots of deleted versions without holds. In a takeover it removes nothing, and leaves
// that to Adopt. The caller has o.changing.
func (o *owned) removeUnkept() {
	if o.registry.phase.Load() != sole {
		return
	}
	o.mu.Lock()
	var free []string
	for digest := range o.unkept {
		if o.holds[digest] == 0 {
			free = append(free, digest)
		}
	}
	o.mu.Unlock()
	for _, digest := range free {
		if err := o.store.Remove(digest); err != nil {
			// The next start removes it.
			o.registry.config.Log.Warn("a deleted skill remains on disk", "digest", digest, "err", err)
		}
		o.registry.removed(o.dir, digest)
		o.mu.Lock()
		delete(o.unkept, digest)
		o.mu.Unlock()
	}
}

// replace puts a new list of versions in force. It is durable when replace returns. The caller
// has o.changing.
func (o *owned) replace(list []*kept) error {
	if err := o.writeIndex(list); err != nil {
		return err
	}
	o.put(list)
	o.removeUnkept()
	o.registry.changes.notify()
	return nil
}

// put sets the list of versions in memory. The caller has o.changing.
func (o *owned) put(list []*kept) {
	has := digestsOf(list)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.current() {
		if !has[k.Digest] {
			o.unkept[k.Digest] = k.Bytes
		}
	}
	o.now.Store(&list)
	for digest := range has {
		delete(o.unkept, digest) // pushed again while an execution held it
	}
}
