package record

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

var errFilesRemain = errors.New("files of removed executions remain, and the log says why; repeat the purge later")

// Purge removes all executions of a tenant with their spools, artifacts and idempotency keys. It returns the
// number of removed executions and of their bytes, also with an error. Before the first removal it returns
// ErrNotEnded if an execution of the tenant has not ended. A Purge that failed can be repeated. After it no
// file of the store has bytes of the tenant, also of executions that Sweep removed before. So it fails as long as files
// of a removed execution can't be removed, of any tenant: the store does not know whose they were. While an earlier
// process has the store open, Purge removes nothing and returns ErrNotAdopted: the journal of that process may have
// bytes of the tenant, and its changes would have to wait for the rewrite of the database. After HandOver the error is
// ErrHandedOver.
func (s *Store) Purge(ctx context.Context, tenant string) (removed int, freed int64, err error) {
	err = s.begin()
	if err == nil {
		defer s.done()
		if s.isBeside() {
			err = ErrNotAdopted
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("record: purge of tenant %q: %w", tenant, err)
	}
	if err := s.hasEnded(ctx, tenant); err != nil {
		return 0, 0, fmt.Errorf("record: purge of tenant %q: %w", tenant, err)
	}
	for {
		if s.handedOver.Load() {
			return removed, freed, fmt.Errorf("record: purge of tenant %s: %w", tenant, ErrHandedOver)
		}
		n, bytes, err := s.purgeBatch(ctx, tenant)
		removed, freed = removed+n, freed+bytes
		if err != nil {
			return removed, freed, fmt.Errorf("record: purge of tenant %s: %w", tenant, err)
		}
		if n == 0 {
			break
		}
	}
	remain, err := s.filesRemain(ctx)
	if err == nil {
		err = s.erase(ctx)
	}
	if err == nil && remain {
		err = errFilesRemain
	}
	if err != nil {
		return removed, freed, fmt.Errorf("record: purge of tenant %s: %w", tenant, err)
	}
	return removed, freed, nil
}

// filesRemain tries again to remove the files of removed executions, and reports whether some remain.
func (s *Store) filesRemain(ctx context.Context) (bool, error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if err := s.collectGarbage(ctx); err != nil {
		return false, err
	}
	left, err := s.garbage(ctx)
	return len(left) > 0, err
}

// erase removes what deleted rows have left in the files. Without it SQLite would overwrite them only with
// new rows. PRAGMA secure_delete does not suffice: when rows move between pages, copies stay in the unused
// part of a page, and no later deletion knows of them. Queries and writers of the database wait for erase;
// changes that go to the journal only do not.
func (s *Store) erase(ctx context.Context) error {
	if err := s.emptyJournal(ctx); err != nil {
		return err
	}
	err := s.db.rewrite(ctx)
	if isFull(err) {
		return fmt.Errorf("no room for a copy of the database, so removed rows are not overwritten yet: %w", unix.ENOSPC)
	}
	return err
}

// hasEnded returns ErrNotEnded if an execution of the tenant has not ended.
func (s *Store) hasEnded(ctx context.Context, tenant string) error {
	if tenant == "" {
		return errors.New("no name") // oldest would take it for all tenants
	}
	s.flushForQuery(ctx)
	var open int
	err := s.db.queries.QueryRowContext(ctx, "SELECT count(*) FROM executions WHERE tenant = ? AND state < 3", tenant).Scan(&open)
	if err == nil && open > 0 {
		err = ErrNotEnded
	}
	return err
}

// purgeBatch removes some executions of a tenant. It holds the lock for one batch only, so that others can
// remove executions in between.
func (s *Store) purgeBatch(ctx context.Context, tenant string) (removed int, freed int64, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	batch, err := s.oldest(ctx, tenant, math.MaxInt64)
	if err != nil || len(batch) == 0 {
		return 0, 0, err
	}
	if err := s.remove(ctx, batch); err != nil {
		return 0, 0, err
	}
	for _, d := range batch {
		freed += d.bytes
	}
	return len(batch), freed, nil
}
