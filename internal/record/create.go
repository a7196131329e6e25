package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"time"
)

// maxCreated is the latest creation, in the year 2262, that a row has: beyond it
// there is room for the numbers of rows that count up from there.
const maxCreated = math.MaxInt64 - 1<<53

// Create records x as queued and writes its header event, whose data first is.
// When it returns, both are on the disk. If x has an idempotency key that the
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
	l := &Log{store: s, id: x.ID}
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
	var claimed *row
	err := s.db.update(ctx, s.db.claims, func(ctx context.Context, tx *sql.Tx) (err error) {
		l.row, err = insert(ctx, tx, x, first)
		if errors.Is(err, sql.ErrNoRows) {
			claimed, err = getRow(ctx, tx, "tenant = ? AND key = ?", x.Tenant, x.Key)
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
	if err := l.begin(x.Created, first); err != nil {
		return errors.Join(err, s.forget(ctx, l))
	}
	return nil
}

// insert adds x's row. sql.ErrNoRows: its key is taken.
func insert(ctx context.Context, tx *sql.Tx, x Execution, header []byte) (row int64, err error) {
	labels, err := json.Marshal(x.Labels)
	if err != nil {
		return 0, err
	}
	created := min(nanos(x.Created), maxCreated)
	err = tx.QueryRowContext(ctx, `
		INSERT INTO executions
			(n, id, tenant, principal, skill, digest, source_kind, script, key, request_hash, state, created, labels, detail, header, row_bytes)
		VALUES
			(max(?, (SELECT coalesce(max(n), 0) + 1 FROM executions)), ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING
		RETURNING n`,
		created, x.ID, x.Tenant, x.Principal, x.Skill, x.Digest, x.SourceKind, x.Script, x.Key,
		blob(x.RequestHash), Queued, created, string(labels), blob(x.Detail), blob(header), len(x.Detail)+len(header)).Scan(&row)
	if err != nil {
		return 0, err
	}
	for key, value := range x.Labels {
		_, err := tx.ExecContext(ctx, "INSERT INTO labels (tenant, key, value, execution) VALUES (?, ?, ?, ?)",
			x.Tenant, key, value, row)
		if err != nil {
			return 0, err
		}
	}
	return row, nil
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
