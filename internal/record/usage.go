package record

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
)

// A usage counts the bytes of one tenant's executions: spools, artifacts and the contents of rows.
// all includes open executions, whose spools are counted as they grow.
// Open reads the counts from the database. From then on each change of the record adds its
// bytes, so a quota can be checked before each execution without a query. A removal can be counted a
// moment before the end of the same execution is; after both the count is right.
type usage struct{ all, ended atomic.Int64 }

// usageOf returns the counts of a tenant.
func (s *Store) usageOf(tenant string) *usage {
	if u, ok := s.usages.Load(tenant); ok {
		return u.(*usage)
	}
	u, _ := s.usages.LoadOrStore(tenant, &usage{})
	return u.(*usage)
}

// BytesOf returns the bytes of spools, artifacts and rows of a tenant's executions together, open ones
// too.
func (s *Store) BytesOf(tenant string) int64 {
	if u, ok := s.usages.Load(tenant); ok {
		return max(0, u.(*usage).all.Load())
	}
	return 0
}

// Bytes returns the same for all tenants together.
func (s *Store) Bytes() (total int64) {
	s.usages.Range(func(_, u any) bool {
		total += max(0, u.(*usage).all.Load())
		return true
	})
	return total
}

// countRows counts the executions in the database. An execution that has not ended is counted without
// its spool, which Reopen adds. Changes that a full disk keeps in the journal are not counted.
// All queries read one snapshot of the database, because the earlier process may end executions between two queries.
func (s *Store) countRows(ctx context.Context) error {
	s.usages.Clear()
	return s.db.snapshot(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sums, err := sumRows(ctx, tx)
		if err != nil {
			return err
		}
		for tenant, sum := range sums {
			u := s.usageOf(tenant)
			u.all.Store(sum.all)
			u.ended.Store(sum.ended)
		}
		return s.loadEarlier(ctx, tx)
	})
}

// sums are the counts of a tenant.
type sums struct{ all, ended int64 }

// sumRows returns the counts of the executions in the database.
func sumRows(ctx context.Context, tx *sql.Tx) (map[string]sums, error) {
	all := map[string]sums{}
	// Two queries, so that each uses an index.
	for _, q := range []struct {
		query string
		ended bool
	}{
		{"SELECT tenant, sum(spool_bytes + artifact_bytes + row_bytes) FROM executions WHERE state = 3 GROUP BY tenant", true},
		{"SELECT tenant, sum(artifact_bytes + row_bytes) FROM executions WHERE state < 3 GROUP BY tenant", false},
	} {
		rows, err := tx.QueryContext(ctx, q.query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var tenant string
			var bytes int64
			if err := rows.Scan(&tenant, &bytes); err != nil {
				return nil, err
			}
			sum := all[tenant]
			sum.all += bytes
			if q.ended {
				sum.ended += bytes
			}
			all[tenant] = sum
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// countAgain counts all executions again, when another process may have added and removed some. It counts executions
// with an open log from memory, because these logs have bytes that their rows lack. Appends wait until it returns. No
// Create and no removal may run at the same time; s.sweeping is held.
func (s *Store) countAgain(ctx context.Context) error {
	s.mu.Lock()
	live := slices.Collect(maps.Values(s.live))
	s.mu.Unlock()
	for _, l := range live {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	if err := s.flushRecorded(ctx); err != nil {
		return err
	}
	var all map[string]sums
	err := s.db.snapshot(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if all, err = sumRows(ctx, tx); err != nil {
			return err
		}
		for _, l := range live {
			if err := l.countInstead(ctx, tx, all); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.usages.Range(func(tenant, u any) bool {
		if _, ok := all[tenant.(string)]; !ok {
			all[tenant.(string)] = sums{}
		}
		return true
	})
	for tenant, sum := range all {
		u := s.usageOf(tenant)
		u.all.Store(sum.all)
		u.ended.Store(sum.ended)
	}
	return nil
}

// countInstead replaces the bytes of l's row in all by the bytes that l has in memory. l.mu is held.
// If l has no end yet, End will add it (showEnd). If only l has an end, the end is owed.
func (l *Log) countInstead(ctx context.Context, tx *sql.Tx, all map[string]sums) error {
	var state State
	var spool, other int64
	err := tx.QueryRowContext(ctx, "SELECT state, spool_bytes, artifact_bytes + row_bytes FROM executions WHERE n = ?", l.row).
		Scan(&state, &spool, &other)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // l was never created
	}
	if err != nil {
		return err
	}
	sum, mine := all[l.tenant], l.size+l.rowBytes+l.artifactBytes
	if state == Ended {
		sum.all -= spool
		sum.ended -= spool + other
	}
	if l.state == logEnded {
		sum.ended += mine
	}
	sum.all += mine - other
	all[l.tenant] = sum
	return nil
}

// removed subtracts removed executions from the counts. s.sweeping is held.
func (s *Store) removed(batch []expired) {
	for _, d := range batch {
		if x := s.foreign(d.id); x != nil { // its end was not counted yet
			s.countForeign(d.id, x, true, 0, d.bytes)
		}
		u := s.usageOf(d.tenant)
		u.all.Add(-d.bytes)
		u.ended.Add(-d.bytes)
	}
}

// counted adds bytes of the row or of artifacts to the counts of an open log. l.mu is held.
func (l *Log) counted(row, artifacts int64) {
	l.rowBytes += row
	l.artifactBytes += artifacts
	l.usage.all.Add(row + artifacts)
}
