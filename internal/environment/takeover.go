package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A takeover: two daemons use the same directory. Theory of operation.
//
// The next daemon opens its store while the earlier daemon still serves, with Config.Takeover. The earlier daemon
// builds and removes until HandOver. Then the next daemon reads the directory again (Reread). Executions of the
// earlier daemon may use any environment in it, so the next daemon removes none before Adopt. Builds that run in the
// earlier daemon at HandOver go on, and their callers may then run the skill in the next daemon. So the next
// daemon looks on the disk for a key that it does not know (learnKey).
//
// Unfinished builds, venvs and compiled files of skills are in directories whose names contain Store.run, which
// differs in each process. So Adopt recognizes the directories of the earlier daemon.
//
//	            begins builds  removes environments
//	sole        yes            yes
//	unadopted   yes            no
//	handedOver  no             no

// ErrHandedOver says that only the next daemon may build and remove environments now.
var ErrHandedOver = errors.New("the environments are handed over to the next daemon")

// Values of Store.phase.
const (
	sole       = iota // no other process uses the directory
	unadopted         // an earlier process is there, until Adopt
	handedOver        // a next process is there, until Resume or Close
)

// HandOver lets another process take over. From then on no build begins, and nothing is removed. Builds that are
// under way go on, HandOver does not wait for them, and leases stay valid.
func (s *Store) HandOver(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != sole {
		return errors.New("environments: handed over already, or not adopted yet")
	}
	s.phase = handedOver
	return nil
}

// buildsPeriod is the time between two looks of AwaitBuilds.
const buildsPeriod = 20 * time.Millisecond

// Builds returns how many builds run or wait.
func (s *Store) Builds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights)
}

// AwaitBuilds waits after HandOver until no build is under way, or ctx is done. It returns the number of builds that are
// left.
func (s *Store) AwaitBuilds(ctx context.Context) int {
	look := time.NewTicker(buildsPeriod)
	defer look.Stop()
	for {
		left := s.Builds()
		if left == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return left
		case <-look.C:
		}
	}
}

// Resume undoes HandOver. The next process must have ended. Resume adds the environments that it has built. After an
// error Resume can be called again.
func (s *Store) Resume() error { return s.own(handedOver, "not handed over") }

// Reread reads everything again that the earlier process may have changed since Open. Call it when the earlier
// process has called HandOver, and before any lease and any build of this process.
func (s *Store) Reread(context.Context) error {
	s.mu.Lock()
	defer s.unlock()
	if s.phase != unadopted || len(s.flights) > 0 || len(s.leaving) > 0 {
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

// Adopt makes this process the only user of the directory. The earlier process must have ended. Adopt adds the
// environments that the earlier process has built since Reread, and removes unused files that Open has left for it.
// If a removal fails, the next build tries again. After an error Adopt can be called again.
func (s *Store) Adopt(context.Context) error { return s.own(unadopted, "there is nothing to adopt") }

// own ends the phase from, in which another process used the directory, too. otherwise is the error in another phase.
func (s *Store) own(from int, otherwise string) error {
	s.mu.Lock()
	defer s.unlock()
	if s.phase != from {
		return errors.New("environments: " + otherwise)
	}
	s.phase = sole
	if err := s.learn(s.setAside); err != nil {
		s.phase = from
		return fmt.Errorf("environments: read again: %w", err)
	}
	s.endAllRetired()
	s.evict()
	return nil
}

// endAllRetired removes the environments that were retired while this process might not remove files. The caller
// holds Store.mu.
func (s *Store) endAllRetired() {
	for _, k := range s.leaving {
		s.endName(k)
		if k.leases == 0 {
			s.endRetired(k)
		}
	}
}

// incomplete reports whether the disk may have environments that are not in the lists: of an earlier process, or ones
// that could not be read. The caller holds Store.mu.
func (s *Store) incomplete() bool { return s.phase == unadopted || s.unread != nil }

// learnKey looks for an environment that the earlier process has prepared since Reread, or that learn could not read. The
// error says that the environment cannot be read now. The caller holds Store.mu.
func (s *Store) learnKey(tenantName, key string) error {
	if t := s.tenants[tenantName]; t != nil && t.prepared[key] != "" {
		return nil
	}
	path := filepath.Join(s.config.Dir, tenantName, preparedName, key)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	was := s.unread
	s.unread = nil
	err := s.learnTenant(tenantName, leave)
	err = cmp.Or(err, s.unread)
	s.unread = cmp.Or(err, was) // other tenants may have unread entries, too
	if t := s.tenants[tenantName]; t != nil && t.prepared[key] != "" {
		return nil
	}
	return err
}
