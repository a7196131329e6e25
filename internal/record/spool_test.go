package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// killed returns the configuration of the store that the next process finds if this
// one is killed now.
func killed(t *testing.T, s *Store) Config {
	t.Helper()
	c := s.config
	c.Dir = filepath.Join(t.TempDir(), "record")
	copyStore(t, c.Dir, s)
	return c
}

// copyStore copies the files of a store, without the ballast, which is large and has no data.
func copyStore(t *testing.T, to string, s *Store) {
	t.Helper()
	if err := os.CopyFS(to, withoutBallast{os.DirFS(s.config.Dir)}); err != nil {
		t.Fatal(err)
	}
}

// withoutBallast lists no ballast.
type withoutBallast struct{ fs.FS }

func (w withoutBallast) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(list, func(e fs.DirEntry) bool { return slices.Contains(ballastNames[:], e.Name()) }), err
}

func inRows(l *Log) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inRows()
}

// An execution ends between the look at its row and the look for its log.
func TestEndsDuringAQuery(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{ID: "x", Created: start})
	if err := l.Started(t.Context(), start, nil); err != nil {
		t.Fatal(err)
	}
	appendOutput(t, l, "output")
	s.flushForQuery(t.Context())
	x, err := findRow(t.Context(), s.db.queries, "a", "x")
	if err != nil || x.State != Running {
		t.Fatalf("got %+v, %v", x, err)
	}
	end(t, l, "EXITED", start.Add(time.Minute))
	if s.refresh(t.Context(), x); x.State != Ended || x.LastSeq != 4 {
		t.Errorf("got %+v", x)
	}
}

