package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// lookEvery is the interval in which a reader looks for new events of an execution that the earlier process runs. The
// earlier process writes a small spool to the database batchTime after the first change, so shorter intervals would
// show little more. A look takes about 50 us of processor time: 100 readers that wait use a fifth of a processor.
const lookEvery = 25 * time.Millisecond

// A remote reads the spool of an execution that another process writes. A small spool is in rows of the database, and
// mem has a copy of them. A larger spool moves to a file, and the execution's row then has in_file. The file has the
// same bytes at the same positions, so a reader doesn't notice the move (see moveToFile).
type remote struct {
	store *Store
	x     *row // of the time when Read found the execution
	mem   []byte
	seq   uint64   // of the last frame in mem
	f     *os.File // nil while the spool is in rows
}

// openRemote makes r a reader of an execution of the earlier process. The index of a spool comes with its end. So r
// begins at the start of the spool, and Next skips the events before the one that the caller wants.
func (r *Reader) openRemote(ctx context.Context, s *Store, x *row) error {
	var header []byte
	err := s.db.queries.QueryRowContext(ctx, "SELECT header FROM executions WHERE n = ?", x.n).Scan(&header)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound // ended and removed since
	}
	if err != nil {
		return err
	}
	m := &remote{store: s, x: x, mem: newSpool(x.Created, header), seq: 1}
	r.remote, r.limit = m, int64(len(m.mem))
	r.frames, r.next, r.close = frames{f: m, pos: int64(len(spoolMagic))}, 1, m.close
	return nil
}

// newestElsewhere returns the sequence number of the newest whole event of an execution that another process runs, and 0
// after an error. It reads all events, because their index comes with the end.
func (s *Store) newestElsewhere(ctx context.Context, x *row) (seq uint64) {
	r := &Reader{id: x.ID}
	if err := r.openRemote(ctx, s, x); err != nil {
		return 0
	}
	defer r.Close()
	size, _, err := r.remote.look(ctx)
	if err != nil {
		return 0
	}
	for {
		e, err := r.frames.next(size)
		e.Release()
		if err != nil || !isWhole(e, nil) {
			return seq
		}
		seq = e.Seq
	}
}

func (m *remote) ReadAt(b []byte, at int64) (int, error) {
	if m.f != nil {
		return m.f.ReadAt(b, at)
	}
	n := copy(b, m.mem[min(at, int64(len(m.mem))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *remote) close() error {
	if m.f == nil {
		return nil
	}
	return m.f.Close()
}

// isWhole reports whether a result of frames.next on a remote spool is final. A frame that is missing, cut short or
// damaged is not final: the other process may be writing this frame now, or may replace it after a full disk. An end in
// the file is not final before the row has the end, too. Other errors, for example of the disk, are final.
func isWhole(e Event, err error) bool {
	var bad badFrame
	if err == nil {
		return e.Kind != KindEnd
	}
	return err != io.EOF && err != errShort && !errors.As(err, &bad)
}

// look raises r.limit to the size of the remote spool. If the execution has ended, look takes the end from the row. If
// nothing is new, look waits for lookEvery before it returns. After an error other than ctx's and ErrClosed, every
// further Next returns the same error.
func (r *Reader) look(ctx context.Context) error {
	size, ended, err := r.remote.look(ctx)
	if ended != nil {
		r.setEnd(ended) // also for the error
	}
	select {
	case <-r.remote.store.closing:
		return fmt.Errorf("record %s: %w", r.id, ErrClosed)
	default:
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.err = r.failure(r.frames.pos, err)
		return r.err
	case ended != nil:
		r.limit, r.remote = size, nil
		return nil
	case size != r.limit:
		r.limit = size
		return nil
	}
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.remote.store.closing:
		return fmt.Errorf("record %s: %w", r.id, ErrClosed)
	}
}

// look returns the size of the spool, whose last frame may be incomplete. ended is the execution's row after its end,
// and nil before. look reads the row before the file: when the row has the end, the file has the end, too.
func (m *remote) look(ctx context.Context) (size int64, ended *row, err error) {
	inFile := false
	err = m.store.db.snapshot(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var state State
		if err := tx.QueryRowContext(ctx, "SELECT state, in_file FROM executions WHERE n = ?", m.x.n).Scan(&state, &inFile); err != nil {
			return err
		}
		if state == Ended {
			if ended, err = getRow(ctx, tx, "n = ?", m.x.n); err != nil {
				return err
			}
		}
		if inFile {
			return nil
		}
		return m.addRows(ctx, tx)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return 0, nil, err
	}
	if !inFile {
		return int64(len(m.mem)), ended, nil
	}
	if m.f == nil {
		if err := m.openFile(ctx); err != nil {
			return 0, ended, err
		}
	}
	if ended != nil {
		return ended.spoolBytes, ended, nil
	}
	fi, err := m.f.Stat()
	if err != nil {
		return 0, nil, err
	}
	return fi.Size(), nil, nil
}

// addRows appends new frames from the database to m.mem.
func (m *remote) addRows(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT seq, data FROM frames WHERE execution = ? AND seq > ? ORDER BY seq", m.x.n, int64(m.seq))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var frame sql.RawBytes
		if err := rows.Scan(&seq, &frame); err != nil {
			return err
		}
		m.mem, m.seq = append(m.mem, frame...), uint64(seq)
	}
	return rows.Err()
}

// openFile opens the file to which the spool has moved.
func (m *remote) openFile(ctx context.Context) error {
	f, err := m.store.openSpool(m.x.ID, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		err = m.store.whyNoSpool(ctx, m.x.Tenant, m.x.ID)
	}
	if err != nil {
		return err
	}
	if err := checkMagic(f); err != nil {
		return errors.Join(err, f.Close())
	}
	m.f, m.mem = f, nil
	return nil
}
