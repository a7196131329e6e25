package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
)

// A takeover. The earlier process calls HandOver. From then on its only work is to end the writers that it has.
// The next process opens the store and does everything else. In the next process, a session
// with a writer in the earlier process is called held. Callers see it as a session with a writer, and each call
// reads its newest version from the disk. The two processes never change the same files:
//
//	versions/, objects/ and tree/ of a held session   the earlier process, until Freed
//	settings of a held session                        the next process; both set its modification time
//	everything else                                   the next process
//
// Two locks, flock(2), protect the directory. From Open on, the next process has the file lock. Both processes
// have a shared lock of the directory. A plain Open needs both locks exclusively, so it is refused while one of the
// processes lives.

// A Held is a session with a writer in the earlier process.
type Held struct {
	Tenant string `json:"tenant"`
	ID     string `json:"id"`
	By     string `json:"by"` // the writer
}

// takeover is the part of a Store that takeovers use. Store.mu guards it.
type takeover struct {
	// In the earlier process:
	handed   bool                    // HandOver was called, and Resume was not
	handing  chan struct{}           // closed by HandOver
	changes  int                     // changes under way; see enter
	quiet    chan struct{}           // closed when changes is 0; nil: HandOver does not wait
	writing  map[*session]string     // the sessions that still have a writer here, with their tenants
	released func(tenant, id string) // see OnRelease

	// In the next process:
	unadopted bool                // until Adopt
	held      map[*session]string // the held sessions, with their tenants
}

// enter counts a change of the store until leave. HandOver waits for these changes, and enter fails afterwards. A
// writer that has its turn does not count: it goes on after HandOver.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.handed {
		return ErrHandedOver
	}
	s.changes++
	return nil
}

func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes--; s.changes == 0 && s.quiet != nil {
		close(s.quiet)
		s.quiet = nil
	}
}

