package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// following hands on what r reads, as it comes, until the end.
func following(t *testing.T, r *Reader) <-chan Event {
	events := make(chan Event)
	go func() {
		defer close(events)
		for {
			e, err := r.Next(t.Context())
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			events <- e
		}
	}()
	return events
}

// Each event is appended only after the reader has the one before.
func TestReadFollows(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	r := newReader(t, s, "a", l.ID(), 0)
	got := following(t, r)
	if e := <-got; e.Kind != KindHeader {
		t.Errorf("got %+v", e)
	}
	for i := range 1000 {
		want := fmt.Sprint(i)
		seq := appendOutput(t, l, want)
		if e := <-got; e.Seq != seq || string(e.Data) != want {
			t.Fatalf("got %d %q, want %d %q", e.Seq, e.Data, seq, want)
		}
	}
	end(t, l, "EXITED", start)
	if e := <-got; e.Kind != KindEnd {
		t.Errorf("got %+v", e)
	}
	if e, more := <-got; more {
		t.Errorf("got %+v after the end", e)
	}
}

// A reader may begin after any event: while the execution runs, after its end, and in
// another process.
func TestReadAfter(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	const outputs = 300
	chunk := bytes.Repeat([]byte("x"), 10_000) // so that there are several index
	for i := range outputs {
		if _, err := l.Append(Event{Kind: KindOutput, Stream: 1, Offset: uint64(i), Data: chunk[:rand.IntN(len(chunk))]}); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.index.entries) < 3 {
		t.Fatalf("only %d index", len(l.index.entries))
	}
	check := func(from string) {
		t.Helper()
		for after := uint64(0); after <= outputs+1; after++ {
			r := newReader(t, s, "a", l.ID(), after)
			e, err := r.Next(t.Context())
			if err != nil || e.Seq != after+1 {
				t.Errorf("%s: after %d: got %d, %v", from, after, e.Seq, err)
			}
			r.Close()
		}
	}
	last := appendOutput(t, l, "last")
	check("open")
	r := newReader(t, s, "a", l.ID(), last+1) // after what doesn't exist yet
	end(t, l, "EXITED", start)
	if e, err := r.Next(t.Context()); err != io.EOF {
		t.Errorf("got %+v, %v", e, err)
	}
	check("ended")
	s = reopenStore(t, s)
	check("later")
	for _, after := range []uint64{outputs + 3, outputs + 4, 1 << 62, 1<<64 - 1} {
		r := newReader(t, s, "a", l.ID(), after)
		for range 2 {
			if e, err := r.Next(t.Context()); err != io.EOF {
				t.Errorf("after %d: got %+v, %v", after, e, err)
			}
		}
	}
}

// Many readers at their own pace get the same bytes; one that never reads holds
// up nobody.
func TestReadersArePrivate(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	newReader(t, s, "a", l.ID(), 0) // reads nothing
	slow := newReader(t, s, "a", l.ID(), 0)
	first, err := slow.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	events := make([][]Event, 8)
	for i := range events {
		readers.Go(func() { events[i] = readAll(t, s, "a", l.ID(), 0) })
	}
	for i := range 500 {
		appendOutput(t, l, fmt.Sprint(i))
	}
	end(t, l, "EXITED", start)
	readers.Wait()
	for i := range events {
		checkEvents(t, events[i], events[0])
	}
	if len(events[0]) != 502 {
		t.Errorf("got %d events", len(events[0]))
	}
	rest := []Event{first}
	for {
		e, err := slow.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, e)
	}
	checkEvents(t, rest, events[0])
}

// An event is the reader's to keep.
func TestEventsDontShareMemory(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	for i := range 20 {
		appendOutput(t, l, string(bytes.Repeat([]byte{byte(i)}, 50_000)))
	}
	end(t, l, "EXITED", start)
	for i, e := range readAll(t, s, "a", l.ID(), 1)[:20] {
		if !bytes.Equal(e.Data, bytes.Repeat([]byte{byte(i)}, 50_000)) {
			t.Errorf("event %d was written over", e.Seq)
		}
	}
}

func TestNextIsBoundedByItsContext(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	r := newReader(t, s, "a", l.ID(), 1)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := r.Next(ctx)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	appendOutput(t, l, "x")
	if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// It can be used again.
	if e, err := r.Next(t.Context()); string(e.Data) != "x" || err != nil {
		t.Errorf("got %q, %v", e.Data, err)
	}
}

