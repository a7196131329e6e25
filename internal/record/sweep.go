package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"time"
)

// sweepBatch bounds the executions that one transaction removes, because other writers
// wait for it.
const sweepBatch = 100

// expired is an execution that is to be removed.
type expired struct {
	n      int64
	id     string
	tenant string
	bytes  int64
}

// Sweep removes ended executions with their spools and artifacts. First it removes executions that
// ended more than MaxAge before now. Then it removes the oldest of the tenants with the most bytes, until all
// executions together, open ones too, are within MaxBytes. It returns the number of removed executions and
// of their bytes. Open readers and artifacts stay readable. After HandOver, Sweep removes nothing more and returns
// ErrHandedOver. Each Sweep tries again to record ends for which there was no room (see Log.End), and to remove files
// of removed executions that remain. The first Sweep also removes the files of executions that the record has
// forgotten.
// cmd/skillrund calls it at its start and then at intervals.
func (s *Store) Sweep(ctx context.Context, now time.Time) (removed int, freed int64, err error) {
	if err := s.begin(); err != nil {
		// Also for the executions that are still open here: their output needs the ballast, and their ends may be owed.
		s.flushForQuery(ctx)
		s.fillBallast()
		return 0, 0, fmt.Errorf("record: sweep: %w", err)
	}
	defer s.done()
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.flushForQuery(ctx)
	if err := s.countEarlier(ctx); err != nil {
		return 0, 0, fmt.Errorf("record: sweep: %w", err)
	}
	if err := s.removeUnnamed(ctx); err != nil {
		s.log.Error("record: files of executions that the record has forgotten were not removed; the next sweep tries again", "err", err)
	}
	if err := s.collectGarbage(ctx); err != nil {
		s.log.Error("record: the list of files to remove can't be read or changed; the next sweep tries again", "err", err)
	}
	// First by age, whatever the sum of bytes is. Then by bytes, whatever the age is.
	if s.config.MaxAge > 0 {
		removed, freed, err = s.sweepOldest(ctx, "", nanos(now.Add(-s.config.MaxAge)), math.MaxInt64)
	}
	if err == nil {
		removed, freed, err = s.sweepBytes(ctx, removed, freed)
	}
	s.fillBallast() // even after an error there may be room again
	if err != nil {
		return removed, freed, fmt.Errorf("record: sweep: %w", err)
	}
	return removed, freed, nil
}

// fillBallast reserves disk space for the ends of executions, or logs that the disk is full.
func (s *Store) fillBallast() {
	if err := s.ballast.fill(); err != nil {
		s.log.Warn(warnFull, "err", err)
	}
}

// keptPercent is how much of a quota a tenant keeps when its oldest executions go. The rest is room for new
// ones, so that not each of them waits for a removal.
const keptPercent = 95

// MakeRoom removes the oldest ended executions of a tenant whose executions, open ones too, have limit bytes
// or more together. It stops when keptPercent of the limit are left, or nothing that has ended. It returns
// the number of removed executions, and the bytes that the tenant has then. Open readers and artifacts stay
// readable. Without such a need it takes no lock.
func (s *Store) MakeRoom(ctx context.Context, tenant string, limit int64) (removed int, used int64, err error) {
	u := s.usageOf(tenant)
	if s.handedOver.Load() {
		return 0, u.all.Load(), fmt.Errorf("record: sweep of tenant %s: %w", tenant, ErrHandedOver)
	}
	if tenant != "" && u.all.Load() >= limit && u.ended.Load() > 0 {
		removed, err = s.sweepTenant(ctx, tenant, u, limit)
	}
	if err != nil {
		return removed, u.all.Load(), fmt.Errorf("record: sweep of tenant %s: %w", tenant, err)
	}
	return removed, u.all.Load(), nil
}

// sweepTenant asks again when it has the lock: another call may have made room.
func (s *Store) sweepTenant(ctx context.Context, tenant string, u *usage, limit int64) (removed int, err error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	defer s.done()
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	used := u.all.Load()
	if used < limit {
		return 0, nil
	}
	s.flushForQuery(ctx)
	// limit*keptPercent could overflow.
	removed, _, err = s.sweepOldest(ctx, tenant, math.MaxInt64, used-limit/100*keptPercent)
	return removed, err
}

// Remove removes one ended execution of the tenant with its spool and artifacts, at once. Its
// idempotency key is free again. Open readers and artifacts stay readable. The error is
// ErrNotFound or ErrNotEnded, or after HandOver ErrHandedOver.
func (s *Store) Remove(ctx context.Context, tenant, id string) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("record: remove %s: %w", id, err)
	}
	defer s.done()
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.flushForQuery(ctx)
	x, err := findRow(ctx, s.db.queries, tenant, id)
	if err == nil && x.State != Ended {
		err = ErrNotEnded
	}
	if err == nil {
		err = s.remove(ctx, []expired{{x.n, x.ID, x.Tenant, x.spoolBytes + x.artifactBytes + x.rowBytes}})
	}
	if err != nil {
		return of(id, fmt.Errorf("remove: %w", err))
	}
	return nil
}

// Expires returns when Sweep removes an execution that ended at a time, unless MaxBytes removes it
// before. Zero: never by its age.
func (s *Store) Expires(ended time.Time) time.Time {
	if s.config.MaxAge <= 0 || ended.IsZero() {
		return time.Time{}
	}
	return ended.Add(s.config.MaxAge)
}

