package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log is the open end of one execution's record. Its methods can be called from
// any number of goroutines; an event is in the file, whole, when Append returns.
type Log struct {
	store *Store
	id    string
	row   int64

	mu    sync.Mutex
	f     *os.File        // nil: what is on disk can't be used
	head  [frameSize]byte // of the frame being written
	state logState
	// size and seq say what readers may see: whole frames only.
	size  int64
	seq   uint64
	marks marks
	// end is set with logEnded; the spool may have had no room for it.
	end *Event
	// wake is closed at the next change; nil if nobody waits for one.
	wake chan struct{}
}

type logState int

const (
	logOpen   logState = iota
	logEnding          // the end is on its way: nothing can be added, readers wait
	logEnded
	logAbandoned // the store was closed before the end
	logFailed    // the execution was never created
)

// ID returns the execution's.
func (l *Log) ID() string { return l.id }

// begin makes the spool, with its header event.
func (l *Log) begin(at time.Time, first []byte) error {
	f, err := os.OpenFile(l.store.spoolPath(l.id), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return l.failure(err)
	}
	l.f = f
	if err := l.writeHeader(at, first); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// writeHeader writes an empty spool's first bytes.
func (l *Log) writeHeader(at time.Time, first []byte) error {
	if _, err := l.f.WriteAt([]byte(spoolMagic), 0); err != nil {
		return l.failure(err)
	}
	l.size = int64(len(spoolMagic))
	return l.add(Event{Time: at, Kind: KindHeader}, first, crc32.Checksum(first, castagnoli))
}

// Append adds a KindStarted or KindOutput event and returns its sequence, which
// it chooses. A zero Time is now. Data can be used again once it returns. If the
// disk is full the error is a *SpoolFullError: nothing was added, earlier events
// stay, and End still works. After End it is ErrEnded.
func (l *Log) Append(e Event) (seq uint64, err error) {
	if e.Kind != KindStarted && e.Kind != KindOutput {
		return 0, fmt.Errorf("record %s: append of kind %d", l.id, e.Kind)
	}
	if len(e.Data) > MaxEventBytes {
		return 0, fmt.Errorf("record %s: event of %d bytes: more than %d", l.id, len(e.Data), MaxEventBytes)
	}
	sum := crc32.Checksum(e.Data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, err
	}
	if e.Kind == KindOutput && !l.store.ballast.held.Load() {
		return 0, &SpoolFullError{ID: l.id, Err: unix.ENOSPC}
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if err := l.add(e, e.Data, sum); err != nil {
		return 0, err
	}
	return l.seq, nil
}

// Started records that the program runs since at. It adds no event: the caller
// appends that, with what it has to say. If the disk is full the error is a
// *SpoolFullError.
func (l *Log) Started(ctx context.Context, at time.Time) error {
	err := l.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE executions SET state = ?, started = ? WHERE n = ? AND state = ?",
			Running, nanos(at), l.row, Queued)
		if err != nil {
			return err
		}
		return wantOne(result, "start: not queued")
	})
	if err != nil {
		return l.failure(err)
	}
	return nil
}

// wantOne makes it an error that an update met no row.
func wantOne(result sql.Result, why string) error {
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = errors.New(why)
	}
	return err
}

// End records how the execution ended: end, at most 255 bytes, and the outcome,
// at most MaxOutcomeBytes. It appends the end event, closes the row, and only
// then shows the event to readers, so that whoever has seen it finds the
// execution ended. The first call does it; any other gets ErrEnded. It works
// while the disk is full, as long as the room that is kept for ends lasts, and
// ctx can't stop it.
//
// An end that is out of bounds is refused and changes nothing: readers go on
// waiting, and the caller must call again with one that isn't. For an outcome
// the error is then an *OutcomeTooLargeError. After any other error the log is
// closed and readers have seen the end, but it may be only in the spool, from
// where the next Open takes it, or, if the disk is full, a *SpoolFullError,
// nowhere.
func (l *Log) End(ctx context.Context, end string, outcome []byte, at time.Time) error {
	if end == "" || len(end) > maxEnd {
		return fmt.Errorf("record %s: end %q: not 1 to %d bytes", l.id, end, maxEnd)
	}
	if len(outcome) > MaxOutcomeBytes {
		return &OutcomeTooLargeError{ID: l.id, Size: len(outcome)}
	}
	e := Event{Time: at, Kind: KindEnd, Data: outcome, End: end}
	size, index, err := l.writeEnd(&e)
	if err != nil {
		return err
	}
	err = l.store.write(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		return closeRow(ctx, tx, l.row, e, size, index)
	})
	l.showEnd(e, size)
	if err != nil {
		return l.failure(err)
	}
	l.store.unregister(l)
	return nil
}

