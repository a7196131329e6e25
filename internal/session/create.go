package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/skillrun/skillrun/internal/durable"
)

// Create makes an empty session. It is durable when Create returns. The error is a *SettingsError, a
// *QuotaError, ErrNotFound for a removed tenant, or one of the operating system.
func (s *Store) Create(tenant string, set Settings) (Info, error) {
	if !isTenant(tenant) {
		return Info{}, fmt.Errorf("tenant %q cannot have sessions: its name cannot be the name of a directory; rename the tenant", tenant)
	}
	if err := s.enter(); err != nil {
		return Info{}, err
	}
	defer s.leave()
	rules := s.config.Rules(tenant)
	set = set.clone()
	set.IdleTTL, set.TTL = cmp.Or(set.IdleTTL, rules.DefaultIdle), cmp.Or(set.TTL, rules.MaxTTL)
	if err := set.check(rules); err != nil {
		return Info{}, err
	}
	t, err := s.beginCreate(tenant, rules)
	if err != nil {
		return Info{}, err
	}
	// Without s.mu: the syncs of create can take as long as the disk wants.
	x, err := s.create(filepath.Join(s.config.Dir, tenant), set)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.creating--
	if err != nil {
		return Info{}, fmt.Errorf("create session: %w", err)
	}
	t.sessions[x.id] = x
	return s.info(x), nil
}

// beginCreate counts a new session in the quota before it is on disk.
func (s *Store) beginCreate(tenant string, rules Rules) (*tenantSessions, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Rules(tenant).Removed { // asked under s.mu, so a Purge is before or after
		return nil, fmt.Errorf("tenant %q was removed: %w", tenant, ErrNotFound)
	}
	t := s.of(tenant)
	if n := len(t.sessions) + t.creating; rules.Sessions > 0 && n >= rules.Sessions {
		return nil, &QuotaError{QuotaSessions, int64(rules.Sessions), int64(n) + 1}
	}
	t.creating++
	return t, nil
}

// create makes the directory of a session under another name, and renames it when it is whole.
// The IDs sort by the time of creation.
func (s *Store) create(parent string, set Settings) (*session, error) {
	id := uuid.Must(uuid.NewV7()).String()
	tmp := filepath.Join(parent, newPrefix+id)
	m := meta{s.config.Now(), set}
	err := errors.Join(os.MkdirAll(filepath.Join(tmp, versionsName), 0o700), os.Mkdir(filepath.Join(tmp, objectsName), 0o700))
	if err == nil {
		err = writeMeta(tmp, m) // it syncs tmp, too
	}
	if err == nil {
		err = os.Chtimes(filepath.Join(tmp, metaName), m.Created, m.Created) // see Store.use
	}
	x := newSession(filepath.Join(parent, id), id, m)
	if err == nil {
		s.step("create")
		err = os.Rename(tmp, x.dir)
	}
	if err == nil {
		err = errors.Join(durable.SyncDir(parent), durable.SyncDir(s.config.Dir)) // parent may be new, too
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp), os.RemoveAll(x.dir))
	}
	return x, nil
}
