package session

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// Owner is the user and the group of the files on disk: the ids that package sandbox shows as the
// script's.
type Owner struct{ UID, GID int }

// Rules bound the sessions of a tenant. A zero field is no bound, but for Versions.
type Rules struct {
	// Removed says that the tenant was removed: it gets no new session. Its running executions still commit.
	Removed     bool
	Sessions    int
	TotalBytes  int64 // on disk, of all sessions together
	Bytes       int64 // of the files of one version
	Files       int   // of one version
	Versions    int   // that are kept of each session; 0 is defaultVersions
	MaxTTL      time.Duration
	DefaultIdle time.Duration // IdleTTL of sessions that set none
}

// defaultVersions is the number of versions that are kept of a session.
const defaultVersions = 10

// Config configures a Store.
type Config struct {
	Dir   string // made if it is missing
	Owner Owner
	// Rules returns the bounds of a tenant. It is asked at each change. Nil: no bounds.
	Rules func(tenant string) Rules
	// Takeover says that an earlier process has the store open, has called HandOver, and only ends its
	// writers. Held has the sessions of these writers, as HandOver returned them in that process.
	Takeover bool
	Held     []Held
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Log gets problems that no caller hears of. Nil: slog.Default().
	Log *slog.Logger
}

// A Store keeps the sessions of all tenants. Its methods may be called at the same time.
type Store struct {
	config Config
	// These have a flock(2), which the kernel releases when the process ends in any way; see lockDir.
	dir, lock *os.File
	// step is called after each step of a change on disk. Tests copy the directory there.
	step func(string)

	reading chan struct{} // see beginReading

	mu      sync.Mutex
	closed  bool
	tenants map[string]*tenantSessions
	takeover
}

// tenantSessions are the sessions of a tenant. Store.mu guards the fields.
type tenantSessions struct {
	sessions map[string]*session
	damaged  map[string]error // why sessions on disk cannot be read, by id
	creating int              // sessions that are being made
	reading  chan struct{}    // see beginReading
	bytes    int64            // on disk, of all sessions, and of commits that are under way
}

const (
	// No tenant has this name: see identity.CheckTenant.
	lockName = ".lock"
	// Directories with newPrefix are incomplete, with oldPrefix deleted. Both are removed at the start.
	newPrefix = "new-"
	oldPrefix = "old-"
)

// Open opens or makes a store. Only one process can have it open, except during a takeover, see
// takeover.go. A session or a tenant that cannot be read is logged and left out; the files stay.
func Open(c Config) (*Store, error) {
	if c.Owner.UID <= 0 || c.Owner.GID <= 0 {
		return nil, fmt.Errorf("files of sessions cannot belong to %d:%d", c.Owner.UID, c.Owner.GID)
	}
	if c.Rules == nil {
		c.Rules = func(string) Rules { return Rules{} }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{config: c, step: func(string) {}, tenants: map[string]*tenantSessions{}, reading: make(chan struct{}, maxReading)}
	s.unadopted, s.handing = c.Takeover, make(chan struct{})
	if err := s.lockDir(); err != nil {
		return nil, err
	}
	err := s.readTenants()
	if err == nil {
		err = s.hold(c.Held)
	}
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	return s, nil
}

// Close lets another process open the store. Writers keep their directories, but cannot commit.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.unlock()
}

// of returns the sessions of a tenant. s.mu is held, or the store is not yet open.
func (s *Store) of(name string) *tenantSessions {
	t := s.tenants[name]
	if t == nil {
		t = &tenantSessions{sessions: map[string]*session{}, damaged: map[string]error{}, reading: make(chan struct{}, maxTenantReading)}
		s.tenants[name] = t
	}
	return t
}

// find returns a session that has not expired. A held one is as on the disk.
func (s *Store) find(tenant, id string) (*session, error) {
	x, err := s.lookup(tenant, id)
	if durable.MayPass(err) {
		s.readAgain(tenant, id)
		x, err = s.lookup(tenant, id)
	}
	if err == nil && s.isHeld(x) {
		s.refreshHeld(owned{tenant, x})
	}
	return x, err
}

// lookup is find without the disk.
func (s *Store) lookup(tenant, id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	t := s.tenants[tenant]
	switch {
	case t != nil && t.sessions[id] != nil && !s.expired(t.sessions[id]):
		return t.sessions[id], nil
	case t != nil && t.sessions[id] == nil && durable.MayPass(t.damaged[id]):
		return nil, fmt.Errorf("session %q: %w", id, t.damaged[id])
	case t != nil && t.sessions[id] == nil && t.damaged[id] != nil:
		return nil, &DamagedError{ID: id, Err: t.damaged[id]}
	}
	return nil, fmt.Errorf("session %q: %w", id, ErrNotFound)
}

// Usage returns the number of a tenant's sessions, and the bytes on disk of all their versions.
func (s *Store) Usage(tenant string) (sessions int, bytes int64) {
	s.refresh(tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[tenant]
	if t == nil {
		return 0, 0
	}
	return len(t.sessions), t.bytes
}

// isTenant reports whether a tenant's name can be a directory. Without configured tenants the name comes
// from a credential, so it may be any text.
func isTenant(name string) bool {
	return name != "" && name != "." && name != lockName && filepath.IsLocal(name) && !strings.ContainsAny(name, "/\x00")
}

// unlessGone returns nil for the error of a file that is not there.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
