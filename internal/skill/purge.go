package skill

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// ErrInUse says that an execution, or a build of packages, uses a skill.
var ErrInUse = errors.New("a skill of the tenant is in use")

// Purge removes everything that a tenant has pushed, also if it is damaged. It returns the number of removed
// versions and their bytes. The error is ErrInUse, ErrHandedOver, or one of the operating system; then Purge
// can be repeated. Before Adopt the error is ErrInUse if the tenant has a directory: the earlier process may use
// its skills. The tenant's rules must say NoPush until Purge returns.
func (r *Registry) Purge(ctx context.Context, tenant string) (versions int, bytes int64, err error) {
	o := r.owner(tenant)
	if o == nil {
		return 0, 0, nil
	}
	select {
	case o.changing <- struct{}{}:
		defer func() { <-o.changing }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	switch r.phase.Load() {
	case handedOver:
		return 0, 0, ErrHandedOver
	case unadopted:
		if _, err := os.Lstat(filepath.Dir(o.dir)); !errors.Is(err, os.ErrNotExist) {
			return 0, 0, ErrInUse
		}
	}
	list, _ := o.versions() // an error is about a damaged directory, which goes, too
	if err := o.forget(); err != nil {
		return 0, 0, err
	}
	for _, k := range list {
		bytes += k.Bytes
		r.removed(o.dir, k.Digest)
	}
	if len(list) > 0 {
		r.changes.notify()
	}
	return len(list), bytes, nil
}

// forget removes the tenant's directory, and begins again without versions. Index and snapshots lose their place
// together: after a crash, no version is listed whose snapshot is gone, and no snapshot is there without an index. The next
// Purge removes the rest. The caller has o.changing.
func (o *owned) forget() error {
	o.opening.Lock()
	defer o.opening.Unlock()
	o.mu.Lock()
	held := len(o.holds) > 0
	if !held {
		o.now.Store(nil)
		clear(o.unkept)
	}
	o.mu.Unlock()
	if held {
		return ErrInUse
	}
	away := filepath.Join(filepath.Dir(o.dir), "purged")
	if err := os.RemoveAll(away); err != nil {
		return err
	}
	if err := os.Rename(o.dir, away); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(filepath.Dir(o.dir)); err != nil {
		return err
	}
	var err error
	if o.store != nil {
		err = o.store.Close()
	}
	o.store, o.logged = nil, ""
	o.failed.Store(nil)
	o.opened.Store(true)
	return err
}
