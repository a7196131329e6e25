package sandbox

import (
	"fmt"
	"testing"
	"time"
)

func openPrepared(t testing.TB) *Host {
	c := testConfig(t)
	c.Prepared = 4
	return openWith(t, c)
}

func TestPreparedTrue(t *testing.T) {
	h := openPrepared(t)
	for range 3 {
		got := run(t, h, Spec{Program: command("/usr/bin/true")}, "")
		if got.exit.End != Exited || got.exit.Code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	noLeftovers(t, h)
}

// Ended sandboxes are freed behind their answers, a few at a time, and no more wait for
// that than there may.
func TestFreedBehind(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count int   // as many as there may be
		bytes int64 // of each
	}{
		{"count", maxBehind, 1},
		{"ids", 5, 1},
		{"bytes", 4, maxBehindBytes / 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pool{mostBehind: maxBehind}
			if tt.name == "ids" {
				p.mostBehind = tt.count
			}
			begun, goOn := make(chan struct{}, maxBehind), make(chan struct{})
			free := func() { begun <- struct{}{}; <-goOn }
			for i := range tt.count {
				if !p.behind(tt.bytes, free) {
					t.Fatalf("sandbox %d: not taken", i)
				}
			}
			if p.behind(tt.bytes, free) {
				t.Error("one too many is taken")
			}
			for range min(tt.count, maxFreers) {
				<-begun
			}
			if len(begun) > 0 {
				t.Errorf("freed at once: got %d more than %d", len(begun), maxFreers)
			}
			close(goOn)
			p.done.Wait()
			if got, want := len(begun)+min(tt.count, maxFreers), tt.count; got != want {
				t.Errorf("freed: got %d, want %d", got, want)
			}
			if p.endedCount != 0 || p.endedBytes != 0 || p.freers != 0 {
				t.Errorf("left: got %d with %d bytes, and %d who free", p.endedCount, p.endedBytes, p.freers)
			}
			if !p.behind(maxBehindBytes, free) {
				t.Error("when nothing waits none is taken")
			}
			p.done.Wait()
		})
	}
}

// What two shelves take from each other comes to an end, whichever was asked for last:
// else a pool that is full makes sandboxes and drops them for ever.
func TestMakeRoomSettles(t *testing.T) {
	h := openPrepared(t)
	now := time.Now()
	for _, tt := range []struct {
		name    string
		a, b    int           // how many they hold
		earlier time.Duration // b was asked for, before a
	}{
		{"together, a holds more", 8, 0, 0},
		{"together, b holds more", 0, 8, 0},
		{"a moment before", 1, 7, poolPeriod / 2},
		{"long before", 1, 7, 2 * poolPeriod},
		{"long before, and has less", 7, 1, 2 * poolPeriod},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cells := func(n int) (c []*cell) {
				for range n {
					c = append(c, newCell(h, Spec{}))
				}
				return c
			}
			a := &shelf{ready: cells(tt.a), asked: now}
			b := &shelf{ready: cells(tt.b), asked: now.Add(-tt.earlier)}
			p := &pool{host: h, shelves: map[profile]*shelf{{cpu: 1}: a, {cpu: 2}: b}}
			moves := 0
			for moved := true; moved && moves <= 100; {
				moved = false
				for _, f := range []*shelf{a, b} {
					if p.makeRoom(f) {
						f.ready = append(f.ready, cells(1)...)
						moved = true
						moves++
					}
				}
			}
			p.done.Wait()
			if moves > 8 {
				t.Errorf("got %d moves of %d sandboxes, then %d and %d", moves, tt.a+tt.b, len(a.ready), len(b.ready))
			}
		})
	}
}

// Where none may wait, the mother makes each sandbox when it is asked for, and a ready
// Python forks into it.
func TestMotherWithoutPreparedSandboxes(t *testing.T) {
	c := testConfig(t)
	c.Mother, c.Prepared, c.Interpreters = true, 0, 1
	h := openWith(t, c)
	start := func(s Spec, id string) *Process {
		s.ID = id
		p, err := h.Start(t.Context(), s, IO{})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit.End != Exited || exit.Code != 0 {
			t.Errorf("got %+v, %v", exit, err)
		}
		return p
	}
	for i := range 3 {
		if p := start(Spec{Program: command("/usr/bin/true")}, fmt.Sprintf("made%d", i)); p.cell.born == nil {
			t.Error("the mother did not make it")
		}
	}
	python := pythonSpec(nil, "-c", "pass")
	forked := func() bool { return start(python, fmt.Sprintf("python%d", testIDs.Add(1))).cell.joined != nil }
	for deadline := time.Now().Add(time.Minute); !forked(); {
		if time.Now().After(deadline) {
			t.Fatal("no Python was forked")
		}
	}
	h.pool.mu.Lock()
	for _, f := range h.pool.shelves {
		if len(f.ready) > 0 {
			t.Errorf("%d sandboxes wait", len(f.ready))
		}
	}
	h.pool.mu.Unlock()
	noLeftovers(t, h)
}
