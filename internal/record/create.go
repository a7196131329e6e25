package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// maxCreated is the latest time of creation in a row, in the year 2262. The numbers of
// rows count up from there, and must not overflow.
const maxCreated = math.MaxInt64 - 1<<53

// Create records x as queued, with its header event, whose data first is. When it
// returns the kernel has both; if x has an idempotency key, the disk has them. If
// another execution of the tenant uses the key, the error is a *KeyClaimed and nothing
// is recorded. If the disk is full the error is a *SpoolFullError. After HandOver it is ErrHandedOver.
//
// ctx bounds only the time before the write: a write that began is finished.
func (s *Store) Create(ctx context.Context, x Execution, first []byte) (*Log, error) {
	defer s.wrote(Creating, time.Now())
	if !validID(x.ID) {
		return nil, fmt.Errorf("record %q: not an execution's id", x.ID)
	}
	if len(first) > MaxEventBytes {
		return nil, fmt.Errorf("record %s: header of %d bytes: more than %d", x.ID, len(first), MaxEventBytes)
	}
	if x.Created.IsZero() {
		x.Created = time.Now()
	}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("record %s: %w", x.ID, err)
	}
	defer s.done()
	if err := s.ballast.fill(); err != nil {
		return nil, &SpoolFullError{ID: x.ID, Err: err}
	}

	// A reader that finds the row before the log is complete waits for this lock.
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

// create records the execution of a registered log. l.mu is held.
func (s *Store) create(ctx context.Context, l *Log, x Execution, first []byte) error {
	if err := s.isNew(ctx, x.ID); err != nil {
		return err
	}
	created := min(nanos(x.Created), maxCreated)
	x.Created = instant(created)
	l.tenant, l.row, l.usage = x.Tenant, s.number(created), s.usageOf(x.Tenant)
	change, err := createStatements(l.row, &x, first)
	if err != nil {
		return err
	}
	if x.Key != "" {
		err = s.claim(ctx, &x, change)
	} else {
		err = s.record(ctx, false, change...)
	}
	if claimed := (*KeyClaimed)(nil); errors.As(err, &claimed) {
		return err
	}
	if err != nil {
		return l.failure(err)
	}
	l.setSpool(newSpool(x.Created, first), 1)
	l.counted(int64(len(x.Detail)+len(first)), 0)
	l.usage.all.Add(l.size)
	return nil
}

// isNew returns ErrInUse if an execution has this ID. IDs from NewID sort by time, so
// that nearly all of them need no query.
func (s *Store) isNew(ctx context.Context, id string) error {
	s.mu.Lock()
	later := id > s.lastID
	s.lastID = max(s.lastID, id)
	s.mu.Unlock()
	if later {
		return ctx.Err()
	}
	// The journal first: a change that leaves the journal in between is then in the database.
	err := ErrInUse
	if !s.batch.creates(id) {
		_, err = getRow(ctx, s.db.queries, "id = ?", id)
	}
	switch {
	case err == nil:
		err = ErrInUse
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return fmt.Errorf("record %s: %w", id, err)
}

// claim runs the change that creates x, which has a key, and waits for the disk.
// It goes around the journal: a claim must be on the disk before its caller learns of it,
// and a commit of db.claims syncs. The query and the insertion are one transaction with the
// write lock, so two claims of one key can't both find it free.
func (s *Store) claim(ctx context.Context, x *Execution, change []statement) error {
	taken := false
	err := s.db.update(ctx, s.db.claims, func(ctx context.Context, tx *sql.Tx) error {
		_, err := findKey(ctx, tx, x.Tenant, x.Key)
		if taken = err == nil; taken {
			return nil
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		return runStatements(ctx, tx, change)
	})
	if err == nil {
		err = s.db.synced.believed()
	}
	if err != nil || !taken {
		return err
	}
	claimed, err := s.ByKey(ctx, x.Tenant, x.Key)
	if err != nil {
		return err
	}
	return &KeyClaimed{Existing: claimed}
}

// ByKey returns the execution of a tenant that has an idempotency key, or ErrNotFound.
func (s *Store) ByKey(ctx context.Context, tenant, key string) (Execution, error) {
	s.flushForQuery(ctx)
	claimed, err := findKey(ctx, s.db.queries, tenant, key)
	if err == nil {
		err = s.db.synced.believed()
	}
	if err != nil {
		return Execution{}, err
	}
	s.refresh(ctx, claimed)
	return claimed.Execution, nil
}

// Holder returns the ID and the request hash of the execution of a tenant that has an idempotency key, or
// ErrNotFound. The claim is on the disk. Holder does not flush the journal first, because keys are claimed in the
// database directly.
func (s *Store) Holder(ctx context.Context, tenant, key string) (id string, hash []byte, err error) {
	claimed, err := findKey(ctx, s.db.queries, tenant, key)
	if err == nil {
		err = s.db.synced.believed() // the claim may be newer than the last check
	}
	if err != nil {
		return "", nil, err
	}
	return claimed.ID, claimed.RequestHash, nil
}

// number returns the number of a new row.
// Numbers grow even if the clock goes back, so listings keep their order and page tokens
// stay valid.
func (s *Store) number(created int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRow = max(created, s.lastRow+1)
	return s.lastRow
}

// createStatements adds row n for x, as queued.
// The caller's slices are cloned, because the change waits after Create has returned.
func createStatements(n int64, x *Execution, header []byte) ([]statement, error) {
	labels, err := json.Marshal(x.Labels)
	if err != nil {
		return nil, err
	}
	change := []statement{{addExecution, []any{n, x.ID, x.Tenant, x.Principal, x.Skill, x.Digest, x.SourceKind, x.Script, x.Key,
		slices.Clone(blob(x.RequestHash)), nanos(x.Created), string(labels), slices.Clone(blob(x.Detail)), slices.Clone(blob(header))}}}
	for key, value := range x.Labels {
		change = append(change, statement{addLabel, []any{x.Tenant, key, value, n}})
	}
	return change, nil
}

// nanos is t as the database stores it: nanoseconds since 1970, and 0 for the zero Time.
// A time before 1677 or after 2262 becomes the nearest one in that range.
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
