package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// frames reads one frame after the other from a spool.
type frames struct {
	f   io.ReaderAt
	pos int64  // where in the file the next frame begins
	buf []byte // what has been read from there on
	of  *chunk // that buf is a part of; nil: none
}

// next returns the frame at r.pos. Of the file only the first limit bytes count:
// io.EOF if they end before the frame, errShort if they end within it.
func (r *frames) next(limit int64) (Event, error) {
	for {
		e, size, err := decodeFrame(r.buf)
		if err == nil {
			r.buf = r.buf[size:]
			r.pos += int64(size)
			r.of.hold()
			e.of = r.of
			return e, nil
		}
		if err != errShort {
			return Event{}, err
		}
		if r.pos == limit {
			return Event{}, io.EOF
		}
		if r.pos+int64(size) > limit {
			return Event{}, errShort
		}
		if err := r.fill(size, limit); err != nil {
			return Event{}, err
		}
	}
}

// fill reads on until at least need bytes of the frame are there. The buffer is
// another one each time, because the old one is part of events.
func (r *frames) fill(need int, limit int64) error {
	buf, of := newBytes(int(min(int64(max(need, chunkBytes)), limit-r.pos)))
	have := copy(buf, r.buf)
	n, err := r.f.ReadAt(buf[have:], r.pos+int64(have))
	if err == io.EOF && have+n < need {
		return badFrame(fmt.Sprintf("file ends %d bytes early", len(buf)-have-n))
	}
	if err != nil && err != io.EOF {
		return err
	}
	r.drop()
	r.buf, r.of = buf[:have+n], of
	return nil
}

// drop forgets what has been read and was not returned.
func (r *frames) drop() {
	r.of.release()
	r.buf, r.of = nil, nil
}

// Reader reads the events of one execution at its own pace: it holds up neither
// the execution nor other readers. It is for one goroutine at a time.
type Reader struct {
	id     string
	frames frames
	limit  int64  // how much of the spool there is
	after  uint64 // events up to here are passed over
	next   uint64 // sequence of the next frame
	log    *Log   // where more comes from; nil once it has ended
	end    *Event // the end, which the spool may not have; nil before it
	err    error  // what every further call of Next returns
	close  func() error
	passed atomic.Int64 // what it has read of a log's file, for that
}