func TestCloseWakesReaders(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	r := newReader(t, s, "a", l.ID(), 1)
	failed := make(chan error)
	go func() {
		_, err := r.Next(t.Context())
		failed <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Append(Event{Kind: KindOutput}); !errors.Is(err, ErrClosed) {
		t.Errorf("append: got %v", err)
	}
	if err := l.End(t.Context(), "EXITED", nil, start); !errors.Is(err, ErrClosed) {
		t.Errorf("end: got %v", err)
	}
	if _, err := s.Create(t.Context(), Execution{ID: NewID()}, nil); err == nil {
		t.Error("created")
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("close: got %v", err)
	}
}

// Damage is a typed error where it is, not before it, and it stays.
func TestReadDamaged(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, path string, size int64)
		good   int // events that can be read
	}{
		{"magic", flip(0), -1},
		{"header's data", flip(int64(len(spoolMagic)) + frameSize), 0},
		{"header's checksum", flip(int64(len(spoolMagic))), 0},
		{"length", flip(frameAt(3) + 4), 2},
		{"length's high byte", flip(frameAt(3) + 7), 2},
		{"sequence", flip(frameAt(3) + 8), 2},
		{"kind", flip(frameAt(3) + 32), 2},
		{"stream", flip(frameAt(3) + 33), 2},
		{"reserved", flip(frameAt(3) + 34), 2},
		{"data", flip(frameAt(3) + frameSize), 2},
		{"end's data", flip(frameAt(6) + frameSize), 5},
		{"cut within", cut(frameAt(4) + 10), 3},
		{"cut between", cut(frameAt(4)), 3},
		{"cut to nothing", cut(0), -1},
		{"cut to the magic", cut(int64(len(spoolMagic))), 0},
		{"zeroes", func(t *testing.T, path string, size int64) {
			cut(frameAt(3))(t, path, size)
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
		}, 2},
		{"a frame twice", func(t *testing.T, path string, _ int64) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			copy(b[frameAt(3):frameAt(4)], b[frameAt(2):frameAt(3)])
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t, Config{})
			x := Execution{ID: "x"}
			l := createInFile(t, s, x)
			for range 4 {
				appendOutput(t, l, "0123456789")
			}
			end(t, l, "EXITED", start)
			fi, err := os.Stat(s.spoolPath(x.ID))
			if err != nil {
				t.Fatal(err)
			}
			test.damage(t, s.spoolPath(x.ID), fi.Size())
			r, err := s.Read(t.Context(), "a", x.ID, 0)
			if test.good < 0 {
				if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.End == nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			good := 0
			for ; err == nil; good++ {
				_, err = r.Next(t.Context())
			}
			bad, ok := errors.AsType[*CorruptError](err)
			if !ok {
				t.Fatalf("got %d events, then %v", good-1, err)
			}
			if bad.End == nil || bad.End.Seq != 6 || bad.End.End != "EXITED" || string(bad.End.Data) != `{"end":"EXITED"}` || !bad.End.Time.Equal(start) {
				t.Errorf("its end: got %+v", bad.End)
			}
			if !strings.Contains(err.Error(), "ended EXITED") {
				t.Errorf("got %q", err)
			}
			if good-1 != test.good || bad.Offset != frameAt(test.good+1) {
				t.Errorf("got %d events, then %v; want %d", good-1, err, test.good)
			}
			if _, again := r.Next(t.Context()); again != err {
				t.Errorf("then got %v", again)
			}
		})
	}
}

// A reader from before the damage gets the end too, once the execution has ended.
func TestReadDamagedWhileOpen(t *testing.T) {
	s := openStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x"})
	appendOutput(t, l, "0123456789")
	early, late := newReader(t, s, "a", "x", 0), newReader(t, s, "a", "x", 1)
	if _, err := late.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	flip(frameAt(1))(t, s.spoolPath("x"), 0)
	_, err := early.Next(t.Context())
	if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.End != nil {
		t.Errorf("got %v", err)
	}
	appendOutput(t, l, "0123456789")
	end(t, l, "EXITED", start)
	flip(frameAt(4)+frameSize)(t, s.spoolPath("x"), 0)
	for range 2 {
		_, err = late.Next(t.Context())
	}
	if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.End == nil || bad.End.End != "EXITED" || bad.End.Seq != 4 {
		t.Errorf("got %v", err)
	}
}

// A missing spool, or another file in its place, is damage. Only a removed execution
// is not found.
func TestReadLostSpool(t *testing.T) {
	for _, test := range []struct {
		name  string
		place func(path string) error
	}{
		{"gone", func(string) error { return nil }},
		{"directory", func(p string) error { return os.Mkdir(p, 0o700) }},
		{"link", func(p string) error { return os.Symlink(os.Args[0], p) }},
		{"pipe", func(p string) error { return unix.Mkfifo(p, 0o600) }},
		{"device", func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "device" && os.Geteuid() != 0 {
				t.Skip("needs root, to make a device node")
			}
			s := openStore(t, Config{MaxAge: time.Hour})
			for _, id := range []string{"runs", "ended"} {
				l := createInFile(t, s, Execution{ID: id})
				if id == "ended" {
					end(t, l, "EXITED", start)
				}
				if err := errors.Join(os.Remove(s.spoolPath(id)), test.place(s.spoolPath(id))); err != nil {
					t.Fatal(err)
				}
				if id == "runs" { // whose writer has it in its hands
					if e, err := newReader(t, s, "a", id, 0).Next(t.Context()); e.Seq != 1 || err != nil {
						t.Errorf("%s: got %+v, %v", id, e, err)
					}
					continue
				}
				_, err := s.Read(t.Context(), "a", id, 0)
				bad, ok := errors.AsType[*CorruptError](err)
				if !ok || errors.Is(err, ErrNotFound) || bad.End == nil {
					t.Errorf("%s: got %v", id, err)
				}
			}
			if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != 1 {
				t.Errorf("got %d", removed)
			}
			if _, err := s.Read(t.Context(), "a", "ended", 0); !errors.Is(err, ErrNotFound) {
				t.Errorf("removed: got %v", err)
			}
		})
	}
}

// An execution that was removed after Read had its row is not found.
func TestReadRemovedSince(t *testing.T) {
	s := openStore(t, Config{})
	create(t, s, Execution{ID: "there"})
	s.flushForQuery(t.Context())
	if err := s.whyNoSpool(t.Context(), "a", "there"); errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := s.whyNoSpool(t.Context(), "a", "gone"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// frameAt is where frame n of TestReadDamaged's spool begins.
func frameAt(n int) int64 {
	at := int64(len(spoolMagic))
	if n > 1 {
		at += frameSize + int64(len("header of x"))
	}
	return at + int64(max(n-2, 0))*(frameSize+10)
}

func flip(at int64) func(*testing.T, string, int64) {
	return func(t *testing.T, path string, _ int64) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[at] ^= 0x80
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func cut(size int64) func(*testing.T, string, int64) {
	return func(t *testing.T, path string, _ int64) {
		t.Helper()
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
}
