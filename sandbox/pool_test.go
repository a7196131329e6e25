package sandbox

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// What waits for the next request has nothing of the last one's, and of many requests
// that are each of another kind not all are remembered.
func TestPoolForgetsRequests(t *testing.T) {
	h := openReady(t)
	s := pythonSpec(nil, "-c", "pass")
	s.Env = append(s.Env, "TOKEN=secret")
	run(t, h, s, "")
	waitForReady(t, h, s)
	holds := func(what string, like Spec) {
		t.Helper()
		if len(like.Env)+len(like.Program) > 0 || like.ID != "" {
			t.Errorf("%s holds %+v", what, like)
		}
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	for _, f := range h.pool.shelves {
		holds("a shelf", f.like)
		for _, c := range f.ready {
			holds("a sandbox", c.spec)
			if c.ahead != nil {
				holds("its mounts", c.ahead.spec)
			}
		}
	}
	h.pool.mu.Unlock()
	last := profile{openFiles: 3 * maxShelves}
	for n := range last.openFiles {
		h.pool.pick(profile{openFiles: n + 1}, Spec{})
	}
	h.pool.mu.Lock()
	if n := len(h.pool.shelves); n > maxShelves || h.pool.shelves[last] == nil {
		t.Errorf("got %d shelves, want at most %d and the last one", n, maxShelves)
	}
}

// An interpreter of which a program runs is busy, also if one of its children that wait
// was killed.
func TestBusyInterpreter(t *testing.T) {
	h := openReady(t)
	s := pythonSpec(nil, "-c", "print('ready', flush=True); input()")
	run(t, h, s, "") // asks for it
	waitForReady(t, h, s)
	r, w := io.Pipe()
	said := &firstWrite{to: io.Discard, done: make(chan struct{})}
	s.ID = "busy"
	p, err := h.Start(t.Context(), s, IO{Stdin: r, Stdout: said})
	if err != nil {
		t.Fatal(err)
	}
	<-said.done
	waitForReady(t, h, s)
	key := s.withDefaults().profile()
	key.ready = s.readyKey()
	if err := eventually(func() error {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		f := h.pool.shelves[key]
		f.want = 0 // no more than there are
		if n, waiting := h.pool.ready[key.ready].in.children(), len(f.ready); n != waiting+1 {
			return fmt.Errorf("%d children, of which %d wait", n, waiting)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h.pool.mu.Lock()
	c := h.pool.shelves[key].ready[0]
	if err := unix.PidfdSendSignal(c.born.fd, unix.SIGKILL, nil, 0); err != nil {
		t.Error(err)
	}
	if err := eventually(func() error {
		if len(c.joined.ended) == 0 {
			return errors.New("nobody says that the child has ended")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if n := h.pool.running(key.ready); n < 1 {
		t.Errorf("got %d that run, want the one", n)
	}
	h.pool.mu.Unlock()
	w.Close()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	noLeftovers(t, h)
}
