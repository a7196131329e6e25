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
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
)

func sweep(t testing.TB, s *Store, now time.Time) (removed int, freed int64) {
	t.Helper()
	removed, freed, err := s.Sweep(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return removed, freed
}

// files returns what of executions is on the disk.
func files(t testing.TB, s *Store) []string {
	t.Helper()
	names := []string{}
	for _, dir := range []string{spoolsName, artifactsName} {
		entries, err := os.ReadDir(filepath.Join(s.config.Dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, dir+"/"+e.Name())
		}
	}
	return names
}

func rowsIn(t testing.TB, s *Store, table string) int {
	t.Helper()
	var n int
	s.flushForQuery(t.Context())
	if err := s.db.queries.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSweepByAge(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	for i, age := range []time.Duration{3 * time.Hour, 0, time.Hour + 1, time.Hour} {
		l := createInFile(t, s, Execution{ID: fmt.Sprint("e", i), Key: fmt.Sprint("key", i), Labels: map[string]string{"a": "b"}})
		writeArtifacts(t, s, l, map[string]string{"x": "12345"})
		end(t, l, "EXITED", start.Add(-age))
	}
	createInFile(t, s, Execution{ID: "runs", Created: start.Add(-100 * time.Hour)})
	var want int64
	for _, id := range []string{"e0", "e2"} {
		fi, err := os.Stat(s.spoolPath(id))
		if err != nil {
			t.Fatal(err)
		}
		var row int64
		err = s.db.queries.QueryRow("SELECT length(detail || outcome || header || spool_index) FROM executions WHERE id = ?", id).Scan(&row)
		if err != nil {
			t.Fatal(err)
		}
		want += fi.Size() + Artifact{Path: "x", SizeBytes: 5}.stored() + row
	}
	removed, freed := sweep(t, s, start)
	if removed != 2 || freed != want {
		t.Errorf("got %d, %d bytes; want 2, %d", removed, freed, want)
	}
	if got, want := files(t, s), []string{"spool/e1", "spool/e3", "spool/runs", "artifacts/e1", "artifacts/e3"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	for table, want := range map[string]int{"executions": 3, "labels": 2, "artifacts": 2, "garbage": 0} {
		if got := rowsIn(t, s, table); got != want {
			t.Errorf("%d rows in %s, want %d", got, table, want)
		}
	}
	if _, err := s.Get(t.Context(), "a", "e0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	// The key is free again; a kept one isn't.
	create(t, s, Execution{Key: "key0"})
	if _, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a", Key: "key1"}, nil); err == nil {
		t.Error("a kept key was free")
	}
	if removed, freed := sweep(t, s, start); removed != 0 || freed != 0 {
		t.Errorf("then got %d, %d", removed, freed)
	}
}

// Remove removes one ended execution of the tenant with its files, and frees its key.
func TestRemove(t *testing.T) {
	s := openStore(t, Config{})
	for _, id := range []string{"e0", "e1"} {
		l := createInFile(t, s, Execution{ID: id, Key: "key " + id, Labels: map[string]string{"a": "b"}})
		writeArtifacts(t, s, l, map[string]string{"x": "12345"})
		end(t, l, "EXITED", start)
	}
	create(t, s, Execution{ID: "small", Key: "small"})
	end(t, s.liveLog("small"), "EXITED", start)
	createInFile(t, s, Execution{ID: "runs"})
	for _, c := range []struct {
		tenant, id string
		want       error
	}{{"b", "e0", ErrNotFound}, {"a", "none", ErrNotFound}, {"a", "", ErrNotFound}, {"a", "runs", ErrNotEnded}} {
		if err := s.Remove(t.Context(), c.tenant, c.id); !errors.Is(err, c.want) {
			t.Errorf("%s of %s: got %v, want %v", c.id, c.tenant, err, c.want)
		}
	}
	for _, id := range []string{"e0", "small"} {
		if err := s.Remove(t.Context(), "a", id); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), "a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s again: got %v, want %v", id, err, ErrNotFound)
		}
	}
	if got, want := files(t, s), []string{"spool/e1", "spool/runs", "artifacts/e1"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	for table, want := range map[string]int{"executions": 2, "labels": 1, "artifacts": 1, "garbage": 0, "frames": 0} {
		if got := rowsIn(t, s, table); got != want {
			t.Errorf("%d rows in %s, want %d", got, table, want)
		}
	}
	create(t, s, Execution{ID: "again", Key: "key e0"})
}

func TestExpires(t *testing.T) {
	for _, c := range []struct {
		age         time.Duration
		ended, want time.Time
	}{{0, start, time.Time{}}, {time.Hour, time.Time{}, time.Time{}}, {time.Hour, start, start.Add(time.Hour)}} {
		s := openStore(t, Config{MaxAge: c.age})
		if got := s.Expires(c.ended); !got.Equal(c.want) {
			t.Errorf("age %s: got %s, want %s", c.age, got, c.want)
		}
	}
}

// Open executions count, but only ended ones go, the oldest end first, and no
// more of them than it takes.
func TestSweepByBytes(t *testing.T) {
	s := openStore(t, Config{MaxBytes: 35_000})
	running := createInFile(t, s, Execution{ID: "runs"})
	appendOutput(t, running, strings.Repeat("x", 10_000))
	var logs []*Log
	for i := range 5 {
		l := createInFile(t, s, Execution{ID: fmt.Sprint("e", i)})
		appendOutput(t, l, strings.Repeat("x", 5_000))
		writeArtifacts(t, s, l, map[string]string{"x": ""}) // artifactOverhead
		logs = append(logs, l)
	}
	for i, at := range []int{2, 0, 1, 4, 3} { // e1 ended first, then e2, e0, e4, e3
		end(t, logs[i], "EXITED", start.Add(time.Duration(at)*time.Minute))
	}
	total := s.Bytes()
	if total < 55_000 || total > 57_000 {
		t.Errorf("got %d", total)
	}
	removed, freed := sweep(t, s, start)
	if removed != 3 || freed < 27_000 || freed > 28_500 {
		t.Errorf("got %d, %d bytes", removed, freed)
	}
	if held := s.Bytes(); held != total-freed {
		t.Errorf("after a sweep: %d bytes, want %d", held, total-freed)
	}
	if got, want := files(t, s), []string{"spool/e3", "spool/e4", "spool/runs", "artifacts/e3", "artifacts/e4"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	appendOutput(t, running, strings.Repeat("x", 100_000))
	if removed, _ := sweep(t, s, start); removed != 2 {
		t.Errorf("got %d", removed)
	}
	// The running execution continues.
	appendOutput(t, running, "more")
	end(t, running, "EXITED", start)
	if got := len(readAll(t, s, "a", "runs", 0)); got != 5 {
		t.Errorf("got %d events", got)
	}
	if removed, _ := sweep(t, s, start); removed != 1 || len(files(t, s)) != 0 {
		t.Errorf("got %d, left %v", removed, files(t, s))
	}
}

// The bytes of rows count too, also for open executions.
func TestSweepCountsRows(t *testing.T) {
	s := openStore(t, Config{MaxBytes: 250_000})
	create(t, s, Execution{ID: "runs", Detail: make([]byte, 100_000)})
	for i := range 3 {
		l := create(t, s, Execution{ID: fmt.Sprint("e", i), Detail: make([]byte, 50_000)})
		if err := l.End(t.Context(), "EXITED", nil, start.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if total := s.Bytes(); total < 250_000 || total > 251_000 {
		t.Errorf("got %d", total)
	}
	if removed, freed := sweep(t, s, start); removed != 1 || freed < 50_000 || freed > 50_500 {
		t.Errorf("got %d, %d bytes", removed, freed)
	}
}

// Files that can't be removed are tried again, and hold up nothing; an id that is
// none names no files.
func TestGarbageThatStays(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	outside := filepath.Join(s.config.Dir, "outside")
	write(t, outside, nil)
	unmount := disktest.MountBusy(t, s.ArtifactDir("busy"))
	if err := os.MkdirAll(filepath.Join(s.spoolPath("directory"), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.states.Exec("INSERT INTO garbage VALUES ('busy'), ('directory'), ('../outside')"); err != nil {
		t.Fatal(err)
	}
	s = reopenStore(t, s)
	if left := files(t, s); !slices.Equal(left, []string{"artifacts/busy"}) || rowsIn(t, s, "garbage") != 1 {
		t.Errorf("left %v and %d rows", left, rowsIn(t, s, "garbage"))
	}
	unmount()
	end(t, create(t, s, Execution{}), "EXITED", start)
	sweep(t, s, start.Add(2*time.Hour))
	if left := files(t, s); len(left) != 0 || rowsIn(t, s, "garbage") != 0 {
		t.Errorf("left %v and %d rows", left, rowsIn(t, s, "garbage"))
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// Nothing is ever swept if nothing says so.
func TestSweepWithoutBounds(t *testing.T) {
	s := openStore(t, Config{})
	end(t, create(t, s, Execution{}), "EXITED", start)
	if removed, _ := sweep(t, s, start.Add(1e6*time.Hour)); removed != 0 {
		t.Errorf("got %d", removed)
	}
}

func TestSweepManyAtOnce(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	for range sweepBatch*2 + 1 {
		end(t, create(t, s, Execution{}), "EXITED", start)
	}
	if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != sweepBatch*2+1 || len(files(t, s)) != 0 {
		t.Errorf("got %d, left %v", removed, files(t, s))
	}
}

// Open readers read on.
func TestSweepUnderReaders(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	l := create(t, s, Execution{})
	live := newReader(t, s, "a", l.ID(), 0)
	for range 100 {
		appendOutput(t, l, strings.Repeat("x", 10_000))
	}
	writeArtifacts(t, s, l, map[string]string{"x": "content"})
	end(t, l, "EXITED", start)
	late := newReader(t, s, "a", l.ID(), 0)
	f, _, err := s.OpenArtifact(t.Context(), "a", l.ID(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != 1 {
		t.Fatalf("got %d", removed)
	}
	for name, r := range map[string]*Reader{"live": live, "late": late} {
		n := 0
		for ; err == nil; n++ {
			_, err = r.Next(t.Context())
		}
		if err != io.EOF || n != 103 {
			t.Errorf("%s: got %d events, then %v", name, n-1, err)
		}
		err = nil
	}
	if data, err := io.ReadAll(f); string(data) != "content" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := s.Read(t.Context(), "a", l.ID(), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// A crash between the row's removal and the files' is made good.
func TestSweepInterrupted(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	l := createInFile(t, s, Execution{ID: "x"})
	writeArtifacts(t, s, l, map[string]string{"x": "content"})
	end(t, l, "EXITED", start)
	spool, err := os.ReadFile(s.spoolPath("x"))
	if err != nil {
		t.Fatal(err)
	}
	sweep(t, s, start.Add(2*time.Hour))
	if err := os.WriteFile(s.spoolPath("x"), spool, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.ArtifactDir("x"), "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.states.Exec("INSERT INTO garbage VALUES ('x'), ('nothing-left')"); err != nil {
		t.Fatal(err)
	}
	s = reopenStore(t, s)
	if left := files(t, s); len(left) != 0 || rowsIn(t, s, "garbage") != 0 {
		t.Errorf("left %v and %d rows", left, rowsIn(t, s, "garbage"))
	}
}

func TestArtifactDir(t *testing.T) {
	s := openStore(t, Config{})
	for _, id := range []string{"", ".", "..", "../x", "a/b", "A", "a\x00"} {
		if got := s.ArtifactDir(id); got != "" {
			t.Errorf("%q: got %q", id, got)
		}
	}
	if _, err := os.Stat(filepath.Dir(s.ArtifactDir("x"))); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.ArtifactDir("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// If a tenant has many bytes, the sweep removes this tenant's executions, although other tenants have older ones. A
// tenant within its fair share loses nothing because of another tenant's running executions.
func TestSweepTakesFromTheMost(t *testing.T) {
	s := openStore(t, Config{MaxBytes: 60_000})
	at := start
	ended := func(tenant, id string, bytes int) {
		l := createInFile(t, s, Execution{ID: id, Tenant: tenant})
		appendOutput(t, l, strings.Repeat("x", bytes))
		at = at.Add(time.Minute)
		end(t, l, "EXITED", at)
	}
	ended("quiet", "q0", 10_000)
	for i := range 3 {
		ended("some", fmt.Sprint("s", i), 7_000)
	}
	for i := range 10 {
		ended("hog", fmt.Sprint("h", i), 9_000)
	}
	if removed, _ := sweep(t, s, at); removed != 7 {
		t.Errorf("removed %d, want 7", removed)
	}
	kept := []string{"spool/h7", "spool/h8", "spool/h9", "spool/q0", "spool/s0", "spool/s1", "spool/s2"}
	if got := files(t, s); !slices.Equal(got, kept) {
		t.Errorf("left %v, want %v", got, kept)
	}
	running := createInFile(t, s, Execution{ID: "runs", Tenant: "hog"})
	appendOutput(t, running, strings.Repeat("x", 80_000))
	sweep(t, s, at)
	if got, want := files(t, s), []string{"spool/q0", "spool/runs", "spool/s1", "spool/s2"}; !slices.Equal(got, want) {
		t.Errorf("with a running one: left %v, want %v", got, want)
	}
}

// Damage can make the record forget executions. The first sweep removes their files, but none of a known execution, and
// nothing during a takeover.
func TestSweepRemovesForgottenFiles(t *testing.T) {
	s := openStore(t, Config{})
	for _, id := range []string{"ended", "open", "forgotten"} {
		l := createInFile(t, s, Execution{ID: id})
		writeArtifacts(t, s, l, map[string]string{"x": "1"})
		if id != "open" {
			end(t, l, "EXITED", start)
		}
	}
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.states.Exec("DELETE FROM executions WHERE id = 'forgotten'"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.config.Dir, spoolsName, "Not An ID"), []byte("an operator's"))
	all := files(t, s)

	c := killed(t, s)
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, Config{Dir: s.config.Dir, Takeover: true, Earlier: []string{"open"}})
	sweep(t, next, start)
	if got := files(t, next); !slices.Equal(got, all) {
		t.Errorf("during a takeover: got %v, want %v", got, all)
	}

	s = openStore(t, c)
	newer := createInFile(t, s, Execution{ID: "new"}) // its row is in the journal
	sweep(t, s, start)
	want := []string{"spool/Not An ID", "spool/ended", "spool/new", "spool/open", "artifacts/ended", "artifacts/open"}
	if got := files(t, s); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	end(t, newer, "EXITED", start)
}

// The log says that files of a forgotten execution were removed only when they were.
func TestForgottenFilesThatStay(t *testing.T) {
	var said bytes.Buffer
	s := openIdleStore(t, Config{Log: slog.New(slog.NewTextHandler(&said, nil))})
	unmount := disktest.MountBusy(t, s.ArtifactDir("busy"))
	check := func(want string) {
		t.Helper()
		said.Reset()
		sweep(t, s, start)
		if got := said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	}
	check("were not removed; the next sweep tries again")
	unmount()
	check("removed files of executions that the record has forgotten")
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
