package record

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Log is the open end of one execution's record. Its methods can be called from
// any number of goroutines. When Append returns, the event is recorded whole.
type Log struct {
	store *Store
	id    string

	// mu guards the fields below. It is held during the write of an event, so that events
	// have one order. Readers take it for moments only, to learn of new events.
	mu      sync.Mutex
	tenant  string
	row     int64 // its number
	usage   *usage
	started bool
	mem     []byte   // the spool while it is in the database, with the first event
	f       *os.File // the spool afterwards; if mem is nil too, the spool is unusable
	readers int      // of mem and f; f stays open for them
	head    [frameSize]byte
	state   logState
	// size and seq bound the whole frames, which readers may see.
	size  int64
	seq   uint64
	index index
	// Counted in usage, as size is.
	rowBytes, artifactBytes int64
	// end is set with logEnded. A spool in the database has no end event, and a file
	// may lack it on a full disk.
	end *Event
	// wake is closed at the next change; nil: no reader waits.
	wake chan struct{}
}

type logState int

const (
	logOpen   logState = iota
	logEnding          // the end is being recorded: no more events, readers wait
	logEnded
	logAbandoned // the store was closed before the end
	logFailed    // the execution was never created
)

// ID returns the execution's ID.
func (l *Log) ID() string { return l.id }

func newLog(s *Store, id string) *Log { return &Log{store: s, id: id} }

// Append adds a KindOutput or KindDenied event and returns its sequence, which it chooses. A zero
// Time is now. Data can be used again once it returns. If the disk is full the error
// is a *SpoolFullError: nothing was added, earlier events stay, and End still works.
// After End it is ErrEnded.
func (l *Log) Append(e Event) (seq uint64, err error) {
	defer l.store.wrote(Appending, time.Now())
	if e.Kind != KindOutput && e.Kind != KindDenied {
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
	if !l.store.ballast.held.Load() {
		return 0, &SpoolFullError{ID: l.id, Err: unix.ENOSPC}
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	ctx := context.Background()
	if err := l.makeRoom(ctx, len(e.Data)); err != nil {
		return 0, l.failure(err)
	}
	if l.inRows() {
		err = l.addRow(ctx, false, e, e.Data, sum)
	} else {
		err = l.addToFile(e, e.Data, sum)
	}
	if err != nil {
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
	e, sum := Event{Time: at, Kind: KindStarted}, crc32.Checksum(data, castagnoli)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if l.started {
		return fmt.Errorf("record %s: start: not queued", l.id)
	}
	if err := l.makeRoom(ctx, len(data)); err != nil {
		return l.failure(err)
	}
	set := startStatement(l.row, at)
	if l.inRows() {
		err := l.addRow(ctx, true, e, data, sum, set)
		l.started = err == nil
		return err
	}
	if err := l.addToFile(e, data, sum); err != nil {
		return err
	}
	l.started = true
	if err := l.store.record(ctx, true, set); err != nil {
		return l.failure(err)
	}
	return nil
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

// finish closes the file, unless a reader uses it, and wakes all readers. l.mu is
// held.
// Readers that wait see the new state; readers that read on keep the file open.
func (l *Log) finish() {
	if l.f != nil && l.readers == 0 {
		l.f.Close() // nothing is buffered in it
	}
	l.announce()
}

// leave is for a reader that is closed: the last one closes the file of a closed log.
func (l *Log) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	if l.f != nil && l.readers == 0 && (l.state == logEnded || l.state == logAbandoned) {
		l.f.Close()
	}
}

// announce wakes the readers that wait for a change. l.mu is held.
// A new channel is made by the next reader that waits, so a log without readers costs
// nothing.
func (l *Log) announce() {
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// writable returns why nothing can be added. l.mu is held.
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

// failure returns err for callers of this package.
// It turns a full disk into a *SpoolFullError, which callers branch on.
func (l *Log) failure(err error) error {
	if isFull(err) {
		return &SpoolFullError{ID: l.id, Err: err}
	}
	return fmt.Errorf("record %s: %w", l.id, err)
}
