package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/record/journal"
)

// A takeover hands a store from the earlier process to the next one, while executions run:
//
//	earlier process                        next process
//	HandOver: creates and removes nothing
//	                                       Open with Takeover and Earlier
//	appends and ends its open executions   creates executions; reads all of them
//	Close, or dies
//	                                       Adopt: the only owner, as after a plain Open
//
// If the next process could not open the store, or has ended, the earlier process calls Resume.
//
// The process that creates executions holds the lock of the directory. Each process has its own journal, ballast and
// log files. It locks its journal as long as it has the store open. By these locks a plain Open notices that another
// process uses the store, and Adopt and Resume notice that the other process has ended.
//
// Both processes write the database, one transaction at a time (SQLite's write lock, busyTimeout). They never change
// the same row: the earlier process changes its open executions only, and the next process all others. The next process
// may change an execution of the earlier one when its end is in the database, or after Adopt.

// begin counts a call that HandOver waits for, or returns the reason why the call is refused. done ends the call.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.live == nil:
		return ErrClosed
	case s.handedOver.Load():
		return ErrHandedOver
	}
	s.underWay++
	return nil
}

func (s *Store) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if s.underWay == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// HandOver lets a next process open the store. From then on Create, Unended, Reopen, Remove, Sweep, MakeRoom and Purge
// return ErrHandedOver. Open logs, readers and queries still work. HandOver waits until the calls of these methods
// that are under way have returned; a Sweep or a Purge stops at its next step. When HandOver returns nil, the database
// has every execution. After an error, also an error of ctx, nothing has changed. Before Adopt the error is
// ErrNotAdopted.
func (s *Store) HandOver(ctx context.Context) error {
	idle, err := s.refuse()
	if err != nil {
		return fmt.Errorf("record: hand over: %w", err)
	}
	select {
	case <-idle:
		err = s.flush(ctx)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil { // the next process could not learn of a lost write
		err = s.db.synced.noneLost()
	}
	if err == nil {
		err = s.dropLock()
	}
	if err != nil {
		s.handedOver.Store(false)
		return fmt.Errorf("record: hand over: %w", err)
	}
	return nil
}

// refuse makes begin refuse calls from now on. It returns a channel that is closed when no call is under way.
func (s *Store) refuse() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.live == nil:
		return nil, ErrClosed
	case s.unadopted:
		return nil, ErrNotAdopted
	case s.handedOver.Load():
		return nil, ErrHandedOver
	}
	s.handedOver.Store(true)
	idle := make(chan struct{})
	if s.underWay == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	return idle, nil
}

// Resume undoes HandOver after the next process has ended or has failed to open the store. While the next process has
// the store open, the error is ErrInUse and the store stays handed over. Executions that the next process has created
// and not ended are in Unended. Without a HandOver, Resume does nothing. After an error it can be called again;
// durable.MayPass reports whether that may succeed.
func (s *Store) Resume() error {
	if !s.handedOver.Load() {
		return nil
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if err := s.resume(context.Background()); err != nil {
		return fmt.Errorf("record: resume: %w", markPassing(err))
	}
	s.handedOver.Store(false)
	return nil
}

// resume takes the lock again, and reads what the other process has changed. The order matters: its journal must be in
// the database before numbers and executions are read from there. The caller holds sweeping.
func (s *Store) resume(ctx context.Context) (err error) {
	if err := s.waitForLock(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.dropLock())
		}
	}()
	if err := s.applyOther(ctx); err != nil {
		return err
	}
	if err := s.readLast(ctx); err != nil {
		return err
	}
	if err := s.collectGarbage(ctx); err != nil {
		return err
	}
	if err := s.closeEnded(ctx, func(id string) bool { return s.liveLog(id) != nil }); err != nil {
		return err
	}
	return s.countAgain(ctx)
}

