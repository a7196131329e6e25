package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A group with one start that waits is next, however many starts of another group came before. Groups that
// want equally many get equally many, and no turn is lost.
func TestTurnsOfGroups(t *testing.T) {
	for _, tt := range []struct {
		name  string
		turns int
		come  string // the group of each start, in the order in which they wait
		want  string
	}{
		{"a crowd and one", 1, "aaaab", "baaaa"},
		{"two crowds", 1, "aaabbb", "bababa"},
		{"three", 1, "aaabbc", "bcabaa"},
		{"one group", 1, "aaa", "aaa"},
		{"two at once", 2, "aaaab", "baaaa"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := newTurns(tt.turns)
				var under []func() // of the crowd a, which came first
				for range tt.turns {
					leave, err := turns.enter(t.Context(), "a")
					if err != nil {
						t.Fatal(err)
					}
					under = append(under, leave)
				}
				var got []byte
				leaves := make(chan func(), len(tt.come))
				for _, group := range tt.come {
					go func() {
						leave, _ := turns.enter(t.Context(), string(group))
						got = append(got, byte(group)) // one at a time: each waits for the test
						leaves <- leave
					}()
					synctest.Wait()
				}
				if len(got) > 0 || !turns.waits("a") || turns.waits("z") {
					t.Fatalf("%d turns beyond the bound; a waits: %v, z waits: %v", len(got), turns.waits("a"), turns.waits("z"))
				}
				for _, leave := range under {
					leave()
					synctest.Wait()
				}
				for range tt.come {
					(<-leaves)()
					synctest.Wait()
				}
				if string(got) != tt.want {
					t.Errorf("got the order %s, want %s", got, tt.want)
				}
				if turns.free != tt.turns || len(turns.users) != 0 || len(turns.waiting) != 0 {
					t.Errorf("left: %d free turns, %d groups, %d waiters", turns.free, len(turns.users), len(turns.waiting))
				}
			})
		})
	}
}

// A start that is cancelled while it waits gets no turn and keeps none. One whose turn came at the same moment has it.
func TestTurnsAreCancelled(t *testing.T) {
	turns := newTurns(1)
	leave, _ := turns.enter(t.Context(), "a")
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := turns.enter(ctx, "b"); !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	leave()
	if turns.free != 1 || len(turns.users) != 0 || len(turns.waiting) != 0 {
		t.Errorf("left: %d free turns, %d groups, %d waiters", turns.free, len(turns.users), len(turns.waiting))
	}
	w := turns.join("c")
	if turns.giveUp(w) {
		t.Error("a start that has its turn gave it up")
	}
	turns.leave("c")
	if turns.free != 1 || len(turns.users) != 0 {
		t.Errorf("left: %d free turns, %d groups", turns.free, len(turns.users))
	}
}

