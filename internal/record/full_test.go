package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
)

func isSpoolFull(err error) bool {
	_, ok := errors.AsType[*SpoolFullError](err)
	return ok && errors.Is(err, unix.ENOSPC)
}

// fillAll fills the disk of dir and the space of the ballast. It returns the path of the larger one of the two files
// that it writes.
func fillAll(t *testing.T, s *Store, dir string) (large string) {
	t.Helper()
	large = disktest.Fill(t, dir)
	releaseAll(t, s)
	disktest.Fill(t, dir)
	return large
}

// releaseAll gives up the whole ballast.
func releaseAll(t *testing.T, s *Store) {
	t.Helper()
	for gave := true; gave; {
		var err error
		if gave, err = s.ballast.release(); err != nil {
			t.Fatal(err)
		}
	}
}

// Output fills the disk. Acknowledged output stays, and ends with large outcomes are
// still recorded. After room was made, new executions work.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	s := openStore(t, Config{Dir: filepath.Join(dir, "record"), MaxAge: time.Hour})
	var logs []*Log
	for range 8 {
		logs = append(logs, create(t, s, Execution{}))
	}
	l := logs[0]
	follower := newReader(t, s, "a", l.ID(), 0)
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 5000) // not whole pages
	appended := 0
	var err error
	for ; err == nil; appended++ {
		_, err = l.Append(Event{Kind: KindOutput, Data: chunk})
	}
	appended--
	if !isSpoolFull(err) || appended < 100 {
		t.Fatalf("after %d: got %v", appended, err)
	}
	fi, err := os.Stat(s.spoolPath(l.ID()))
	if err != nil || fi.Size() != l.size {
		t.Errorf("the spool has %d bytes, %d of them whole, %v", fi.Size(), l.size, err)
	}
	filler := disktest.Fill(t, dir)
	if _, err := logs[1].Append(Event{Kind: KindOutput, Data: chunk}); !isSpoolFull(err) {
		t.Errorf("another: got %v", err)
	}

	outcome := bytes.Repeat([]byte("x"), 300_000)
	for _, l := range logs {
		if err := l.Started(t.Context(), start, nil); err != nil {
			t.Errorf("start: %v", err)
		}
		if err := l.End(t.Context(), "EXITED", outcome, start); err != nil {
			t.Errorf("end: %v", err)
		}
		if x := get(t, s, "a", l.ID()); x.State != Ended || !bytes.Equal(x.Outcome, outcome) {
			t.Errorf("got %v with %d bytes", x.State, len(x.Outcome))
		}
	}
	if x, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a"}, nil); !isSpoolFull(err) {
		t.Errorf("create: got %v, %v", x, err)
	}
	if n := rowsIn(t, s, "executions"); n != len(logs) {
		t.Errorf("%d rows", n)
	}
	outputs := 0
	for {
		e, err := follower.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == KindOutput && bytes.Equal(e.Data, chunk):
			outputs++
		case e.Kind == KindOutput, e.Kind == KindEnd && !bytes.Equal(e.Data, outcome):
			t.Errorf("event %d is another", e.Seq)
		}
	}
	if outputs != appended {
		t.Errorf("got %d outputs, want %d", outputs, appended)
	}

	// An open reader holds the disk space.
	if err := follower.Close(); err != nil {
		t.Error(err)
	}
	// The store can be opened, and swept, while the disk is full.
	s = reopenStore(t, s)
	if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != len(logs) {
		t.Errorf("got %d", removed)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l = create(t, s, Execution{})
	appendOutput(t, l, "again")
	end(t, l, "EXITED", start)
	if got := len(readAll(t, s, "a", l.ID(), 0)); got != 3 {
		t.Errorf("got %d events", got)
	}
}