// applyOther writes the changes in the other process's journal to the database. It returns ErrInUse if that process has
// not ended.
func (s *Store) applyOther(ctx context.Context) error {
	path := filepath.Join(s.config.Dir, s.otherJournal())
	j, err := journal.Lock(path)
	if errors.Is(err, journal.ErrInUse) {
		return fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(s.applyJournal(ctx, j), j.Close()); err != nil {
		return err
	}
	return s.removeOtherBallast()
}

// Adopt makes this process the only owner of the store, as after a plain Open, when the earlier process has ended.
// While the earlier process lives, the error is ErrInUse. After an error Adopt can be called again. Executions that the
// earlier process has not ended are in Unended after Adopt; the caller must Reopen each and append its end. Readers of
// these executions wait for that end. After a plain Open, Adopt does nothing.
func (s *Store) Adopt(ctx context.Context) error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if !s.isBeside() {
		return nil
	}
	if err := s.adopt(ctx); err != nil {
		return fmt.Errorf("record: adopt: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unadopted = false
	return nil
}

func (s *Store) adopt(ctx context.Context) error {
	if err := s.applyOther(ctx); err != nil {
		return err
	}
	if err := s.closeEnded(ctx, func(id string) bool { return s.liveLog(id) != nil }); err != nil {
		return err
	}
	return s.countEarlier(ctx)
}

// A foreign execution was open in the earlier process when this process opened the store, and this process has not seen
// its end yet. After Adopt an execution stays foreign until Reopen, because its readers still read the database.
type foreign struct {
	row    int64 // row.n
	tenant string
	// counted is the number of bytes of the execution in usage.all. Store.sweeping guards it.
	counted int64
}

// isBeside reports whether the earlier process may have the store open.
func (s *Store) isBeside() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unadopted
}

// foreign returns a foreign execution, or nil.
func (s *Store) foreign(id string) *foreign {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.earlier[id]
}

// runsElsewhere reports whether only the earlier process may change the execution.
func (s *Store) runsElsewhere(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unadopted && s.earlier[id] != nil
}

// forget ends the foreign state of an execution: from now on this process may change it.
func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.earlier, id)
}

// loadEarlier marks the executions in Config.Earlier that have not ended as foreign. countRows, in the same
// transaction, has counted their rows.
func (s *Store) loadEarlier(ctx context.Context, tx *sql.Tx) error {
	if !s.config.Takeover {
		return nil
	}
	for _, id := range s.config.Earlier {
		var x foreign
		var state State
		err := tx.QueryRowContext(ctx, "SELECT n, tenant, state, artifact_bytes + row_bytes FROM executions WHERE id = ?", id).
			Scan(&x.row, &x.tenant, &state, &x.counted)
		if errors.Is(err, sql.ErrNoRows) {
			s.log.Error("record: the earlier process runs an execution without a row", "execution", id)
			continue
		}
		if err != nil {
			return err
		}
		if state != Ended {
			s.mu.Lock()
			s.earlier[id] = &x
			s.mu.Unlock()
		}
	}
	return nil
}

// countEarlier brings the counts of foreign executions up to date. s.sweeping is held.
// After Adopt it does nothing, because Reopen counts the execution.
func (s *Store) countEarlier(ctx context.Context) error {
	if !s.isBeside() {
		return nil
	}
	s.mu.Lock()
	all := maps.Clone(s.earlier)
	s.mu.Unlock()
	for id, x := range all {
		var state State
		var spool, other int64
		err := s.db.queries.QueryRowContext(ctx, "SELECT state, spool_bytes, artifact_bytes + row_bytes FROM executions WHERE n = ?", x.row).
			Scan(&state, &spool, &other)
		if err != nil {
			return fmt.Errorf("execution %s: %w", id, err)
		}
		s.countForeign(id, x, state == Ended, spool, other)
	}
	return nil
}

// countForeign counts the bytes of a foreign execution: spool, and other for its artifacts and its row. The spool of an
// open execution does not count, as in countRows. s.sweeping is held.
func (s *Store) countForeign(id string, x *foreign, ended bool, spool, other int64) {
	u := s.usageOf(x.tenant)
	if !ended {
		u.all.Add(other - x.counted)
		x.counted = other
		return
	}
	u.all.Add(spool + other - x.counted)
	u.ended.Add(spool + other)
	s.forget(id)
}