// Read returns a reader of the events after sequence after; 0: of all. It can go
// on after the execution has ended, and even been removed, until it is closed. A
// spool that is gone, or isn't one, is a *CorruptError.
func (s *Store) Read(ctx context.Context, tenant, id string, after uint64) (*Reader, error) {
	// In this order: an execution that ends in between still has its log here.
	l, _, known, err := s.knownOf(tenant, id)
	r := &Reader{id: id, after: after}
	if known && err == nil && r.join(l) {
		return r, nil
	}
	var x *row
	if err == nil {
		x, err = getRow(ctx, s.db.queries, "id = ? AND tenant = ?", id, tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", id, err)
	}
	var f *os.File
	var from mark
	switch {
	case l != nil:
		from, err = r.follow(l)
	case x.State == Ended:
		from, err = r.replay(ctx, s.db.queries, x)
	default:
		err = ErrNotOpen
	}
	if err == nil && r.frames.f != nil { // the database had it
		r.next = from.seq
		return r, nil
	}
	if err == nil {
		f, err = s.openSpool(id, os.O_RDONLY)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = s.whyNoSpool(ctx, tenant, id)
	}
	if err != nil {
		return nil, r.failure(0, err)
	}
	if err := checkMagic(f); err != nil {
		return nil, errors.Join(r.failure(0, err), f.Close())
	}
	r.frames, r.next, r.close = frames{f: f, pos: from.pos}, from.seq, f.Close
	return r, nil
}

// join makes r a reader of what the writer of a log has in its hands: memory, or a
// file that is open once for all. false: it has nothing that can be read.
func (r *Reader) join(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mem == nil && (l.f == nil || l.readers == 0 && l.state != logOpen && l.state != logEnding) {
		return false
	}
	l.readers++
	if l.joined == nil {
		l.joined = map[*Reader]bool{}
	}
	l.joined[r] = true
	from := l.marks.find(r.after)
	r.passed.Store(from.pos)
	r.log, r.limit, r.end = l, l.size, l.end
	r.frames, r.next = frames{f: (*shared)(l), pos: from.pos}, from.seq
	r.close = func() error { l.leaveJoined(r); return nil }
	return true
}

// shared is what a log has written, for its readers.
type shared Log

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

// whyNoSpool says what it means that an execution has none: it was removed since
// its row was read, or the spool was lost.
func (s *Store) whyNoSpool(ctx context.Context, tenant, id string) error {
	if _, err := getRow(ctx, s.db.queries, "id = ? AND tenant = ?", id, tenant); err != nil {
		return err
	}
	return badFrame("file is missing")
}

// follow makes r a reader of what l has and gets.
func (r *Reader) follow(l *Log) (mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == logFailed {
		return mark{}, ErrNotFound
	}
	r.log, r.limit, r.end = l, l.size, l.end
	return l.marks.find(r.after), nil
}

// replay makes r a reader of an execution that has ended.
func (r *Reader) replay(ctx context.Context, db *sql.DB, x *row) (mark, error) {
	var index, spool []byte
	err := db.QueryRowContext(ctx, `
		SELECT e.marks, s.data FROM executions AS e LEFT JOIN spools AS s ON s.execution = e.n WHERE e.n = ?`, x.n).Scan(&index, &spool)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return mark{}, err
	}
	r.limit = x.spoolBytes
	r.end = &Event{Seq: x.LastSeq, Time: x.Ended, Kind: KindEnd, Data: x.Outcome, End: x.End}
	m := decodeMarks(index)
	from := m.find(r.after)
	if spool != nil {
		if err := checkMagic(bytes.NewReader(spool)); err != nil {
			return mark{}, err
		}
		r.frames = frames{f: bytes.NewReader(spool), pos: from.pos}
		r.close = func() error { return nil }
	}
	return from, nil
}

// Next returns the next event, and waits for it if it hasn't happened yet. After
// the end it returns io.EOF; of a spool that isn't as it was written a
// *CorruptError, which has the end if there is one; ErrClosed if the store was closed before the end. The event's
// data is the caller's, until a Release of the event, which may be left out.
func (r *Reader) Next(ctx context.Context) (Event, error) {
	for r.err == nil {
		if err := ctx.Err(); err != nil {
			return Event{}, err
		}
		at := r.frames.pos
		e, err := r.frames.next(r.limit)
		if err == io.EOF {
			if r.log != nil {
				if err := r.wait(ctx); err != nil {
					return Event{}, err
				}
				continue
			}
			e, err = r.lastWord()
		}
		if err == nil && e.Seq != r.next {
			err = badFrame(fmt.Sprintf("event %d is where %d belongs", e.Seq, r.next))
		}
		if err != nil {
			r.err = r.failure(at, err)
			break
		}
		r.next++
		r.passed.Store(r.frames.pos)
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

// wait returns when there is more to read, or no more to wait for.
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

// lastWord is the end of an execution whose spool had no room for it.
func (r *Reader) lastWord() (Event, error) {
	if r.end == nil || r.end.Seq != r.next {
		return Event{}, badFrame(fmt.Sprintf("spool ends before event %d", r.next))
	}
	return *r.end, nil
}

// failure is err as the callers of this package see it.
func (r *Reader) failure(pos int64, err error) error {
	var bad badFrame
	if err == errShort || errors.As(err, &bad) {
		return &CorruptError{ID: r.id, Offset: pos, Reason: err.Error(), End: r.end}
	}
	return fmt.Errorf("record %s: %w", r.id, err)
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
