package skill

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A takeover: two daemons use the same directories. Theory of operation.
//
// The next daemon opens its registry while the earlier daemon still serves, with RegistryConfig.Takeover. Both
// daemons may add snapshots. This needs no lock: the name of a snapshot is its digest, and it appears only when the
// snapshot is complete. The earlier daemon may push and delete until HandOver. Then the next daemon reads the lists
// again (Reread), and only the next daemon changes them. Executions of the earlier daemon may use any snapshot, so
// the next daemon removes none before Adopt. Both daemons hold the flock(2) of package snapshot shared as long as
// they live, because the kernel reliably releases it when a daemon dies.
//
//	            adds snapshots  pushes, deletes  removes snapshots
//	sole        yes             yes              yes
//	unadopted   yes             after Reread     no
//	handedOver  no              no               no

// ErrHandedOver says that only the next daemon may change the skills now.
var ErrHandedOver = errors.New("the skills are handed over to the next daemon")

// Values of Registry.phase.
const (
	sole       = iota // no other process changes anything
	unadopted         // an earlier process is there, until Adopt
	handedOver        // a next process is there, until Resume or Close
)

// HandOver lets another process take over. From then on Push, Delete and Purge return ErrHandedOver, Reload does
// nothing, and the registry removes no snapshots. Skills stay usable until Close. HandOver waits for pushes and
// deletions that are under way. If ctx ends before, HandOver returns its error and has changed nothing.
func (r *Registry) HandOver(ctx context.Context) error {
	r.copies.removing.Lock() // waits for the removal of a snapshot
	swapped := r.phase.CompareAndSwap(sole, handedOver)
	r.copies.removing.Unlock()
	if !swapped {
		return errors.New("skills: handed over already, or not adopted yet")
	}
	var err error
	r.owners.Range(func(_, v any) bool {
		err = v.(*owned).exclusively(ctx, func() error { return nil })
		return err == nil
	})
	if err != nil {
		r.resume()
		return fmt.Errorf("skills: hand over: %w", err)
	}
	return nil
}

// Resume undoes HandOver. The next process must have ended. Resume reads the lists again, because the next process may
// have answered pushes and deletions. A tenant whose list can't be read has no pushed skills until a restart. After an
// error Resume can be called again.
func (r *Registry) Resume() (err error) {
	if r.phase.Load() != handedOver {
		return errors.New("skills: not handed over")
	}
	r.owners.Range(func(_, v any) bool {
		o := v.(*owned)
		err = o.exclusively(context.Background(), o.relearn)
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("skills: read again: %w", err)
	}
	r.resume()
	r.changes.notify()
	return nil
}

// resume makes this process the only user again. It removes the snapshots that had to stay after HandOver.
func (r *Registry) resume() {
	r.phase.Store(sole)
	r.owners.Range(func(_, v any) bool {
		v.(*owned).removeLater()
		return true
	})
	select {
	case r.rewatch <- struct{}{}:
	default: // Watch reloads soon
	}
}

// Reread reads everything again that the earlier process may have changed since OpenRegistry. Call it when the
// earlier process has called HandOver, and before any skill is used.
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
	r.copies.forget()
	_, err = r.Reload(ctx)
	return err
}

// Adopt makes this process the only user of the directories, and removes unused snapshots. The earlier process must
// have ended. If another process has the snapshots open all the same, unused ones stay until the next start.
func (r *Registry) Adopt(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	if !r.phase.CompareAndSwap(unadopted, sole) {
		return errors.New("skills: there is nothing to adopt")
	}
	removed, alone, err := r.store.Clean(ctx, r.copies.inUse())
	r.logSwept(removed, err)
	r.removes = alone
	r.owners.Range(func(_, v any) bool {
		o := v.(*owned)
		if err := o.exclusively(ctx, func() error { return o.clean(ctx) }); err != nil {
			r.config.Log.Warn("deleted skills remain on disk", "dir", o.dir, "err", err)
		}
		return true
	})
	return nil
}

// exclusively calls f while it holds o.changing, so that no push and no deletion runs at the same time.
func (o *owned) exclusively(ctx context.Context, f func() error) error {
	select {
	case o.changing <- struct{}{}:
		defer func() { <-o.changing }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset drops the list from memory, so that the next look-up reads it from the disk. The caller has o.changing.
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
	o.store, o.logged = nil, ""
	o.failed.Store(nil)
	o.now.Store(nil)
	o.opened.Store(false)
	return err
}

// relearn reads the list again after another process may have changed it. An error that is about the tenant's files is
// no error of relearn: without the tenant's skills the daemon can serve the others. The caller has o.changing.
func (o *owned) relearn() error {
	o.opening.Lock()
	defer o.opening.Unlock()
	if o.store == nil { // without a store there are no holds
		o.logged = ""
		o.failed.Store(nil)
		o.opened.Store(false)
		return nil
	}
	list, err := o.readIndex()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return err // about this process; the next attempt may succeed
	}
	if err != nil {
		// The list may have these snapshots again. If not, the next start removes them.
		o.mu.Lock()
		clear(o.unkept)
		o.mu.Unlock()
		err = fmt.Errorf("pushed skills: %w", err)
		o.failed.Store(&err)
		o.registry.config.Log.Error("the skills of a tenant cannot be used", "dir", o.dir, "err", err)
		return nil
	}
	o.put(list)
	return nil
}

// clean removes the snapshots that are neither listed nor held. The caller has o.changing, so no push is under
// way.
func (o *owned) clean(ctx context.Context) error {
	o.opening.Lock()
	defer o.opening.Unlock()
	if o.store == nil {
		return nil // open cleans, too
	}
	o.mu.Lock()
	inUse := digestsOf(o.current())
	for digest := range o.holds {
		inUse[digest] = true
	}
	o.mu.Unlock()
	// hold finds only listed versions, and all of these are in inUse. So no removed version can become held.
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
