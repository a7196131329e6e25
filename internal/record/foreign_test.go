package record

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// newRemote returns a reader of an open execution, as the next process reads it: from the database and the file only.
func newRemote(t *testing.T, s *Store, id string, after uint64) *Reader {
	t.Helper()
	s.flushForQuery(t.Context())
	x, err := getRow(t.Context(), s.db.queries, "id = ?", id)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{id: id, after: after}
	if err := r.openRemote(t.Context(), s, x); err != nil {
		t.Fatal(err)
	}
	return r
}

// rest returns the events up to the end, or up to an error.
func rest(t *testing.T, r *Reader) (events []Event, err error) {
	for {
		e, err := r.Next(t.Context())
		if err == io.EOF {
			return events, r.Close()
		}
		if err != nil {
			return events, errors.Join(err, r.Close())
		}
		kept := e
		kept.Data = bytes.Clone(e.Data)
		e.Release()
		events = append(events, kept)
	}
}

// The writer writes frames in pieces, and cuts failed ones off. Readers get whole frames only, each once.
func TestRemoteTornFrames(t *testing.T) {
	s := openStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x"})
	const frames = 300
	var readers sync.WaitGroup
	got := make([][]Event, 4)
	for i := range got {
		r := newRemote(t, s, "x", 0)
		readers.Go(func() {
			var err error
			if got[i], err = rest(t, r); err != nil {
				t.Error(err)
			}
		})
	}
	f, err := os.OpenFile(s.spoolPath("x"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l.mu.Lock()
	frame := func(seed int) []byte {
		data := pattern("x", rand.IntN(3000), seed)
		var head [frameSize]byte
		putFrame(&head, Event{Seq: l.seq + 1, Kind: KindOutput}, data, crc32.Checksum(data, castagnoli))
		return append(head[:], data...)
	}
	put := func(b []byte) { // in pieces
		for at := l.size; len(b) > 0; {
			n := 1 + rand.IntN(min(len(b), 1500))
			if _, err := f.WriteAt(b[:n], at); err != nil {
				t.Error(err)
			}
			b, at = b[n:], at+int64(n)
		}
	}
	for i := range frames {
		if i%3 == 0 {
			failed := frame(i + frames)
			put(failed[:rand.IntN(len(failed))])
			if err := f.Truncate(l.size); err != nil {
				t.Error(err)
			}
		}
		b := frame(i)
		put(b)
		l.seq++
		l.size += int64(len(b))
	}
	l.mu.Unlock()
	end(t, l, "EXITED", start)
	readers.Wait()
	want := readAll(t, s, "a", "x", 0)
	if len(want) != frames+2 {
		t.Fatalf("%d events, want %d", len(want), frames+2)
	}
	for i := range got {
		checkEvents(t, got[i], want)
	}
}

// Readers that begin anywhere get the same events from rows, from the file, and from both.
func TestRemoteMoves(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{ID: "x"})
	var readers sync.WaitGroup
	got := make([][]Event, 40)
	for i := range got {
		r := newRemote(t, s, "x", uint64(i))
		readers.Go(func() {
			var err error
			if got[i], err = rest(t, r); err != nil {
				t.Error(err)
			}
		})
		if err := l.Started(t.Context(), start, nil); i == 0 && err != nil {
			t.Error(err)
		}
		appendOutput(t, l, strings.Repeat("x", rand.IntN(4000)))
	}
	if inRows(l) {
		t.Fatal("the spool is in rows")
	}
	end(t, l, "EXITED", start)
	readers.Wait()
	want := readAll(t, s, "a", "x", 0)
	for i := range got {
		checkEvents(t, got[i], want[i:])
	}
}

// An end in the file counts only when the row has it, too. If the file has no end, the end comes from the row.
func TestRemoteEnd(t *testing.T) {
	s := openIdleStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x"})
	r := newRemote(t, s, "x", 1)
	e := Event{Time: start, Kind: KindEnd, Data: []byte("outcome"), End: "EXITED"}
	size, index, err := l.beginEnd(&e)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan Event)
	go func() {
		e, err := r.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- e
	}()
	looked := newRemote(t, s, "x", 0) // sees the same file
	if got, ended, err := looked.remote.look(t.Context()); got != size || ended != nil || err != nil {
		t.Fatalf("looked: got %d bytes of %d, end %v, %v", got, size, ended, err)
	}
	for _, want := range []Kind{KindHeader, KindEnd} {
		e, err := looked.frames.next(size)
		if err != nil || e.Kind != want || isWhole(e, err) != (want == KindHeader) {
			t.Errorf("got %+v, %v; whole: %v", e, err, isWhole(e, err))
		}
	}
	if err := s.record(t.Context(), true, endStatement(l.row, e, size, index)); err != nil {
		t.Fatal(err)
	}
	s.flushForQuery(t.Context())
	if got := <-done; got.End != "EXITED" || string(got.Data) != "outcome" || got.Seq != 2 {
		t.Errorf("got %+v", got)
	}
	l.showEnd(e, size, len(index))
	if err := errors.Join(r.Close(), looked.Close()); err != nil {
		t.Error(err)
	}

	l = createInFile(t, s, Execution{ID: "y"})
	r = newRemote(t, s, "y", 0)
	end(t, l, "EXITED", start)
	x := get(t, s, "a", "y")
	frame := int64(frameSize + len(joinEnd(x.End, x.Outcome)))
	if _, err := s.db.states.Exec("UPDATE executions SET spool_bytes = spool_bytes - ? WHERE id = 'y'", frame); err != nil {
		t.Fatal(err)
	}
	cut(l.size-frame)(t, s.spoolPath("y"), 0)
	events, err := rest(t, r)
	if err != nil || len(events) != 2 || events[1].End != "EXITED" {
		t.Errorf("got %+v, %v", events, err)
	}
}

