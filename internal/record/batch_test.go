package record

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
)

// copyFile copies a file.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, b)
}

// openIdleStore opens a store that applies changes only before a query.
func openIdleStore(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := openIdle(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// stored returns how many executions the database has, without the changes that wait.
func stored(t testing.TB, s *Store) int {
	t.Helper()
	var n int
	if err := s.db.queries.QueryRow("SELECT count(*) FROM executions").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Changes wait in the journal until a query. A process that is killed before loses
// none.
func TestChangesWait(t *testing.T) {
	s := openIdleStore(t, Config{})
	l := create(t, s, Execution{ID: "x", Skill: "hello"})
	if err := l.Started(t.Context(), start, nil); err != nil {
		t.Fatal(err)
	}
	appendOutput(t, l, "output")
	end(t, l, "EXITED", start)
	if stored(t, s) != 0 || s.batch.count() != 4 {
		t.Errorf("%d executions are in the database, and %d changes wait", stored(t, s), s.batch.count())
	}
	crashed := openIdleStore(t, killed(t, s))
	for name, s := range map[string]*Store{"own": s, "next": crashed} {
		if x := get(t, s, "a", "x"); x.State != Ended || !x.Started.Equal(start) || x.Skill != "hello" {
			t.Errorf("%s: got %+v", name, x)
		}
		if got := len(readAll(t, s, "a", "x", 0)); got != 4 {
			t.Errorf("%s: got %d events", name, got)
		}
		if stored(t, s) != 1 || s.batch.count() != 0 {
			t.Errorf("%s: %d executions are in the database, and %d changes wait", name, stored(t, s), s.batch.count())
		}
	}
}

// A crash between the transaction and the reset of the journal: no change happens
// twice, even if its execution was removed since.
func TestChangesHappenOnce(t *testing.T) {
	s := openIdleStore(t, Config{})
	end(t, create(t, s, Execution{ID: "other"}), "EXITED", start)
	end(t, create(t, s, Execution{ID: "x"}), "EXITED", start)
	journal := killed(t, s).Dir + "/" + journalNames[0]
	s.flushForQuery(t.Context())
	if _, err := s.db.states.Exec("DELETE FROM executions WHERE id = 'x'"); err != nil {
		t.Fatal(err)
	}
	c := killed(t, s)
	copyFile(t, journal, c.Dir+"/"+journalNames[0])
	next := openIdleStore(t, c)
	if got := listAll(t, next, Filter{Tenant: "a"}); len(got) != 1 || got[0] != "other" {
		t.Errorf("got %v", got)
	}
	// New changes get numbers after the applied ones.
	create(t, next, Execution{ID: "y"})
	if got := listAll(t, openIdleStore(t, killed(t, next)), Filter{Tenant: "a"}); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

// Changes after a damaged one are lost, and the log says so.
func TestDamagedJournalIsSaid(t *testing.T) {
	s := openIdleStore(t, Config{})
	create(t, s, Execution{ID: "x"})
	from := s.batch.journal.Size()
	create(t, s, Execution{ID: "y"})
	create(t, s, Execution{ID: "z"})
	c := killed(t, s)
	path := c.Dir + "/" + journalNames[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[from+20] ^= 1
	write(t, path, data)
	var logged bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&logged, nil))
	next := openIdleStore(t, c)
	if got := listAll(t, next, Filter{Tenant: "a"}); len(got) != 1 || got[0] != "x" {
		t.Errorf("got %v", got)
	}
	if want := fmt.Sprintf("journal is damaged, or a crash cut it short; its last changes are lost\" journal=%s bytes=%d", journalNames[0], int64(len(data))-from); !strings.Contains(logged.String(), want) {
		t.Errorf("logged %q, want %q", logged.String(), want)
	}
}

// After a loss of power the journal may have changes of executions that the database
// doesn't have. They change nothing.
func TestChangesOfLostExecution(t *testing.T) {
	var logged bytes.Buffer
	s := openIdleStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	other := create(t, s, Execution{ID: "other"})
	l := create(t, s, Execution{ID: "x", Labels: map[string]string{"a": "b"}})
	s.flushForQuery(t.Context())
	if _, err := s.db.states.Exec("DELETE FROM executions WHERE id = 'x'"); err != nil {
		t.Fatal(err)
	}
	if err := l.Started(t.Context(), start, nil); err != nil {
		t.Fatal(err)
	}
	appendOutput(t, l, "output")
	end(t, l, "EXITED", start)
	end(t, other, "EXITED", start)
	if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 1 || got[0] != "other" {
		t.Errorf("got %v", got)
	}
	if logged.Len() != 0 {
		t.Errorf("logged %q", logged.String())
	}
}

// The database gets the changes without a query, too.
func TestChangesAreAppliedInTime(t *testing.T) {
	s := openStore(t, Config{})
	create(t, s, Execution{})
	for stored(t, s) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the database has no execution")
		}
	}
}

// If too many changes wait, the caller of the next one applies them.
func TestManyChangesWait(t *testing.T) {
	s := openIdleStore(t, Config{})
	for range maxPending {
		create(t, s, Execution{})
	}
	if n := s.batch.count(); n != maxPending || stored(t, s) != 0 {
		t.Fatalf("%d changes wait, %d executions are in the database", n, stored(t, s))
	}
	create(t, s, Execution{})
	if n := s.batch.count(); n != 1 || stored(t, s) != maxPending {
		t.Errorf("%d changes wait, %d executions are in the database", n, stored(t, s))
	}
}

// Changes that can't be applied wait on, and are not lost: the next process has them.
func TestChangesThatCantBeApplied(t *testing.T) {
	var logged bytes.Buffer
	s := openIdleStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	end(t, create(t, s, Execution{ID: "before"}), "EXITED", start)
	s.flushForQuery(t.Context())
	refuse := "CREATE TRIGGER refuse BEFORE INSERT ON executions BEGIN SELECT RAISE(ABORT, 'refused'); END"
	if _, err := s.db.states.Exec(refuse); err != nil {
		t.Fatal(err)
	}
	l := create(t, s, Execution{ID: "x"})
	appendOutput(t, l, "output")
	if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 1 || !strings.Contains(logged.String(), "refused") {
		t.Errorf("got %v, logged %q", got, logged.String())
	}
	next := openIdleStore(t, killed(t, s)) // which can't apply them either
	if next.batch.count() != 2 {
		t.Errorf("%d changes wait", next.batch.count())
	}
	for _, s := range []*Store{next, s} {
		if _, err := s.db.states.Exec("DROP TRIGGER refuse"); err != nil {
			t.Fatal(err)
		}
		if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 2 {
			t.Errorf("got %v", got)
		}
	}
	end(t, l, "EXITED", start)
	if got := len(readAll(t, s, "a", "x", 0)); got != 3 {
		t.Errorf("got %d events", got)
	}
}

// The journal is emptied although changes come without a pause.
func TestJournalIsBounded(t *testing.T) {
	s := openIdleStore(t, Config{})
	for s.batch.journal.Size() <= maxJournal {
		if err := create(t, s, Execution{}).End(t.Context(), "EXITED", make([]byte, MaxOutcomeBytes), start); err != nil {
			t.Fatal(err)
		}
	}
	// One change comes while the others are applied.
	n := s.batch.count()
	create(t, s, Execution{})
	s.batch.flushing.Lock()
	err := s.flushFirst(t.Context(), n, maxJournal)
	s.batch.flushing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if s.batch.count() != 0 || s.batch.journal.Size() > 100 {
		t.Errorf("%d changes wait, and the journal has %d bytes", s.batch.count(), s.batch.journal.Size())
	}
}

func allStatements() []statement {
	x := Execution{ID: "x", Created: start, Tenant: "a", Labels: map[string]string{"k": "ü"}, RequestHash: []byte{}}
	all, err := createStatements(-7, &x, []byte("header"))
	if err != nil {
		panic(err)
	}
	return append(all, startStatement(1, start), endStatement(2, Event{Seq: 3, End: "EXITED"}, 4, nil),
		statement{addFrame, []any{int64(1), int64(2), []byte("frame")}}, statement{setInFile, []any{int64(1)}}, statement{deleteFrames, []any{int64(1)}})
}

func TestStatementsComeBack(t *testing.T) {
	want := allStatements()
	b := encodeStatements(want)
	got, err := decodeStatements(b)
	if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("got  %#v, %v\nwant %#v", got, err, want)
	}
	whole := 0
	for n := range b {
		if _, err := decodeStatements(b[:n]); err == nil {
			whole++
		} else if err != errEntry {
			t.Errorf("cut at %d: got %v", n, err)
		}
	}
	if whole != len(want) { // the cuts between two of them, and the first
		t.Errorf("%d cuts leave whole statements, want %d", whole, len(want))
	}
}

func FuzzDecodeStatements(f *testing.F) {
	f.Add(encodeStatements(allStatements()))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeStatements(b)
		if err != nil {
			return
		}
		again, err := decodeStatements(encodeStatements(got))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%#v became %#v, %v", got, again, err)
		}
	})
}