// The pool prewarms for each group in turn, and not for the group with the latest request again and again. A
// group whose starts wait for a turn gets no prewarmed sandbox: it would take the turn from them.
func TestPrewarmingTakesTurns(t *testing.T) {
	p := &pool{host: openPrewarmed(t), max: 12, making: newTurns(1), buckets: map[profile]*bucket{}}
	now := time.Now()
	for i := range 3 {
		// The crowd g0 has the latest request.
		p.buckets[profile{group: fmt.Sprintf("g%d", i)}] = &bucket{want: 4, asked: now.Add(-time.Duration(i) * time.Second)}
	}
	next := func() string {
		at, ok := p.shortfall()
		if !ok {
			return ""
		}
		now = now.Add(time.Millisecond)
		b := p.buckets[at]
		b.waiting, b.made = append(b.waiting, &sandbox{host: p.host}), now
		return at.group
	}
	var got []string
	for range 6 {
		got = append(got, next())
	}
	if want := []string{"g0", "g1", "g2", "g0", "g1", "g2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	leave, _ := p.making.enter(t.Context(), "g0")
	w := p.making.join("g0")
	for got = nil; len(got) < 5; {
		got = append(got, next())
	}
	if want := []string{"g1", "g2", "g1", "g2", ""}; !slices.Equal(got, want) {
		t.Errorf("while g0 waits: got %v, want %v", got, want)
	}
	leave()
	<-w.ready
	if got := next(); got != "g0" {
		t.Errorf("when g0 has its turn: got %q", got)
	}
	p.making.leave("g0")
}

// stopPrewarming has the pool begin to make a sandbox for a Python program, and stops the Python zygote that forks its
// first process. The sandboxes that waited are gone. goOn lets the Python zygote go on.
func stopPrewarming(t *testing.T, h *Host, s Spec) (goOn func()) {
	t.Helper()
	run(t, h, s, "") // asks for a Python zygote
	waitForReady(t, h, s)
	key := s.withDefaults().profile()
	key.python = s.pythonKey()
	until(t, "the pool still makes sandboxes", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		b := h.pool.buckets[key]
		return len(h.pool.pending) == 0 && len(b.waiting) >= b.want
	})
	h.pool.mu.Lock()
	python, b := h.pool.pythons[key.python].zygote, h.pool.buckets[key]
	waiting := b.waiting
	b.waiting, b.want = nil, 1
	h.pool.mu.Unlock()
	if err := unix.Kill(python.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = func() { unix.Kill(python.PID(), unix.SIGCONT) }
	t.Cleanup(goOn)
	for _, c := range waiting {
		c.discard()
	}
	h.pool.wakeUp()
	until(t, "the pool makes no sandbox", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		return h.pool.pending[s.Group]
	})
	return goOn
}

// A sandbox of one group that takes long to make does not delay the sandboxes of other groups.
func TestPrewarmingOfOneGroupIsSlow(t *testing.T) {
	t.Parallel()
	h := openGroups(t, nil)
	slow := pythonSpec(nil, "-c", "pass")
	slow.Group = "slow"
	waitForGroupZygote(t, h, slow.Group)
	waitForGroupZygote(t, h, "quick")
	stopPrewarming(t, h, slow)
	quick := Spec{Group: "quick", Program: command("/usr/bin/true")}
	for range 2 { // one after the other
		c := prewarm(t, h, quick, 1)[0]
		h.pool.mu.Lock()
		h.pool.buckets[quick.withDefaults().profile()].waiting = nil
		waits := h.pool.pending[slow.Group]
		h.pool.mu.Unlock()
		c.discard()
		if !waits { // the daemon kills a Python zygote that does not answer
			t.Fatal("the pool made no sandbox of the quick group before the end of the slow one")
		}
	}
}

// A request that finds no prewarmed sandbox gets the one that the pool makes at the moment, and the pool makes another
// one. If the request ends before, its sandbox is removed.
func TestRequestClaimsASandbox(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "print(1)")
	key := s.withDefaults().profile()
	key.python = s.pythonKey()
	claimed := func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		return h.pool.buckets[key].want > 1
	}
	start := func(ctx context.Context) (<-chan *Process, <-chan error) {
		p, failed := make(chan *Process, 1), make(chan error, 1)
		s.ID = fmt.Sprintf("t%d", testIDs.Add(1))
		go func() {
			got, err := h.Start(ctx, s, IO{})
			p <- got
			failed <- err
		}()
		until(t, "the request claims no sandbox", claimed)
		return p, failed
	}
	goOn := stopPrewarming(t, h, s)
	p, failed := start(t.Context())
	until(t, "the pool makes no other one", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		return h.pool.pending[""]
	})
	goOn()
	got, err := <-p, <-failed
	if err != nil {
		t.Fatal(err)
	}
	if _, err := got.Wait(); err != nil {
		t.Error(err)
	}
	if !got.sandbox.prewarmed {
		t.Error("a sandbox was made for the request, although the pool made one")
	}

	goOn = stopPrewarming(t, h, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, failed = start(ctx)
	gone := errors.New("gone")
	cancel(gone)
	if err := <-failed; !errors.Is(err, gone) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	goOn()
	noLeftovers(t, h)
}
