package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Unended returns the executions of all tenants that an earlier process left unended,
// oldest first. It leaves out executions that were reopened, executions whose row can't be
// read (Open logs them), and before Adopt the executions in Config.Earlier.
// While changes of the journal can't reach the database, the error is ErrPending: an end may be among them. After
// HandOver the error is ErrHandedOver, because the unended executions may be the next process's.
// The executor reopens each one and ends it as DAEMON_LOST.
func (s *Store) Unended(ctx context.Context) ([]Execution, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("record: unended: %w", err)
	}
	defer s.done()
	first, err := s.unendedHere(ctx)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	// An execution of this process may have ended between the query and the look for its log. The second query has its
	// end, because a log is unregistered after its end is in the journal.
	second, err := s.unendedHere(ctx)
	if err != nil {
		return nil, err
	}
	was := make(map[string]bool, len(first))
	for _, x := range first {
		was[x.ID] = true
	}
	return slices.DeleteFunc(second, func(x Execution) bool { return !was[x.ID] }), nil
}

// unendedHere returns the executions that have no end in the database, and no log in this process at a time after the
// query.
func (s *Store) unendedHere(ctx context.Context) ([]Execution, error) {
	if err := s.flushPending(ctx); err != nil {
		return nil, fmt.Errorf("record: unended: %w", err)
	}
	all, _, err := s.unended(ctx)
	if err != nil {
		return nil, fmt.Errorf("record: unended: %w", err)
	}
	var left []Execution
	for _, x := range all {
		if s.liveLog(x.ID) == nil && !s.runsElsewhere(x.ID) {
			left = append(left, x.Execution)
		}
	}
	return left, nil
}

// flushPending is flushRecorded. The error is ErrPending if a later call may succeed. The ends that are owed are no
// matter: their logs are open, so these executions are not lost.
func (s *Store) flushPending(ctx context.Context) error {
	err := s.flushRecorded(ctx)
	if err == nil || isCorrupt(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrPending, err)
}

// unended returns the rows without an end, oldest first (state 3 is Ended), and one error for each
// such row that can't be read.
func (s *Store) unended(ctx context.Context) (all []*row, unreadable []error, err error) {
	rows, err := s.db.queries.QueryContext(ctx, selectRow+"WHERE state < 3 ORDER BY n")
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		x, err := scanRow(rows.Scan)
		if err == nil && !validID(x.ID) {
			err = fmt.Errorf("%q is not an execution's id", x.ID)
		}
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		all = append(all, x)
	}
	return all, unreadable, rows.Err()
}

// closeEnded closes the rows whose files have the end, but no row for which skip is true. It logs a row or a file that
// can't be read, and goes on.
func (s *Store) closeEnded(ctx context.Context, skip func(id string) bool) error {
	left, unreadable, err := s.unended(ctx)
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		s.log.Error("record: an execution that has not ended can't be read", "err", err)
	}
	for _, x := range left {
		if skip(x.ID) {
			continue
		}
		if x.unreadable != nil {
			s.log.Error("record: a part of an execution can't be read", "execution", x.ID, "err", x.unreadable)
		}
		err := s.closeIfEnded(ctx, x)
		if isCorrupt(err) {
			return err
		}
		if err != nil {
			s.log.Error("record: the end of an execution can't be read", "execution", x.ID, "err", err)
		}
	}
	return nil
}

// closeIfEnded copies the end of x from its file to its row, if the file has an end, and counts it. A daemon that
// crashed after writeEnd and before the journal had the end leaves such a file.
func (s *Store) closeIfEnded(ctx context.Context, x *row) error {
	if !x.inFile {
		return nil // the row itself records the end
	}
	f, err := s.openSpool(x.ID, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := scan(f)
	if err != nil || at.end == nil {
		return err
	}
	var before, after int64 // what the execution counts, as in sumRows
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `
			SELECT artifact_bytes + row_bytes FROM executions WHERE n = ? AND state < 3`, x.n).Scan(&before)
		if err != nil {
			return err
		}
		if err := runStatements(ctx, tx, []statement{endStatement(x.n, *at.end, at.size, at.index.encode())}); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `
			SELECT spool_bytes + artifact_bytes + row_bytes FROM executions WHERE n = ?`, x.n).Scan(&after)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil // another call has closed the row
	}
	if err != nil {
		return err
	}
	if s.foreign(x.ID) == nil { // else countEarlier counts it
		u := s.usageOf(x.Tenant)
		u.all.Add(after - before)
		u.ended.Add(after)
	}
	return nil
}

