package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/record/journal"
)

const (
	// batchTime is how long a change waits, so that others share its transaction.
	batchTime = 20 * time.Millisecond
	// maxPending bounds the waiting changes: past it the next caller applies them.
	maxPending = 4096
	// maxBatch bounds the changes of one transaction, because other writers wait for it.
	maxBatch = 512
	// maxJournal is the journal's size, in bytes, past which new changes wait until it
	// is empty.
	maxJournal = 16 << 20
)

// batch holds the changes that are in the journal and not in the database yet.
// A change takes two steps: add appends it to the journal and to pending under one lock, so
// both have the same order; flush applies pending in that order and stores the number of the
// last one in the same transaction. After a crash the journal's entries above that number
// are exactly the changes that the database lacks.
type batch struct {
	name    string     // of the journal's file
	mu      sync.Mutex // guards journal and pending, so that both have the same changes
	journal *journal.Journal
	pending [][]statement // the newest journal entries, in order
	wake    chan struct{} // holds one if changes are pending

	flushing sync.Mutex // held by the one flush; taken before mu

	owed []owedEnd // ends that readers have seen and the journal could not take, in order; mu guards it

	said string // the last error of flushForQuery, which is in the log; empty: it succeeded. mu guards it
}

// An owedEnd is the end of a log that is still registered.
type owedEnd struct {
	log    *Log
	change statement
}

// openJournal reads the locked journal of this process. Changes that the database lacks become pending.
// first is the number of the oldest one, or 0 without any.
func (s *Store) openJournal(ctx context.Context) (first uint64, err error) {
	s.batch.wake = make(chan struct{}, 1)
	s.batch.pending, first, err = s.recoverJournal(ctx, s.batch.name, s.batch.journal)
	return first, err
}

// recoverJournal returns the changes in a locked journal that the database lacks, and the number of the oldest of
// these, or 0 if the database has all.
func (s *Store) recoverJournal(ctx context.Context, name string, j *journal.Journal) (pending [][]statement, first uint64, err error) {
	var applied int64
	err = s.db.queries.QueryRowContext(ctx, "SELECT applied FROM journal WHERE name = ?", name).Scan(&applied)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.db.path, err)
	}
	err = j.Recover(uint64(applied), func(e journal.Entry) error {
		if e.Seq <= uint64(applied) {
			return nil
		}
		if first == 0 {
			first = e.Seq
		}
		change, err := decodeStatements(e.Data)
		if err != nil { // an empty change takes its place, so that numbers stay right
			s.log.Error("record: a change in the journal can't be read", "err", err)
		}
		pending = append(pending, change)
		return nil
	})
	if n := j.Dropped(); n > 0 {
		s.log.Warn("record: the end of the journal is damaged, or a crash cut it short; its last changes are lost", "journal", name, "bytes", n)
	}
	return pending, first, err
}

// applyLeft applies the changes that openJournal found. If that fails, on a full disk for
// example, they stay in the journal.
func (s *Store) applyLeft(ctx context.Context) error {
	err := s.flush(ctx)
	if err == nil || isCorrupt(err) {
		return err
	}
	s.log.Error("record: changes of the last process wait in the journal", "err", err)
	return nil
}

// record writes a change to the journal; the database gets it later. When record returns
// nil, the kernel has the change. After an error nothing of it happens. For an urgent
// change on a full disk, record uses the ballast.
func (s *Store) record(ctx context.Context, urgent bool, change ...statement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// An urgent change never waits for the database: there are few for each execution.
	if !urgent && s.batch.count() >= maxPending {
		// While another process has the database's write lock, changes go to the journal only.
		if err := s.flush(ctx); err != nil && !isBusy(err) {
			return err
		}
	}
	err := s.add(urgent, change)
	if err == nil {
		s.batch.notify()
	}
	return err
}

// add appends a change to the journal. For an urgent change on a full disk it uses the ballast.
func (s *Store) add(urgent bool, change []statement) error {
	entry := encodeStatements(change)
	if !urgent {
		return s.batch.add(entry, change)
	}
	return s.ballast.use(func() error { return s.batch.add(entry, change) })
}

// owe keeps the end of l until the journal can take it.
func (b *batch) owe(l *Log, end statement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed = append(b.owed, owedEnd{l, end})
}

// firstOwed returns the oldest end that the journal must take, if there is one.
func (b *batch) firstOwed() (o owedEnd, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.owed) == 0 || b.journal == nil { // nil: the store is closed
		return owedEnd{}, false
	}
	return b.owed[0], true
}

