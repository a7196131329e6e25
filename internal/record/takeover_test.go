package record

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/scarcetest"
)

// openBeside opens the store in dir that another process has handed over.
func openBeside(t *testing.T, dir string, earlier ...string) *Store {
	t.Helper()
	return openStore(t, Config{Dir: dir, Takeover: true, Earlier: earlier, MaxAge: time.Hour})
}

// read is the result of a reader: the checksum of all output, the number of events, and the end.
type read struct {
	sum    [sha256.Size]byte
	events int
	end    string
	err    error
}

// readData follows an execution to its end in the background, and calls each, if it is not nil, with each event.
func readData(t *testing.T, s *Store, tenant, id string, after uint64, each func(Event)) <-chan read {
	t.Helper()
	r := newReader(t, s, tenant, id, after)
	done := make(chan read, 1)
	go func() {
		var got read
		sum := sha256.New()
		for {
			e, err := r.Next(t.Context())
			if err != nil {
				if err != io.EOF {
					got.err = err
				}
				break
			}
			got.events++
			if want := after + uint64(got.events); e.Seq != want {
				got.err = fmt.Errorf("event %d is where %d belongs", e.Seq, want)
				break
			}
			if e.Kind == KindOutput {
				sum.Write(e.Data)
			}
			got.end = e.End
			if each != nil {
				each(e)
			}
			e.Release()
		}
		got.sum = [sha256.Size]byte(sum.Sum(nil))
		done <- got
	}()
	return done
}

// checkRefused checks that a store that was handed over begins nothing.
func checkRefused(p *process) {
	p.refuses("ErrHandedOver", "create new a")
	p.refuses("ErrHandedOver", "remove a done")
	p.refuses("ErrHandedOver", "sweep")
	p.refuses("ErrHandedOver", "room a")
	p.refuses("ErrHandedOver", "purge b")
	p.refuses("ErrHandedOver", "handover")
}

