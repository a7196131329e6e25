package record

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/scarcetest"
)

// unended makes an execution with three outputs in a file that never ends, in a store
// that is closed.
func unended(t *testing.T) (*Store, Execution, []byte) {
	t.Helper()
	s := openStore(t, Config{})
	x := Execution{ID: "x", Created: start}
	l := createInFile(t, s, x)
	for _, data := range []string{"one", "two", "three"} {
		appendOutput(t, l, data)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	spool, err := os.ReadFile(s.spoolPath(x.ID))
	if err != nil {
		t.Fatal(err)
	}
	return s, x, spool
}

func reopenLog(t testing.TB, s *Store, id string) *Log {
	t.Helper()
	l, err := s.Reopen(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestReopen(t *testing.T) {
	s, x, _ := unended(t)
	s = openStore(t, s.config)
	left, err := s.Unended(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != x.ID || left[0].State != Queued {
		t.Fatalf("got %v, %v", left, err)
	}
	if _, err := s.Read(t.Context(), "a", x.ID, 0); !errors.Is(err, ErrNotOpen) {
		t.Errorf("read: got %v", err)
	}
	if _, err := s.Reopen(t.Context(), "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	l := reopenLog(t, s, x.ID)
	if _, err := s.Reopen(t.Context(), x.ID); !errors.Is(err, ErrInUse) {
		t.Errorf("again: got %v", err)
	}
	if left, err := s.Unended(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v", left, err)
	}
	if got := get(t, s, "a", x.ID).LastSeq; got != 4 {
		t.Errorf("got %d", got)
	}
	if seq := appendOutput(t, l, "four"); seq != 5 {
		t.Errorf("got %d", seq)
	}
	end(t, l, "DAEMON_LOST", start.Add(time.Hour))
	events := readAll(t, s, "a", x.ID, 0)
	if len(events) != 6 || string(events[4].Data) != "four" || events[5].End != "DAEMON_LOST" {
		t.Errorf("got %+v", events)
	}
	if _, err := s.Reopen(t.Context(), x.ID); !errors.Is(err, ErrEnded) {
		t.Errorf("ended: got %v", err)
	}
}

// Executions of this process that end while Unended looks at them are not among the unended ones.
func TestUnendedUnderLoad(t *testing.T) {
	s := openStore(t, Config{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a"}, nil)
				if err == nil {
					err = l.End(t.Context(), "EXITED", nil, start)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 30 {
		if left, err := s.Unended(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("got %v, %v", left, err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// On a full disk, changes of the last process wait in the journal, also ends. Nothing is taken for unended before these
// changes are in the database.
func TestUnendedOnFullDisk(t *testing.T) {
	s := openIdleStore(t, Config{})
	ended := create(t, s, Execution{ID: "ended"})
	s.flushForQuery(t.Context())
	outcome := make([]byte, 1_000_000)
	if err := ended.End(t.Context(), "EXITED", outcome, start); err != nil {
		t.Fatal(err)
	}
	create(t, s, Execution{ID: "lost"})
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	c := s.config
	c.Dir = filepath.Join(dir, "record")
	copyStore(t, c.Dir, s)
	filler := disktest.Fill(t, dir)
	fi, err := os.Stat(filler)
	if err == nil {
		err = os.Truncate(filler, fi.Size()-(512<<10)) // room for Open, but not for the outcome
	}
	if err != nil {
		t.Fatal(err)
	}
	s = openIdleStore(t, c)
	if n := s.batch.count(); n != 2 {
		t.Fatalf("%d changes wait, want 2", n)
	}
	if left, err := s.Unended(t.Context()); len(left) != 0 || !errors.Is(err, ErrPending) || !isFull(err) {
		t.Errorf("got %v, %v", left, err)
	}
	for _, id := range []string{"ended", "lost"} {
		if _, err := s.Reopen(t.Context(), id); !errors.Is(err, ErrPending) || !isFull(err) {
			t.Errorf("%s: got %v", id, err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	left, err := s.Unended(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != "lost" {
		t.Errorf("got %v, %v", left, err)
	}
	end(t, reopenLog(t, s, "lost"), "DAEMON_LOST", start)
	if x := get(t, s, "a", "ended"); x.End != "EXITED" || !bytes.Equal(x.Outcome, outcome) {
		t.Errorf("got %q with %d bytes", x.End, len(x.Outcome))
	}
}

// A lack that passes is no damage of a spool: a later Reopen finds all output.
func TestReopenAfterScarcity(t *testing.T) {
	s, x, _ := unended(t)
	s = openStore(t, s.config)
	end(t, create(t, s, Execution{}), "EXITED", start)
	get(t, s, "a", x.ID) // flushes and queries, so that the database has its connections
	scarcetest.WithoutDescriptors(t, func() {
		if _, err := s.Reopen(t.Context(), x.ID); !errors.Is(err, unix.EMFILE) {
			t.Errorf("got %v, want %v", err, unix.EMFILE)
		}
	})
	end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start)
	if got := len(readAll(t, s, "a", x.ID, 0)); got != 5 {
		t.Errorf("got %d events", got)
	}
}

// After HandOver the executions of the next process are not this one's to end.
func TestUnendedAfterHandOver(t *testing.T) {
	s := openStore(t, Config{})
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, Config{Dir: s.config.Dir, Takeover: true})
	create(t, next, Execution{ID: "theirs"})
	next.flushForQuery(t.Context())
	if left, err := s.Unended(t.Context()); len(left) != 0 || !errors.Is(err, ErrHandedOver) {
		t.Errorf("got %v, %v", left, err)
	}
	if _, err := s.Reopen(t.Context(), "theirs"); !errors.Is(err, ErrHandedOver) {
		t.Errorf("got %v", err)
	}
}

func TestReopenDropsArtifacts(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	writeArtifacts(t, s, l, map[string]string{"x": "half"})
	s = reopenStore(t, s)
	end(t, reopenLog(t, s, l.ID()), "DAEMON_LOST", start)
	if got, _, err := s.ListArtifacts(t.Context(), "a", l.ID(), 0, ""); len(got) != 0 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	if total := s.Bytes(); total > 1000 || len(files(t, s)) != 0 {
		t.Errorf("left %v, %d bytes", files(t, s), total)
	}
}

// A write that was cut off at any byte, with any bytes after it, leaves the earlier
// frames. The log continues after them.
func TestTornFrames(t *testing.T) {
	s, x, spool := unended(t)
	last := len(spool) - frameSize - len("three")
	if e, _, err := decodeFrame(spool[last:]); string(e.Data) != "three" || err != nil {
		t.Fatalf("got %q, %v", e.Data, err)
	}
	var damaged [][]byte
	for n := last; n < len(spool); n++ {
		damaged = append(damaged, spool[:n])
		zeroes := make([]byte, len(spool))
		copy(zeroes, spool[:n])
		if !bytes.Equal(zeroes, spool) {
			damaged = append(damaged, zeroes)
		}
	}
	damaged = append(damaged, append(bytes.Clone(spool[:last]), make([]byte, 100_000)...))
	for i, b := range damaged {
		write(t, s.spoolPath(x.ID), b)
		s, err := Open(s.config)
		if err != nil {
			t.Fatal(err)
		}
		s.fillBallast() // as the daemon's first sweep
		l := reopenLog(t, s, x.ID)
		if seq := appendOutput(t, l, "again"); seq != 4 {
			t.Errorf("%d: got %d", i, seq)
		}
		r := newReader(t, s, "a", x.ID, 0)
		for _, want := range []string{"header of x", "one", "two", "again"} {
			if e, err := r.Next(t.Context()); string(e.Data) != want || err != nil {
				t.Fatalf("%d: got %q, %v; want %q", i, e.Data, err, want)
			}
		}
		if fi, err := os.Stat(s.spoolPath(x.ID)); err != nil || fi.Size() != int64(len(spool)) {
			t.Errorf("%d: the spool has %d bytes, %v", i, fi.Size(), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// After a loss of power the spool may be anything; the header is in the row.
func TestLostSpool(t *testing.T) {
	for name, spool := range map[string][]byte{
		"gone": nil, "empty": {}, "half of the magic": []byte(spoolMagic[:3]), "only the magic": []byte(spoolMagic),
		"zeroes": make([]byte, 500), "another file": bytes.Repeat([]byte("#!/bin/sh\n"), 100),
	} {
		t.Run(name, func(t *testing.T) {
			s, x, _ := unended(t)
			if err := os.Remove(s.spoolPath(x.ID)); err != nil {
				t.Fatal(err)
			}
			if spool != nil {
				write(t, s.spoolPath(x.ID), spool)
			}
			s = openStore(t, s.config)
			end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start.Add(time.Hour))
			checkEvents(t, readAll(t, s, "a", x.ID, 0), []Event{
				{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header of x")},
				{Seq: 2, Time: start.Add(time.Hour), Kind: KindEnd, Data: []byte(`{"end":"DAEMON_LOST"}`), End: "DAEMON_LOST"},
			})
		})
	}
}

// A crash after the end was written and before the row was closed. On a full disk the row may be in the database only
// after Open.
func TestEndOnlyInSpool(t *testing.T) {
	for name, again := range map[string]bool{"before Open": true, "after Open": false} {
		t.Run(name, func(t *testing.T) { testEndOnlyInSpool(t, again) })
	}
}

func testEndOnlyInSpool(t *testing.T, again bool) {
	s := openStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x", Created: start})
	appendOutput(t, l, "one")
	end(t, l, "EXITED", start.Add(time.Minute))
	want, events := get(t, s, "a", "x"), readAll(t, s, "a", "x", 0)
	_, err := s.db.states.Exec(`UPDATE executions SET state = 2, ended = 0, ending = '', outcome = x'', last_seq = 1, spool_bytes = 0, spool_index = x''`)
	if err != nil {
		t.Fatal(err)
	}
	if again {
		s = reopenStore(t, s)
	} else if _, err := s.Reopen(t.Context(), "x"); !errors.Is(err, ErrEnded) {
		t.Errorf("reopen: got %v", err)
	}
	if left, err := s.Unended(t.Context()); len(left) != 0 || err != nil {
		t.Errorf("got %v, %v", left, err)
	}
	got := get(t, s, "a", "x")
	if got.State != Ended || got.End != want.End || !got.Ended.Equal(want.Ended) || !bytes.Equal(got.Outcome, want.Outcome) || got.LastSeq != want.LastSeq {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	checkEvents(t, readAll(t, s, "a", "x", 0), events)
}

// If Open or Adopt could not read the file with the end, the execution keeps its artifacts when it is closed later, and
// is counted.
func TestEndOnlyInUnreadSpool(t *testing.T) {
	for name, later := range map[string]func(t *testing.T, s *Store, readable func()) *Store{
		"Reopen": func(t *testing.T, s *Store, readable func()) *Store {
			readable()
			if _, err := s.Reopen(t.Context(), "x"); !errors.Is(err, ErrEnded) {
				t.Errorf("reopen: got %v", err)
			}
			return s
		},
		"Adopt": func(t *testing.T, s *Store, readable func()) *Store {
			if err := s.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := openBeside(t, s.config.Dir)
			readable()
			if err := errors.Join(s.Close(), next.Adopt(t.Context())); err != nil {
				t.Fatal(err)
			}
			return next
		},
		"Reopen after Adopt": func(t *testing.T, s *Store, readable func()) *Store {
			if err := s.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := openBeside(t, s.config.Dir, "x")
			if err := errors.Join(s.Close(), next.Adopt(t.Context())); err != nil {
				t.Fatal(err)
			}
			readable()
			if _, err := next.Reopen(t.Context(), "x"); !errors.Is(err, ErrEnded) {
				t.Errorf("reopen: got %v", err)
			}
			return next
		},
	} {
		t.Run(name, func(t *testing.T) { testEndOnlyInUnreadSpool(t, later) })
	}
}

func testEndOnlyInUnreadSpool(t *testing.T, later func(*testing.T, *Store, func()) *Store) {
	s := openStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x", Created: start})
	appendOutput(t, l, "one")
	writeArtifacts(t, s, l, map[string]string{"result": "whole"})
	end(t, l, "EXITED", start.Add(time.Minute))
	want := summed(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	execIn(t, filepath.Join(s.config.Dir, databaseName), `UPDATE executions SET state = 2, ended = 0, ending = '',
		outcome = x'', last_seq = 1, spool_bytes = 0, spool_index = x'', row_bytes = length(detail) + length(header)`)
	spool, away := s.spoolPath("x"), filepath.Join(t.TempDir(), "x")
	if err := errors.Join(os.Rename(spool, away), os.Mkdir(spool, 0o700)); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.config)
	if left, err := s.Unended(t.Context()); err != nil || len(left) != 1 {
		t.Fatalf("got %v, %v", left, err)
	}
	s = later(t, s, func() {
		if err := errors.Join(os.Remove(spool), os.Rename(away, spool)); err != nil {
			t.Fatal(err)
		}
	})
	f, a, err := s.OpenArtifact(t.Context(), "a", "x", "result")
	if err != nil || a.SizeBytes != int64(len("whole")) {
		t.Fatalf("got %+v, %v", a, err)
	}
	f.Close()
	if all, _, err := s.ListArtifacts(t.Context(), "a", "x", 0, ""); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v", all, err)
	}
	if got := usagesOf(s); !maps.Equal(got, want) || !maps.Equal(got, summed(t, s)) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := s.Remove(t.Context(), "a", "x"); err != nil || len(usagesOf(s)) > 0 {
		t.Errorf("removed: got %v, %v", usagesOf(s), err)
	}
}

// An end that only the row has is read like any other, with the log open and
// without.
func TestEndOnlyInRow(t *testing.T) {
	s := openStore(t, Config{})
	l := createInFile(t, s, Execution{ID: "x"})
	appendOutput(t, l, "one")
	r := newReader(t, s, "a", "x", 2)
	// From here on the spool can't be written.
	readOnly, err := os.Open(s.spoolPath("x"))
	if err != nil {
		t.Fatal(err)
	}
	l.f.Close()
	l.f = readOnly
	if _, err := l.Append(Event{Kind: KindOutput}); err == nil {
		t.Fatal("appended")
	}
	end(t, l, "EXITED", start)
	want := Event{Seq: 3, Time: start, Kind: KindEnd, Data: []byte(`{"end":"EXITED"}`), End: "EXITED"}
	e, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEvents(t, []Event{e}, []Event{want})
	for range 2 {
		checkEvents(t, readAll(t, s, "a", "x", 2), []Event{want})
		if got := len(readAll(t, s, "a", "x", 0)); got != 3 {
			t.Errorf("got %d events", got)
		}
		if got := readAll(t, s, "a", "x", 3); len(got) != 0 {
			t.Errorf("got %v after the end", got)
		}
		s = reopenStore(t, s)
	}
}

// One execution that can't be recovered keeps neither the store from opening nor
// the others from being closed, and what can be ended of it is.
func TestUnusableExecution(t *testing.T) {
	spool := func(place func(path string) error) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			if err := errors.Join(os.Remove(s.spoolPath("x")), place(s.spoolPath("x"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	row := func(set string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			execIn(t, filepath.Join(s.config.Dir, databaseName), "UPDATE executions SET "+set+" WHERE id = 'x'")
		}
	}
	for _, test := range []struct {
		name   string
		damage func(*testing.T, *Store)
		lost   bool // the row can't be ended
		whole  bool // the spool can be read afterwards
	}{
		{name: "directory", damage: spool(func(p string) error { return os.MkdirAll(p+"/x", 0o700) })},
		{name: "link", damage: spool(func(p string) error { return os.Symlink("/etc/passwd", p) })},
		{name: "pipe", damage: spool(func(p string) error { return unix.Mkfifo(p, 0o600) })},
		{name: "labels", damage: row("labels = '{\"a'"), whole: true},
		{name: "no labels", damage: row("labels = ''"), whole: true},
		{name: "numbers", damage: row("last_seq = -5, spool_bytes = -1, started = -1, spool_index = x'ffff'"), whole: true},
		{name: "path", damage: row("id = '../../x'"), lost: true},
		{name: "no id", damage: row("id = ''"), lost: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var logged bytes.Buffer
			s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
			for _, id := range []string{"w", "x", "y"} {
				appendOutput(t, createInFile(t, s, Execution{ID: id, Labels: map[string]string{"a": "b"}}), "output")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			test.damage(t, s)
			s = openStore(t, s.config)
			left, err := s.Unended(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, x := range left {
				ids = append(ids, x.ID)
				end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start)
			}
			want := []string{"w", "x", "y"}
			if test.lost {
				want = []string{"w", "y"}
			}
			if !slices.Equal(ids, want) {
				t.Errorf("got %v, want %v", ids, want)
			}
			if test.name != "numbers" && !strings.Contains(logged.String(), "level=ERROR") {
				t.Errorf("logged %q", logged.String())
			}
			for _, id := range ids {
				if x := get(t, s, "a", id); x.State != Ended || x.End != "DAEMON_LOST" {
					t.Errorf("%s: got %+v", id, x)
				}
				if id != "x" || test.whole {
					if got := len(readAll(t, s, "a", id, 0)); got != 3 {
						t.Errorf("%s: got %d events", id, got)
					}
				} else if _, err := s.Read(t.Context(), "a", id, 0); !isCorruptError(err) {
					t.Errorf("%s: got %v", id, err)
				}
			}
			if got := len(listAll(t, s, Filter{Tenant: "a"})); got != 3 {
				t.Errorf("listed %d", got)
			}
			// Removed executions leave no files, of any kind, and neither does one whose row has lost its ID.
			s.config.MaxAge = time.Hour
			s = reopenStore(t, s)
			if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != len(want) {
				t.Errorf("removed %d", removed)
			}
			if got := files(t, s); len(got) != 0 {
				t.Errorf("left %v", got)
			}
		})
	}
}

// A log without a spool takes an end, and nothing else.
func TestReopenWithoutSpool(t *testing.T) {
	s, x, _ := unended(t)
	if err := errors.Join(os.Remove(s.spoolPath(x.ID)), os.Mkdir(s.spoolPath(x.ID), 0o700)); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.config)
	l := reopenLog(t, s, x.ID)
	if _, err := l.Append(Event{Kind: KindOutput}); !errors.Is(err, errNoSpool) {
		t.Errorf("got %v", err)
	}
	s = reopenStore(t, s) // unended again
	end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start)
	_, err := s.Read(t.Context(), "a", x.ID, 0)
	if bad, ok := errors.AsType[*CorruptError](err); !ok || bad.End == nil || bad.End.End != "DAEMON_LOST" {
		t.Errorf("got %v", err)
	}
}