// A full disk gives the same error whether a file or SQLite meets it.
func TestDatabaseFull(t *testing.T) {
	for place, create := range creators {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			disktest.Mount(t, dir, "size=64m")
			// It applies no changes by itself: if it did so while Create runs, Create could get the room of the ballast.
			s := openIdleStore(t, Config{Dir: filepath.Join(dir, "record")})
			l, other := create(t, s, Execution{}), create(t, s, Execution{})
			r := newReader(t, s, "a", l.ID(), 1)
			fillers := []string{disktest.Fill(t, dir)}
			if !s.ballast.held.Load() {
				t.Fatal("the ballast was released before")
			}
			// The last pages of the files have room for a little more.
			large := make([]byte, 60_000)
			if _, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a"}, large); !isSpoolFull(err) {
				t.Errorf("create: got %v", err)
			}
			// Now there is nothing left, not even for ends.
			releaseAll(t, s)
			fillers = append(fillers, disktest.Fill(t, dir))
			outcome := make([]byte, MaxOutcomeBytes)
			for name, err := range map[string]error{
				"start":     l.Started(t.Context(), start, large),
				"artifacts": l.PutArtifacts(t.Context(), []Artifact{{Path: "x"}}),
				"end":       l.End(t.Context(), "EXITED", outcome, start),
			} {
				if !isSpoolFull(err) {
					t.Errorf("%s: got %v", name, err)
				}
			}
			// Readers don't wait for events that never come.
			e, err := r.Next(t.Context())
			if e.End != "EXITED" || len(e.Data) != len(outcome) || err != nil {
				t.Errorf("got %q with %d bytes, %v", e.End, len(e.Data), err)
			}
			if err := l.End(t.Context(), "EXITED", nil, start); !errors.Is(err, ErrEnded) {
				t.Errorf("again: got %v", err)
			}
			for _, filler := range fillers {
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
			}
			end(t, other, "EXITED", start)
			s = reopenStore(t, s)
			// Close has recorded the end that readers saw.
			if x := get(t, s, "a", l.ID()); x.State != Ended || x.End != "EXITED" || !bytes.Equal(x.Outcome, outcome) {
				t.Errorf("got %v, %q with %d bytes", x.State, x.End, len(x.Outcome))
			}
		})
	}
}

