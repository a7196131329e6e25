package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// found is what a spool holds up to its first frame that is none.
type found struct {
	size  int64  // of what is whole; 0 if not even the magic is
	seq   uint64 // of the last event; 0: none
	marks marks
	end   *Event // the last event if it is an end

	header  []byte    // the first event's data
	started time.Time // of the first event that says so
}

// scan reads a spool through. Only an error of the disk is an error; where the
// frames end, for whatever reason, is where the spool ends.
func scan(f *os.File) (found, error) {
	fi, err := f.Stat()
	if err != nil {
		return found{}, err
	}
	if err := checkMagic(f); err != nil {
		var bad badFrame
		if errors.As(err, &bad) {
			return found{}, nil
		}
		return found{}, err
	}
	return scanFrames(f, fi.Size())
}

// scanFrames is scan behind the magic of a spool of a size.
func scanFrames(f io.ReaderAt, size int64) (found, error) {
	r := frames{f: f, pos: int64(len(spoolMagic))}
	at := found{size: r.pos}
	for {
		e, err := r.next(size)
		var bad badFrame
		switch {
		case err == io.EOF, err == errShort, errors.As(err, &bad):
			return at, nil
		case err != nil:
			return found{}, err
		case e.Seq != at.seq+1, at.end != nil:
			return at, nil
		}
		at.marks.add(e.Seq, at.size)
		at.seq, at.size = e.Seq, r.pos
		switch {
		case e.Kind == KindHeader:
			at.header = bytes.Clone(e.Data)
		case e.Kind == KindStarted && at.started.IsZero():
			at.started = e.Time
		}
		if e.Kind == KindEnd {
			e.Data = bytes.Clone(e.Data)
			at.end = &e
		}
	}
}

// checkMagic says whether f begins as a spool does.
func checkMagic(f io.ReaderAt) error {
	got := make([]byte, len(spoolMagic))
	switch _, err := f.ReadAt(got, 0); {
	case err == io.EOF:
		return badFrame("file is shorter than its first bytes")
	case err != nil:
		return err
	case string(got) != spoolMagic:
		return badFrame("file does not begin as a spool")
	}
	return nil
}

// errNoSpool says that a log has nothing to write to.
var errNoSpool = errors.New("spool can't be used")

// openSpool opens an execution's spool. Anything else in its place is a
// badFrame; it is not waited for or followed.
func (s *Store) openSpool(id string, flag int) (*os.File, error) {
	f, err := os.OpenFile(s.spoolPath(id), flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		for _, other := range []error{unix.EISDIR, unix.ELOOP, unix.ENXIO} {
			if errors.Is(err, other) {
				return nil, badFrame(err.Error())
			}
		}
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = badFrame("it is no file but " + fi.Mode().Type().String())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Unended returns the executions, of all tenants, that an earlier process left
// unended: oldest first, without those that are open now.
//
// A row that can't be read is left out; Open logs it.
func (s *Store) Unended(ctx context.Context) ([]Execution, error) {
	s.settle(ctx)
	all, _, err := s.unended(ctx)
	if err != nil {
		return nil, fmt.Errorf("record: unended: %w", err)
	}
	var left []Execution
	for _, x := range all {
		if s.liveLog(x.ID) == nil {
			left = append(left, x.Execution)
		}
	}
	return left, nil
}

// unended returns the rows that have no end, and what is wrong with those that
// can't be read at all.
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

// closeEnded closes the rows whose spools have their end. One that can't be read
// or closed is logged and left as it is.
func (s *Store) closeEnded(ctx context.Context) error {
	left, unreadable, err := s.unended(ctx)
	if err != nil {
		return err
	}
	for _, err := range unreadable {
		s.log.Error("record: an execution that has not ended can't be read", "err", err)
	}
	for _, x := range left {
		if x.garbled != nil {
			s.log.Error("record: a part of an execution can't be read", "execution", x.ID, "err", x.garbled)
		}
		err := s.closeIfEnded(ctx, x)
		if isCorrupt(err) {
			return err
		}
		if err != nil {
			s.log.Error("record: whether an execution has ended can't be read", "execution", x.ID, "err", err)
		}
	}
	return nil
}

func (s *Store) closeIfEnded(ctx context.Context, x *row) error {
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
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return closeRow(ctx, tx, x.n, *at.end, at.size, at.marks.encode(), nil)
	})
}

// Reopen opens the log of an execution that an earlier process left unended, so
// that it can be ended. A frame that was written in part is cut off; artifacts,
// which only an ended execution has, are dropped. If the spool can't be used,
// that is logged, nothing can be appended, and the end will be in the database
// only.
func (s *Store) Reopen(ctx context.Context, id string) (*Log, error) {
	l := newLog(s, id)
	l.placed = hasRow
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
	return l, nil
}

func (s *Store) reopen(ctx context.Context, l *Log) error {
	x, err := getRow(ctx, s.db.queries, "id = ?", l.id)
	if err != nil {
		return err
	}
	if x.State == Ended {
		return ErrEnded
	}
	l.row = x.n
	if err := s.dropArtifacts(ctx, l); err != nil {
		return err
	}
	err = s.reopenSpool(ctx, l, x)
	if err == nil || errors.Is(err, ErrEnded) {
		return err
	}
	s.log.Error("record: an execution's spool can't be used", "execution", l.id, "err", err)
	if l.f != nil {
		l.f.Close() // nothing is buffered in it
	}
	l.f, l.size, l.seq, l.marks = nil, 0, x.LastSeq, marks{}
	return nil
}

// reopenSpool opens the spool of a row that has not ended, at its end.
func (s *Store) reopenSpool(ctx context.Context, l *Log, x *row) (err error) {
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
		s.log.Warn("record: what a crash left of a frame was cut off", "execution", l.id, "bytes", fi.Size()-at.size)
	}
	if err := l.f.Truncate(at.size); err != nil {
		return err
	}
	l.size, l.seq, l.marks = at.size, at.seq, at.marks
	if l.seq > 0 {
		return nil
	}
	// Only a loss of power leaves no header: it is in the row for this.
	var header []byte
	err = s.db.queries.QueryRowContext(ctx, "SELECT header FROM executions WHERE n = ?", l.row).Scan(&header)
	if err != nil {
		return err
	}
	return l.writeHeader(x.Created, header)
}
