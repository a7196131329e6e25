package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// One writer at a time: others are refused or wait in their order, as they ask.
func TestOneWriter(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	w := b.acquire(id, 0)
	_, err := b.Acquire(t.Context(), "a", id, Use{By: "other"})
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Writer != "the test" || busy.ID != id {
		t.Errorf("a second writer: %v", err)
	}
	if busy, ok := errors.AsType[*BusyError](b.Delete("a", id)); !ok || busy.Writer != "the test" {
		t.Errorf("a deletion: %v", err)
	}
	i, err := b.Get("a", id)
	if b.must(err); i.Writer != "the test" {
		t.Errorf("writer: got %q", i.Writer)
	}
	w.Release()
	if i, _ = b.Get("a", id); i.Writer != "" {
		t.Errorf("writer after Release: got %q", i.Writer)
	}
	b.acquire(id, 0).Release()
}

func TestWritersWaitInOrder(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	synctest.Test(t, func(t *testing.T) {
		// A channel belongs to one bubble, so the store of the test gets its channels here.
		x := b.tenants["a"].sessions[id]
		x.turn, b.handing = make(chan struct{}, 1), make(chan struct{})
		w := b.acquire(id, 0)
		var done sync.WaitGroup
		var order []int
		for i := range maxWaiting {
			done.Go(func() {
				w, err := b.Acquire(context.Background(), "a", id, Use{By: fmt.Sprint(i), Wait: true})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				w.Release()
			})
			synctest.Wait()
		}
		_, err := b.Acquire(context.Background(), "a", id, Use{Wait: true})
		if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Queued != maxWaiting {
			t.Errorf("one more than may wait: %v", err)
		}
		w.Release()
		done.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("order: got %v", order)
			}
		}
		if len(order) != maxWaiting {
			t.Errorf("%d of %d had their turn", len(order), maxWaiting)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	w := b.acquire(id, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Acquire(ctx, "a", id, Use{Wait: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.Release()
	b.acquire(id, 0).Release()
}

// If a session is deleted, the callers that wait for it get an error.
func TestWaitForDeletedSession(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	synctest.Test(t, func(t *testing.T) {
		x := b.tenants["a"].sessions[id]
		x.turn, b.handing = make(chan struct{}, 1), make(chan struct{})
		b.must(b.begin(x, "the deletion"))
		got := make(chan error, 1)
		go func() {
			_, err := b.Acquire(context.Background(), "a", id, Use{Wait: true})
			got <- err
		}()
		synctest.Wait()
		b.mu.Lock()
		x.gone = true
		b.mu.Unlock()
		b.end(x)
		if err := <-got; !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// Commits to several sessions at once don't exceed the tenant's quota together, and the count of bytes
// stays right.
func TestCommitsAtOnce(t *testing.T) {
	b := newBench(t)
	b.rules = Rules{TotalBytes: 20 * diskBlock}
	var done sync.WaitGroup
	var ids []string
	for range 4 {
		ids = append(ids, b.create(Settings{}))
	}
	for _, id := range ids {
		c := make([]Change, 5)
		for i := range c {
			c[i] = b.change(fmt.Sprintf("f%d=1", i))
		}
		done.Go(func() {
			for _, c := range c {
				w, err := b.Acquire(context.Background(), "a", id, Use{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := w.Open(0); err != nil {
					t.Error(err)
				}
				if _, err := w.Commit(c); err != nil && !isQuota(err, QuotaTenantBytes) {
					t.Error(err)
				}
				w.Release()
			}
		})
	}
	done.Wait()
	_, used := b.Usage("a")
	var want int64
	for _, i := range b.List("a") {
		want += i.Newest.Stored
	}
	if used != want || used > b.rules.TotalBytes || used < b.rules.TotalBytes/2 {
		t.Errorf("%d bytes, want %d, at most %d", used, want, b.rules.TotalBytes)
	}
	b.restart()
	if _, now := b.Usage("a"); now != used {
		t.Errorf("%d bytes after a restart, want %d", now, used)
	}
}

func TestRoom(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{Bytes: 5})
	w := b.acquire(id, 0)
	defer w.Release()
	for _, test := range []struct {
		rules Rules
		bytes int64
		files int
	}{
		{Rules{}, 5, 0},
		{Rules{Bytes: 9, Files: 7}, 5, 7},
		{Rules{Bytes: 3}, 3, 0},
	} {
		b.rules = test.rules
		if bytes, files := w.Room(); bytes != test.bytes || files != test.files {
			t.Errorf("%+v: got %d, %d", test.rules, bytes, files)
		}
	}
}