// recordOwed appends the owed ends to the journal. After an error the rest stay owed. batch.flushing is held.
func (s *Store) recordOwed() error {
	for {
		o, found := s.batch.firstOwed()
		if !found {
			return nil
		}
		if err := s.add(true, []statement{o.change}); err != nil {
			return fmt.Errorf("end of execution %s: %w", o.log.id, err)
		}
		s.unregister(o.log)
		s.batch.mu.Lock()
		s.batch.owed = slices.Delete(s.batch.owed, 0, 1)
		s.batch.mu.Unlock()
	}
}

// notify tells flushInTime that changes are pending.
func (b *batch) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *batch) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// creates reports whether a waiting change creates the execution.
func (b *batch) creates(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.pending, func(change []statement) bool {
		return len(change) > 0 && change[0].query == addExecution && change[0].args[1] == id
	})
}

// add appends a change to both. The journal comes first: after an error neither has the change.
func (b *batch) add(entry []byte, change []statement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.journal.Append(entry); err != nil {
		return err
	}
	b.pending = append(b.pending, change)
	return nil
}

// flush records the ends that are owed, and applies all changes that were recorded before the call.
// After an error the rest stay owed or pending, and a later flush tries again.
func (s *Store) flush(ctx context.Context) error {
	s.batch.flushing.Lock()
	defer s.batch.flushing.Unlock()
	err := s.recordOwed()
	return errors.Join(err, s.flushFirst(ctx, s.batch.count(), maxJournal))
}

// flushRecorded is flush without the ends that are owed: a full disk may have no room for them.
func (s *Store) flushRecorded(ctx context.Context) error {
	s.batch.flushing.Lock()
	defer s.batch.flushing.Unlock()
	return s.flushFirst(ctx, s.batch.count(), maxJournal)
}

// emptyJournal is flushRecorded, but no change is added during the call, so the journal is empty afterwards.
func (s *Store) emptyJournal(ctx context.Context) error {
	s.batch.flushing.Lock()
	defer s.batch.flushing.Unlock()
	return s.flushFirst(ctx, s.batch.count(), 0)
}

// flushFirst applies the first n changes, and empties the journal if no more are
// pending, or if it has more than most bytes. batch.flushing is held.
func (s *Store) flushFirst(ctx context.Context, n int, most int64) error {
	b := &s.batch
	for ; n > 0; n -= maxBatch {
		b.mu.Lock()
		changes := slices.Clone(b.pending[:min(n, maxBatch)])
		// Entries are numbered without a gap and pending holds the newest ones, so the
		// number of the last change of this batch follows from the counts.
		seq := b.journal.Last() - uint64(len(b.pending)-len(changes))
		b.mu.Unlock()
		if err := s.apply(ctx, b.name, changes, seq); err != nil {
			return err
		}
		b.mu.Lock()
		b.pending = slices.Delete(b.pending, 0, len(changes))
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 && b.journal.Size() > most {
		// With b.mu held no change can be added. Under a steady load the journal would
		// never be empty otherwise.
		if err := s.apply(ctx, b.name, b.pending, b.journal.Last()); err != nil {
			return err
		}
		b.pending = nil
	}
	if len(b.pending) == 0 && b.journal != nil { // nil: the store is closed
		return b.journal.Reset()
	}
	return nil
}

// apply runs changes in one transaction. The last one is entry seq of the named journal.
// WithoutCancel: a caller that gives up must not stop changes of others.
func (s *Store) apply(ctx context.Context, name string, changes [][]statement, seq uint64) error {
	defer s.wrote(Flushing, time.Now())
	return s.write(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		for _, change := range changes {
			if err := runStatements(ctx, tx, change); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE journal SET applied = ? WHERE name = ?", int64(seq), name)
		return err
	})
}

// flushForQuery is flush before a query. If it fails, the query misses the changes, and the failure is logged once,
// until it changes. If another process had the write lock for too long, flushInTime tries again.
func (s *Store) flushForQuery(ctx context.Context) {
	err := s.flush(ctx)
	if s.batch.isNews(err) {
		s.log.Error("record: changes are not in the database yet; the daemon tries again", "err", err)
	}
	if isBusy(err) {
		s.batch.notify()
	}
}

// isNews reports whether flushForQuery has another error than the last time.
func (b *batch) isNews(err error) bool {
	said := ""
	if err != nil {
		said = err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := said != b.said
	b.said = said
	return changed && err != nil
}

// flushInTime applies changes batchTime after the first one, until Close.
func (s *Store) flushInTime() {
	for {
		select {
		case <-s.closing:
			return
		case <-s.batch.wake:
		}
		select {
		case <-s.closing:
			return
		case <-time.After(batchTime):
			s.flushForQuery(context.Background())
		}
	}
}
