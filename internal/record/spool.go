package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxInRows is the largest spool in the database, in bytes.
//
// A spool begins in table frames, with one row for each event, because most executions
// print little and a file costs more than these rows. While the log is open the spool
// is also in memory, for readers. A spool that would exceed maxInRows moves to a file.
// The column in_file of the execution says which of the two counts.
const maxInRows = 64 << 10

// errNoSpool says that a log has nothing to write to.
var errNoSpool = errors.New("spool can't be used")

// newSpool returns a spool with its first event.
// The header is in the row too (column header), from which this writes it again.
func newSpool(created time.Time, header []byte) []byte {
	var head [frameSize]byte
	putFrame(&head, Event{Seq: 1, Time: created, Kind: KindHeader}, header, crc32.Checksum(header, castagnoli))
	return slices.Concat([]byte(spoolMagic), head[:], header)
}

// loadSpool returns a spool from the database, with its first event.
func loadSpool(ctx context.Context, db *sql.DB, x *row) ([]byte, error) {
	var header []byte
	if err := db.QueryRowContext(ctx, "SELECT header FROM executions WHERE n = ?", x.n).Scan(&header); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = ErrNotFound // removed since
		}
		return nil, err
	}
	spool := newSpool(x.Created, header)
	rows, err := db.QueryContext(ctx, "SELECT data FROM frames WHERE execution = ? ORDER BY seq", x.n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var frame sql.RawBytes
		if err := rows.Scan(&frame); err != nil {
			return nil, err
		}
		spool = append(spool, frame...)
	}
	return spool, rows.Err()
}

// setSpool makes b the spool in memory. Event seq is the last one in b. l.mu is held.
func (l *Log) setSpool(b []byte, seq uint64) {
	l.mem, l.size, l.seq = b, int64(len(b)), seq
	l.index.add(1, int64(len(spoolMagic)))
}

// inRows reports whether the spool is in the database. l.mu is held.
func (l *Log) inRows() bool { return l.mem != nil }

// makeRoom moves a spool to a file if a frame with so much data would make it too
// large for the database. l.mu is held.
func (l *Log) makeRoom(ctx context.Context, data int) error {
	if !l.inRows() || l.size+frameSize+int64(data) <= maxInRows {
		return nil
	}
	return l.moveToFile(ctx)
}

// moveToFile writes the spool to a file, then records in the row that the file counts.
// After a crash in between the frames count, and the removal of the execution removes
// the file. l.mu is held.
// It happens at most once in the life of a log. The two statements are one change, so the
// database never has both or neither.
func (l *Log) moveToFile(ctx context.Context) error {
	f, err := os.OpenFile(l.store.spoolPath(l.id), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(l.mem, 0); err == nil {
		err = l.store.record(ctx, false, statement{setInFile, []any{l.row}}, statement{deleteFrames, []any{l.row}})
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	l.f, l.mem = f, nil
	return nil
}

// addRow records e as the next event, together with the statements also, and shows e to
// readers. For urgent see Store.record. l.mu is held.
// The journal has the frame before readers see it: no reader gets an event that a crash of
// the process could take back.
func (l *Log) addRow(ctx context.Context, urgent bool, e Event, data []byte, sum uint32, also ...statement) error {
	e.Seq = l.seq + 1
	putFrame(&l.head, e, data, sum)
	frame := slices.Concat(l.head[:], data)
	change := append([]statement{{addFrame, []any{l.row, int64(e.Seq), frame}}}, also...)
	if err := l.store.record(ctx, urgent, change...); err != nil {
		return l.failure(err)
	}
	// Readers share the bytes before; append does not change them.
	l.mem = append(l.mem, frame...)
	l.show(e.Seq, len(frame))
	return nil
}

// addToFile writes e to the file as the next event, and shows e to readers. l.mu is
// held.
func (l *Log) addToFile(e Event, data []byte, sum uint32) error {
	e.Seq = l.seq + 1
	if err := l.writeFrame(e, data, sum); err != nil {
		return l.failure(err)
	}
	l.show(e.Seq, frameSize+len(data))
	return nil
}

// show lets readers see the next frame, event seq, of size bytes. l.mu is held.
func (l *Log) show(seq uint64, size int) {
	l.index.add(seq, l.size)
	l.seq = seq
	l.size += int64(size)
	l.usage.all.Add(int64(size))
	l.announce()
}

// writeFrame writes e to the file, after the last visible frame. It is one system call
// unless the kernel writes only a part. After an error nothing of the frame stays. l.mu
// is held.
func (l *Log) writeFrame(e Event, data []byte, sum uint32) error {
	if l.f == nil {
		return errNoSpool
	}
	putFrame(&l.head, e, data, sum)
	if err := writeParts(l.f, [][]byte{l.head[:], data}, l.size); err != nil {
		// If the truncation fails too, the next frame overwrites the rest. After the last frame no
		// reader reads the rest.
		l.f.Truncate(l.size)
		return err
	}
	return nil
}

// writeParts writes the parts to f, one after the other, beginning at pos.
// pwritev(2) may write less than asked, at the end of the space for example; then it goes on
// with the rest, and the next call returns the reason.
func writeParts(f *os.File, parts [][]byte, pos int64) error {
	parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
	for len(parts) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), parts, pos)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write", Path: f.Name(), Err: err}
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

// openSpool opens an execution's file. If it is not a regular file the error is a
// badFrame. A link is not followed, and a pipe does not block.
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
		err = badFrame("not a regular file but " + fi.Mode().Type().String())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkMagic returns a badFrame if f does not begin as a spool does.
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

// scanned describes a spool up to its first damaged frame.
type scanned struct {
	size  int64  // of the magic and the whole frames; 0 if the magic is damaged
	seq   uint64 // of the last event; 0: none
	index index
	end   *Event // the last event, if it is an end
}

// scan reads a whole file. A damaged or missing frame is no error: the spool ends
// before it.
func scan(f *os.File) (scanned, error) {
	fi, err := f.Stat()
	if err != nil {
		return scanned{}, err
	}
	if err := checkMagic(f); err != nil {
		var bad badFrame
		if errors.As(err, &bad) {
			return scanned{}, nil
		}
		return scanned{}, err
	}
	return scanFrames(f, fi.Size())
}

// scanFrames is scan for a spool of size bytes that begins with the magic.
// Everything after an end, or after a number out of order, is ignored.
func scanFrames(f io.ReaderAt, size int64) (scanned, error) {
	r := frames{f: f, pos: int64(len(spoolMagic))}
	at := scanned{size: r.pos}
	for {
		e, err := r.next(size)
		var bad badFrame
		switch {
		case err == io.EOF, err == errShort, errors.As(err, &bad):
			return at, nil
		case err != nil:
			return scanned{}, err
		case e.Seq != at.seq+1, at.end != nil:
			return at, nil
		}
		at.index.add(e.Seq, at.size)
		at.seq, at.size = e.Seq, r.pos
		if e.Kind == KindEnd {
			e.Data = bytes.Clone(e.Data)
			at.end = &e
		}
	}
}
