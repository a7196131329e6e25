package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
)

// found is what a spool holds up to its first frame that is none.
type found struct {
	size  int64  // of what is whole; 0 if not even the magic is
	seq   uint64 // of the last event; 0: none
	marks marks
	end   *Event // the last event if it is an end
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
	r := frames{f: f, pos: int64(len(spoolMagic))}
	at := found{size: r.pos}
	for {
		e, err := r.next(fi.Size())
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
		if e.Kind == KindEnd {
			e.Data = bytes.Clone(e.Data)
			at.end = &e
		}
	}
}

// checkMagic says whether f begins as a spool does.
func checkMagic(f *os.File) error {
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

// Unended returns the executions, of all tenants, that an earlier process left
// unended: oldest first, without those that are open now.
func (s *Store) Unended(ctx context.Context) ([]Execution, error) {
	all, err := s.unended(ctx)
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

func (s *Store) unended(ctx context.Context) ([]*row, error) {
	rows, err := s.db.queries.QueryContext(ctx, selectRow+"WHERE state < 3 ORDER BY n")
	if err != nil {
		return nil, err
	}
	return scanRows(rows)
}

// closeEnded closes the rows whose spools have their end.
func (s *Store) closeEnded(ctx context.Context) error {
	left, err := s.unended(ctx)
	if err != nil {
		return err
	}
	for _, x := range left {
		if err := s.closeIfEnded(ctx, x); err != nil {
			return fmt.Errorf("record %s: %w", x.ID, err)
		}
	}
	return nil
}

func (s *Store) closeIfEnded(ctx context.Context, x *row) error {
	f, err := os.Open(s.spoolPath(x.ID))
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
		return closeRow(ctx, tx, x.n, *at.end, at.size, at.marks.encode())
	})
}

// Reopen opens the log of an execution that an earlier process left unended, so
// that it can be ended. A frame that was written in part is cut off; artifacts,
// which only an ended execution has, are dropped.
func (s *Store) Reopen(ctx context.Context, id string) (*Log, error) {
	l := &Log{store: s, id: id}
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
	if l.f, err = os.OpenFile(s.spoolPath(l.id), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
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
