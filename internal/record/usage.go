package record

import (
	"context"
	"sync/atomic"
)

// A usage counts the bytes of one tenant's executions: spools, artifacts and the contents of rows.
// all includes open executions, whose spools are counted as they grow.
// Open reads the counts from the database. From then on each change of the record adds what it has
// changed, so a quota can be checked before each execution without a query. A removal can be counted a
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
func (s *Store) countRows(ctx context.Context) error {
	s.usages.Clear()
	// Two queries, so that each uses an index.
	for _, q := range []struct {
		query string
		ended bool
	}{
		{"SELECT tenant, sum(spool_bytes + artifact_bytes + row_bytes) FROM executions WHERE state = 3 GROUP BY tenant", true},
		{"SELECT tenant, sum(artifact_bytes + row_bytes) FROM executions WHERE state < 3 GROUP BY tenant", false},
	} {
		rows, err := s.db.queries.QueryContext(ctx, q.query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var tenant string
			var bytes int64
			if err := rows.Scan(&tenant, &bytes); err != nil {
				return err
			}
			u := s.usageOf(tenant)
			u.all.Add(bytes)
			if q.ended {
				u.ended.Add(bytes)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

// removed takes removed executions from the counts.
func (s *Store) removed(batch []expired) {
	for _, d := range batch {
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
