package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// killed returns a store as the next process finds it if this one, which is still,
// were killed now.
func killed(t *testing.T, s *Store) Config {
	t.Helper()
	c := s.config
	c.Dir = filepath.Join(t.TempDir(), "record")
	if err := os.CopyFS(c.Dir, os.DirFS(s.config.Dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// arenaOf returns the bytes of the arena.
func arenaOf(t *testing.T, s *Store) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.config.Dir, youngName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A short execution has no file, and its row only once it has ended; the arena is
// then as if it had never been.
func TestYoung(t *testing.T) {
	s := openStore(t, Config{still: true})
	l := create(t, s, Execution{ID: "x", Created: start, Skill: "hello", Labels: map[string]string{"a": "b"}})
	r := newReader(t, s, "a", "x", 0)
	if err := l.Started(t.Context(), start, []byte("started")); err != nil {
		t.Fatal(err)
	}
	appendOutput(t, l, "output")
	if x := get(t, s, "a", "x"); x.State != Running || x.LastSeq != 3 {
		t.Errorf("got %+v", x)
	}
	if len(s.youngLogs()) != 1 {
		t.Error("it has a row already")
	}
	end(t, l, "EXITED", start.Add(time.Minute))
	ended := get(t, s, "a", "x")
	if ended.State != Ended || ended.LastSeq != 4 {
		t.Errorf("got %+v", ended)
	}
	if got := listAll(t, s, Filter{Tenant: "a", Labels: map[string]string{"a": "b"}, Skill: "hello", Ends: []string{"EXITED"}}); len(got) != 1 {
		t.Errorf("listed %v", got)
	}
	if len(s.youngLogs()) != 0 || s.liveLog("x") != nil {
		t.Error("it has no row")
	}
	if got := files(t, s); len(got) != 0 {
		t.Errorf("files %v", got)
	}
	if b := arenaOf(t, s); len(b) == 0 || !bytes.Equal(b, make([]byte, len(b))) {
		t.Errorf("%d bytes are left in the arena", len(bytes.Trim(b, "\x00")))
	}
	want := []Event{
		{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header of x")},
		{Seq: 2, Time: start, Kind: KindStarted, Data: []byte("started")},
		{Seq: 3, Time: start, Kind: KindOutput, Stream: 1, Data: []byte("output")},
		{Seq: 4, Time: start.Add(time.Minute), Kind: KindEnd, Data: []byte(`{"end":"EXITED"}`), End: "EXITED"},
	}
	var got []Event
	for {
		e, err := r.Next(t.Context()) // a reader from before
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	checkEvents(t, got, want)
	checkEvents(t, readAll(t, s, "a", "x", 0), want)
	checkEvents(t, readAll(t, s, "a", "x", 2), want[2:])
	s = reopenStore(t, s)
	checkEvents(t, readAll(t, s, "a", "x", 0), want)
	if x := get(t, s, "a", "x"); fmt.Sprint(x) != fmt.Sprint(ended) {
		t.Errorf("got  %+v\nwant %+v", x, ended)
	}
}

// What prints more than its place has room for gets a file, and a reader in the
// middle misses nothing.
func TestYoungGetsAFile(t *testing.T) {
	for _, size := range []int{1000, 30_000, extentBytes, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := openStore(t, Config{still: true})
			l := create(t, s, Execution{ID: "x"})
			r := newReader(t, s, "a", "x", 0)
			var want []string
			next := func(data string) {
				t.Helper()
				if e, err := r.Next(t.Context()); string(e.Data) != data || err != nil {
					t.Fatalf("got %.20q, %v", e.Data, err)
				}
			}
			next("header of x")
			for i := range 5 * extentBytes / size {
				data := strings.Repeat(string(rune('a'+i%26)), size)
				appendOutput(t, l, data)
				if want = append(want, data); i%2 == 0 {
					continue
				}
				next(want[i-1])
				next(want[i])
			}
			appendOutput(t, l, strings.Repeat("x", extentBytes))
			if l.isYoung() || len(s.youngLogs()) != 0 {
				t.Error("it is still young")
			}
			if b := arenaOf(t, s); !bytes.Equal(b, make([]byte, len(b))) {
				t.Error("something of it is left in the arena")
			}
			check := func(s *Store) {
				t.Helper()
				events := readAll(t, s, "a", "x", 1)
				for i, data := range want {
					if string(events[i].Data) != data {
						t.Fatalf("event %d: got %.20q", events[i].Seq, events[i].Data)
					}
				}
				if len(events) != len(want)+2 {
					t.Errorf("got %d events", len(events))
				}
			}
			killed := openStore(t, killed(t, s))
			end(t, reopenLog(t, killed, "x"), "DAEMON_LOST", start)
			check(killed)
			end(t, l, "EXITED", start)
			check(s)
			check(reopenStore(t, s))
		})
	}
}

// An outcome that has no room in its place is whole, too.
func TestYoungWithLargeOutcome(t *testing.T) {
	s := openStore(t, Config{})
	for _, key := range []string{"", "k"} {
		l := create(t, s, Execution{Key: key})
		outcome := bytes.Repeat([]byte("x"), 2*extentBytes)
		if err := l.End(t.Context(), "EXITED", outcome, start); err != nil {
			t.Fatal(err)
		}
		events := readAll(t, s, "a", l.ID(), 0)
		if x := get(t, s, "a", l.ID()); len(events) != 2 || !bytes.Equal(events[1].Data, outcome) || !bytes.Equal(x.Outcome, outcome) {
			t.Errorf("key %q: got %d events", key, len(events))
		}
	}
}

// A process is killed at every stage of a young execution; the next one finds it
// as it stood.
func TestYoungIsTakenOver(t *testing.T) {
	for _, key := range []string{"", "k"} {
		s := openStore(t, Config{still: true})
		x := Execution{ID: "x", Created: start, Key: key, Principal: "p", Skill: "s", Digest: "d", SourceKind: "k", Script: "f",
			Labels: map[string]string{"a": "b", "": "ü"}, RequestHash: []byte{1, 0}, Detail: []byte("detail")}
		l := create(t, s, x)
		left := func(state State, events int) {
			t.Helper()
			want := get(t, s, "a", "x")
			var logged bytes.Buffer
			c := killed(t, s)
			c.Log = slog.New(slog.NewTextHandler(&logged, nil))
			next := openStore(t, c)
			next = reopenStore(t, next) // and killed again before it did anything
			unended, err := next.Unended(t.Context())
			if err != nil || (len(unended) == 1) != (state != Ended) {
				t.Fatalf("key %q, state %d: got %v, %v", key, state, unended, err)
			}
			got := get(t, next, "a", "x")
			got.LastSeq = want.LastSeq // only a log knows that
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("key %q, state %d:\ngot  %+v\nwant %+v", key, state, got, want)
			}
			if state != Ended {
				end(t, reopenLog(t, next, "x"), "DAEMON_LOST", start)
				events++
			}
			if got := len(readAll(t, next, "a", "x", 0)); got != events {
				t.Errorf("key %q, state %d: got %d events, want %d", key, state, got, events)
			}
			if logged.Len() != 0 {
				t.Errorf("logged %q", logged.String())
			}
			// What comes later is in order behind it.
			later := create(t, next, Execution{Created: start})
			if got := listAll(t, next, Filter{Tenant: "a"}); len(got) != 2 || got[0] != later.ID() {
				t.Errorf("listed %v", got)
			}
		}
		left(Queued, 1)
		if err := l.Started(t.Context(), start.Add(time.Second), nil); err != nil {
			t.Fatal(err)
		}
		left(Running, 2)
		appendOutput(t, l, "output")
		left(Running, 3)
		end(t, l, "EXITED", start.Add(time.Minute))
		left(Ended, 4)
		s.settle(t.Context())
		left(Ended, 4)
	}
}

// Wherever in the arena the last write was cut off, the frames before are kept. The
// place was another's before, and nothing of that comes back.
func TestYoungTornFrames(t *testing.T) {
	s := openStore(t, Config{still: true})
	before := create(t, s, Execution{ID: "b"})
	for range 10 {
		appendOutput(t, before, "output") // frames where those of the next one will be
	}
	end(t, before, "EXITED", start)
	s.settle(t.Context())
	l := create(t, s, Execution{ID: "x"})
	if l.extent != before.extent {
		t.Fatal("it has another place")
	}
	appendOutput(t, l, "output")
	from := l.extent + l.base + l.size
	appendOutput(t, l, "torn")
	for _, length := range []int64{0, 1, 3, 4, 7, 8, 15, 16, 31, 32, frameSize - 1, frameSize, frameSize + 3} {
		to := from + length
		c := killed(t, s)
		f, err := os.OpenFile(filepath.Join(c.Dir, youngName), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(make([]byte, 100), to); err != nil {
			t.Fatal(err)
		}
		f.Close()
		next, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		end(t, reopenLog(t, next, "x"), "DAEMON_LOST", start)
		if events := readAll(t, next, "a", "x", 1); len(events) != 2 || string(events[0].Data) != "output" {
			t.Fatalf("cut at %d: got %+v", length, events)
		}
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What begins an extent is whole or nobody was told of it.
func TestExtentIsWhole(t *testing.T) {
	x := Execution{ID: "x", Tenant: "a", Key: "k", Labels: map[string]string{"a": "b"}, RequestHash: []byte{}, Detail: []byte("d"), Created: start}
	head := newExtent(7, &x, nil)
	n, got, spool, ok := readExtent(append(bytes.Clone(head), "spool"...))
	if !ok || n != 7 || string(spool) != "spool" || fmt.Sprint(got) != fmt.Sprint(x) {
		t.Errorf("got %d, %+v, %q, %v", n, got, spool, ok)
	}
	for i := range head {
		if _, _, _, ok := readExtent(head[:i]); ok {
			t.Errorf("cut at %d: taken", i)
		}
		bad := bytes.Clone(head)
		bad[i] ^= 0x10
		if _, _, _, ok := readExtent(bad); ok {
			t.Errorf("flipped at %d: taken", i)
		}
	}
	x.ID = "../x"
	if _, _, _, ok := readExtent(newExtent(7, &x, nil)); ok {
		t.Error("taken with a path for an id")
	}
	x.Detail = make([]byte, extentBytes)
	if newExtent(7, &x, nil) != nil {
		t.Error("a large row: taken")
	}
}

// Without a place in the arena an execution is as it always was.
func TestArenaIsFull(t *testing.T) {
	s := openStore(t, Config{still: true})
	s.arena.next = maxExtents * extentBytes
	l := create(t, s, Execution{ID: "x"})
	if l.isYoung() {
		t.Error("it is young")
	}
	end(t, l, "EXITED", start)
	if got := len(readAll(t, s, "a", "x", 0)); got != 2 || len(files(t, s)) != 1 {
		t.Errorf("got %d events, files %v", got, files(t, s))
	}
	if _, err := s.Create(t.Context(), Execution{ID: "x", Tenant: "a"}, nil); err == nil {
		t.Error("created again")
	}
}

// What can't be taken over is not given up: the next start has it.
func TestYoungCantBeTakenOver(t *testing.T) {
	s := openStore(t, Config{still: true})
	end(t, create(t, s, Execution{}), "EXITED", start)
	s.settle(t.Context()) // so that the database is not blank
	appendOutput(t, create(t, s, Execution{ID: "x"}), "output")
	c := killed(t, s)
	var logged bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&logged, nil))
	in := filepath.Join(c.Dir, spoolsName, "x")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, c)
	if !strings.Contains(logged.String(), "level=ERROR") {
		t.Errorf("logged %q", logged.String())
	}
	l := create(t, next, Execution{ID: "y"}) // in another place
	end(t, l, "EXITED", start)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	next = openStore(t, c)
	end(t, reopenLog(t, next, "x"), "DAEMON_LOST", start)
	if got := readAll(t, next, "a", "x", 1); len(got) != 2 || string(got[0].Data) != "output" {
		t.Errorf("got %+v", got)
	}
	if got := len(readAll(t, next, "a", "y", 0)); got != 2 {
		t.Errorf("got %d events", got)
	}
}

// Questions while executions begin, print and end: whoever has seen an event finds
// what it says in every answer.
func TestYoungIsFound(t *testing.T) {
	s := openStore(t, Config{})
	const many = 8
	var running sync.WaitGroup
	for i := range many {
		running.Go(func() {
			for n := range 40 {
				label := fmt.Sprintf("%d-%d", i, n)
				l, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a", Labels: map[string]string{"l": label}}, []byte("header"))
				if err != nil {
					t.Error(err)
					return
				}
				find := func(state State) {
					page, _, err := s.List(t.Context(), Filter{Tenant: "a", Labels: map[string]string{"l": label}, States: []State{state}})
					if err != nil || len(page) != 1 || page[0].ID != l.ID() {
						t.Errorf("%s: got %v, %v; want it in state %d", label, page, err, state)
					}
				}
				if n%4 == 0 {
					find(Queued)
				}
				if err := l.Started(t.Context(), time.Now(), nil); err != nil {
					t.Error(err)
				}
				if n%4 == 1 {
					find(Running)
				}
				output := make([]byte, 1000)
				if n%5 == 0 {
					output = make([]byte, extentBytes)
				}
				if _, err := l.Append(Event{Kind: KindOutput, Data: output}); err != nil {
					t.Error(err)
				}
				if err := l.End(t.Context(), "EXITED", []byte("outcome"), time.Now()); err != nil {
					t.Error(err)
				}
				if n%2 == 0 {
					find(Ended)
				}
				if x, err := s.Get(t.Context(), "a", l.ID()); err != nil || x.State != Ended {
					t.Errorf("got %+v, %v", x, err)
				}
				if got := len(readAll(t, s, "a", l.ID(), 0)); got != 4 {
					t.Errorf("got %d events", got)
				}
			}
		})
	}
	running.Wait()
	s.settle(t.Context())
	if n := rowsIn(t, s, "executions"); n != many*40 {
		t.Errorf("%d rows", n)
	}
	if b := arenaOf(t, s); !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("something is left in the arena")
	}
}

// An id is used once, whether its row is there or comes.
func TestYoungTwice(t *testing.T) {
	s := openStore(t, Config{})
	for name, do := range map[string]func(*Log){
		"open":    func(*Log) {},
		"ended":   func(l *Log) { end(t, l, "EXITED", start) },
		"settled": func(l *Log) { end(t, l, "EXITED", start); s.settle(t.Context()) },
	} {
		do(create(t, s, Execution{ID: name}))
		if _, err := s.Create(t.Context(), Execution{ID: name, Tenant: "a"}, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// More than enough that have ended get their rows before the next one has.
func TestManyEnded(t *testing.T) {
	s := openStore(t, Config{still: true})
	s.mu.Lock()
	s.gathered = maxGathered // as if so many were waiting
	s.mu.Unlock()
	l := create(t, s, Execution{})
	end(t, l, "EXITED", start)
	if len(s.youngLogs()) != 0 {
		t.Error("it has no row")
	}
}

// Nobody asks, and rows come all the same.
func TestRowsComeInTime(t *testing.T) {
	s := openStore(t, Config{})
	ended, runs := create(t, s, Execution{}), create(t, s, Execution{})
	end(t, ended, "EXITED", start)
	for _, l := range []*Log{ended, runs} {
		l.mu.Lock()
		for l.placed != hasRow {
			l.placing.Wait()
		}
		l.mu.Unlock()
	}
	end(t, runs, "EXITED", start)
	for _, l := range []*Log{ended, runs} {
		if got := len(readAll(t, s, "a", l.ID(), 0)); got != 2 {
			t.Errorf("got %d events", got)
		}
	}
}

// FuzzReadExtent: what a crash leaves in the arena is an execution or is none, and what
// is one is written again as it was read.
func FuzzReadExtent(f *testing.F) {
	x := Execution{ID: "x", Created: start, Tenant: "a", Skill: "hello", Detail: []byte("{}"), RequestHash: []byte{1}, Labels: map[string]string{"k": "v"}}
	for _, x := range []Execution{x, {ID: "y"}} {
		f.Add(append(newExtent(7, &x, []byte("header")), spoolMagic...))
	}
	f.Add([]byte{})
	f.Add([]byte(youngMagic + "\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// What isn't sealed never gets past the checksum: seal it.
		for _, b := range [][]byte{b, sealedExtent(b)} {
			n, x, spool, ok := readExtent(b)
			if !ok {
				continue
			}
			if len(spool) > len(b)-youngHead || !validID(x.ID) {
				t.Errorf("%q became %+v with %d bytes of a spool", b, x, len(spool))
			}
			again := newExtent(n, &x, nil)
			if again == nil {
				continue // it is larger than one is made
			}
			if m, y, _, ok := readExtent(again); !ok || m != n || !reflect.DeepEqual(y, x) {
				t.Errorf("%d %+v became %d %+v, %v", n, x, m, y, ok)
			}
		}
	})
}

// sealedExtent makes all bytes behind an extent's head its row.
func sealedExtent(b []byte) []byte {
	if len(b) < youngHead {
		return b
	}
	b = bytes.Clone(b)
	copy(b, youngMagic)
	binary.LittleEndian.PutUint32(b[len(youngMagic):], uint32(len(b)-youngHead))
	binary.LittleEndian.PutUint32(b[len(youngMagic)+4:], crc32.Checksum(b[youngHead:], castagnoli))
	return b
}
