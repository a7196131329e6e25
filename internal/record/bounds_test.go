package record

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// An end that is refused leaves the log open: the next one closes it, and wakes
// who waits.
func TestEndAfterRefusedEnd(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	r := newReader(t, s, "a", l.ID(), 1)
	events := following(t, r)
	for _, size := range []int{MaxOutcomeBytes + 1, MaxEventBytes, MaxEventBytes + 1, 2 * MaxEventBytes} {
		err := l.End(t.Context(), "EXITED", make([]byte, size), start)
		if large, ok := errors.AsType[*OutcomeTooLargeError](err); !ok || large.ID != l.ID() || large.Size != size {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
	if x := get(t, s, "a", l.ID()); x.State != Queued || x.LastSeq != 1 {
		t.Errorf("got %+v", x)
	}
	want := appendOutput(t, l, "still open")
	if e := <-events; e.Seq != want {
		t.Errorf("got %+v", e)
	}
	end(t, l, "INTERNAL", start)
	if e := <-events; e.Kind != KindEnd || e.End != "INTERNAL" {
		t.Errorf("got %+v", e)
	}
	if e, more := <-events; more {
		t.Errorf("got %+v after the end", e)
	}
	if x := get(t, s, "a", l.ID()); x.State != Ended || x.End != "INTERNAL" || s.liveLog(l.ID()) != nil {
		t.Errorf("got %+v", x)
	}
}

func TestLargestOutcome(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	if err := l.End(t.Context(), "EXITED", make([]byte, MaxOutcomeBytes), start); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, s, "a", l.ID(), 1); len(got) != 1 || len(got[0].Data) != MaxOutcomeBytes {
		t.Errorf("got %d events", len(got))
	}
}

// Large executions make a page shorter; none is left out.
func TestPageBytes(t *testing.T) {
	s := openStore(t, Config{})
	var want []string
	for i := range 6 {
		l := create(t, s, Execution{ID: fmt.Sprint("e", i)})
		if err := l.End(t.Context(), "EXITED", make([]byte, MaxOutcomeBytes), start); err != nil {
			t.Fatal(err)
		}
		want = slices.Insert(want, 0, l.ID())
	}
	f := Filter{Tenant: "a", PageSize: MaxPage}
	page, next, err := s.List(t.Context(), f)
	if len(page) != pageBytes/MaxOutcomeBytes || next == "" || err != nil {
		t.Errorf("got a page of %d, %q, %v", len(page), next, err)
	}
	if got := listAll(t, s, f); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNanos(t *testing.T) {
	for _, test := range []struct {
		at   time.Time
		want int64
	}{
		{time.Time{}, 0},
		{start, start.UnixNano()},
		{time.Unix(0, -1), -1},
		{time.Unix(0, math.MaxInt64), math.MaxInt64},
		{time.Unix(0, math.MaxInt64).Add(1), math.MaxInt64},
		{time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64},
		{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), math.MaxInt64},
		{time.Unix(math.MaxInt64/2, 0), math.MaxInt64},
		{time.Unix(0, math.MinInt64), math.MinInt64},
		{time.Unix(0, math.MinInt64).Add(-1), math.MinInt64},
		{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), math.MinInt64},
	} {
		if got := nanos(test.at); got != test.want {
			t.Errorf("%v: got %d, want %d", test.at, got, test.want)
		}
	}
}

// Times that can't be stored become the nearest that can, everywhere.
func TestDistantTimes(t *testing.T) {
	far, long := time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC)
	last, first := time.Unix(0, math.MaxInt64), time.Unix(0, math.MinInt64)
	s := openStore(t, Config{MaxAge: time.Hour})
	for _, x := range []Execution{{ID: "now", Created: start}, {ID: "long", Created: long}, {ID: "far", Created: far}, {ID: "after", Created: far}} {
		x.Labels = map[string]string{"k": "v"}
		l := create(t, s, x)
		if err := l.Started(t.Context(), x.Created, nil); err != nil {
			t.Fatal(err)
		}
		end(t, l, "EXITED", x.Created)
	}
	for _, test := range []struct {
		after time.Time
		want  []string
	}{
		{long, []string{"after", "far", "long", "now"}},
		{start, []string{"after", "far", "now"}},
		{start.Add(1), []string{"after", "far"}},
		{time.Date(2262, 4, 11, 23, 47, 17, 0, time.UTC), []string{}},
		{far, []string{}},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), []string{}},
	} {
		for _, labels := range []map[string]string{nil, {"k": "v"}} {
			if got := listAll(t, s, Filter{Tenant: "a", CreatedAfter: test.after, Labels: labels}); !slices.Equal(got, test.want) {
				t.Errorf("%v: got %v, want %v", test.after, got, test.want)
			}
		}
	}
	for id, want := range map[string]time.Time{"now": start, "long": first, "far": last} {
		x, events := get(t, s, "a", id), readAll(t, s, "a", id, 1)
		if !x.Started.Equal(want) || !x.Ended.Equal(want) || !events[0].Time.Equal(want) {
			t.Errorf("%s: got %v, %v and %v", id, x.Started, x.Ended, events[0].Time)
		}
	}
	// Only "long" is old.
	if removed, _ := sweep(t, s, start); removed != 1 {
		t.Errorf("got %d", removed)
	}
}
