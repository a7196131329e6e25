package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Two daemons with one directory. Theory of operation.
//
// The next daemon opens its store with Config.Beside while the earlier daemon still serves.
// The earlier one builds and removes until HandOver. Then the next one reads the directory again (Reread).
// Executions of the earlier one may use each environment that was there, so the next one removes none before
// Adopt. A build of the earlier one that is under way goes on, and its caller may run the skill on the next one. So
// the next one looks on the disk for a key that it does not know (learnKey).
//
// Unfinished builds, venvs and compiled files of skills are in directories whose names contain Store.run. So each
// process has its own, and Adopt knows which ones are the earlier process's.
//
//	            begins builds  removes environments
//	sole        yes            yes
//	beside      yes            no
//	handedOver  no             no

// ErrHandedOver says that the next daemon has the environments now.
var ErrHandedOver = errors.New("the environments are handed over to the next daemon")

// Values of Store.phase.
const (
	sole       = iota // no other process uses the directory
	beside            // an earlier process is there, until Adopt
	handedOver        // a next process is there, until Resume or Close
)

// HandOver lets another process take over. From then on no build begins, and nothing is removed. Builds that are
// under way go on, and leases stay valid. HandOver does not wait.
func (s *Store) HandOver(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != sole {
		return errors.New("environments: handed over already, or not adopted yet")
	}
	s.phase = handedOver
	return nil
}

// Resume undoes HandOver. The process that was to take over must have ended.
func (s *Store) Resume() error {
	s.mu.Lock()
	defer s.unlock()
	if s.phase != handedOver {
		return errors.New("environments: not handed over")
	}
	s.phase = sole
	s.endAllRetired()
	s.evict()
	return nil
}

// Reread reads everything again that the earlier process may have changed since Open. The earlier process has
// called HandOver, and no lease is held and no build runs yet.
func (s *Store) Reread(context.Context) error {
	s.mu.Lock()
	defer s.unlock()
	if s.phase != beside || len(s.flights) > 0 || len(s.leaving) > 0 {
		return errors.New("environments: read again too late")
	}
	for _, t := range s.tenants {
		for _, k := range t.kept {
			if k.leases > 0 {
				return fmt.Errorf("environments: read again: %w", ErrInUse)
			}
		}
	}
	clear(s.tenants)
	if err := s.learn(leave); err != nil {
		return fmt.Errorf("environments: read again: %w", err)
	}
	return nil
}

// Adopt makes this process the only user of the directory. The earlier process has ended. Adopt learns what the earlier process has built since
// Reread, and removes what Open has left. If a removal fails, the next build tries again.
func (s *Store) Adopt(context.Context) error {
	s.mu.Lock()
	defer s.unlock()
	if s.phase != beside {
		return errors.New("environments: there is nothing to adopt")
	}
	s.phase = sole
	err := s.learn(func(dir string) error {
		s.trash = append(s.trash, dir)
		return nil
	})
	s.endAllRetired()
	s.evict()
	if err != nil {
		return fmt.Errorf("environments: adopt: %w", err)
	}
	return nil
}

// endAllRetired makes up for what retire could not do. The caller holds Store.mu.
func (s *Store) endAllRetired() {
	for _, k := range s.leaving {
		s.endName(k)
		if k.leases == 0 {
			s.endRetired(k)
		}
	}
}

// learnKey looks for an environment that the earlier process has prepared since Reread. The caller holds Store.mu.
func (s *Store) learnKey(tenantName, key string) {
	if t := s.tenants[tenantName]; t != nil && t.prepared[key] != "" {
		return
	}
	if _, err := os.Lstat(filepath.Join(s.config.Dir, tenantName, preparedName, key)); err != nil {
		return
	}
	if err := s.learnTenant(tenantName, leave); err != nil {
		s.config.Log.Warn("environments of an earlier daemon not read", "tenant", tenantName, "err", err)
	}
}
