package record

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"time"
)

// End records how the execution ended: end, at most 255 bytes, and the outcome,
// at most MaxOutcomeBytes. It adds the end event, closes the row, and only then
// shows the event to readers, so that a reader of the end finds the execution
// ended. The first call does it; any other gets ErrEnded. End works while the disk
// is full, as long as the room that is kept for ends lasts. ctx can't stop it.
//
// An end that is out of bounds is refused and changes nothing: readers go on waiting,
// and the caller must call End again. For an outcome the error is then an
// *OutcomeTooLargeError. After any other error, for example on a full disk, the log is
// closed and readers have seen the end, but the row is not closed. The store keeps the end in memory, and
// each flush and Close try to record it. If the process dies before that, the next Open closes the row if the spool
// is a file with the end in it. Otherwise Unended returns the execution.
// The state logEnding keeps other writers out while l.mu is free, so readers go on during
// the write to the journal.
func (l *Log) End(ctx context.Context, end string, outcome []byte, at time.Time) error {
	defer l.store.wrote(Ending, time.Now())
	if end == "" || len(end) > maxEnd {
		return fmt.Errorf("record %s: end %q: not 1 to %d bytes", l.id, end, maxEnd)
	}
	if len(outcome) > MaxOutcomeBytes {
		return &OutcomeTooLargeError{ID: l.id, Size: len(outcome)}
	}
	e := Event{Time: at, Kind: KindEnd, Data: outcome, End: end}
	size, index, err := l.beginEnd(&e)
	if err != nil {
		return err
	}
	e.Data = bytes.Clone(outcome) // the caller's
	change := endStatement(l.row, e, size, index)
	err = l.store.record(context.WithoutCancel(ctx), true, change)
	if err == nil && l.store.handedOver.Load() {
		// A client that reads the end here may then ask the next process for it. That process sees only the database.
		l.store.flushForQuery(context.WithoutCancel(ctx))
	}
	l.showEnd(e, size, len(index))
	if err != nil {
		l.store.batch.owe(l, change)
		return l.failure(err)
	}
	l.store.unregister(l)
	return nil
}

// beginEnd closes the log to other writers, and writes the end to the file if there
// is one. It returns the size of the spool then, and its index.
// A spool in the database gets no end event: the row has all of it. A file gets one, so that
// a file alone tells how its execution ended.
func (l *Log) beginEnd(e *Event) (size int64, index []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return 0, nil, err
	}
	l.state = logEnding
	e.Seq = l.seq + 1
	if l.inRows() {
		return l.size, nil, nil
	}
	data := joinEnd(e.End, e.Data)
	if err := l.writeEnd(*e, data); err != nil {
		l.store.log.Warn("record: the spool does not have the end of an execution; the database has it", "execution", l.id, "err", err)
		return l.size, l.index.encode(), nil
	}
	l.index.add(e.Seq, l.size)
	return l.size + frameSize + int64(len(data)), l.index.encode(), nil
}

// writeEnd writes an end to the file, where readers can't see it yet. On a full disk it
// uses the ballast. l.mu is held.
func (l *Log) writeEnd(e Event, data []byte) error {
	sum := crc32.Checksum(data, castagnoli)
	return l.store.ballast.use(func() error { return l.writeFrame(e, data, sum) })
}

// showEnd lets readers see the end, and counts it. The outcome and the index are in the row, or will be.
func (l *Log) showEnd(e Event, size int64, index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage.all.Add(size - l.size)
	l.counted(int64(len(e.Data)+index), 0)
	l.usage.ended.Add(size + l.rowBytes + l.artifactBytes)
	l.state, l.seq, l.size, l.end = logEnded, e.Seq, size, &e
	l.finish()
}
