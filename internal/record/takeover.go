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
//	                                       Open with Beside and Earlier
//	appends and ends its open executions   creates executions; reads all of them
//	Close, or dies
//	                                       Adopt: the only owner, as after a plain Open
//
// If the next process could not open the store, or has ended, the earlier one calls Resume.
//
// The lock of the directory belongs to the process that creates. Each process has its own journal, ballast and
// log files, and locks its journal: so a plain Open finds out that a process has the store open, and Adopt and Resume that
// none has. Both processes write the database, one transaction at a time (SQLite's write lock, busyTimeout). They never
// change the same row: the earlier one changes its open executions only, and the next one all others. An execution
// changes hands when its end is in the database, and at Adopt.

// begin announces a call that HandOver waits for, or says why it is refused. done ends the call.
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

// HandOver lets another process open the store with Beside. From then on Create, Remove, Sweep, MakeRoom and Purge
// return ErrHandedOver; the logs that are open go on, and so do readers and queries. HandOver first waits for such
// calls that are under way; a Sweep or a Purge stops at its next step. When HandOver returns nil, the database has
// every execution. After an error, or if ctx ends before, nothing has changed. Before Adopt the error is ErrBeside.
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
	if err == nil {
		err = s.dropLock()
	}
	if err != nil {
		s.handedOver.Store(false)
		return fmt.Errorf("record: hand over: %w", err)
	}
	return nil
}

// refuse lets begin refuse calls. The channel is closed once no call is under way.
func (s *Store) refuse() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.live == nil:
		return nil, ErrClosed
	case s.beside:
		return nil, ErrBeside
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

// Resume undoes HandOver after the next process has ended or failed to open the store; while it has the store open the
// error is ErrInUse, and the store stays handed over. If the next process has created executions and not ended them,
// Unended returns them. Without HandOver Resume does nothing.
func (s *Store) Resume() error {
	if !s.handedOver.Load() {
		return nil
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	if err := s.resume(context.Background()); err != nil {
		return fmt.Errorf("record: resume: %w", err)
	}
	s.handedOver.Store(false)
	return nil
}

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

// applyOther applies the changes that the other process has left, or returns ErrInUse if it has not ended.
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

// Adopt takes what the earlier process has left, after it has ended: from then on this process is the only owner, as
// after a plain Open. While the earlier process lives the error is ErrInUse. After an error Adopt can be called again.
// Unended then returns the executions that the earlier process has not ended, too. Their readers go on, and wait for the
// end, which the caller gives each after Reopen. Without Beside Adopt does nothing.
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
	s.beside = false
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

// A foreign execution is one that the earlier process had open when this one opened the store, and whose end this
// process has not seen yet. After Adopt it stays one until Reopen, for its readers.
type foreign struct {
	row    int64
	tenant string
	// counted is its share of usage.all. Store.sweeping guards it.
	counted int64
}

// isBeside reports whether the earlier process may have the store open.
func (s *Store) isBeside() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beside
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
	return s.beside && s.earlier[id] != nil
}

// forget makes an execution one of this process.
func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.earlier, id)
}

// loadEarlier finds the executions Earlier that have not ended. countRows, in the same tx, has counted their rows.
func (s *Store) loadEarlier(ctx context.Context, tx *sql.Tx) error {
	if !s.config.Beside {
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
// After Adopt there is nothing to do: Reopen counts what it changes.
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

// countForeign counts a foreign execution, whose row has these bytes. An open one is counted without its spool, as in
// countRows. s.sweeping is held.
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