// HandOver lets another process open the store, and returns the sessions with a writer for its Config.Held.
// These writers go on, and so do readers. Until Resume, all other calls return ErrHandedOver: creations, deletions,
// updates, Purge, Sweep and Acquire, also an Acquire that waits. HandOver first waits for the calls that have
// begun. After an error the store is as before.
func (s *Store) HandOver(ctx context.Context) ([]Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.handed:
		return nil, ErrHandedOver
	case s.unadopted:
		return nil, errors.New("sessions: the earlier process may still have writers; call Adopt first")
	}
	s.handed = true
	close(s.handing)
	// handed is set before the wait, so no further change begins and the wait ends.
	err := s.waitUntilQuiet(ctx)
	if err == nil {
		// Not the lock of the directory: this process still uses files there, and a plain Open must fail.
		err = filelock.Unlock(s.lock)
	}
	if err != nil {
		s.handed, s.handing = false, make(chan struct{})
		return nil, fmt.Errorf("hand over the sessions: %w", err)
	}
	s.writing = map[*session]string{}
	list := []Held{}
	for tenant, t := range s.tenants {
		for _, x := range t.sessions {
			if x.by != "" {
				s.writing[x] = tenant
				list = append(list, Held{tenant, x.id, x.by})
			}
		}
	}
	slices.SortFunc(list, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// waitUntilQuiet waits until no change is under way. The caller holds s.mu; waitUntilQuiet unlocks it while it waits.
func (s *Store) waitUntilQuiet(ctx context.Context) error {
	for s.changes > 0 {
		quiet := make(chan struct{})
		s.quiet = quiet
		s.mu.Unlock()
		select {
		case <-quiet:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if err := ctx.Err(); err != nil {
			s.quiet = nil
			return err
		}
	}
	return nil
}

// OnRelease sets a function that Release calls as its last step for a session that HandOver has returned. f must
// make the next process call Freed, and must return if that process has died. Call OnRelease before HandOver.
// Release waits for f. So a caller that learns the outcome after Release finds the session free in the next process.
func (s *Store) OnRelease(f func(tenant, id string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = f
}

// giveBack gives a session to the next process, when its writer here has ended.
func (s *Store) giveBack(tenant string, x *session) {
	s.mu.Lock()
	released := s.released
	delete(s.writing, x)
	s.mu.Unlock()
	if released != nil {
		released(tenant, x.id)
	}
	// If the next process has committed to the session and died, Resume may have run before. Resume skips sessions
	// with a writer, so this reads the session's newest version.
	s.read(tenant, x.id, x)
}

// Resume undoes HandOver after the next process has closed the store or has died. It reads the changes of that
// process from the disk. After an error the store is still handed over.
func (s *Store) Resume() error {
	s.mu.Lock()
	closed, handed := s.closed, s.handed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if !handed {
		return nil
	}
	err := awaitLock(context.Background(), s.lock)
	if err == nil {
		// readTenants comes before handed is reset: calls are refused until memory is as the disk.
		if err = s.readTenants(); err != nil {
			err = errors.Join(err, filelock.Unlock(s.lock))
		}
	}
	if err != nil {
		return fmt.Errorf("resume the sessions: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed, s.handing, s.writing = false, make(chan struct{}), nil
	return nil
}

// hold makes sessions held: each gets a writer that stands for the one in the earlier process, until Freed. Open
// calls it. A session that cannot be read for a reason that may pass is an error: it would be read later, without the
// writer.
func (s *Store) hold(list []Held) error {
	s.held = map[*session]string{}
	for _, h := range list {
		if err := s.of(h.Tenant).damaged[h.ID]; durable.MayPass(err) {
			return fmt.Errorf("session %s: %w", h.ID, err)
		}
		x := s.known(h.Tenant, h.ID)
		if x == nil || x.by != "" {
			s.config.Log.Error("a session of the earlier process is not held", "tenant", h.Tenant, "session", h.ID, "writer", h.By)
			continue
		}
		// This never blocks: no other call has the store yet, and an empty x.by says that the turn is free.
		x.turn <- struct{}{}
		x.by = cmp.Or(h.By, "another process")
		s.held[x] = h.Tenant
	}
	return nil
}

// Freed ends the hold of a session, which the earlier process has released. It reads the session's versions and
// settings again, and gives the next writer its turn. It does nothing to a session that is not held.
func (s *Store) Freed(tenant, id string) {
	if x := s.known(tenant, id); x != nil {
		s.free(tenant, x)
	}
}

// free does the work of Freed. As in Open, a damaged session is left out, and its files stay. A session that cannot be
// read for a reason that may pass stays held, and the next call or the next Sweep tries again.
func (s *Store) free(tenant string, x *session) {
	x.updating.Lock()
	defer x.updating.Unlock()
	if !s.isHeld(x) {
		return
	}
	now, err := readSession(x.dir, x.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if durable.MayPass(err) {
		if !x.freed {
			x.freed = true
			s.config.Log.Error("a session cannot be read yet", "tenant", tenant, "session", x.id, "err", err)
		}
		return
	}
	x.freed = false
	if err != nil {
		s.unreadable(tenant, x.id, err)
		s.drop(tenant, x)
	} else {
		s.take(tenant, x, now)
	}
	delete(s.held, x)
	x.by = ""
	<-x.turn
}

// Adopt makes this process the only one, after the earlier process has ended or has closed the store. It frees
// all sessions that are still held. After an error it may be called again.
func (s *Store) Adopt(ctx context.Context) error {
	s.mu.Lock()
	closed, unadopted := s.closed, s.unadopted
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if !unadopted {
		return nil
	}
	// The exclusive lock proves that the earlier process has ended, so that none of its commits meets a writer of
	// this process. No plain Open can come between the two calls, because this process has the file lock.
	err := awaitLock(ctx, s.dir)
	if err = errors.Join(err, filelock.Lock(s.dir, filelock.Shared)); err != nil {
		return fmt.Errorf("adopt the sessions: the earlier process has them open: %w", err)
	}
	for _, h := range s.heldSessions("") {
		s.free(h.tenant, h.session)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unadopted = false
	return nil
}

func (s *Store) isHeld(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[x]
	return held
}

type owned struct {
	tenant string
	*session
}

// heldSessions returns the held sessions of a tenant, or of all tenants if tenant is empty.
func (s *Store) heldSessions(tenant string) (list []owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x, of := range s.held {
		if tenant == "" || of == tenant {
			list = append(list, owned{of, x})
		}
	}
	return list
}

// refresh reads the held sessions of a tenant again, because the earlier process may have committed, and the sessions
// that could not be read. An empty tenant stands for all of them.
func (s *Store) refresh(tenant string) {
	for _, x := range s.heldSessions(tenant) {
		s.refreshHeld(x)
	}
	s.readUnread(tenant)
}

// refreshHeld reads a held session again. After an error the version in memory stays; free logs the error later.
func (s *Store) refreshHeld(x owned) {
	s.mu.Lock()
	freed := x.freed
	s.mu.Unlock()
	if freed {
		s.free(x.tenant, x.session)
		return
	}
	x.updating.Lock() // two refreshes must not overtake each other
	defer x.updating.Unlock()
	if !s.isHeld(x.session) {
		return
	}
	now, err := readSession(x.dir, x.id)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(x.tenant, x.session, now)
}
