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

// Reader reads the events of one execution at its own pace: it holds up neither
// the execution nor other readers. It is for one goroutine at a time.
// A reader is in one of four states: joined to an open log (memory or the log's file),
// following a log whose file was closed, replaying an ended execution, or looking at the spool
// of an execution that the earlier process runs (see foreign.go). It reads up to
// limit. While log is set, wait raises limit; while remote is set, look raises it.
type Reader struct {
	id     string
	frames frames
	limit  int64   // size of the spool, in bytes, as far as r may read it
	after  uint64  // r skips events up to this one
	next   uint64  // sequence of the next frame
	log    *Log    // adds events; nil once it has ended
	remote *remote // the spool of an execution of the earlier process; nil once it has ended
	end    *Event  // the end, which the spool may lack; nil before the end
	err    error   // the result of every further Next; nil: it reads on
	close  func() error
}

// Read returns a reader of the events after sequence after; 0: of all events. The reader
// works until it is closed, even after the end and the removal of the execution. If the
// spool is missing, or is not a spool, the error is a *CorruptError.
//
// An execution that the earlier process runs (Config.Earlier) can be read as any other; its events come a moment
// later. If it is removed before Next has seen its end, Next returns ErrNotFound.
func (s *Store) Read(ctx context.Context, tenant, id string, after uint64) (*Reader, error) {
	r := &Reader{id: id, after: after}
	// Take the log before the row. In the other order the execution could end in
	// between, and r would have neither an open log nor an ended row. Ask for the other process before the log: in the
	// other order Adopt could open the log in between.
	remote := s.foreign(id) != nil
	l := s.liveLog(id)
	if l != nil && r.join(l, tenant) {
		return r, nil
	}
	s.flushForQuery(ctx)
	x, err := findRow(ctx, s.db.queries, tenant, id)
	if err != nil {
		return nil, of(id, err)
	}
	switch {
	case l != nil:
		err = r.follow(l)
	case x.State != Ended && remote:
		err = r.openRemote(ctx, s, x)
	case x.State != Ended:
		err = ErrNotOpen
	case x.inFile:
		err = r.replayFile(ctx, s, x)
	default:
		err = r.replayRows(ctx, s.db.queries, x)
	}
	if err != nil {
		return nil, r.failure(0, err)
	}
	return r, nil
}

// join makes r a reader of the log's memory or open file. It returns false if the log
// has neither, or belongs to another tenant.
func (r *Reader) join(l *Log, tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that has ended closes its file with its last reader: see finish and leave.
	if l.tenant != tenant || l.mem == nil && (l.f == nil || l.readers == 0 && l.state != logOpen && l.state != logEnding) {
		return false
	}
	l.readers++
	from := l.index.find(r.after)
	r.log, r.limit, r.end = l, l.size, l.end
	r.frames, r.next = frames{f: (*shared)(l), pos: from.pos}, from.seq
	r.close = func() error { l.leave(); return nil }
	return true
}

// shared is the spool of a log, for readers that joined the log.
type shared Log

