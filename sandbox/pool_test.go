package sandbox

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
)

func openPrewarmed(t testing.TB) *Host {
	c := testConfig(t)
	c.Prewarmed = 4
	return openWith(t, c)
}

func TestPrewarmedTrue(t *testing.T) {
	h := openPrewarmed(t)
	for range 3 {
		got := run(t, h, Spec{Program: command("/usr/bin/true")}, "")
		if got.exit.End != Exited || got.exit.Code != 0 {
			t.Errorf("got %+v", got)
		}
	}
	noLeftovers(t, h)
}

// The teardown of ended sandboxes is deferred until after their answers. A few run at a time,
// and the queue is bounded.
func TestFreedBehind(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count int   // as many as there may be
		bytes int64 // of each
	}{
		{"count", maxDeferred, 1},
		{"ids", 5, 1},
		{"bytes", 4, maxDeferredBytes / 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pool{mostDeferred: maxDeferred}
			if tt.name == "ids" {
				p.mostDeferred = tt.count
			}
			begun, goOn := make(chan struct{}, maxDeferred), make(chan struct{})
			free := func() { begun <- struct{}{}; <-goOn }
			for i := range tt.count {
				if !p.deferTeardown(tt.bytes, free) {
					t.Fatalf("sandbox %d: not taken", i)
				}
			}
			if p.deferTeardown(tt.bytes, free) {
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
			if p.deferredCount != 0 || p.deferredBytes != 0 || p.freers != 0 {
				t.Errorf("left: got %d with %d bytes, and %d who free", p.deferredCount, p.deferredBytes, p.freers)
			}
			if !p.deferTeardown(maxDeferredBytes, free) {
				t.Error("when nothing waits none is taken")
			}
			p.done.Wait()
		})
	}
}

// Buckets stop taking from each other, however many sandboxes each holds and whenever each was
// asked for. Otherwise a full pool would make and discard sandboxes forever, and would not shrink.
// At the end the recent buckets share the sandboxes equally.
func TestMakeRoomIsFair(t *testing.T) {
	const total = 8
	h := openPrewarmed(t)
	for _, tt := range []struct {
		name    string
		earlier []time.Duration // each bucket was asked for, before the latest request
		recent  int             // how many of the first buckets share the sandboxes
	}{
		{"two together", []time.Duration{0, 0}, 2},
		{"one a moment before", []time.Duration{0, poolPeriod / 2}, 2},
		{"one long before", []time.Duration{0, 2 * poolPeriod}, 1},
		{"three together", []time.Duration{0, 0, 0}, 3},
		{"each a moment before the next", []time.Duration{0, poolPeriod * 2 / 3, poolPeriod * 4 / 3}, 2},
		{"two a moment before, long before", []time.Duration{0, 2 * poolPeriod, poolPeriod * 5 / 2}, 1},
		{"each long before the next", []time.Duration{0, 2 * poolPeriod, 4 * poolPeriod}, 1},
		{"each of four a moment before the next", []time.Duration{0, poolPeriod / 2, poolPeriod, poolPeriod * 3 / 2}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, held := range splits(total, len(tt.earlier)) {
				fillPool(t, h, held, tt.earlier, tt.recent)
			}
		})
	}
}

// splits returns all ways to distribute n sandboxes to count buckets.
func splits(n, count int) (all [][]int) {
	if count == 1 {
		return [][]int{{n}}
	}
	for first := range n + 1 {
		for _, rest := range splits(n-first, count-1) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}

// fillPool fills the buckets of a full pool, as makeOne does, until none gets another sandbox. It
// then checks how many sandboxes each bucket holds.
func fillPool(t *testing.T, h *Host, held []int, earlier []time.Duration, recent int) {
	t.Helper()
	now, total := time.Now(), 0
	for _, n := range held {
		total += n
	}
	sandboxes := func(n int) (c []*sandbox) {
		for range n {
			c = append(c, &sandbox{host: h, destroyed: make(chan struct{})})
		}
		return c
	}
	p := &pool{host: h, max: total, making: newTurns(1), buckets: map[profile]*bucket{}}
	for i, n := range held {
		p.buckets[profile{openFiles: i}] = &bucket{waiting: sandboxes(n), want: total, asked: now.Add(-earlier[i])}
	}
	defer p.done.Wait()
	most := total * len(held) // a sandbox moves to a recent bucket once, and then only to more equal numbers
	for moves := 0; ; moves++ {
		at, ok := p.shortfall()
		if !ok {
			break
		}
		if moves > most {
			t.Fatalf("%v, asked for %v before: got more than %d moves", held, earlier, most)
		}
		p.buckets[at].waiting = append(p.buckets[at].waiting, sandboxes(1)...)
	}
	for i := range held {
		got := len(p.buckets[profile{openFiles: i}].waiting)
		least, greatest := total/recent, (total+recent-1)/recent
		if i >= recent {
			least, greatest = 0, 0
		}
		if got < least || got > greatest {
			t.Errorf("%v, asked for %v before: bucket %d holds %d, want %d to %d", held, earlier, i, got, least, greatest)
		}
	}
}

// If no sandbox may wait, the zygote makes each sandbox at its Start, and a Python zygote
// forks into it.
func TestZygoteWithoutPrewarmedSandboxes(t *testing.T) {
	c := testConfig(t)
	c.Zygote, c.Prewarmed, c.PythonZygotes = true, 0, 1
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
		if p := start(Spec{Program: command("/usr/bin/true")}, fmt.Sprintf("made%d", i)); !byZygote(p.sandbox) {
			t.Error("the zygote did not make it")
		}
	}
	python := pythonSpec(nil, "-c", "pass")
	forked := func() bool { return start(python, fmt.Sprintf("python%d", testIDs.Add(1))).sandbox.forked != nil }
	for deadline := time.Now().Add(time.Minute); !forked(); {
		if time.Now().After(deadline) {
			t.Fatal("no Python was forked")
		}
	}
	h.pool.mu.Lock()
	for _, f := range h.pool.buckets {
		if len(f.waiting) > 0 {
			t.Errorf("%d sandboxes wait", len(f.waiting))
		}
	}
	h.pool.mu.Unlock()
	noLeftovers(t, h)
}