// Reopen opens the log of an execution that an earlier process left unended, so that
// it can be ended. It cuts off a partly written frame, and drops artifacts, which only
// an ended execution has. If the spool is damaged, Reopen logs that. The log then takes only an end,
// which goes to the row. After an error that may pass, for example a full disk, Reopen can be called again. If the
// execution has its end, the error is ErrEnded. Before Adopt the error for an execution in Config.Earlier is ErrInUse.
// After HandOver it is ErrHandedOver.
func (s *Store) Reopen(ctx context.Context, id string) (*Log, error) {
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("record %s: reopen: %w", id, err)
	}
	defer s.done()
	if s.runsElsewhere(id) {
		return nil, fmt.Errorf("record %s: reopen: %w", id, ErrInUse)
	}
	l := newLog(s, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.register(l); err != nil {
		return nil, err
	}
	if err := s.reopen(ctx, l); err != nil {
		l.state = logFailed
		s.unregister(l)
		if l.f != nil {
			err = errors.Join(err, l.f.Close())
		}
		return nil, fmt.Errorf("record %s: reopen: %w", id, err)
	}
	s.forget(id)
	return l, nil
}

// reopen sets l up for the end of an execution whose daemon died. Pending statements go to the
// database first: the row or its end may be among them. It returns ErrEnded for an execution that has its
// end, and keeps its artifacts. Otherwise l has no artifacts afterwards.
func (s *Store) reopen(ctx context.Context, l *Log) error {
	if err := s.flushPending(ctx); err != nil {
		return err
	}
	x, err := getRow(ctx, s.db.queries, "id = ?", l.id)
	if err != nil {
		return err
	}
	if x.State == Ended {
		return ErrEnded
	}
	l.tenant, l.row, l.started = x.Tenant, x.n, x.State == Running
	l.usage, l.rowBytes, l.artifactBytes = s.usageOf(x.Tenant), x.rowBytes, x.artifactBytes
	if x.inFile {
		err = s.reopenFile(ctx, l, x)
	} else {
		err = s.reopenRows(ctx, l, x)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrEnded):
		// Open did not close it: the file could not be read then, or the row was still in the journal. From now on this
		// process counts it, also if it was an earlier process's.
		s.forget(l.id)
		if err := s.closeIfEnded(ctx, x); err != nil {
			return err
		}
		return ErrEnded
	case ctx.Err() != nil || mayPass(err):
		return err
	default:
		// The execution must get its end even without its output, so this is no error of reopen.
		s.log.Error("record: an execution's spool can't be used", "execution", l.id, "err", err)
		if l.f != nil {
			l.f.Close() // nothing is buffered in it
		}
		l.f, l.mem, l.size, l.seq, l.index = nil, nil, 0, x.LastSeq, index{}
	}
	if err := s.dropArtifacts(ctx, l); err != nil {
		return err
	}
	l.usage.all.Add(l.size) // countRows did not know it
	return nil
}

// reopenRows loads a spool that is in the database, up to its first damaged frame.
func (s *Store) reopenRows(ctx context.Context, l *Log, x *row) error {
	spool, err := loadSpool(ctx, s.db.queries, x)
	if err != nil {
		return err
	}
	at, err := scanFrames(bytes.NewReader(spool), int64(len(spool)))
	if err != nil {
		return err
	}
	if at.size < int64(len(spool)) {
		s.log.Error("record: damaged frames were cut off", "execution", l.id, "bytes", int64(len(spool))-at.size)
		err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM frames WHERE execution = ? AND seq > ?", x.n, int64(at.seq))
			return err
		})
		if err != nil {
			return err
		}
	}
	l.setSpool(spool[:at.size], at.seq)
	return nil
}

// reopenFile opens a spool that is in a file, at its end. After a loss of power the file may be
// missing although the row names it: nothing syncs its directory (fsync(2)). Hence O_CREATE.
func (s *Store) reopenFile(ctx context.Context, l *Log, x *row) (err error) {
	if l.f, err = s.openSpool(l.id, os.O_RDWR|os.O_CREATE); err != nil {
		return err
	}
	at, err := scan(l.f)
	if err != nil {
		return err
	}
	if at.end != nil {
		return ErrEnded
	}
	if fi, err := l.f.Stat(); err == nil && fi.Size() > at.size {
		s.log.Warn("record: a frame that a crash cut short was removed", "execution", l.id, "bytes", fi.Size()-at.size)
	}
	if err := l.f.Truncate(at.size); err != nil {
		return err
	}
	l.size, l.seq, l.index = at.size, at.seq, at.index
	if l.seq > 0 {
		return nil
	}
	// Only a loss of power leaves no first event. The row keeps its data for this.
	var header []byte
	err = s.db.queries.QueryRowContext(ctx, "SELECT header FROM executions WHERE n = ?", l.row).Scan(&header)
	if err != nil {
		return err
	}
	spool := newSpool(x.Created, header)
	if err := writeParts(l.f, [][]byte{spool}, 0); err != nil {
		return l.failure(err)
	}
	l.size, l.seq = int64(len(spool)), 1
	l.index.add(1, int64(len(spoolMagic)))
	return nil
}
