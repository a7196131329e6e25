package skill

import (
	"path/filepath"
	"strings"
	"sync"
)

// Copies of the skills of roots. Theory of operation.
//
// Each version of a folder has a snapshot in Registry.store. A folder can change often, so former versions must go
// while the daemon runs. A version is former once no root has it loaded any longer. Reload removes former versions that
// no execution holds. It keeps the versions that it has just replaced until the next Reload, because a caller that has
// resolved one may be about to read it. So the store has at most two versions of each folder, and those that
// executions hold.

// copies counts the users of the snapshots of roots, by digest.
type copies struct {
	mu     sync.Mutex
	loaded map[string]bool // skills of the roots
	former map[string]bool // were loaded before, and are still on disk
	holds  map[string]int

	removing sync.Mutex // held while a snapshot is removed, and while HandOver forbids it
}

// hold keeps a version until release is called. It returns false if the version is not on disk any longer.
func (c *copies) hold(digest string) (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded[digest] && !c.former[digest] {
		return nil, false
	}
	if c.holds == nil {
		c.holds = map[string]int{}
	}
	c.holds[digest]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.holds[digest]--; c.holds[digest] == 0 {
			delete(c.holds, digest)
		}
	}), true
}

// replace says that the roots have these versions now. If remove is true, it takes the former versions that nothing
// holds off the list and returns them. The ones that it makes former stay until the next call.
func (c *copies) replace(loaded map[string]bool, remove bool) (unused []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for digest := range c.former {
		switch {
		case loaded[digest]:
			delete(c.former, digest)
		case remove && c.holds[digest] == 0:
			delete(c.former, digest)
			unused = append(unused, digest)
		}
	}
	for digest := range c.loaded {
		if !loaded[digest] {
			if c.former == nil {
				c.former = map[string]bool{}
			}
			c.former[digest] = true
		}
	}
	c.loaded = loaded
	return unused
}

// inUse returns the versions that are on disk and may be used.
func (c *copies) inUse() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]bool{}
	for digest := range c.loaded {
		all[digest] = true
	}
	for digest := range c.former {
		all[digest] = true
	}
	return all
}

// forget makes every version count as unused.
func (c *copies) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.former = nil, nil
}

// digestsOfRoots returns the digests of all skills of roots, shared and private.
func digestsOfRoots(shared *snapshotOfRoots, mine *private) map[string]bool {
	all := map[string]bool{}
	for _, s := range shared.list {
		all[s.Digest] = true
	}
	for _, n := range mine.now {
		for _, s := range n.list {
			all[s.Digest] = true
		}
	}
	return all
}

// removeCopies removes snapshots that copies.replace has returned. In a takeover it removes nothing, and leaves that to
// Adopt.
func (r *Registry) removeCopies(digests []string) {
	remove := func(digest string) error {
		r.copies.removing.Lock()
		defer r.copies.removing.Unlock()
		if r.phase.Load() != sole {
			return nil
		}
		return r.store.Remove(digest)
	}
	for _, digest := range digests {
		if err := remove(digest); err != nil {
			// The next start removes it.
			r.config.Log.Warn("a former version of a skill remains on disk", "digest", digest, "err", err)
		}
		r.removed(r.config.Dir, digest)
	}
}

// removed tells RegistryConfig.Removed about a snapshot.
func (r *Registry) removed(store, digest string) {
	if r.config.Removed != nil {
		r.config.Removed(filepath.Join(store, strings.TrimPrefix(digest, "sha256:")))
	}
}