// The whole sequence: the next process creates and reads executions while the earlier one ends its own.
func TestTakeover(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	p := startProcess(t, dir)
	p.must("open plain")
	p.must("create done a")
	p.must("end done EXITED")
	live := []string{"small", "moves", "large", "keyed"}
	for _, id := range live {
		p.must("create", id, "a", map[string]string{"keyed": "k"}[id])
		p.must("started", id)
	}
	p.must("append large", 3*maxInRows, 0)
	checkThird(t, "before", dir)
	if _, err := Open(Config{Dir: dir, Takeover: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("not handed over: got %v", err)
	}
	p.must("handover")
	checkRefused(p)
	checkThird(t, "handed over", dir)

	s := openBeside(t, dir, live...)
	checkThird(t, "before Adopt", dir)
	if s.batch.name != "journal-2" {
		t.Errorf("the journal is %s", s.batch.name)
	}
	if left, err := s.Unended(t.Context()); len(left) != 0 || err != nil {
		t.Errorf("unended: %v, %v", left, err)
	}
	if _, err := s.Reopen(t.Context(), "small"); !errors.Is(err, ErrInUse) {
		t.Errorf("reopen: got %v", err)
	}
	if err := s.Remove(t.Context(), "a", "small"); !errors.Is(err, ErrNotEnded) {
		t.Errorf("remove: got %v", err)
	}
	if _, _, err := s.Purge(t.Context(), "b"); !errors.Is(err, ErrNotAdopted) {
		t.Errorf("purge: got %v", err)
	}
	if err := s.HandOver(t.Context()); !errors.Is(err, ErrNotAdopted) {
		t.Errorf("hand over: got %v", err)
	}
	if err := s.Adopt(t.Context()); !errors.Is(err, ErrInUse) {
		t.Errorf("adopt: got %v", err)
	}
	_, err := s.Create(t.Context(), Execution{ID: "again", Tenant: "a", Key: "k"}, nil)
	if claimed, ok := errors.AsType[*KeyClaimed](err); !ok || claimed.Existing.ID != "keyed" || claimed.Existing.State != Running {
		t.Errorf("the key: got %v", err)
	}
	if _, err := s.Create(t.Context(), Execution{ID: "small", Tenant: "b"}, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("the id: got %v", err)
	}
	own := create(t, s, Execution{ID: "own", Created: start.Add(-time.Hour)}) // the number is after all others
	appendOutput(t, own, "own")
	if got, want := listAll(t, s, Filter{Tenant: "a"}), []string{"own", "keyed", "large", "moves", "small", "done"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}

	// Each event is appended only after the reader has the one before, so the readers see the spools grow.
	for _, id := range live[:3] {
		events := make(chan uint64)
		first := readData(t, s, "a", id, 0, func(e Event) { events <- e.Seq })
		for seq := uint64(1); seq <= 2; seq++ { // the header and the start
			if got := <-events; got != seq {
				t.Errorf("%s: got event %d, want %d", id, got, seq)
			}
		}
		sum := sha256.New()
		seq := uint64(2)
		if id == "large" {
			seq = <-events
			sum.Write(pattern(id, 3*maxInRows, 0))
		}
		size := map[string]int{"small": 10, "moves": maxInRows / 8, "large": 300_000}[id]
		for i := range 20 {
			p.must("append", id, size+i, i)
			sum.Write(pattern(id, size+i, i))
			if seq++; <-events != seq {
				t.Errorf("%s: another event than %d", id, seq)
			}
		}
		second := readData(t, s, "a", id, seq-1, nil) // begins late
		p.must("artifact", id, 1000)
		if got, _, err := s.ListArtifacts(t.Context(), "a", id, 0, ""); len(got) != 0 || err != nil {
			t.Errorf("%s: before the end: got %v, %v", id, got, err)
		}
		if x := get(t, s, "a", id); x.State != Running || x.LastSeq != seq {
			t.Errorf("%s: before the end: got %+v, want event %d", id, x, seq)
		}
		p.must("end", id, "EXITED")
		if seq++; <-events != seq {
			t.Errorf("%s: the end is another event than %d", id, seq)
		}
		if got := <-first; got.err != nil || got.sum != [sha256.Size]byte(sum.Sum(nil)) || got.end != "EXITED" || got.events != int(seq) {
			t.Errorf("%s: got %d events of %d, end %q, %v", id, got.events, seq, got.end, got.err)
		}
		if got := <-second; got.err != nil || got.events != 2 || got.end != "EXITED" {
			t.Errorf("%s: the second reader got %d events, end %q, %v", id, got.events, got.end, got.err)
		}
		if x := get(t, s, "a", id); x.State != Ended || x.LastSeq != seq || string(x.Outcome) != "outcome of "+id {
			t.Errorf("%s: got %+v", id, x)
		}
		if got, _, err := s.ListArtifacts(t.Context(), "a", id, 0, ""); len(got) != 1 || err != nil {
			t.Errorf("%s: got %v, %v", id, got, err)
		}
		if got := len(readAll(t, s, "a", id, 0)); got != int(seq) {
			t.Errorf("%s: read %d events again, want %d", id, got, seq)
		}
	}
	p.must("end keyed EXITED")
	p.must("close")
	p.leave()
	if err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Adopt(t.Context()); err != nil {
		t.Errorf("adopted twice: %v", err)
	}
	checkThird(t, "adopted", dir)
	if left, err := s.Unended(t.Context()); len(left) != 0 || err != nil {
		t.Errorf("unended: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ballastNames[0])); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other ballast: %v", err)
	}
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("adopted: counts %v, want %v", got, want)
	}
	if _, _, err := s.Purge(t.Context(), "nobody"); err != nil {
		t.Errorf("purge: %v", err)
	}

	// This process is the earlier one now, with the other journal.
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = startProcess(t, dir)
	p.must("open takeover own")
	if got := p.ask("journal"); got != "journal" {
		t.Errorf("the journal is %s", got)
	}
	end(t, own, "EXITED", start)
	if got := p.ask("read a own"); got != "3" {
		t.Errorf("read %s events, want 3", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.must("adopt")
	if got := p.ask("unended"); got != "" {
		t.Errorf("unended: %s", got)
	}
	p.must("close")
	p.leave()
	s = openStore(t, Config{Dir: dir})
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	if got := len(listAll(t, s, Filter{Tenant: "a", States: []State{Ended}})); got != 6 {
		t.Errorf("%d executions, want 6", got)
	}
}

// The earlier process is killed while it writes: each acknowledged byte is there, the readers get it, and Unended
// returns exactly the executions without an end.
func TestTakeoverCrash(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	acks := 0
	for round := range rounds {
		dir := filepath.Join(t.TempDir(), "record")
		p := startProcess(t, dir)
		p.must("open plain")
		var live []string
		sizes := []int{100, 10_000, 100_000}
		for i := range 6 {
			id := fmt.Sprint("e", i)
			p.must("create", id, "a")
			if i%2 == 0 {
				p.must("pump", id, 500, sizes[i/2])
			}
			live = append(live, id)
		}
		p.must("handover")
		s := openBeside(t, dir, live...)
		readers := map[string]<-chan read{}
		for _, id := range live {
			readers[id] = readData(t, s, "a", id, 0, nil)
		}
		for _, id := range live[1:4:4] {
			if id != "e2" {
				p.must("pump", id, 500, sizes[rand.IntN(3)])
			}
		}
		own := create(t, s, Execution{ID: "own"}) // both processes write
		var writing sync.WaitGroup
		stop := make(chan struct{})
		writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				create(t, s, Execution{ID: fmt.Sprint("own-", i), Key: fmt.Sprint(i)})
			}
		})
		p.must("append e5 100 1")
		p.must("end e5 EXITED") // which is in the journal of p, at least
		enough := 20 + rand.IntN(600)
		p.until(func() bool {
			n := 0
			for _, a := range p.all {
				n += len(a.sums)
			}
			return n >= enough || len(p.pumped) == 5
		})
		p.kill()
		close(stop)
		writing.Wait()
		if err := s.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := s.Unended(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, x := range left {
			ids = append(ids, x.ID)
		}
		if want := live[:5]; !slices.Equal(ids, want) {
			t.Fatalf("round %d: unended %v, want %v", round, ids, want)
		}
		late := newReader(t, s, "a", "e0", 0) // not reopened yet
		for _, id := range ids {
			end(t, reopenLog(t, s, id), "DAEMON_LOST", start)
		}
		for {
			if _, err = late.Next(t.Context()); err != nil {
				break
			}
		}
		if err != io.EOF {
			t.Errorf("the late reader: %v", err)
		}
		for _, id := range live {
			got, want := <-readers[id], readAll(t, s, "a", id, 0)
			sum := sha256.New()
			for _, e := range want {
				if e.Kind == KindOutput {
					sum.Write(e.Data)
				}
			}
			if got.err != nil || got.events != len(want) || got.sum != [sha256.Size]byte(sum.Sum(nil)) || got.end == "" {
				t.Errorf("round %d, %s: the reader got %d events of %d, end %q, %v", round, id, got.events, len(want), got.end, got.err)
			}
			if a := p.all[id]; a != nil {
				acks += len(a.sums)
				checkAcknowledged(t, s, id, a)
			}
		}
		end(t, own, "EXITED", start)
		if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
			t.Errorf("round %d: counts %v, want %v", round, got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d events were acknowledged", acks)
}

// Both processes are killed: the next plain Open has the changes of both journals.
func TestBothCrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	first, second := startProcess(t, dir), startProcess(t, dir)
	first.must("open idle")
	for _, id := range []string{"ends", "runs"} {
		first.must("create", id, "a")
	}
	first.must("handover")
	second.must("open idle-takeover ends runs")
	second.must("create theirs a")
	second.must("append theirs 100 1")
	first.must("append runs 100000 1")
	first.must("append runs 100 2")
	first.must("end ends EXITED")
	first.must("started runs") // after the end, which empties the journal
	first.kill()
	checkThird(t, "one lives", dir)
	second.kill()
	for _, name := range journalNames {
		if journalEntries(t, dir, name) == 0 {
			t.Fatalf("%s is empty", name)
		}
	}
	s := openStore(t, Config{Dir: dir})
	if s.batch.name != "journal" {
		t.Errorf("the journal is %s", s.batch.name)
	}
	for _, name := range journalNames {
		if n := journalEntries(t, dir, name); n != 0 {
			t.Errorf("%s has %d entries", name, n)
		}
	}
	left, err := s.Unended(t.Context())
	if err != nil || len(left) != 2 || left[0].ID != "runs" || left[1].ID != "theirs" {
		t.Errorf("got %v, %v", left, err)
	}
	for _, x := range left {
		end(t, reopenLog(t, s, x.ID), "DAEMON_LOST", start)
	}
	for _, p := range []*process{first, second} {
		for id, a := range p.all {
			checkAcknowledged(t, s, id, a)
		}
	}
}

// The bytes of an execution that the earlier process ends count once: a sweep, a removal or Adopt adds them.
func TestTakeoverUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	p := startProcess(t, dir)
	p.must("open plain")
	var live []string
	for i := range 24 {
		id := fmt.Sprint("e", i)
		p.must("create", id, fmt.Sprint("t", i%3), "k"+id)
		p.must("append", id, []int{50, 20_000, 100_000}[i%4%3], i)
		if i%5 == 0 {
			p.must("artifact", id, 1000+i)
		}
		live = append(live, id)
	}
	p.must("handover")
	s := openBeside(t, dir, live...)
	tenant := func(i int) string { return fmt.Sprint("t", i%3) }
	finish := func(from, to int) {
		for i := from; i < to; i++ {
			p.must("append", live[i], 70_000, i)
			p.must("artifact", live[i], 2000+i)
			p.must("end", live[i], "EXITED")
			for get(t, s, tenant(i), live[i]).State != Ended {
				// until the other process has flushed its journal
				if t.Context().Err() != nil {
					t.Fatal("it does not end")
				}
			}
		}
	}
	ends := 0
	s.usages.Range(func(_, u any) bool { ends += int(u.(*usage).ended.Load()); return true })
	if ends != 0 {
		t.Errorf("%d bytes are ended", ends)
	}
	finish(0, 8)
	sweep(t, s, start) // counts them
	if got := s.Bytes(); got < 8*70_000 {
		t.Errorf("counted %d bytes", got)
	}
	for i := range 3 {
		if err := s.Remove(t.Context(), tenant(i), live[i]); err != nil {
			t.Fatal(err)
		}
	}
	finish(8, 16)
	for i := 8; i < 11; i++ { // not counted before
		if err := s.Remove(t.Context(), tenant(i), live[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := 16; i < 20; i++ {
		p.must("artifact", live[i], 5000)
		p.must("append", live[i], 90_000, i)
	}
	if removed, _, err := s.MakeRoom(t.Context(), "t1", 1); removed == 0 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	own := create(t, s, Execution{ID: "own", Tenant: "t1", Detail: make([]byte, 500)})
	appendOutput(t, own, strings.Repeat("x", 1000))
	end(t, own, "EXITED", start)
	finish(20, 21)
	p.must("artifact", live[21], 7000)
	p.kill()
	if err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	adopted := usagesOf(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, Config{Dir: dir})
	if fresh := usagesOf(s); !maps.Equal(adopted, fresh) {
		t.Errorf("adopted: counts %v, want %v", adopted, fresh)
	}
	left, err := s.Unended(t.Context())
	if err != nil || len(left) != 7 {
		t.Errorf("%d unended, %v", len(left), err)
	}
	for _, x := range left {
		reopenLog(t, s, x.ID)
	}
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

// After a failed takeover the earlier process goes on, and has the executions that the next process has recorded.
func TestResume(t *testing.T) {
	s := openStore(t, Config{MaxAge: time.Hour})
	dir := s.config.Dir
	small, large := create(t, s, Execution{ID: "small", Detail: []byte("detail")}), createInFile(t, s, Execution{ID: "large"})
	end(t, create(t, s, Execution{ID: "done", Tenant: "b", Detail: make([]byte, 3000)}), "EXITED", start)
	end(t, create(t, s, Execution{ID: "stays", Tenant: "b"}), "EXITED", start)
	follower := following(t, newReader(t, s, "a", "small", 1))
	if err := s.Resume(); err != nil {
		t.Errorf("not handed over: %v", err)
	}
	for range 2 { // nobody opened it
		if err := s.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.HandOver(t.Context()); !errors.Is(err, ErrHandedOver) {
			t.Errorf("got %v", err)
		}
		appendOutput(t, small, "one")
		if e := <-follower; string(e.Data) != "one" {
			t.Errorf("got %q", e.Data)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		checkThird(t, "resumed", dir)
	}
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, dir)
	p.must("open idle-takeover small large")
	if err := s.Resume(); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Create(t.Context(), Execution{ID: "no", Tenant: "a"}, nil); !errors.Is(err, ErrHandedOver) {
		t.Errorf("got %v", err)
	}
	p.must("create theirs c k")
	p.must("append theirs 100000 1")
	p.must("remove b done")
	p.must("create ended c")
	p.must("append ended 2000 1")
	p.must("end ended EXITED")
	appendOutput(t, large, "two")
	appendOutput(t, small, strings.Repeat("x", 5000))
	p.kill()
	if journalEntries(t, dir, "journal-2") == 0 {
		t.Fatal("the journal is empty")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	left, err := s.Unended(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != "theirs" {
		t.Fatalf("unended %v, %v", left, err)
	}
	l := reopenLog(t, s, "theirs")
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("resumed: counts %v, want %v", got, want)
	}
	if _, err := s.Create(t.Context(), Execution{ID: "x", Tenant: "c", Key: "k", Created: start}, nil); err == nil {
		t.Error("the key of the other process was claimed again")
	}
	end(t, create(t, s, Execution{ID: "last", Tenant: "c", Created: start}), "EXITED", start)
	if got := listAll(t, s, Filter{Tenant: "c"}); !slices.Equal(got, []string{"last", "ended", "theirs"}) {
		t.Errorf("listed %v", got)
	}
	for _, l := range []*Log{l, small, large} {
		end(t, l, "EXITED", start)
	}
	for e := range follower {
		if e.Kind == KindOutput && string(e.Data) != "one" && len(e.Data) != 5000 {
			t.Errorf("got %q", e.Data)
		}
	}
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("ended: counts %v, want %v", got, want)
	}
	if removed, _ := sweep(t, s, start.Add(2*time.Hour)); removed != 6 {
		t.Errorf("removed %d", removed)
	}
}

// Resume tells errors that may pass from damage, also if SQLite has reported them. It can be called again.
func TestResumeAgain(t *testing.T) {
	s := openStore(t, Config{})
	end(t, create(t, s, Execution{ID: "x"}), "EXITED", start)
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	scarcetest.WithoutDescriptors(t, func() {
		if err := s.Resume(); !durable.MayPass(err) {
			t.Errorf("without descriptors: got %v", err)
		}
	})
	s.db.queries.SetMaxIdleConns(0) // the next query opens the database
	path := filepath.Join(s.config.Dir, databaseName)
	if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); !durable.MayPass(err) {
		t.Errorf("without a database: got %v", err)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	end(t, create(t, s, Execution{ID: "y"}), "EXITED", start)
	if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	if err := markPassing(sqlite3.Error{Code: sqlite3.ErrCorrupt}); durable.MayPass(err) {
		t.Errorf("damage may pass: %v", err)
	}
}

// HandOver waits for Creates under way: the next process finds every execution whose Create has succeeded.
func TestHandOverWaits(t *testing.T) {
	s := openStore(t, Config{})
	var mu sync.Mutex
	var created []string
	var creating sync.WaitGroup
	begun := make(chan struct{}, 8)
	for i := range cap(begun) {
		creating.Go(func() {
			for n := 0; ; n++ {
				x := Execution{ID: fmt.Sprintf("e%d-%d", i, n), Tenant: "a"}
				if n%3 == 0 {
					x.Key = x.ID
				}
				l, err := s.Create(context.Background(), x, []byte("header of "+x.ID))
				if errors.Is(err, ErrHandedOver) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				created = append(created, x.ID)
				mu.Unlock()
				if n == 20 {
					begun <- struct{}{}
				}
				if n%2 == 0 {
					end(t, l, "EXITED", start)
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	if err := s.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := stored(t, s) // in the database, without the journal
	creating.Wait()
	if found != len(created) {
		t.Errorf("%d executions are in the database, %d were created", found, len(created))
	}
}

// A HandOver that can't wait any longer changes nothing.
func TestHandOverGivesUp(t *testing.T) {
	s := openStore(t, Config{})
	if err := s.begin(); err != nil { // a Create that takes long
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.HandOver(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	create(t, s, Execution{})
	checkThird(t, "afterwards", s.config.Dir)
	handed := make(chan int)
	go func() {
		if err := s.HandOver(t.Context()); err != nil {
			t.Error(err)
		}
		handed <- stored(t, s)
	}()
	for !s.handedOver.Load() {
		runtime.Gosched()
	}
	for i := range 500 { // the Create records its execution now, among others
		l := newLog(s, fmt.Sprint("late-", i))
		l.mu.Lock()
		err := errors.Join(s.register(l), s.create(t.Context(), l, Execution{ID: l.id, Tenant: "a"}, nil))
		l.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.done()
	if n := <-handed; n != 501 {
		t.Errorf("%d executions are in the database, want 501", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.HandOver(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
}

// An Open in a takeover moves nothing aside, migrates nothing and makes no new record.
func TestBesideRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   func(error) bool
	}{
		{"older schema", func(t *testing.T, dir string) { execIn(t, dir+"/record.db", "PRAGMA user_version = 1") }, isType[*SchemaError]},
		{"newer schema", func(t *testing.T, dir string) { execIn(t, dir+"/record.db", "PRAGMA user_version = 99") }, isType[*SchemaError]},
		{"text", func(t *testing.T, dir string) {
			write(t, dir+"/record.db", []byte(strings.Repeat("not a database", 1000)))
		}, isType[*DamagedError]},
		{"emptied", func(t *testing.T, dir string) { cutFile(t, dir+"/record.db") }, isType[*DamagedError]},
		{"without rows", func(t *testing.T, dir string) { execIn(t, dir+"/record.db", "DELETE FROM executions") }, isType[*DamagedError]},
		{"removed", func(t *testing.T, dir string) {
			if err := os.Remove(dir + "/record.db"); err != nil {
				t.Fatal(err)
			}
		}, isType[*DamagedError]},
		{"another journal", func(t *testing.T, dir string) { flip(0)(t, dir+"/journal", 0) }, isType[*SchemaError]},
		{"another second journal", func(t *testing.T, dir string) { write(t, dir+"/journal-2", []byte("journal 0\nand more")) }, isType[*SchemaError]},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t, Config{})
			end(t, createInFile(t, s, Execution{ID: "x"}), "EXITED", start)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			dir := s.config.Dir
			test.damage(t, dir)
			before, err := os.ReadFile(dir + "/record.db")
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if s, err := Open(Config{Dir: dir, Takeover: true}); err == nil {
				s.Close()
				t.Error("opened")
			} else if !test.want(err) {
				t.Errorf("got %v", err)
			}
			after, err := os.ReadFile(dir + "/record.db")
			if !bytes.Equal(before, after) {
				t.Errorf("the database was changed, %v", err)
			}
			if aside, _ := filepath.Glob(dir + "/corrupt-*"); len(aside) != 0 {
				t.Errorf("moved %v", aside)
			}
			if _, err := os.Stat(dir + "/spool/x"); err != nil {
				t.Error(err)
			}
		})
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// The earlier process died before the next one opened the store: nothing is lost.
func TestEarlierDiedBefore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	p := startProcess(t, dir)
	p.must("open idle")
	for _, id := range []string{"ends", "runs", "ends-in-file"} {
		p.must("create", id, "a")
	}
	p.must("append ends-in-file 100000 1")
	p.must("handover")
	p.must("end ends EXITED") // which is in the database at once
	p.must("append runs 100 1")
	p.must("half ends-in-file EXITED")
	p.kill()
	if journalEntries(t, dir, "journal") == 0 {
		t.Fatal("the journal is empty")
	}
	s := openBeside(t, dir, "ends", "runs", "ends-in-file")
	reader, other := readData(t, s, "a", "runs", 0, nil), readData(t, s, "a", "ends-in-file", 0, nil)
	if x := get(t, s, "a", "ends-in-file"); x.State == Ended {
		t.Error("the end in a file of the earlier process was taken before Adopt")
	}
	if err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Unended(t.Context()); err != nil || len(left) != 1 || left[0].ID != "runs" {
		t.Errorf("got %v, %v", left, err)
	}
	end(t, reopenLog(t, s, "runs"), "DAEMON_LOST", start)
	if got := <-reader; got.events != 3 || got.end != "DAEMON_LOST" || got.err != nil {
		t.Errorf("got %+v", got)
	}
	if got := <-other; got.events != 3 || got.end != "EXITED" || got.err != nil {
		t.Errorf("got %+v", got)
	}
	for _, id := range []string{"ends", "ends-in-file"} {
		if x := get(t, s, "a", id); x.End != "EXITED" {
			t.Errorf("got %+v", x)
		}
	}
	if got, want := usagesOf(s), summed(t, s); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}
