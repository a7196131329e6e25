package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// Delete removes a session with all its files. The error is a *BusyError while the session has a writer.
func (s *Store) Delete(tenant, id string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	x, err := s.find(tenant, id)
	if err != nil {
		return err
	}
	return s.delete(tenant, x, "its deletion", func() bool { return true })
}

// DeleteEmpty removes a session that has no version and no writer. It does nothing to other sessions.
func (s *Store) DeleteEmpty(tenant, id string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	x, err := s.find(tenant, id)
	if err == nil {
		err = s.delete(tenant, x, "its deletion", func() bool { return x.head.Number == 0 })
	}
	if _, busy := errors.AsType[*BusyError](err); busy || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// delete removes a session. It first waits until the session has no writer; if still then returns false, it does
// nothing. The caller is between enter and leave.
func (s *Store) delete(tenant string, x *session, by string, still func() bool) error {
	// begin, not await: a deletion does not wait for a program that may run for an hour.
	if err := s.begin(x, by); err != nil {
		return err
	}
	defer s.end(x)
	s.mu.Lock()
	remove := !x.gone && still()
	s.mu.Unlock()
	if !remove {
		return nil
	}
	if err := s.remove(x); err != nil {
		return fmt.Errorf("delete session %s: %w", x.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.gone = true
	t := s.tenants[tenant]
	delete(t.sessions, x.id)
	t.bytes -= x.head.Stored
	return nil
}

// remove renames the session's directory before it removes a file, so that a crash leaves no session with a part of its
// files. If the directory is missing, an earlier deletion has renamed it and failed to sync; this one syncs again.
func (s *Store) remove(x *session) error {
	old := filepath.Join(filepath.Dir(x.dir), oldPrefix+x.id)
	if err := unlessGone(os.Rename(x.dir, old)); err != nil {
		return err
	}
	s.step("delete")
	if err := durable.SyncDir(filepath.Dir(x.dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		// The session is gone. The next start removes the rest.
		s.config.Log.Error("files of a deleted session stay until the next start", "session", x.id, "err", err)
	}
	return nil
}

// Sweep removes expired sessions, and frees the memory of idle ones. It returns the number of removed
// sessions.
func (s *Store) Sweep() (removed int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	s.refresh("") // also for writers that wait for a session that free could not read
	var over []owned
	s.mu.Lock()
	for name, t := range s.tenants {
		for _, x := range t.sessions {
			switch {
			case s.expired(x):
				over = append(over, owned{name, x})
			case x.by == "":
				s.forget(x)
			}
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, x := range over {
		// HandOver waits for this Sweep. So it ends here, between two sessions.
		if s.isHanding() {
			return removed, errors.Join(append(errs, ErrHandedOver)...)
		}
		err := s.delete(x.tenant, x.session, "the sweep", func() bool { return s.overdue(x.session) })
		if _, busy := errors.AsType[*BusyError](err); busy {
			continue
		}
		if err == nil {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// isHanding reports whether HandOver was called: it waits for this change, or has returned.
func (s *Store) isHanding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handed
}

// overdue is expired while the sweep itself has the session. s.mu is held.
func (s *Store) overdue(x *session) bool {
	at := x.expires()
	return !at.IsZero() && !s.config.Now().Before(at)
}

// idleMemory is how long an unused session's lists of files stay in memory.
const idleMemory = 5 * time.Minute

// forget drops the lists of files of a session that was not used for a while. s.mu is held, and the
// session has no writer: a writer is noted under s.mu before it uses the lists.
func (s *Store) forget(x *session) {
	if s.config.Now().Sub(x.used) >= idleMemory {
		x.kept, x.damaged, x.loaded = nil, nil, false
	}
}

// Purge removes all sessions of a tenant, and returns their number and the bytes that they had on disk.
// The error is a *BusyError while one has a writer; some sessions may then be removed.
func (s *Store) Purge(tenant string) (removed int, bytes int64, err error) {
	if err := s.enter(); err != nil {
		return 0, 0, err
	}
	defer s.leave()
	s.mu.Lock()
	t := s.tenants[tenant]
	var all []*session
	if t != nil {
		for _, x := range t.sessions {
			all = append(all, x)
		}
	}
	s.mu.Unlock()
	for _, x := range all {
		stored := s.stored(x)
		if err := s.delete(tenant, x, "the purge of its tenant", func() bool { return true }); err != nil {
			return removed, bytes, err
		}
		removed, bytes = removed+1, bytes+stored
	}
	if !isTenant(tenant) {
		return removed, bytes, nil
	}
	s.step("purge")
	// What could not be read is removed, too.
	s.mu.Lock()
	defer s.mu.Unlock()
	if t = s.tenants[tenant]; t != nil && len(t.sessions)+t.creating > 0 {
		return removed, bytes, fmt.Errorf("tenant %s: sessions are being made", tenant)
	}
	delete(s.tenants, tenant)
	return removed, bytes, os.RemoveAll(filepath.Join(s.config.Dir, tenant))
}

// stored returns the size on disk of a session.
func (s *Store) stored(x *session) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.head.Stored
}