// A short execution has no file, and every reader gets the same events: one that
// joined before the end, one after it, and one of the next process.
func TestShortExecution(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{ID: "x", Created: start, Skill: "hello", Labels: map[string]string{"a": "b"}})
	r := newReader(t, s, "a", "x", 0)
	if err := l.Started(t.Context(), start, []byte("started")); err != nil {
		t.Fatal(err)
	}
	appendOutput(t, l, "output")
	if x := get(t, s, "a", "x"); x.State != Running || x.LastSeq != 3 {
		t.Errorf("got %+v", x)
	}
	end(t, l, "EXITED", start.Add(time.Minute))
	ended := get(t, s, "a", "x")
	if ended.State != Ended || ended.LastSeq != 4 {
		t.Errorf("got %+v", ended)
	}
	if got := listAll(t, s, Filter{Tenant: "a", Labels: map[string]string{"a": "b"}, Skill: "hello", Ends: []string{"EXITED"}}); len(got) != 1 {
		t.Errorf("listed %v", got)
	}
	if got := files(t, s); len(got) != 0 || s.liveLog("x") != nil {
		t.Errorf("files %v", got)
	}
	want := []Event{
		{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header of x")},
		{Seq: 2, Time: start, Kind: KindStarted, Data: []byte("started")},
		{Seq: 3, Time: start, Kind: KindOutput, Stream: 1, Data: []byte("output")},
		{Seq: 4, Time: start.Add(time.Minute), Kind: KindEnd, Data: []byte(`{"end":"EXITED"}`), End: "EXITED"},
	}
	var got []Event
	for {
		e, err := r.Next(t.Context())
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

// An execution that prints more than the database takes gets a file. A reader in the
// middle misses nothing, and neither does the next process.
func TestMoveToFile(t *testing.T) {
	for _, size := range []int{1000, 30_000, maxInRows, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := openStore(t, Config{})
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
			for i := range 5 * maxInRows / size {
				data := strings.Repeat(string(rune('a'+i%26)), size)
				appendOutput(t, l, data)
				if want = append(want, data); i%2 == 0 {
					continue
				}
				next(want[i-1])
				next(want[i])
			}
			appendOutput(t, l, strings.Repeat("x", maxInRows))
			if inRows(l) || rowsIn(t, s, "frames") != 0 {
				t.Errorf("%d frames are in the database", rowsIn(t, s, "frames"))
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

// A crash after the file was written, and before the row says that it counts: the
// frames in the database count, output goes on, and the file is removed with the
// execution.
func TestMoveToFileInterrupted(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	l := create(t, s, Execution{ID: "x"})
	appendOutput(t, l, "output")
	write(t, s.spoolPath("x"), []byte(spoolMagic+"half of a fr"))
	for _, size := range []int{1, maxInRows} {
		c := killed(t, s)
		next := openStore(t, c)
		l := reopenLog(t, next, "x")
		appendOutput(t, l, strings.Repeat("x", size))
		end(t, l, "DAEMON_LOST", start)
		events := readAll(t, next, "a", "x", 1)
		if len(events) != 3 || string(events[0].Data) != "output" || len(events[1].Data) != size {
			t.Errorf("got %d events", len(events))
		}
		if removed, _ := sweep(t, next, start.Add(2*time.Hour)); removed != 1 || len(files(t, next)) != 0 {
			t.Errorf("removed %d, left %v", removed, files(t, next))
		}
	}
}

// An outcome may be larger than a spool in the database.
func TestLargeOutcome(t *testing.T) {
	s := openStore(t, Config{})
	for place, create := range creators {
		l := create(t, s, Execution{Key: place})
		outcome := bytes.Repeat([]byte("x"), 2*maxInRows)
		if err := l.End(t.Context(), "EXITED", outcome, start); err != nil {
			t.Fatal(err)
		}
		events := readAll(t, s, "a", l.ID(), 0)
		if x := get(t, s, "a", l.ID()); len(events) != 2 || !bytes.Equal(events[1].Data, outcome) || !bytes.Equal(x.Outcome, outcome) {
			t.Errorf("%s: got %d events", place, len(events))
		}
	}
}

// A process is killed at every stage of an execution; the next one finds it as it
// stood.
func TestTakenOver(t *testing.T) {
	for place, create := range creators {
		for _, key := range []string{"", "k"} {
			t.Run(place+" "+key, func(t *testing.T) {
				s := openStore(t, Config{})
				x := Execution{ID: "x", Created: start, Key: key, Principal: "p", Skill: "s", Digest: "d", SourceKind: "k", Script: "f",
					Labels: map[string]string{"a": "b", "": "ü"}, RequestHash: []byte{1, 0}, Detail: []byte("detail")}
				l := create(t, s, x)
				checkTakenOver(t, s, Queued, 1)
				if err := l.Started(t.Context(), start.Add(time.Second), nil); err != nil {
					t.Fatal(err)
				}
				checkTakenOver(t, s, Running, 2)
				appendOutput(t, l, "output")
				checkTakenOver(t, s, Running, 3)
				end(t, l, "EXITED", start.Add(time.Minute))
				checkTakenOver(t, s, Ended, 4)
			})
		}
	}
}

// checkTakenOver kills s, and looks for execution "x" in the next process.
func checkTakenOver(t *testing.T, s *Store, state State, events int) {
	t.Helper()
	want := get(t, s, "a", "x")
	var logged bytes.Buffer
	c := killed(t, s)
	c.Log = slog.New(slog.NewTextHandler(&logged, nil))
	next := openStore(t, c)
	next = reopenStore(t, next) // and killed again before it did anything
	unended, err := next.Unended(t.Context())
	if err != nil || (len(unended) == 1) != (state != Ended) {
		t.Fatalf("state %d: got %v, %v", state, unended, err)
	}
	got := get(t, next, "a", "x")
	got.LastSeq = want.LastSeq // only a log knows that
	if got.State != state || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("state %d:\ngot  %+v\nwant %+v", state, got, want)
	}
	if state != Ended {
		end(t, reopenLog(t, next, "x"), "DAEMON_LOST", start)
		events++
	}
	if got := len(readAll(t, next, "a", "x", 0)); got != events {
		t.Errorf("state %d: got %d events, want %d", state, got, events)
	}
	if logged.Len() != 0 {
		t.Errorf("logged %q", logged.String())
	}
	// A later execution is listed before it.
	later := create(t, next, Execution{Created: start})
	if got := listAll(t, next, Filter{Tenant: "a"}); len(got) != 2 || got[0] != later.ID() {
		t.Errorf("listed %v", got)
	}
}

// Reopen removes a damaged frame in the database, and all later frames. The log
// continues after the whole frames.
func TestDamagedFrames(t *testing.T) {
	for name, damage := range map[string]string{
		"zeroes":  "UPDATE frames SET data = zeroblob(length(data)) WHERE seq = 3",
		"cut":     "UPDATE frames SET data = substr(data, 1, 10) WHERE seq = 3",
		"missing": "DELETE FROM frames WHERE seq = 3",
		"another": "UPDATE frames SET data = (SELECT f.data FROM frames AS f WHERE f.seq = 2) WHERE seq = 3",
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
			l := create(t, s, Execution{ID: "x"})
			for _, data := range []string{"two", "three", "four"} {
				appendOutput(t, l, data)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			execIn(t, filepath.Join(s.config.Dir, databaseName), damage)
			s = openStore(t, s.config)
			l = reopenLog(t, s, "x")
			if !strings.Contains(logged.String(), "level=ERROR") {
				t.Errorf("logged %q", logged.String())
			}
			if seq := appendOutput(t, l, "again"); seq != 3 {
				t.Errorf("got %d", seq)
			}
			end(t, l, "DAEMON_LOST", start)
			for range 2 {
				events := readAll(t, s, "a", "x", 1)
				if len(events) != 3 || string(events[0].Data) != "two" || string(events[1].Data) != "again" {
					t.Errorf("got %+v", events)
				}
				s = reopenStore(t, s)
			}
			// Of an ended execution it is an error, which has the end.
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			execIn(t, filepath.Join(s.config.Dir, databaseName), damage)
			s = openStore(t, s.config)
			r := newReader(t, s, "a", "x", 2)
			_, err := r.Next(t.Context())
			if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.End == nil || bad.End.End != "DAEMON_LOST" {
				t.Errorf("ended: got %v", err)
			}
		})
	}
}

// Queries while executions begin, print and end: after an event every answer agrees
// with it.
func TestFoundAtOnce(t *testing.T) {
	s := openStore(t, Config{})
	const many = 8
	var running sync.WaitGroup
	for i := range many {
		running.Go(func() {
			for n := range 40 {
				if err := findOne(t, s, fmt.Sprintf("%d-%d", i, n), n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if n := rowsIn(t, s, "executions"); n != many*40 {
		t.Errorf("%d rows", n)
	}
}

// findOne runs an execution with its own label, and lists it at a stage that depends on
// n.
func findOne(t *testing.T, s *Store, label string, n int) error {
	l, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a", Labels: map[string]string{"l": label}}, []byte("header"))
	if err != nil {
		return err
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
		return err
	}
	if n%4 == 1 {
		find(Running)
	}
	output := make([]byte, 1000)
	if n%5 == 0 {
		output = make([]byte, maxInRows)
	}
	if _, err := l.Append(Event{Kind: KindOutput, Data: output}); err != nil {
		return err
	}
	if err := l.End(t.Context(), "EXITED", []byte("outcome"), time.Now()); err != nil {
		return err
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
	return nil
}

// An id is used once, by an open execution or an ended one.
func TestIDIsUsedOnce(t *testing.T) {
	s := openIdleStore(t, Config{})
	end(t, create(t, s, Execution{ID: "ended"}), "EXITED", start)
	s.flushForQuery(t.Context())
	end(t, create(t, s, Execution{ID: "ends"}), "EXITED", start) // waits in the journal
	create(t, s, Execution{ID: "open"})
	for _, id := range []string{"open", "ends", "ended"} {
		if _, err := s.Create(t.Context(), Execution{ID: id, Tenant: "a"}, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: got %v", id, err)
		}
	}
	if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 3 {
		t.Errorf("listed %v", got)
	}
}