// An end for which there was no room is recorded once there is room, without a restart. A handover waits for it: the
// next process would take the execution for lost.
func TestOwedEnd(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	s := openIdleStore(t, Config{Dir: filepath.Join(dir, "record")})
	l := create(t, s, Execution{})
	s.flushForQuery(t.Context())
	full := fillAll(t, s, dir)
	outcome := make([]byte, 300_000)
	if err := l.End(t.Context(), "EXITED", outcome, start); !isSpoolFull(err) {
		t.Fatalf("got %v", err)
	}
	if err := s.HandOver(t.Context()); !isFull(err) {
		t.Errorf("hand over: got %v", err)
	}
	if err := s.Remove(t.Context(), "a", l.ID()); !errors.Is(err, ErrNotEnded) {
		t.Errorf("remove: got %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if x := get(t, s, "a", l.ID()); x.State != Ended || x.End != "EXITED" || !bytes.Equal(x.Outcome, outcome) {
		t.Errorf("got %v, %q with %d bytes", x.State, x.End, len(x.Outcome))
	}
	if err := s.HandOver(t.Context()); err != nil {
		t.Errorf("hand over: %v", err)
	}
}

// An end for which there is no room stops neither Resume nor the artifacts of another execution, and is counted once.
func TestOwedEndStopsNothingElse(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	s := openIdleStore(t, Config{Dir: filepath.Join(dir, "record")})
	l, other := create(t, s, Execution{}), create(t, s, Execution{})
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	full := fillAll(t, s, dir)
	if err := l.End(t.Context(), "EXITED", make([]byte, 1_000_000), start); !isSpoolFull(err) {
		t.Fatalf("got %v", err)
	}
	fi, err := os.Stat(full)
	if err == nil {
		err = os.Truncate(full, fi.Size()-(512<<10)) // room for all but the end
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); err != nil {
		t.Errorf("resume: %v", err)
	}
	if err := other.PutArtifacts(t.Context(), []Artifact{{Path: "x"}}); err != nil {
		t.Errorf("artifacts: %v", err)
	}
	if x := get(t, s, "a", l.ID()); x.State == Ended {
		t.Error("the end found room")
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if x := get(t, s, "a", l.ID()); x.State != Ended {
		t.Errorf("got %v", x.State)
	}
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Others take each block that becomes free on a full disk. All ends get their room nevertheless.
func TestEndsWhileOthersFillTheDisk(t *testing.T) {
	for place, create := range creators {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			disktest.Mount(t, dir, "size=64m")
			s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
			var logs []*Log
			for range 8 {
				logs = append(logs, create(t, s, Execution{}))
			}
			outcome := make([]byte, 10_000)
			for i, l := range logs {
				disktest.Fill(t, dir)
				if err := l.End(t.Context(), "EXITED", outcome, start); err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if x := get(t, s, "a", l.ID()); x.State != Ended || !bytes.Equal(x.Outcome, outcome) {
					t.Errorf("%d: got %v with %d bytes", i, x.State, len(x.Outcome))
				}
			}
		})
	}
}

// While the ballast is released, its space is for ends, and output is refused.
func TestOutputWaitsForBallast(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
	runs, ends := create(t, s, Execution{}), create(t, s, Execution{})
	filler := disktest.Fill(t, dir)
	if err := ends.End(t.Context(), "EXITED", make([]byte, 100_000), start); err != nil {
		t.Fatal(err)
	}
	if s.ballast.held.Load() {
		t.Fatal("the end found room without the ballast")
	}
	if _, err := runs.Append(Event{Kind: KindOutput, Data: []byte("x")}); !isSpoolFull(err) {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	sweep(t, s, start)
	appendOutput(t, runs, "x")
	end(t, runs, "EXITED", start)
}

// Artifacts of one execution don't take the room that is kept for the ends of all.
func TestArtifactsLeaveTheBallast(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
	l, other := create(t, s, Execution{}), create(t, s, Execution{})
	full := disktest.Fill(t, dir)
	fi, err := os.Stat(full)
	if err == nil {
		err = os.Truncate(full, fi.Size()-(4<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	var artifacts []Artifact
	for i := range 10_000 {
		artifacts = append(artifacts, Artifact{Path: fmt.Sprintf("%04000d", i), SHA256: fmt.Sprintf("%064d", 0)})
	}
	if err := l.PutArtifacts(t.Context(), artifacts); !isSpoolFull(err) {
		t.Errorf("got %v", err)
	}
	if s.ballast.size != ballastBytes {
		t.Errorf("%d bytes are left of the ballast, want %d", s.ballast.size, ballastBytes)
	}
	if n := rowsIn(t, s, "artifacts"); n != 0 {
		t.Errorf("%d rows", n)
	}
	for _, l := range []*Log{other, l} {
		end(t, l, "EXITED", start)
	}
}

// A disk that is full at the start is no reason not to start.
func TestOpenOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=4m") // no room for the ballast
	s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
	if _, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a"}, nil); !isSpoolFull(err) {
		t.Errorf("got %v", err)
	}
	if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// Without inodes for a file, output is refused as on a full disk, and the end is
// recorded.
func TestNoInodes(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m,nr_inodes=12")
	s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
	var err error
	var last *Log
	n := 0
	for ; err == nil && n < 20; n++ {
		last = create(t, s, Execution{})
		_, err = last.Append(Event{Kind: KindOutput, Data: make([]byte, maxInRows)})
	}
	if !isSpoolFull(err) {
		t.Fatalf("got %v", err)
	}
	if got := rowsIn(t, s, "executions"); got != n || len(files(t, s)) != n-1 {
		t.Errorf("%d rows and %d files, want %d and %d", got, len(files(t, s)), n, n-1)
	}
	end(t, last, "EXITED", start)
	if got := len(readAll(t, s, "a", last.ID(), 0)); got != 2 {
		t.Errorf("got %d events", got)
	}
}

// A purge without room for a copy of the database says so, loses nothing, and can be repeated.
func TestPurgeOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=128m")
	s := openStore(t, Config{Dir: filepath.Join(dir, "record")})
	for range 20 {
		end(t, create(t, s, Execution{Tenant: "globex", Detail: make([]byte, 1<<20)}), "EXITED", start)
	}
	s.flushForQuery(t.Context())
	// The rows must be in the database: they would not fit later, and stay in the WAL.
	s.db.writing.Lock()
	err := s.db.emptyLog(t.Context())
	s.db.writing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	filler := disktest.Fill(t, dir)
	if _, _, err := s.Purge(t.Context(), "acme"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	if fi, err := os.Stat(s.db.path + "-wal"); err != nil || fi.Size() != 0 {
		t.Errorf("the failed purge keeps the room of its write-ahead log: %v, %v", fi.Size(), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Purge(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
	if n := rowsIn(t, s, "executions"); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
}
