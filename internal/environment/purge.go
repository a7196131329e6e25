package environment

import (
	"errors"
	"fmt"
)

// ErrInUse says that an execution uses an environment of the tenant, or that one is built.
var ErrInUse = errors.New("an environment of the tenant is in use")

// Purge removes all environments of a tenant. It returns their number and their bytes, also with an error.
// If the error is ErrInUse or ErrHandedOver, Purge has removed nothing; other errors come from the operating system.
// Before Adopt the error is ErrInUse, because the earlier process may use any environment of the tenant. The caller
// prevents new builds and leases of the tenant until Purge returns.
func (s *Store) Purge(tenantName string) (removed int, bytes int64, err error) {
	name := tenantDir(tenantName)
	s.mu.Lock()
	defer s.unlock()
	t := s.tenants[name]
	switch {
	case s.phase == handedOver:
		return 0, 0, ErrHandedOver
	case s.uses(name, t):
		return 0, 0, ErrInUse
	}
	if t == nil {
		return 0, 0, nil
	}
	for _, k := range t.kept {
		if err := s.drop(t, k); err != nil {
			return removed, bytes, fmt.Errorf("environments of tenant %s: %w", tenantName, err)
		}
		removed, bytes = removed+1, bytes+k.environment.SizeBytes
	}
	// Only the small files are left, or what could not be read, which may be large.
	if err := s.setAside(t.dir); err != nil {
		return removed, bytes, fmt.Errorf("environments of tenant %s: %w", tenantName, err)
	}
	delete(s.tenants, name)
	return removed, bytes, nil
}

// uses reports whether builds or leases of a tenant are under way. The caller holds Store.mu.
func (s *Store) uses(name string, t *tenant) bool {
	for key := range s.flights {
		if key.tenant == name {
			return true
		}
	}
	if t == nil {
		return false
	}
	if s.phase == unadopted {
		return true
	}
	for _, k := range t.kept {
		if k.leases > 0 {
			return true
		}
	}
	return false
}