// sweepBytes removes ended executions until the store is within MaxBytes. It takes the oldest of the tenant with the
// most bytes, so that a tenant with many executions does not cost another tenant its few. It stops earlier when no
// tenant above its fair share has an ended execution. The results are removed and freed plus the removed executions.
func (s *Store) sweepBytes(ctx context.Context, removed int, freed int64) (int, int64, error) {
	if s.config.MaxBytes <= 0 {
		return removed, freed, nil
	}
	open := map[string]bool{} // tenants whose executions are all open, so sweepOldest removed none
	for {
		over := s.Bytes() - s.config.MaxBytes
		most, above := s.most(open)
		if over <= 0 || above <= 0 {
			return removed, freed, nil
		}
		n, bytes, err := s.sweepOldest(ctx, most, math.MaxInt64, min(over, above))
		removed, freed = removed+n, freed+bytes
		if err != nil {
			return removed, freed, err
		}
		open[most] = n == 0
	}
}

// most returns the tenant with the most bytes, without the tenants in apart. above is how many bytes to remove before
// the next call of most. 0: no tenant has more than its fair share, MaxBytes divided by the number of tenants.
func (s *Store) most(apart map[string]bool) (tenant string, above int64) {
	var first, second, tenants int64
	s.usages.Range(func(name, u any) bool {
		n := u.(*usage).all.Load()
		if n <= 0 {
			return true
		}
		tenants++
		switch {
		case apart[name.(string)]:
		case n > first:
			tenant, first, second = name.(string), n, first
		case n > second:
			second = n
		}
		return true
	})
	if tenants == 0 {
		return "", 0
	}
	share := s.config.MaxBytes / tenants
	if first <= share {
		return "", 0
	}
	// At least 1/64 of the share: otherwise two tenants with equal bytes would alternate after each execution.
	return tenant, min(first-share, max(first-second, share/64+1))
}

// sweepOldest removes executions that ended before a time, oldest first, until it has
// freed enough bytes. An empty tenant means the executions of all tenants.
func (s *Store) sweepOldest(ctx context.Context, tenant string, before, enough int64) (removed int, freed int64, err error) {
	for freed < enough {
		if s.handedOver.Load() {
			return removed, freed, ErrHandedOver // it waits for this sweep
		}
		oldest, err := s.oldest(ctx, tenant, before)
		if err != nil || len(oldest) == 0 {
			return removed, freed, err
		}
		var batch []expired
		for _, d := range oldest {
			if freed >= enough {
				break
			}
			batch = append(batch, d)
			freed += d.bytes
		}
		removed += len(batch)
		if err := s.remove(ctx, batch); err != nil {
			return removed, freed, err
		}
	}
	return removed, freed, nil
}

// oldest returns the first sweepBatch executions that ended before a time, of one tenant or of all.
func (s *Store) oldest(ctx context.Context, tenant string, before int64) ([]expired, error) {
	query, args := oldestQuery(tenant, before)
	rows, err := s.db.queries.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var batch []expired
	for rows.Next() {
		var d expired
		if err := rows.Scan(&d.n, &d.id, &d.tenant, &d.bytes); err != nil {
			return nil, err
		}
		batch = append(batch, d)
	}
	return batch, rows.Err()
}

// oldestQuery returns one of two queries. Each uses its own index.
func oldestQuery(tenant string, before int64) (query string, args []any) {
	query = "SELECT n, id, tenant, spool_bytes + artifact_bytes + row_bytes FROM executions WHERE state = 3 AND ended < ?"
	args = []any{before}
	if tenant != "" {
		query += " AND tenant = ?"
		args = append(args, tenant)
	}
	return query + " ORDER BY ended LIMIT ?", append(args, sweepBatch)
}

// remove removes the rows of a batch, then its files. In between the database lists
// the files as garbage.
// Labels, frames and artifacts go with the row (ON DELETE CASCADE). A crash after the commit
// leaves files that garbage names, and Open removes them.
func (s *Store) remove(ctx context.Context, batch []expired) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, d := range batch {
			if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO garbage (id) VALUES (?)", d.id); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM executions WHERE n = ?", d.n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.removed(batch)
	return s.collectGarbage(ctx)
}

// collectGarbage removes the files that the database lists as garbage. It logs a file
// that can't be removed, and tries again the next time.
func (s *Store) collectGarbage(ctx context.Context) error {
	ids, err := s.garbage(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for _, id := range ids {
		if err := s.removeFiles(id); err != nil {
			s.log.Error("record: files of a removed execution remain; the next sweep tries again", "execution", id, "err", err)
			continue
		}
		gone = append(gone, id)
	}
	if len(gone) == 0 {
		return nil
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range gone {
			if _, err := tx.ExecContext(ctx, "DELETE FROM garbage WHERE id = ?", id); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeFiles removes the execution's spool and artifacts, even if there is something
// else in their places. An invalid ID has no files.
func (s *Store) removeFiles(id string) error {
	if !validID(id) {
		return nil
	}
	return errors.Join(os.RemoveAll(s.spoolPath(id)), os.RemoveAll(s.ArtifactDir(id)))
}

// garbage returns the IDs of executions that are removed from the database but may have files. A
// crash between the two leaves them.
func (s *Store) garbage(ctx context.Context) ([]string, error) {
	rows, err := s.db.queries.QueryContext(ctx, "SELECT id FROM garbage")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
