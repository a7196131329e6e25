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
	store  *Store
	id     string
	row    int64
	made   time.Time
	extent int64 // where in the arena it has its place, while it is young

	mu      sync.Mutex
	placing sync.Cond        // for a change of placed
	placed  placing          // whether there is a row
	counted bool             // the store's: it has ended and has no row
	x       Execution        // what the row says, or will; without an ID: only the row knows
	first   []byte           // the header event's data, until there is a row
	base    int64            // where in the extent the spool begins
	mem     []byte           // the spool while it is young
	f       *os.File         // the spool afterwards; nil: what is on disk can't be used
	readers int              // of mem and f
	joined  map[*Reader]bool // those of them that follow what is added
	behind  bool             // somebody writes to the disk: see writeBehind
	begun   int64            // what of the spool is on its way there
	head    [frameSize]byte  // of the frame being written
	state   logState
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

func newLog(s *Store, id string) *Log {
	l := &Log{store: s, id: id}
	l.placing.L = &l.mu
	return l
}

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

// Append adds a KindOutput event and returns its sequence, which it chooses. A zero
// Time is now. Data can be used again once it returns. If the disk is full the error
// is a *SpoolFullError: nothing was added, earlier events stay, and End still works.
// After End it is ErrEnded.
func (l *Log) Append(e Event) (seq uint64, err error) {
	if e.Kind != KindOutput {
		return 0, fmt.Errorf("record %s: append of kind %d", l.id, e.Kind)
	}
	if len(e.Data) > MaxEventBytes {
		return 0, fmt.Errorf("record %s: event of %d bytes: more than %d", l.id, len(e.Data), MaxEventBytes)
	}
	sum := crc32.Checksum(e.Data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(len(e.Data)); err != nil {
		return 0, err
	}
	if !l.store.ballast.held.Load() {
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

// Started records, once, that the program runs since at, and adds the KindStarted
// event with the caller's data. If the disk is full the error is a *SpoolFullError.
// After any error the event may be there.
func (l *Log) Started(ctx context.Context, at time.Time, data []byte) error {
	if len(data) > MaxEventBytes {
		return fmt.Errorf("record %s: event of %d bytes: more than %d", l.id, len(data), MaxEventBytes)
	}
	hasRow, err := l.addStarted(at, data)
	if err != nil || !hasRow {
		return err
	}
	err = l.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
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

// addStarted adds the event. hasRow is whether there is a row to be told.
func (l *Log) addStarted(at time.Time, data []byte) (has bool, err error) {
	sum := crc32.Checksum(data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ready(len(data)); err != nil {
		return false, err
	}
	if !l.x.Started.IsZero() {
		return false, fmt.Errorf("record %s: start: not queued", l.id)
	}
	if err := l.add(Event{Time: at, Kind: KindStarted}, data, sum); err != nil {
		return false, err
	}
	l.x.State, l.x.Started = Running, instant(nanos(at))
	return l.placed == hasRow, nil
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
	if done, err := l.endYoung(&e); done || err != nil {
		l.store.gatherIfMany()
		return err
	}
	size, spool, index, err := l.writeEnd(&e)
	if err != nil {
		return err
	}
	err = l.store.write(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		return closeRow(ctx, tx, l.row, e, size, index, spool)
	})
	l.showEnd(e, size)
	if err != nil {
		return l.failure(err)
	}
	l.over()
	return nil
}

// endYoung ends an execution that has no row: with the end in its spool it is as
// durable as its beginning. done is false if the end has to be in the row.
func (l *Log) endYoung(e *Event) (done bool, err error) {
	data := joinEnd(e.End, e.Data)
	sum := crc32.Checksum(data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.ready(len(data))
	if isFull(err) {
		if err = l.store.ballast.spend(); err == nil {
			err = l.ready(len(data))
		}
	}
	if err != nil && !isFull(err) {
		return false, err
	}
	if !l.isYoung() || l.placed == hasRow {
		return false, nil
	}
	e.Seq = l.seq + 1
	size := l.size + frameSize + int64(len(data))
	if err := l.writeFrame(*e, data, sum); err != nil {
		if err = l.needRow(); err == nil {
			return false, nil
		}
		// In memory only, from where it may still come into a row.
		l.show(*e, l.size)
		l.store.gone(l)
		return true, l.failure(err)
	}
	l.marks.add(e.Seq, l.size)
	l.show(*e, size)
	l.store.gone(l)
	return true, nil
}

// writeEnd puts the end behind what readers see, and closes the log to others.
// It returns how long the spool then is. If the spool can't take the end, the
// row alone will have it.
func (l *Log) writeEnd(e *Event) (size int64, spool, index []byte, err error) {
	data := joinEnd(e.End, e.Data)
	sum := crc32.Checksum(data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, nil, nil, err
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
		return l.size, l.mem, l.marks.encode(), nil
	}
	l.marks.add(e.Seq, l.size)
	return l.size + frameSize + int64(len(data)), l.mem, l.marks.encode(), nil
}

// showEnd lets readers see the end.
func (l *Log) showEnd(e Event, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.show(e, size)
}

// show is showEnd with l.mu held.
func (l *Log) show(e Event, size int64) {
	e.Data = bytes.Clone(e.Data) // the caller's
	l.state, l.seq, l.size, l.end = logEnded, e.Seq, size, &e
	l.x.State, l.x.Ended, l.x.End, l.x.Outcome = Ended, instant(nanos(e.Time)), e.End, blob(e.Data)
	l.finish()
}

// closeRow records e, an end, in a row, and the spool beside it if it is in no file.
func closeRow(ctx context.Context, tx *sql.Tx, row int64, e Event, size int64, index, spool []byte) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE executions SET state = ?, ended = ?, ending = ?, outcome = ?, last_seq = ?, spool_bytes = ?, marks = ?,
			row_bytes = length(detail) + length(header) + ?
		WHERE n = ?`,
		Ended, nanos(e.Time), e.End, blob(e.Data), int64(e.Seq), size, blob(index), len(e.Data)+len(index), row)
	if err != nil || spool == nil {
		return err
	}
	return insertSpool(ctx, tx, row, spool)
}

// insertSpool puts a spool into the database.
func insertSpool(ctx context.Context, tx *sql.Tx, row int64, spool []byte) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO spools (execution, data) VALUES (?, ?)", row, spool)
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

// finish closes the file, unless somebody reads it, and wakes who waits. l.mu is
// held.
func (l *Log) finish() {
	if l.f != nil && l.readers == 0 {
		l.f.Close() // nothing is buffered in it
	}
	l.announce()
}

// leaveJoined ends the reading of one that has joined.
func (l *Log) leaveJoined(r *Reader) {
	l.mu.Lock()
	delete(l.joined, r)
	l.mu.Unlock()
	l.leaveReader()
}

// leaveReader ends the reading of one reader.
func (l *Log) leaveReader() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	if l.f != nil && l.readers == 0 && (l.state == logEnded || l.state == logAbandoned) {
		l.f.Close()
	}
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

// ready says why no event with so much data can be added, and makes room for it.
// l.mu is held, and may be given up for a while.
func (l *Log) ready(data int) error {
	l.awaitRow()
	if err := l.writable(); err != nil {
		return err
	}
	if err := l.makeRoom(data); err != nil {
		return l.failure(err)
	}
	l.awaitRow()
	return l.writable()
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
	l.writeBehind()
	return nil
}

// writeFrame writes one frame behind the last one, with one system call unless
// the kernel takes only a part of it. On failure nothing of it stays. l.mu is
// held.
func (l *Log) writeFrame(e Event, data []byte, sum uint32) error {
	if l.f == nil && !l.isYoung() {
		return errNoSpool
	}
	putFrame(&l.head, e, data, sum)
	if l.isYoung() {
		return l.putYoung(data)
	}
	_, err := writeParts(l.f, [][]byte{l.head[:], data}, l.size)
	if err != nil {
		// If this fails too, what stays is overwritten by the next frame, or
		// is behind the end, where nobody looks.
		l.f.Truncate(l.size)
	}
	return err
}

// failure is err as the callers of this package see it.
func (l *Log) failure(err error) error {
	if isFull(err) {
		return &SpoolFullError{ID: l.id, Err: err}
	}
	return fmt.Errorf("record %s: %w", l.id, err)
}