// Damage that the writer does not repair is an error once the execution has ended. A lost spool is one at once.
func TestRemoteDamaged(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	for _, id := range []string{"damaged", "lost", "removed"} {
		l := createInFile(t, s, Execution{ID: id})
		appendOutput(t, l, "0123456789")
		r := newRemote(t, s, id, 0)
		switch id {
		case "damaged":
			flip(l.size-1)(t, s.spoolPath(id), 0)
		case "lost":
			if err := os.Remove(s.spoolPath(id)); err != nil {
				t.Fatal(err)
			}
		}
		end(t, l, "EXITED", start)
		s.flushForQuery(t.Context())
		if id == "removed" {
			if err := s.Remove(t.Context(), "a", id); err != nil {
				t.Fatal(err)
			}
		}
		_, err := rest(t, r)
		bad, ok := errors.AsType[*CorruptError](err)
		switch {
		case id == "removed" && !errors.Is(err, ErrNotFound):
			t.Errorf("%s: got %v", id, err)
		case id != "removed" && (!ok || bad.End == nil || bad.End.End != "EXITED"):
			t.Errorf("%s: got %v", id, err)
		}
	}
}

func TestCloseWakesRemoteReaders(t *testing.T) {
	for place, create := range creators {
		s := openStore(t, Config{})
		create(t, s, Execution{ID: "x"})
		r := newRemote(t, s, "x", 1)
		failed := make(chan error)
		go func() {
			_, err := r.Next(t.Context())
			failed <- err
		}()
		ctx, cancel := context.WithCancel(t.Context())
		other := newRemote(t, s, "x", 1)
		go func() {
			_, err := other.Next(ctx)
			failed <- err
		}()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", place, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v", place, err)
		}
		if _, err := other.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: then got %v", place, err)
		}
		if err := errors.Join(r.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	}
}

// lineWriter hands on each line of a log.
type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// While another process has the write lock for longer than SQLite waits, executions go on in the journal. The database
// gets the changes afterwards, without a query.
func TestWriteLockIsHeld(t *testing.T) {
	lines, tries := make(lineWriter, 10_000), make(chan Operation, 10_000)
	wrote := func(op Operation, _ time.Duration) {
		if op == Flushing {
			tries <- op
		}
	}
	s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(lines, nil)), Wrote: wrote})
	if _, err := s.db.states.Exec("PRAGMA busy_timeout = 1"); err != nil { // instead of busyTimeout
		t.Fatal(err)
	}
	if err := s.HandOver(t.Context()); err != nil { // so that there may be a second process
		t.Fatal(err)
	}
	p := startProcess(t, s.config.Dir)
	p.must("open takeover")
	p.must("lock")
	s.handedOver.Store(false) // to have new rows
	l := create(t, s, Execution{ID: "x"})
	for range maxPending { // the last one would apply the others
		create(t, s, Execution{})
	}
	s.handedOver.Store(true)
	end(t, l, "EXITED", start)
	if line := <-lines; !strings.Contains(line, "changes are not in the database yet") {
		t.Errorf("logged %q", line)
	}
	for range 20 { // it tries again and again
		<-tries
	}
	if n := len(lines); n > 0 {
		t.Errorf("logged %d lines more, first %q", n, <-lines)
	}
	if n := stored(t, s); n != 0 {
		t.Errorf("%d executions are in the database", n)
	}
	p.must("unlock")
	for stored(t, s) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the database has no execution")
		}
	}
	if got := len(readAll(t, s, "a", "x", 0)); got != 2 {
		t.Errorf("got %d events", got)
	}
}