// A waiting sandbox holds no data of the last request. The number of remembered profiles is
// bounded.
func TestPoolForgetsRequests(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "pass")
	s.Env = append(s.Env, "TOKEN=secret")
	run(t, h, s, "")
	waitForReady(t, h, s)
	holds := func(what string, like Spec) {
		t.Helper()
		if len(like.Env)+len(like.Program)+len(like.Mounts)+len(like.Workspace.Lower) > 0 || like.ID != "" {
			t.Errorf("%s holds %+v", what, like)
		}
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	for _, f := range h.pool.buckets {
		holds("a bucket", f.template)
		for _, c := range f.waiting {
			holds("a sandbox", c.spec)
		}
	}
	h.pool.mu.Unlock()
	last := profile{openFiles: 3 * maxBuckets}
	for n := range last.openFiles {
		h.pool.pick(profile{openFiles: n + 1}, Spec{})
	}
	h.pool.mu.Lock()
	if n := len(h.pool.buckets); n > maxBuckets || h.pool.buckets[last] == nil {
		t.Errorf("got %d buckets, want at most %d and the last one", n, maxBuckets)
	}
}

// A Python zygote with a running program is busy, even if one of its waiting children was
// killed.
func TestBusyInterpreter(t *testing.T) {
	h := openForkServer(t)
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
	key.python = s.pythonKey()
	if err := eventually(func() error {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		f := h.pool.buckets[key]
		f.want = 0 // no more than there are
		if n, waiting := h.pool.pythons[key.python].zygote.Children(), len(f.waiting); n != waiting+1 {
			return fmt.Errorf("%d children, of which %d wait", n, waiting)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h.pool.mu.Lock()
	c := h.pool.buckets[key].waiting[0]
	if err := c.init.kill(); err != nil {
		t.Error(err)
	}
	if err := eventually(func() error {
		if len(c.forked.Ended()) == 0 {
			return errors.New("nobody says that the child has ended")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if n := h.pool.running(key.python); n < 1 {
		t.Errorf("got %d that run, want the one", n)
	}
	h.pool.mu.Unlock()
	w.Close()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	noLeftovers(t, h)
}

// One group's burst takes prewarmed sandboxes only from groups with more, and the last one only of a
// group that was idle. Then all stay where they are.
func TestGroupsKeepASandbox(t *testing.T) {
	h := openPrewarmed(t)
	type group struct {
		held    int
		earlier time.Duration // it was asked for, before the latest request
	}
	for _, tt := range []struct {
		name   string
		groups []group // the first one wants as many as there are
		want   []int
	}{
		{"a burst beside one", []group{{0, 0}, {1, 0}}, []int{0, 1}},
		{"a burst beside one that was idle", []group{{0, 0}, {1, 2 * poolPeriod}}, []int{1, 0}},
		{"it has some, and the other was idle", []group{{3, 0}, {1, 2 * poolPeriod}}, []int{3, 1}},
		{"the other has all", []group{{0, 0}, {8, 0}}, []int{4, 4}},
		{"the largest gives first", []group{{0, 0}, {2, 0}, {6, 0}}, []int{3, 2, 3}},
		{"each has one", []group{{0, 0}, {1, 0}, {1, 0}, {1, 0}}, []int{0, 1, 1, 1}},
		{"the oldest of the idle", []group{{0, 0}, {1, 2 * poolPeriod}, {1, 3 * poolPeriod}}, []int{1, 1, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, total := time.Now(), 0
			p := &pool{host: h, making: newTurns(1), buckets: map[profile]*bucket{}}
			key := func(i int) profile { return profile{group: fmt.Sprintf("g%d", i)} }
			for i, g := range tt.groups {
				b := &bucket{asked: now.Add(-g.earlier)}
				for range g.held {
					b.waiting = append(b.waiting, &sandbox{host: h})
				}
				p.buckets[key(i)], total = b, total+g.held
			}
			p.max = total
			p.buckets[key(0)].want = total
			for moves := 0; ; moves++ {
				at, ok := p.shortfall()
				if !ok {
					break
				}
				if moves > total {
					t.Fatal("the moves don't end")
				}
				p.buckets[at].waiting = append(p.buckets[at].waiting, &sandbox{host: h})
			}
			p.done.Wait()
			var got []int
			for i := range tt.groups {
				got = append(got, len(p.buckets[key(i)].waiting))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