// Once mem is nil the file has the same bytes at the same positions, so a reader doesn't
// notice the move.
func (l *shared) ReadAt(b []byte, at int64) (int, error) {
	l.mu.Lock()
	mem, f := l.mem, l.f
	l.mu.Unlock()
	if mem == nil {
		return f.ReadAt(b, at)
	}
	n := copy(b, mem[min(at, int64(len(mem))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// follow makes r a reader of a log whose file is closed: it opens the file again.
// The log's execution has just ended, or its spool could not be used.
func (r *Reader) follow(l *Log) error {
	l.mu.Lock()
	failed := l.state == logFailed
	from := l.index.find(r.after)
	r.log, r.limit, r.end = l, l.size, l.end
	l.mu.Unlock()
	if failed {
		return ErrNotFound
	}
	return r.openFile(l.store, from)
}

// openFile makes r a reader of the execution's file.
func (r *Reader) openFile(s *Store, from indexEntry) error {
	f, err := s.openSpool(r.id, os.O_RDONLY)
	if err != nil {
		return err
	}
	if err := checkMagic(f); err != nil {
		return errors.Join(err, f.Close())
	}
	r.frames, r.next, r.close = frames{f: f, pos: from.pos}, from.seq, f.Close
	return nil
}

// setEnd takes the end from the row of an ended execution.
func (r *Reader) setEnd(x *row) {
	r.end = &Event{Seq: x.LastSeq, Time: x.Ended, Kind: KindEnd, Data: x.Outcome, End: x.End}
}

// replayRows makes r a reader of an ended execution whose spool is in the database. Such a spool
// has at most maxInRows, so r begins at its start, and Next skips the events that r must not return.
func (r *Reader) replayRows(ctx context.Context, db *sql.DB, x *row) error {
	spool, err := loadSpool(ctx, db, x)
	if err != nil {
		return err
	}
	r.setEnd(x)
	r.frames, r.next, r.limit = frames{f: bytes.NewReader(spool), pos: int64(len(spoolMagic))}, 1, int64(len(spool))
	r.close = func() error { return nil }
	return nil
}

// replayFile makes r a reader of an ended execution whose spool is a file.
func (r *Reader) replayFile(ctx context.Context, s *Store, x *row) error {
	var encoded []byte
	err := s.db.queries.QueryRowContext(ctx, "SELECT spool_index FROM executions WHERE n = ?", x.n).Scan(&encoded)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound // removed since
	}
	if err != nil {
		return err
	}
	r.setEnd(x)
	r.limit = x.spoolBytes
	index := decodeIndex(encoded)
	err = r.openFile(s, index.find(r.after))
	if errors.Is(err, os.ErrNotExist) {
		err = s.whyNoSpool(ctx, x.Tenant, x.ID)
	}
	return err
}

// whyNoSpool returns the reason why a file is missing: the execution was removed
// since its row was read, or the file was lost.
func (s *Store) whyNoSpool(ctx context.Context, tenant, id string) error {
	if _, err := findRow(ctx, s.db.queries, tenant, id); err != nil {
		return err
	}
	return badFrame("file is missing")
}

// Next returns the next event, and waits for it if necessary. After the end it returns
// io.EOF. At a damaged frame it returns a *CorruptError, which has the end if the
// execution has ended. If the store is closed before the end it returns ErrClosed. The
// caller may use the event's data until it calls the event's Release.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for r.err == nil {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		at := r.frames.pos
		e, err := r.frames.next(r.limit)
		if r.remote != nil && !isWhole(e, err) {
			e.Release()
			r.frames.drop() // it may have a part of a frame that is written again
			r.frames.pos = at
			if err := r.look(ctx); err != nil {
				return Event{}, err
			}
			continue
		}
		if err == io.EOF {
			if r.log != nil {
				if err := r.wait(ctx); err != nil {
					return Event{}, err
				}
				continue
			}
			e, err = r.endOfRow()
		}
		if err == nil && e.Seq != r.next {
			err = badFrame(fmt.Sprintf("event %d is where %d belongs", e.Seq, r.next))
		}
		if err != nil {
			r.err = r.failure(at, err)
			break
		}
		r.next++
		if e.Kind == KindEnd {
			r.err = io.EOF
		}
		if e.Seq > r.after {
			return e, nil
		}
		e.Release()
	}
	return Event{}, r.err
}

// wait returns when the log has more events, or is closed.
// It may return without a new event; Next looks again.
func (r *Reader) wait(ctx context.Context) error {
	l := r.log
	l.mu.Lock()
	if l.size == r.limit && (l.state == logOpen || l.state == logEnding) {
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		wake := l.wake
		l.mu.Unlock()
		select {
		case <-wake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer l.mu.Unlock()
	switch {
	case l.state == logEnded:
		r.end, r.log = l.end, nil
	case l.state == logAbandoned && l.size == r.limit:
		return fmt.Errorf("record %s: %w", r.id, ErrClosed)
	}
	r.limit = l.size
	return nil
}

// endOfRow returns the end of an execution whose spool lacks it.
func (r *Reader) endOfRow() (Event, error) {
	if r.end == nil || r.end.Seq != r.next {
		return Event{}, badFrame(fmt.Sprintf("spool ends before event %d", r.next))
	}
	return *r.end, nil
}

// failure returns err, met at pos in the spool, for callers of this package.
func (r *Reader) failure(pos int64, err error) error {
	err = of(r.id, err)
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		bad.Offset, bad.End = pos, r.end
	}
	return err
}

// Close ends the reading.
func (r *Reader) Close() error {
	if r.err == os.ErrClosed {
		return nil
	}
	r.err = os.ErrClosed
	r.frames.drop()
	return r.close()
}
