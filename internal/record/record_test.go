package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// start is when the tests' executions begin.
var start = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func openStore(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "record")
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	s.fillBallast() // as the daemon's first sweep
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func reopenStore(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openStore(t, s.config)
}

// create records an execution of tenant "a" with what else x says.
func create(t testing.TB, s *Store, x Execution) *Log {
	t.Helper()
	if x.ID == "" {
		x.ID = NewID()
	}
	if x.Tenant == "" {
		x.Tenant = "a"
	}
	l, err := s.Create(t.Context(), x, []byte("header of "+x.ID))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// createInFile is create with a spool that is a file from the beginning.
func createInFile(t testing.TB, s *Store, x Execution) *Log {
	t.Helper()
	l := create(t, s, x)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.moveToFile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// creators are the two places for a spool.
var creators = map[string]func(testing.TB, *Store, Execution) *Log{"in rows": create, "in a file": createInFile}

func appendOutput(t testing.TB, l *Log, data string) uint64 {
	t.Helper()
	seq, err := l.Append(Event{Kind: KindOutput, Stream: 1, Time: start, Data: []byte(data)})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func end(t testing.TB, l *Log, word string, at time.Time) {
	t.Helper()
	if err := l.End(t.Context(), word, []byte(`{"end":"`+word+`"}`), at); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s *Store, tenant, id string) Execution {
	t.Helper()
	x, err := s.Get(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func newReader(t testing.TB, s *Store, tenant, id string, after uint64) *Reader {
	t.Helper()
	r, err := s.Read(t.Context(), tenant, id, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// readAll reads up to the end, which must be one.
func readAll(t testing.TB, s *Store, tenant, id string, after uint64) []Event {
	t.Helper()
	r := newReader(t, s, tenant, id, after)
	var events []Event
	for {
		e, err := r.Next(t.Context())
		if err == io.EOF {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := e
		kept.Data = bytes.Clone(e.Data)
		e.Release()
		events = append(events, kept)
	}
}

func checkEvents(t testing.TB, got, want []Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d events, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !g.Time.Equal(w.Time) || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("event %d: got %+v, want %+v", i, g, w)
		}
		g.Time, w.Time, g.Data, w.Data, g.of, w.of = time.Time{}, time.Time{}, nil, nil, nil, nil
		if !reflect.DeepEqual(g, w) {
			t.Errorf("event %d: got %+v, want %+v", i, g, w)
		}
	}
}

func TestLifecycle(t *testing.T) {
	s := openStore(t, Config{})
	ctx := t.Context()
	want := Execution{
		ID: NewID(), Tenant: "a", Principal: "alice", Skill: "hello", Digest: "sha256:00", SourceKind: "script",
		Script: "scripts/x.py", Labels: map[string]string{"k": "v", "": "ü"}, Key: "key", RequestHash: []byte{1, 0, 2},
		State: Queued, Created: start, Detail: []byte(`{"a":1}`), Outcome: []byte{}, LastSeq: 1,
	}
	check := func(s *Store) {
		t.Helper()
		if got := get(t, s, "a", want.ID); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	l, err := s.Create(ctx, want, []byte("header"))
	if err != nil {
		t.Fatal(err)
	}
	check(s)

	started := start.Add(time.Second)
	if err := l.Started(ctx, started, []byte("started")); err != nil {
		t.Fatal(err)
	}
	want.State, want.Started, want.LastSeq = Running, started, 2
	check(s)
	if err := l.Started(ctx, started, nil); err == nil {
		t.Error("started twice")
	}

	output := Event{Kind: KindOutput, Stream: 2, Offset: 1 << 40, Time: started, Data: []byte("out\x00")}
	if _, err := l.Append(output); err != nil {
		t.Fatal(err)
	}
	want.LastSeq = 3
	check(s)

	ended := start.Add(time.Minute)
	if err := l.End(ctx, "EXITED", []byte(`{"code":0}`), ended); err != nil {
		t.Fatal(err)
	}
	want.State, want.Ended, want.End, want.Outcome, want.LastSeq = Ended, ended, "EXITED", []byte(`{"code":0}`), 4
	check(s)

	output.Seq = 3
	events := []Event{
		{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header")},
		{Seq: 2, Time: started, Kind: KindStarted, Data: []byte("started")},
		output,
		{Seq: 4, Time: ended, Kind: KindEnd, Data: []byte(`{"code":0}`), End: "EXITED"},
	}
	checkEvents(t, readAll(t, s, "a", want.ID, 0), events)
	s = reopenStore(t, s)
	check(s)
	checkEvents(t, readAll(t, s, "a", want.ID, 0), events)
}

func TestCreateRefuses(t *testing.T) {
	s := openStore(t, Config{})
	taken := create(t, s, Execution{})
	ended := create(t, s, Execution{})
	end(t, ended, "EXITED", start)
	for _, test := range []struct {
		name, id string
		first    int
	}{
		{"no id", "", 0},
		{"path", "../x", 0},
		{"upper case", "A", 0},
		{"long", string(bytes.Repeat([]byte("a"), maxID+1)), 0},
		{"open", taken.ID(), 0},
		{"ended", ended.ID(), 0},
		{"header too long", "b", MaxEventBytes + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := s.Create(t.Context(), Execution{ID: test.id, Tenant: "a"}, make([]byte, test.first))
			if err == nil || l != nil {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
	// The earlier execution did not change.
	appendOutput(t, taken, "x")
	end(t, taken, "EXITED", start)
	for _, id := range []string{taken.ID(), ended.ID()} {
		if e := readAll(t, s, "a", id, 0)[0]; string(e.Data) != "header of "+id {
			t.Errorf("%s: got %q", id, e.Data)
		}
	}
}

func TestCancelledCreate(t *testing.T) {
	s := openStore(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := Execution{ID: NewID(), Tenant: "a", Key: "k"}
	if _, err := s.Create(ctx, x, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Get(t.Context(), "a", x.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	create(t, s, x)
}

// Output is refused if its file can't be made. Earlier output stays, and the log still
// takes small output and the end.
func TestFileCantBeMade(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{ID: "x"})
	appendOutput(t, l, "before")
	if err := os.Mkdir(s.spoolPath("x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(Event{Kind: KindOutput, Data: make([]byte, maxInRows)}); err == nil {
		t.Fatal("appended to a directory")
	}
	appendOutput(t, l, "after")
	end(t, l, "EXITED", start)
	for range 2 {
		events := readAll(t, s, "a", "x", 1)
		if len(events) != 3 || string(events[0].Data) != "before" || string(events[1].Data) != "after" {
			t.Errorf("got %+v", events)
		}
		s = reopenStore(t, s)
	}
}

func TestAppendRefuses(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	for _, kind := range []Kind{0, KindHeader, KindStarted, KindEnd, KindDenied + 1} {
		if _, err := l.Append(Event{Kind: kind}); err == nil {
			t.Errorf("kind %d was appended", kind)
		}
	}
	if _, err := l.Append(Event{Kind: KindOutput, Data: make([]byte, MaxEventBytes+1)}); err == nil {
		t.Error("too much data was appended")
	}
	for _, word := range []string{"", string(make([]byte, maxEnd+1))} {
		if err := l.End(t.Context(), word, nil, start); err == nil {
			t.Errorf("ended with %q", word)
		}
	}
	if seq := appendOutput(t, l, string(make([]byte, MaxEventBytes))); seq != 2 {
		t.Errorf("got %d", seq)
	}
	if seq, err := l.Append(Event{Time: start, Kind: KindDenied, Data: []byte("refused")}); seq != 3 || err != nil {
		t.Errorf("got %d, %v", seq, err)
	}
	end(t, l, "EXITED", start)
	if _, err := l.Append(Event{Kind: KindOutput}); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v", err)
	}
	if got := readAll(t, s, "a", l.ID(), 0); len(got) != 4 || got[2].Kind != KindDenied || string(got[2].Data) != "refused" {
		t.Errorf("got %d events, the third is %+v", len(got), got[2])
	}
}

// Many goroutines append: every event is there once, whole, with the number that
// Append returned. The events of one goroutine keep their order.
func TestConcurrentAppends(t *testing.T) {
	const writers, each = 8, 500
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	said := make([]map[uint64]string, writers)
	var wg sync.WaitGroup
	for w := range writers {
		said[w] = map[uint64]string{}
		wg.Go(func() {
			for i := range each {
				data := fmt.Sprintf("%d:%d:%s", w, i, bytes.Repeat([]byte{byte(w)}, i*7))
				seq, err := l.Append(Event{Kind: KindOutput, Stream: uint8(w), Offset: uint64(i), Data: []byte(data)})
				if err != nil {
					t.Error(err)
				}
				said[w][seq] = data
			}
		})
	}
	follower := make(chan []Event)
	go func() { follower <- readAll(t, s, "a", l.ID(), 0) }()
	wg.Wait()
	end(t, l, "EXITED", start)
	events := <-follower
	if len(events) != writers*each+2 {
		t.Fatalf("got %d events", len(events))
	}
	var next [writers]uint64
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has sequence %d", i, e.Seq)
		}
		if e.Kind != KindOutput {
			continue
		}
		if said[e.Stream][e.Seq] != string(e.Data) || e.Offset != next[e.Stream] {
			t.Fatalf("event %d isn't what was appended", e.Seq)
		}
		next[e.Stream]++
	}
	checkEvents(t, readAll(t, s, "a", l.ID(), 0), events)
}

func TestEndOnce(t *testing.T) {
	s := openStore(t, Config{})
	for range 20 {
		l := create(t, s, Execution{})
		words := []string{"EXITED", "CANCELLED", "TIMED_OUT", "SIGNALED"}
		results := make([]error, len(words))
		var wg sync.WaitGroup
		for i, word := range words {
			wg.Go(func() { results[i] = l.End(t.Context(), word, []byte(word), start) })
		}
		wg.Wait()
		winner := slices.Index(results, nil)
		if winner < 0 {
			t.Fatalf("got %v", results)
		}
		for i, err := range results {
			if i != winner && !errors.Is(err, ErrEnded) {
				t.Errorf("%s: got %v", words[i], err)
			}
		}
		events := readAll(t, s, "a", l.ID(), 0)
		if len(events) != 2 || events[1].End != words[winner] {
			t.Errorf("got %+v, want %s", events, words[winner])
		}
		if x := get(t, s, "a", l.ID()); x.End != words[winner] || string(x.Outcome) != words[winner] {
			t.Errorf("got %s, want %s", x.End, words[winner])
		}
	}
}

// A caller that has read the end finds the execution ended.
func TestEndIsInTheRowFirst(t *testing.T) {
	s := openStore(t, Config{})
	for range 50 {
		l := create(t, s, Execution{})
		r := newReader(t, s, "a", l.ID(), 1)
		state := make(chan State)
		go func() {
			if _, err := r.Next(t.Context()); err != nil {
				t.Error(err)
			}
			x, err := s.Get(t.Context(), "a", l.ID())
			if err != nil {
				t.Error(err)
			}
			state <- x.State
		}()
		end(t, l, "EXITED", start)
		if got := <-state; got != Ended {
			t.Fatalf("got %v", got)
		}
	}
}

// A cancelled context doesn't keep an execution from ending.
func TestEndAfterCancel(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.End(ctx, "CANCELLED", nil, start); err != nil {
		t.Fatal(err)
	}
	if x := get(t, s, "a", l.ID()); x.State != Ended {
		t.Errorf("got %v", x.State)
	}
}

func TestTenants(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{Tenant: "a"})
	writeArtifacts(t, s, l, map[string]string{"x": "y"})
	ask := func(tenant, id string) map[string]error {
		_, get := s.Get(t.Context(), tenant, id)
		r, read := s.Read(t.Context(), tenant, id, 0)
		if read == nil {
			r.Close()
		}
		_, _, list := s.ListArtifacts(t.Context(), tenant, id, 0, "")
		f, _, open := s.OpenArtifact(t.Context(), tenant, id, "x")
		if open == nil {
			f.Close()
		}
		return map[string]error{"Get": get, "Read": read, "ListArtifacts": list, "OpenArtifact": open}
	}
	for _, state := range []string{"open", "ended"} {
		if state == "ended" {
			end(t, l, "EXITED", start)
			for name, err := range ask("a", l.ID()) {
				if err != nil {
					t.Errorf("own: %s: got %v", name, err)
				}
			}
		}
		for _, test := range []struct{ tenant, id string }{
			{"b", l.ID()}, {"", l.ID()}, {"A", l.ID()}, {"a%", l.ID()}, {"a", NewID()}, {"a", ""}, {"a", "../" + l.ID()},
		} {
			for name, err := range ask(test.tenant, test.id) {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %s(%q, %q): got %v", state, name, test.tenant, test.id, err)
				}
			}
		}
		page, _, err := s.List(t.Context(), Filter{Tenant: "b"})
		if len(page) != 0 || err != nil {
			t.Errorf("%s: another tenant sees %v, %v", state, page, err)
		}
	}
}

// A query for another tenant's execution ends in the index, as one for an execution that does not exist. So
// the time tells nothing. An id still belongs to one tenant, because it names files.
func TestSecretIDs(t *testing.T) {
	s := openStore(t, Config{})
	plan := explain(t, s, selectRow+"WHERE id = ? AND tenant = ?", "x", "a")
	if !strings.Contains(plan, "USING INDEX executions_id (id=? AND tenant=?)") {
		t.Errorf("got %s", plan)
	}
	end(t, create(t, s, Execution{ID: "one", Tenant: "a"}), "EXITED", start)
	for range 2 {
		if _, err := s.Create(t.Context(), Execution{ID: "one", Tenant: "b"}, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("got %v, want ErrInUse", err)
		}
		s = reopenStore(t, s)
	}
}

func TestNewID(t *testing.T) {
	last := ""
	for range 1000 {
		id := NewID()
		if !validID(id) {
			t.Fatalf("%q is not valid", id)
		}
		if id <= last {
			t.Fatalf("%q comes after %q", id, last)
		}
		last = id
	}
}
