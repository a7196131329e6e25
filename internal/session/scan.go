package session

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/skillrun/skillrun/internal/durable"
)

// readTenants finds all sessions on the disk. It first removes the remains of creations and deletions that a dead
// daemon did not finish. A living process has no such remains, because HandOver waits until all are finished.
func (s *Store) readTenants() error {
	dirs, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	known := map[string]bool{} // all tenants; true: their sessions are in memory
	for _, d := range dirs {
		if d.IsDir() {
			known[d.Name()] = false
			s.removeRemains(d.Name())
		}
	}
	s.mu.Lock()
	for tenant := range s.tenants {
		known[tenant] = true
	}
	s.mu.Unlock()
	for tenant := range known {
		err := s.readTenant(tenant)
		if err != nil && known[tenant] {
			return err // another process may have committed; load would remove versions that memory does not have
		}
		if err != nil {
			// The error concerns one tenant: the sessions of the other tenants can still be used.
			s.config.Log.Error("the sessions of a tenant cannot be read; their files stay", "tenant", tenant, "err", err)
		}
	}
	return nil
}

// removeRemains removes the directories of a tenant that belong to unfinished creations and deletions.
func (s *Store) removeRemains(tenant string) {
	dirs, _ := os.ReadDir(filepath.Join(s.config.Dir, tenant)) // readTenant logs the error
	for _, d := range dirs {
		if isSession(d.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.config.Dir, tenant, d.Name())); err != nil {
			s.config.Log.Error("files of a deleted session stay until the next start", "tenant", tenant, "err", err)
		}
	}
}

func isSession(name string) bool {
	return !strings.HasPrefix(name, newPrefix) && !strings.HasPrefix(name, oldPrefix)
}

// readTenant updates the sessions of one tenant in memory from the disk. It reads only the newest version of each
// session; the first writer of a session loads its other versions.
func (s *Store) readTenant(tenant string) error {
	dirs, err := os.ReadDir(filepath.Join(s.config.Dir, tenant))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there := map[string]bool{}
	for _, d := range dirs {
		if isSession(d.Name()) {
			there[d.Name()] = true
			s.read(tenant, d.Name(), nil)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		for id, x := range t.sessions {
			if !there[id] && x.by == "" {
				s.drop(tenant, x)
			}
		}
		maps.DeleteFunc(t.damaged, func(id string, _ error) bool { return !there[id] })
	}
	return nil
}

// read updates a session in memory from the disk: in Open, and in a process that has called HandOver. If the session
// has a writer in this process, only its settings can differ. The exception is the session given, nil for none: its
// writer has just given it to the next process.
func (s *Store) read(tenant, id string, given *session) {
	x := s.known(tenant, id)
	if x != nil {
		x.updating.Lock() // two calls must not overtake each other
		defer x.updating.Unlock()
	}
	now, err := readSession(filepath.Join(s.config.Dir, tenant, id), id)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.of(tenant).damaged, id)
	case !(s.handed && errors.Is(err, fs.ErrNotExist)): // the next process may remove it now
		s.unreadable(tenant, id, err)
	}
	if x != nil && x == given {
		x.by = "" // from now on another call may read it
	}
	switch {
	case x == nil && err == nil:
		t := s.of(tenant)
		t.sessions[id] = now
		t.bytes += now.head.Stored
	case x == nil || x.gone:
	// The writer's own lists and head are newer than the disk.
	case x.by != "":
		if err == nil {
			x.set = now.set
		}
	case err != nil:
		s.drop(tenant, x)
	default:
		s.take(tenant, x, now)
	}
}

// known returns a session in memory, or nil.
func (s *Store) known(tenant, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[tenant]; t != nil {
		return t.sessions[id]
	}
	return nil
}

// take copies a session that was read from the disk, now, into the session in memory, x. The versions of x must then
// be loaded again. s.mu is held, and x has no writer in this process.
func (s *Store) take(tenant string, x, now *session) {
	s.tenants[tenant].bytes += now.head.Stored - x.head.Stored
	x.head, x.set = now.head, now.set
	if now.used.After(x.used) {
		x.used = now.used
	}
	x.kept, x.damaged, x.loaded, x.tree = nil, nil, false, 0
}

// unreadable says that a session on disk cannot be read. s.mu is held. The caller of the daemon learns the reason
// without the path.
func (s *Store) unreadable(tenant, id string, err error) {
	s.config.Log.Error("a session cannot be read; its files stay", "tenant", tenant, "session", id, "err", err)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", filepath.Base(e.Path), e.Err)
	}
	s.of(tenant).damaged[id] = err
}

// readUnread reads the sessions of a tenant again that could not be read for a reason that may pass. An empty tenant
// stands for all of them.
func (s *Store) readUnread(tenant string) {
	var list []Held
	s.mu.Lock()
	tenants := s.tenants
	if tenant != "" { // each List and Usage comes here, so do not look through all tenants
		tenants = map[string]*tenantSessions{}
		if t := s.tenants[tenant]; t != nil {
			tenants[tenant] = t
		}
	}
	for of, t := range tenants {
		for id, err := range t.damaged {
			if durable.MayPass(err) {
				list = append(list, Held{Tenant: of, ID: id})
			}
		}
	}
	s.mu.Unlock()
	for _, x := range list {
		s.readAgain(x.Tenant, x.ID)
	}
}

// readAgain reads one session of readUnread. It is not in memory, so it has no writer.
func (s *Store) readAgain(tenant, id string) {
	now, err := readSession(filepath.Join(s.config.Dir, tenant, id), id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenant]
	switch {
	case t == nil || !durable.MayPass(t.damaged[id]): // another call has read it, and may have removed it since
	case err == nil:
		delete(t.damaged, id)
		t.sessions[id] = now
		t.bytes += now.head.Stored
	case !durable.MayPass(err):
		s.unreadable(tenant, id, err)
	}
}

// drop removes a session from memory that is no longer on the disk or cannot be read. s.mu is held.
func (s *Store) drop(tenant string, x *session) {
	x.gone = true
	t := s.tenants[tenant]
	delete(t.sessions, x.id)
	t.bytes -= x.head.Stored
}
