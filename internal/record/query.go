package record

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// row is an execution with columns for the store only.
// n is the key that other tables use; IDs are for callers.
type row struct {
	Execution
	n      int64
	inFile bool
	// spoolBytes is 0 until the end.
	spoolBytes, artifactBytes, rowBytes int64
	// unreadable says which column could not be read; its field is zero. Nil: none.
	unreadable error
}

const selectColumns = `
	SELECT e.n, e.id, e.tenant, e.principal, e.skill, e.digest, e.source_kind, e.script, e.labels, coalesce(e.key, ''),
		e.request_hash, e.state, e.created, e.started, e.ended, e.detail, e.outcome, e.ending, e.last_seq, e.spool_bytes, e.in_file,
		e.artifact_bytes, e.row_bytes`

const selectRow = selectColumns + " FROM executions AS e "

// scanRow reads what selectRow selects.
// A damaged column of labels costs the labels, not the execution.
func scanRow(scan func(...any) error) (*row, error) {
	var x row
	var labels []byte
	var created, started, ended, lastSeq int64
	err := scan(&x.n, &x.ID, &x.Tenant, &x.Principal, &x.Skill, &x.Digest, &x.SourceKind, &x.Script, &labels, &x.Key,
		&x.RequestHash, &x.State, &created, &started, &ended, &x.Detail, &x.Outcome, &x.End, &lastSeq, &x.spoolBytes, &x.inFile,
		&x.artifactBytes, &x.rowBytes)
	if err != nil {
		if strings.HasPrefix(err.Error(), "sql: Scan error") { // a column has a value of another type
			err = badFrame(err.Error())
		}
		return nil, err
	}
	if err := json.Unmarshal(labels, &x.Labels); err != nil {
		x.Labels, x.unreadable = nil, fmt.Errorf("labels: %w", err)
	}
	x.Created, x.Started, x.Ended = instant(created), instant(started), instant(ended)
	x.LastSeq = uint64(lastSeq)
	return &x, nil
}

// instant is the reverse of nanos.
func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// querier is a database or a transaction on it.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// getRow returns the one execution for which where holds, or ErrNotFound.
func getRow(ctx context.Context, q querier, where string, args ...any) (*row, error) {
	x, err := scanRow(q.QueryRowContext(ctx, selectRow+"WHERE "+where, args...).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	return x, err
}

// errOther says that an index is damaged.
const errOther = badFrame("the index leads to another execution")

// findRow returns the execution of a tenant, or ErrNotFound.
func findRow(ctx context.Context, q querier, tenant, id string) (*row, error) {
	x, err := getRow(ctx, q, "id = ? AND tenant = ?", id, tenant)
	if err == nil && (x.ID != id || x.Tenant != tenant) {
		return nil, errOther
	}
	return x, err
}

// findKey returns the execution of a tenant that has an idempotency key, or ErrNotFound. Damage is a *CorruptError.
func findKey(ctx context.Context, q querier, tenant, key string) (*row, error) {
	x, err := getRow(ctx, q, "tenant = ? AND key = ?", tenant, key)
	if err == nil && (x.Key != key || x.Tenant != tenant) {
		err = errOther
	}
	if isDamage(err) {
		err = ofAll("lookup of an idempotency key", err)
	}
	return x, err
}

// refresh sets LastSeq of an open execution, which its row doesn't have.
// An update of the row for each event would cost a transaction each.
// Without a log the execution has ended since the row was read, and the row has its end after a flush; or another
// process runs it. Errors are ignored here: a reader of the events gets them.
func (s *Store) refresh(ctx context.Context, x *row) {
	if x.State == Ended {
		return
	}
	if l := s.liveLog(x.ID); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		x.LastSeq = max(x.LastSeq, l.seq)
		return
	}
	s.flushForQuery(ctx)
	if again, err := getRow(ctx, s.db.queries, "n = ?", x.n); err == nil && again.ID == x.ID {
		*x = *again
	}
	if x.State != Ended && s.foreign(x.ID) != nil {
		x.LastSeq = max(x.LastSeq, s.newestElsewhere(ctx, x))
	}
}

// TenantOf returns the tenant of an execution, or ErrNotFound.
func (s *Store) TenantOf(ctx context.Context, id string) (string, error) {
	s.flushForQuery(ctx)
	x, err := getRow(ctx, s.db.queries, "id = ?", id)
	if err == nil && x.ID != id {
		err = errOther
	}
	if err != nil {
		return "", of(id, err)
	}
	return x.Tenant, nil
}

// Get returns the tenant's execution, or ErrNotFound.
func (s *Store) Get(ctx context.Context, tenant, id string) (Execution, error) {
	s.flushForQuery(ctx)
	x, err := findRow(ctx, s.db.queries, tenant, id)
	if err != nil {
		return Execution{}, of(id, err)
	}
	s.refresh(ctx, x)
	return x.Execution, nil
}
