package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// maxCreated is the latest creation, in the year 2262, that a row has: beyond it
// there is room for the numbers of rows that count up from there.
const maxCreated = math.MaxInt64 - 1<<53

// Create records x as queued and writes its header event, whose data first is.
// When it returns, the kernel has both, and the disk if x has a key. If x has an idempotency key that the
// tenant's executions already use, the error is a *KeyClaimed and nothing is
// recorded; if the disk is full, it is a *SpoolFullError.
//
// ctx bounds only the wait before: what was begun is finished.
func (s *Store) Create(ctx context.Context, x Execution, first []byte) (*Log, error) {
	if !validID(x.ID) {
		return nil, fmt.Errorf("record %q: not an execution's id", x.ID)
	}
	if len(first) > MaxEventBytes {
		return nil, fmt.Errorf("record %s: header of %d bytes: more than %d", x.ID, len(first), MaxEventBytes)
	}
	if x.Created.IsZero() {
		x.Created = time.Now()
	}
	if err := s.ballast.fill(); err != nil {
		return nil, &SpoolFullError{ID: x.ID, Err: err}
	}

	// Who finds the row before there is a spool waits for this lock.
	l := newLog(s, x.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.register(l); err != nil {
		return nil, err
	}
	if err := s.create(ctx, l, x, first); err != nil {
		l.state = logFailed
		s.unregister(l)
		return nil, err
	}
	return l, nil
}

func (s *Store) create(ctx context.Context, l *Log, x Execution, first []byte) error {
	x.State, x.Created, x.LastSeq = Queued, instant(min(nanos(x.Created), maxCreated)), 1
	x.RequestHash, x.Detail, x.Outcome = blob(x.RequestHash), blob(x.Detail), []byte{}
	x.Started, x.Ended, x.End = time.Time{}, time.Time{}, ""
	l.x, l.first, l.made, l.row = x, first, time.Now(), s.number(nanos(x.Created))
	var head []byte
	if !s.config.grown {
		head = newExtent(l.row, &x, first)
	}
	young := false
	if head != nil {
		l.extent, young = s.arena.take()
	}
	if x.Key != "" || !young {
		if err := s.claim(ctx, l); err != nil {
			return errors.Join(err, s.giveBack(l, young))
		}
	} else if err := s.isNew(ctx, x.ID); err != nil {
		return errors.Join(err, s.giveBack(l, young))
	}
	err := error(nil)
	if young {
		err = l.beginYoung(head, x.Created, first)
	} else {
		err = l.begin(x.Created, first)
	}
	if err != nil {
		if l.placed == hasRow {
			err = errors.Join(err, s.forget(ctx, l))
		}
		return errors.Join(err, s.giveBack(l, young))
	}
	if l.placed == noRow {
		l.first = slices.Clone(first)
		s.addYoung(l)
	}
	return nil
}

// giveBack clears the place of a young execution that was not created.
func (s *Store) giveBack(l *Log, young bool) error {
	if !young {
		return nil
	}
	used := int64(0)
	if l.size > 0 { // else nothing of it is there
		used = l.base + l.size
	}
	l.mem = nil
	return s.arena.give(l.extent, used)
}

// number returns the number of a new row.
func (s *Store) number(created int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRow = max(created, s.lastRow+1)
	return s.lastRow
}

// isNew returns an error if there is a row of an execution. Names as NewID makes them
// sort by time, so that nearly all are known to be new without asking.
func (s *Store) isNew(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	beyond := id > s.lastID
	s.lastID = max(s.lastID, id)
	s.mu.Unlock()
	if beyond {
		return nil
	}
	var has bool
	err := s.db.queries.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM executions WHERE id = ?)", id).Scan(&has)
	if err == nil && has {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", id, err)
	}
	return nil
}

// claim gives a new execution its row, and waits for the disk if that claims a key.
func (s *Store) claim(ctx context.Context, l *Log) error {
	s.mu.Lock()
	s.lastID = max(s.lastID, l.id)
	s.mu.Unlock()
	db := s.db.states
	if l.x.Key != "" {
		db = s.db.claims
	}
	var claimed *row
	err := s.db.update(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		taken, err := insert(ctx, tx, l.row, &l.x, l.first, nil, nil)
		if taken {
			claimed, err = getRow(ctx, tx, "tenant = ? AND key = ?", l.x.Tenant, l.x.Key)
		}
		return err
	})
	switch {
	case err != nil:
		return l.failure(err)
	case claimed != nil:
		s.refresh(&claimed.Execution)
		return &KeyClaimed{Existing: claimed.Execution}
	}
	l.placed, l.first = hasRow, nil
	return nil
}

// insert adds x's row: with its spool, if it has ended and that is in no file. taken:
// its key is another's, and there is none.
func insert(ctx context.Context, tx *sql.Tx, n int64, x *Execution, header, spool, index []byte) (taken bool, err error) {
	labels, err := json.Marshal(x.Labels)
	if err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, `
		INSERT INTO executions
			(n, id, tenant, principal, skill, digest, source_kind, script, key, request_hash, state, created, started, ended,
			ending, last_seq, spool_bytes, labels, detail, outcome, marks, header, row_bytes)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING`,
		n, x.ID, x.Tenant, x.Principal, x.Skill, x.Digest, x.SourceKind, x.Script, x.Key, x.RequestHash, x.State,
		nanos(x.Created), nanos(x.Started), nanos(x.Ended), x.End, int64(x.LastSeq), len(spool), string(labels), x.Detail,
		x.Outcome, blob(index), blob(header), len(x.Detail)+len(x.Outcome)+len(index)+len(header))
	if err != nil {
		return false, err
	}
	if added, err := result.RowsAffected(); err != nil || added == 0 {
		return err == nil, err
	}
	for key, value := range x.Labels {
		_, err := tx.ExecContext(ctx, "INSERT INTO labels (tenant, key, value, execution) VALUES (?, ?, ?, ?)", x.Tenant, key, value, n)
		if err != nil {
			return false, err
		}
	}
	if spool == nil {
		return false, nil
	}
	return false, insertSpool(ctx, tx, n, spool)
}

// forget takes back the row of an execution that could not be begun.
func (s *Store) forget(ctx context.Context, l *Log) error {
	err := s.write(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM executions WHERE n = ?", l.row)
		return err
	})
	if rerr := os.Remove(s.spoolPath(l.id)); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// nanos is t as it is stored: nanoseconds since 1970, 0 for no time, and the
// nearest that there is for a time before 1677 or after 2262.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// blob keeps nil from becoming NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