// writeEnd puts the end behind what readers see, and closes the log to others.
// It returns how long the spool then is. If the spool can't take the end, the
// row alone will have it.
func (l *Log) writeEnd(e *Event) (size int64, index []byte, err error) {
	data := joinEnd(e.End, e.Data)
	sum := crc32.Checksum(data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, nil, err
	}
	l.state = logEnding
	e.Seq = l.seq + 1
	err = l.writeFrame(*e, data, sum)
	if isFull(err) {
		if err = l.store.ballast.spend(); err == nil {
			err = l.writeFrame(*e, data, sum)
		}
	}
	if err != nil {
		l.store.log.Warn("record: the end is in the database only", "execution", l.id, "err", err)
		return l.size, l.marks.encode(), nil
	}
	l.marks.add(e.Seq, l.size)
	return l.size + frameSize + int64(len(data)), l.marks.encode(), nil
}

// showEnd lets readers see the end.
func (l *Log) showEnd(e Event, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Data = bytes.Clone(e.Data) // the caller's
	l.state, l.seq, l.size, l.end = logEnded, e.Seq, size, &e
	l.finish()
}

// closeRow records e, an end, in a row.
func closeRow(ctx context.Context, tx *sql.Tx, row int64, e Event, size int64, index []byte) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE executions SET state = ?, ended = ?, ending = ?, outcome = ?, last_seq = ?, spool_bytes = ?, marks = ?,
			row_bytes = length(detail) + length(header) + ?
		WHERE n = ?`,
		Ended, nanos(e.Time), e.End, blob(e.Data), int64(e.Seq), size, blob(index), len(e.Data)+len(index), row)
	return err
}

// abandon closes the log without an end.
func (l *Log) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == logOpen {
		l.state = logAbandoned
		l.finish()
	}
}

// finish closes the file and wakes who waits. l.mu is held.
func (l *Log) finish() {
	l.f.Close() // nothing is buffered in it
	l.announce()
}

// published is how much of the spool readers may see.
func (l *Log) published() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// announce wakes who waits for a change. l.mu is held.
func (l *Log) announce() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// writable says why nothing can be added. l.mu is held.
func (l *Log) writable() error {
	switch l.state {
	case logOpen:
		return nil
	case logAbandoned, logFailed:
		return fmt.Errorf("record %s: %w", l.id, ErrClosed)
	default:
		return fmt.Errorf("record %s: %w", l.id, ErrEnded)
	}
}

// add writes e as the next event and shows it to readers. l.mu is held.
func (l *Log) add(e Event, data []byte, sum uint32) error {
	e.Seq = l.seq + 1
	if err := l.writeFrame(e, data, sum); err != nil {
		return l.failure(err)
	}
	l.marks.add(e.Seq, l.size)
	l.seq = e.Seq
	l.size += frameSize + int64(len(data))
	l.announce()
	return nil
}

// writeFrame writes one frame behind the last one, with one system call unless
// the kernel takes only a part of it. On failure nothing of it stays. l.mu is
// held.
func (l *Log) writeFrame(e Event, data []byte, sum uint32) error {
	if l.f == nil {
		return errNoSpool
	}
	putFrame(&l.head, e, data, sum)
	parts, pos := [][]byte{l.head[:], data}, l.size
	if len(data) == 0 {
		parts = parts[:1]
	}
	for len(parts) > 0 {
		n, err := unix.Pwritev(int(l.f.Fd()), parts, pos)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			// If this fails too, what stays is overwritten by the next frame, or
			// is behind the end, where nobody looks.
			l.f.Truncate(l.size)
			return &os.PathError{Op: "write", Path: l.f.Name(), Err: err}
		}
		pos += int64(n)
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}

// failure is err as the callers of this package see it.
func (l *Log) failure(err error) error {
	if isFull(err) {
		return &SpoolFullError{ID: l.id, Err: err}
	}
	return fmt.Errorf("record %s: %w", l.id, err)
}
