package skill

import (
	"context"
	"errors"
	"fmt"
)

// Two daemons with the same directories. Theory of operation.
//
// The next daemon opens its registry with RegistryConfig.Beside while the earlier daemon still serves. Both may add snapshots: names are digests, and a name appears when its snapshot is complete. The
// earlier one may push and delete until HandOver. Then the next one reads the lists again (Reread), and is
// the only one that changes them. Executions of the earlier one may use any snapshot that was there, so the
// next one removes none before Adopt. The flock(2) of package snapshot is shared the whole time: only the
// kernel can tell that a daemon is dead.
//
//	            adds snapshots  pushes, deletes  removes snapshots
//	sole        yes             yes              yes
//	beside      yes             after Reread     no
//	handedOver  no              no               no

// ErrHandedOver says that the next daemon has the skills now.
var ErrHandedOver = errors.New("the skills are handed over to the next daemon")

// Values of Registry.phase.
const (
	sole       = iota // no other process changes anything
	beside            // an earlier process is there, until Adopt
	handedOver        // a next process is there, until Resume or Close
)

// HandOver lets another process take over. From then on Push, Delete and Purge return ErrHandedOver, Reload does
// nothing, and the registry removes no snapshots. Skills stay usable until Close. HandOver waits for pushes and deletions that are
// under way. With an error, which is the one of ctx, nothing has changed.
func (r *Registry) HandOver(ctx context.Context) error {
	if !r.phase.CompareAndSwap(sole, handedOver) {
		return errors.New("skills: handed over already, or not adopted yet")
	}
	var err error
	r.owners.Range(func(_, v any) bool {
		err = v.(*owned).exclusively(ctx, func() error { return nil })
		return err == nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("skills: hand over: %w", err), r.Resume())
	}
	return nil
}

// Resume undoes HandOver. The process that was to take over must have ended.
func (r *Registry) Resume() error {
	if !r.phase.CompareAndSwap(handedOver, sole) {
		return errors.New("skills: not handed over")
	}
	r.owners.Range(func(_, v any) bool {
		v.(*owned).removeLater()
		return true
	})
	select {
	case r.rewatch <- struct{}{}:
	default: // Watch reloads soon
	}
	return nil
}

// Reread reads everything again that the earlier process may have changed since OpenRegistry. The earlier process
// has called HandOver, and no skill is in use yet.
func (r *Registry) Reread(ctx context.Context) error {
	var err error
	r.owners.Range(func(_, v any) bool {
		o := v.(*owned)
		err = o.exclusively(ctx, o.reset)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("skills: read again: %w", err)
	}
	r.loading.Lock()
	clear(r.ever)
	r.loading.Unlock()
	_, err = r.Reload(ctx)
	return err
}

// Adopt makes this process the only user of the directories. The earlier process has ended. Adopt removes the
// unused snapshots. If another process has the snapshots open all the same, they stay until the next start.
func (r *Registry) Adopt(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	if !r.phase.CompareAndSwap(beside, sole) {
		return errors.New("skills: there is nothing to adopt")
	}
	// Executions of this process may use each version that it has loaded.
	r.loaded(r.ever)
	removed, _, err := r.store.Clean(ctx, r.ever)
	r.logSwept(removed, err)
	r.ever = nil
	r.owners.Range(func(_, v any) bool {
		o := v.(*owned)
		if err := o.exclusively(ctx, func() error { return o.clean(ctx) }); err != nil {
			r.config.Log.Warn("deleted skills remain on disk", "dir", o.dir, "err", err)
		}
		return ctx.Err() == nil
	})
	return ctx.Err()
}

// exclusively calls f with o.changing.
func (o *owned) exclusively(ctx context.Context, f func() error) error {
	select {
	case o.changing <- struct{}{}:
		defer func() { <-o.changing }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset forgets the list, so that the next look-up reads it. The caller has o.changing.
func (o *owned) reset() error {
	o.opening.Lock()
	defer o.opening.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.holds) > 0 {
		return fmt.Errorf("%s: %w", o.dir, ErrInUse)
	}
	var err error
	if o.store != nil {
		err = o.store.Close()
	}
	clear(o.unkept)
	o.store, o.failed = nil, nil
	o.now.Store(nil)
	o.opened.Store(false)
	return err
}

// clean removes the snapshots that are neither listed nor held. The caller has o.changing, so no push is under
// way.
func (o *owned) clean(ctx context.Context) error {
	o.opening.Lock()
	defer o.opening.Unlock()
	if o.store == nil {
		return nil // open does it
	}
	o.mu.Lock()
	inUse := digestsOf(o.current())
	for digest := range o.holds {
		inUse[digest] = true
	}
	o.mu.Unlock()
	// hold finds only listed versions, so no other one can become held now.
	_, alone, err := o.store.Clean(ctx, inUse)
	if !alone {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for digest := range o.unkept {
		if !inUse[digest] {
			delete(o.unkept, digest)
		}
	}
	return err
}
