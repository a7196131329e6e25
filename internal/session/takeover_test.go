package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/scarcetest"
)

// takeOver closes the store of the test, lets a second process open it, and gives that process n sessions
// and a writer in each.
func (b *bench) takeOver(n int, rules order) (p *peer, ids []string) {
	b.t.Helper()
	b.must(b.Store.Close())
	p = startPeer(b.t, b)
	rules.Do = "open"
	p.do(rules)
	for range n {
		id := p.do(order{Do: "create"}).ID
		ids = append(ids, id)
		p.write(id)
	}
	return p, ids
}

// openBeside makes a second process hand over the store of the test, and opens it as the next process.
func (b *bench) openBeside(p *peer) []Held {
	b.t.Helper()
	held := p.do(order{Do: "hand over"}).Held
	c := b.config()
	c.Takeover, c.Held = true, held
	s, err := Open(c)
	b.must(err)
	b.Store = s
	return held
}

// release lets the second process release a session, and calls Freed as the daemon does.
func (b *bench) release(p *peer, id string) {
	b.t.Helper()
	p.send(order{Do: "release", ID: id})
	a := p.answer()
	if a.Freed == nil || a.Freed.ID != id || a.Freed.Tenant != "a" {
		b.t.Fatalf("got %+v, want a call of OnRelease for %s", a, id)
	}
	b.Freed(a.Freed.Tenant, a.Freed.ID)
	p.send(order{})
	if a := p.answer(); a.Err != "" || a.Freed != nil {
		b.t.Fatalf("release: %+v", a)
	}
}

// wait starts a writer that waits for a session. It sends its name when it has its turn, and ends.
func (b *bench) wait(id, name string, turns chan<- string) {
	go func() {
		w, err := b.Acquire(context.Background(), "a", id, Use{By: name, Wait: true})
		if err != nil {
			turns <- fmt.Sprint(name, ": ", err)
			return
		}
		if err := w.Open(0); err != nil {
			turns <- fmt.Sprint(name, ": ", err)
		} else {
			turns <- fmt.Sprint(name, " at ", w.Base())
		}
		w.Release()
	}()
	synctest.Wait()
}

func isBusy(err error, by string) bool {
	busy, ok := errors.AsType[*BusyError](err)
	return ok && busy.Writer == by
}

// Writers end while HandOver runs. Each writer that HandOver returns is reported to OnRelease, and no other one: the next
// process would hold the session until the earlier one ends, or would free it too early.
func TestWritersEndDuringHandOver(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	var freed []string
	b.OnRelease(func(_, id string) {
		mu.Lock()
		defer mu.Unlock()
		freed = append(freed, id)
	})
	ids := make([]string, 32)
	for i := range ids {
		ids[i] = b.create(Settings{})
	}
	for round := range 100 {
		freed = nil
		var ends sync.WaitGroup
		for _, id := range ids {
			w := b.acquire(id, 0)
			ends.Go(w.Release)
		}
		list, err := b.HandOver(t.Context())
		b.must(err)
		ends.Wait()
		var held []string
		for _, h := range list {
			held = append(held, h.ID)
		}
		slices.Sort(freed)
		if slices.Sort(held); !slices.Equal(held, freed) {
			t.Fatalf("round %d: %d sessions are held, and %d were freed", round, len(held), len(freed))
		}
		b.must(b.Resume())
	}
}

// A session that the next process cannot read when it is freed stays held. The next call, or the next Sweep, frees it.
func TestFreedSessionThatCannotBeReadForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p, ids := b.takeOver(2, order{})
		for _, id := range ids {
			p.do(order{Do: "commit", ID: id, Files: []string{"f=1"}})
		}
		b.openBeside(p)
		turns := make(chan string, 1)
		b.wait(ids[1], "waiter", turns)
		for _, id := range ids {
			p.send(order{Do: "release", ID: id})
			p.answer()
			scarcetest.WithoutDescriptors(t, func() {
				b.Freed("a", id)
				if _, err := b.Acquire(t.Context(), "a", id, Use{By: "x"}); !isBusy(err, "execution "+id) {
					t.Errorf("got %v, want that the session is busy", err)
				}
			})
			p.send(order{})
			p.answer()
		}
		b.check("the next call", b.head(ids[0]), []string{"f=1"})
		_, err := b.Sweep()
		b.must(err)
		if got := <-turns; got != "waiter at 1" {
			t.Errorf("got %s", got)
		}
	})
}

// The earlier process ends its writers, and the next one has everything else.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.rules = Rules{Versions: 2}
		p, ids := b.takeOver(4, order{Keep: 2})
		id, other := ids[0], ids[1]
		free := p.do(order{Do: "create"}).ID
		p.do(order{Do: "commit", ID: id, Files: []string{"f=1"}})
		p.do(order{Do: "release", ID: id})
		p.write(id)
		by := "execution " + id
		var want []Held
		for _, id := range ids {
			want = append(want, Held{"a", id, "execution " + id})
		}
		if held := b.openBeside(p); !slices.Equal(held, want) {
			t.Fatalf("held: got %v, want %v", held, want)
		}

		// The earlier process changes nothing else.
		for _, do := range []string{"create", "delete", "label", "acquire", "hand over"} {
			if a := p.ask(order{Do: do, ID: free}); a.Err != ErrHandedOver.Error() {
				t.Errorf("%s in the earlier process: %+v", do, a)
			}
		}

		// In the next one the session has a writer.
		if _, err := b.Acquire(t.Context(), "a", id, Use{}); !isBusy(err, by) {
			t.Errorf("acquire: %v", err)
		}
		if err := b.Delete("a", id); !isBusy(err, by) {
			t.Errorf("delete: %v", err)
		}
		if err := b.DeleteEmpty("a", other); err != nil {
			t.Error(err)
		}
		b.must(b.Delete("a", free))
		if _, _, err := b.Purge("a"); err == nil {
			t.Error("a tenant with writers was purged")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Acquire(ended, "a", id, Use{Wait: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("wait: %v", err)
		}
		if free = b.create(Settings{}); len(b.commit(free, "g=1").Version.By) == 0 {
			t.Error("no commit to another session")
		}
		if _, err := b.Update("a", other, func(set *Settings) { set.IdleTTL = time.Nanosecond }); err != nil {
			t.Error(err)
		}
		b.clock.advance(time.Hour)
		if n, err := b.Sweep(); n != 0 || err != nil {
			t.Errorf("sweep: %d, %v", n, err)
		}

		// A commit is seen at once, and its writer is still there.
		turns := make(chan string, 3)
		for _, name := range []string{"first", "second", "third"} {
			b.wait(id, name, turns)
		}
		b.check("before the commit", b.files(id, 0), []string{"f=1"})
		p.do(order{Do: "commit", ID: id, Files: []string{"f=2"}})
		b.check("after the commit", b.files(id, 0), []string{"f=2"})
		i, err := b.Get("a", id)
		if b.must(err); i.Newest.Number != 2 || i.Newest.By != by || i.Writer != by {
			t.Errorf("got %+v", i)
		}
		if v, err := b.Versions("a", id); err != nil || len(v) != 2 || v[1] != i.Newest {
			t.Errorf("got %+v, %v", v, err)
		}
		p.do(order{Do: "commit", ID: ids[2], Files: []string{"f=1"}})
		list := b.List("a")
		if at := slices.IndexFunc(list, func(i Info) bool { return i.ID == ids[2] }); len(list) != 5 || list[at].Newest.Number != 1 {
			t.Errorf("got %+v", list)
		}
		_, before := b.Usage("a")
		p.do(order{Do: "commit", ID: ids[3], Files: []string{"f=1"}})
		if n, bytes := b.Usage("a"); n != 5 || bytes != before+2*diskBlock {
			t.Errorf("usage: %d, %d bytes after %d", n, bytes, before)
		}

		// Freed does nothing to a session that is not held.
		b.Freed("a", free)
		b.Freed("a", "unknown")
		b.Freed("unknown", id)
		if len(turns) > 0 {
			t.Errorf("before the release: %s", <-turns)
		}
		b.release(p, id)
		for _, want := range []string{"first at 2", "second at 2", "third at 2"} {
			if got := <-turns; got != want {
				t.Errorf("turn: got %q, want %q", got, want)
			}
		}
		synctest.Wait()
		b.Freed("a", id)
		b.check("a program", b.head(id), []string{"f=2"})
		b.commit(id, "f=3", "h=3")
		b.check("the next version", b.head(id), []string{"f=3", "h=3"})
		if n := b.objects(id); n != 3 {
			t.Errorf("%d objects", n)
		}

		// The earlier process lives, so the other session stays with it.
		if err := b.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "the earlier process has them open") {
			t.Errorf("adopt: %v", err)
		}
		if _, err := b.HandOver(t.Context()); err == nil {
			t.Error("handed over before Adopt")
		}
		if _, err := b.Acquire(t.Context(), "a", other, Use{}); !isBusy(err, "execution "+other) {
			t.Errorf("acquire: %v", err)
		}
		p.do(order{Do: "close"})
		for range 2 {
			b.must(b.Adopt(t.Context()))
		}
		// The time to live counts again.
		if _, err := b.Get("a", other); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if n, err := b.Sweep(); n != 1 || err != nil {
			t.Errorf("sweep: %d, %v", n, err)
		}
		for _, i := range b.List("a") {
			if i.ID != id {
				b.must(b.Delete("a", i.ID))
			}
		}
		b.checkUsage(id)
		held, err := b.HandOver(t.Context())
		if b.must(err); len(held) != 0 {
			t.Errorf("held: %v", held)
		}
	})
}

// The earlier process is killed at a step of a commit. The next one then has the version before it or
// after it.
func TestAdoptAfterKill(t *testing.T) {
	for step, want := range map[string]string{"objects": "f=1", "version": "f=2", "tree": "f=2"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.rules = Rules{Versions: 1}
				p, ids := b.takeOver(2, order{Keep: 1})
				id := ids[0]
				p.do(order{Do: "commit", ID: id, Files: []string{"f=1"}})
				p.do(order{Do: "release", ID: id})
				p.write(id)
				// A deletion that an even earlier process did not finish.
				remains := filepath.Join(b.dir, "a", oldPrefix+"x")
				b.must(os.Mkdir(remains, 0o700))
				b.openBeside(p)
				turns := make(chan string, 2)
				b.wait(id, "first", turns)
				b.wait(id, "second", turns)
				p.do(order{Do: "stop at", At: step})
				p.send(order{Do: "commit", ID: id, Files: []string{"f=2"}})
				if step == "tree" {
					p.answer()
					p.send(order{Do: "release", ID: id})
				}
				if a := p.answer(); a.At != step {
					t.Fatalf("got %+v", a)
				}
				b.check("readers, before the kill", b.files(id, 0), []string{want})
				p.kill()
				b.must(b.Adopt(t.Context()))
				n := strings.TrimPrefix(want, "f=")
				for _, name := range []string{"first", "second"} {
					if got := <-turns; got != name+" at "+n {
						t.Errorf("got %q, want %q", got, name+" at "+n)
					}
				}
				synctest.Wait()
				b.check("readers", b.files(id, 0), []string{want})
				b.check("program", b.head(id), []string{want})
				if n := b.objects(id); n != 1 {
					t.Errorf("%d objects", n)
				}
				b.commit(id, "f=4")
				b.check("program", b.head(id), []string{"f=4"})
				b.checkUsage(id)
				if _, err := os.Stat(remains); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("remains: %v", err)
				}
				b.restart()
				b.check("after a restart", b.files(id, 0), []string{"f=4"})
			})
		})
	}
}

// The takeover fails: the earlier process goes on.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.must(b.Resume()) // nothing was handed over
		id := b.create(Settings{})
		for i := range 3 {
			w := b.acquire(id, 0)
			held, err := b.HandOver(t.Context())
			if b.must(err); !slices.Equal(held, []Held{{"a", id, "the test"}}) {
				t.Fatalf("held: %v", held)
			}
			p := startPeer(t, b)
			p.do(order{Do: "open next", Held: held})
			if err := b.Resume(); err == nil {
				t.Error("resumed while the next process lives")
			}
			if _, err := b.Create("a", Settings{}); !errors.Is(err, ErrHandedOver) {
				t.Errorf("create: %v", err)
			}
			if i == 1 {
				p.kill()
			} else {
				p.do(order{Do: "close"})
			}
			b.must(b.Resume())
			if _, err := w.Commit(b.change(fmt.Sprint("f=", i))); err != nil {
				t.Error(err)
			}
			b.OnRelease(func(string, string) { t.Error("OnRelease after Resume") })
			w.Release()
			b.check("program", b.head(id), []string{fmt.Sprint("f=", i)})
			b.must(b.Delete("a", b.create(Settings{})))
		}
		b.checkUsage(id)
	})
}

// The next process dies after it has changed sessions, and before it has answered that a session is free there.
func TestResumeAfterChanges(t *testing.T) {
	b := newBench(t)
	var ids []string
	for range 5 {
		id := b.create(Settings{})
		b.commit(id, "f=1")
		ids = append(ids, id)
	}
	own, changed, deleted, given, readers := ids[0], ids[1], ids[2], ids[3], ids[4]
	w, g := b.acquire(own, 0), b.acquire(given, 0)
	p := startPeer(t, b)
	b.OnRelease(func(tenant, id string) {
		if tenant != "a" || id != given {
			t.Errorf("released %s of %s", id, tenant)
		}
		p.do(order{Do: "freed", ID: id})
		p.write(id)
		p.do(order{Do: "commit", ID: id, Files: []string{"f=3"}})
		p.kill()
		b.must(b.Resume())
	})
	held, err := b.HandOver(t.Context())
	if b.must(err); len(held) != 2 {
		t.Fatalf("held: %v", held)
	}
	p.do(order{Do: "open next", Held: held})
	made := p.do(order{Do: "create"}).ID
	for _, id := range []string{made, changed} {
		p.write(id)
		p.do(order{Do: "commit", ID: id, Files: []string{"f=2", "g=2"}})
		p.do(order{Do: "release", ID: id})
	}
	p.do(order{Do: "delete", ID: deleted})
	p.do(order{Do: "label", ID: own})
	b.check("readers in the earlier process", b.files(readers, 0), []string{"f=1"})
	if _, err := g.Commit(b.change("f=2")); err != nil {
		t.Error(err)
	}
	g.Release() // and Resume

	if _, err := b.Get("a", deleted); !errors.Is(err, ErrNotFound) {
		t.Errorf("the deleted session: %v", err)
	}
	if i, err := b.Get("a", own); err != nil || i.Labels["by"] != "the peer" || i.Writer != "the test" {
		t.Errorf("the session with a writer: %+v, %v", i, err)
	}
	if done, err := w.Commit(b.change("f=2")); err != nil || done.Version.Number != 2 {
		t.Errorf("commit: %+v, %v", done, err)
	}
	w.Release()
	for id, want := range map[string]string{own: "[f=2]", changed: "[f=2 g=2]", made: "[f=2 g=2]", given: "[f=3]", readers: "[f=1]"} {
		if got := fmt.Sprint(b.files(id, 0)); got != want {
			t.Errorf("readers: got %s, want %s", got, want)
		}
		if got := fmt.Sprint(b.head(id)); got != want {
			t.Errorf("program: got %s, want %s", got, want)
		}
	}
	var sum int64
	for _, i := range b.List("a") {
		sum += i.Newest.Stored
	}
	if n, bytes := b.Usage("a"); n != 5 || bytes != sum {
		t.Errorf("usage: %d sessions, %d bytes, want %d", n, bytes, sum)
	}
}

// HandOver waits for each change that is under way.
func TestHandOverWaits(t *testing.T) {
	for _, tt := range []struct {
		name, at string
		change   func(b *bench, id string) error
		left     int // sessions
	}{
		{"create", "create", func(b *bench, id string) error { _, err := b.Create("a", Settings{}); return err }, 2},
		{"delete", "delete", func(b *bench, id string) error { return b.Delete("a", id) }, 0},
		{"delete an empty one", "delete", func(b *bench, id string) error { return b.DeleteEmpty("a", id) }, 0},
		{"purge", "delete", func(b *bench, id string) error { _, _, err := b.Purge("a"); return err }, 0},
		{"sweep", "delete", func(b *bench, id string) error {
			b.clock.advance(2 * time.Hour)
			_, err := b.Sweep()
			return err
		}, 0},
		{"update", "", func(b *bench, id string) error {
			_, err := b.Update("a", id, func(*Settings) { b.step("update") })
			return err
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.create(Settings{IdleTTL: time.Hour})
				at, goOn := make(chan string, 1), make(chan bool)
				b.step = func(step string) { at <- step; <-goOn }
				changed, handed := make(chan error, 1), make(chan error, 1)
				go func() { changed <- tt.change(b, id) }()
				if step := <-at; tt.at != "" && step != tt.at {
					t.Fatalf("at %s", step)
				}
				// It gives up, and the store is as before.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := b.HandOver(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				b.step = func(string) {}
				other, err := b.Create("b", Settings{})
				if err != nil {
					t.Error(err)
				}
				go func() {
					held, err := b.HandOver(context.Background())
					if len(held) > 0 {
						err = fmt.Errorf("held: %v", held)
					}
					handed <- err
				}()
				synctest.Wait()
				if len(handed) > 0 {
					t.Error("HandOver has not waited")
				}
				if err := b.Delete("b", other.ID); !errors.Is(err, ErrHandedOver) {
					t.Errorf("a deletion meanwhile: %v", err)
				}
				close(goOn)
				if err := errors.Join(<-changed, <-handed); err != nil {
					t.Error(err)
				}
				if n, _ := b.Usage("a"); n != tt.left {
					t.Errorf("%d sessions, want %d", n, tt.left)
				}
			})
		})
	}
}

// A sweep of many sessions does not delay HandOver until its end.
func TestHandOverStopsSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 3 {
			b.create(Settings{IdleTTL: time.Hour})
		}
		b.clock.advance(2 * time.Hour)
		at, goOn := make(chan string, 3), make(chan bool)
		b.step = func(step string) { at <- step; <-goOn }
		type result struct {
			n   int
			err error
		}
		swept := make(chan result, 1)
		go func() {
			n, err := b.Sweep()
			swept <- result{n, err}
		}()
		<-at
		go func() {
			synctest.Wait()
			close(goOn)
		}()
		if _, err := b.HandOver(t.Context()); err != nil {
			t.Error(err)
		}
		if r := <-swept; r.n != 1 || !errors.Is(r.err, ErrHandedOver) {
			t.Errorf("got %+v", r)
		}
		if n, err := b.Sweep(); n != 0 || !errors.Is(err, ErrHandedOver) {
			t.Errorf("a sweep after it: %d, %v", n, err)
		}
	})
}

// Writers that wait at HandOver are refused. The writer and readers go on.
func TestWritersAtHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.create(Settings{})
		b.commit(id, "f=1")
		b.restart()
		w, err := b.Acquire(t.Context(), "a", id, Use{By: "the test"})
		b.must(err)
		turns := make(chan string, 2)
		b.wait(id, "first", turns)
		b.wait(id, "second", turns)
		update := filepath.Join(b.dir, "a", id, ".new-1")
		b.must(os.WriteFile(update, nil, 0o600)) // of an update by the next process
		called := 0
		b.OnRelease(func(tenant, of string) {
			called++
			if i, err := b.Get("a", id); err != nil || i.Writer != "the test" || tenant != "a" || of != id {
				t.Errorf("OnRelease(%s, %s): %+v, %v", tenant, of, i, err)
			}
			if b.objects(id) != 2 {
				t.Error("OnRelease comes before the tidy")
			}
		})
		b.rules.Versions = 1
		held, err := b.HandOver(t.Context())
		if b.must(err); len(held) != 1 {
			t.Errorf("held: %v", held)
		}
		want := []string{"first: " + ErrHandedOver.Error(), "second: " + ErrHandedOver.Error()}
		got := []string{<-turns, <-turns}
		slices.Sort(got)
		b.check("waiting writers", got, want)
		b.must(w.Open(0))
		if _, err := os.Stat(update); err != nil {
			t.Errorf("the file of the next process: %v", err)
		}
		b.check("program", b.lower(w.Lower()), []string{"f=1"})
		if _, err := w.Commit(b.change("f=2", "g=2")); err != nil {
			t.Error(err)
		}
		b.check("readers", b.files(id, 0), []string{"f=2", "g=2"})
		w.Release()
		if _, _, err := b.Purge("a"); !errors.Is(err, ErrHandedOver) {
			t.Errorf("purge: %v", err)
		}
		if err := b.DeleteEmpty("a", id); !errors.Is(err, ErrHandedOver) {
			t.Errorf("delete an empty one: %v", err)
		}
		b.check("readers", b.files(id, 0), []string{"f=2", "g=2"})
		if called != 1 {
			t.Errorf("%d calls of OnRelease", called)
		}
	})
}

// While a process lives, a plain start is refused at each moment of a takeover.
func TestThirdProcess(t *testing.T) {
	b := newBench(t)
	refused := func(when string, takeover bool) {
		t.Helper()
		c := b.config()
		c.Takeover = takeover
		if s, err := Open(c); err == nil {
			t.Errorf("%s: another process could open the store", when)
			s.Close()
		}
	}
	refused("alone", false)
	refused("alone", true)
	p, ids := b.takeOver(1, order{})
	p.do(order{Do: "hand over"})
	refused("handed over", false)
	c := b.config()
	c.Takeover, c.Held = true, []Held{{"a", ids[0], "x"}, {"a", ids[0], "x"}, {"a", "unknown", "x"}, {"b", "unknown", "x"}}
	next, err := Open(c)
	b.must(err)
	refused("two processes", false)
	refused("two processes", true)
	b.must(next.Close())
	refused("the next one has ended", false)
	next, err = Open(c)
	b.must(err)
	p.kill()
	refused("the earlier one has ended", false)
	b.must(next.Adopt(t.Context()))
	refused("adopted", false)
	refused("adopted", true)
	b.must(next.Close())
	if err := next.Adopt(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("adopt a closed store: %v", err)
	}
	if _, err := next.HandOver(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("hand over a closed store: %v", err)
	}
	if err := next.Resume(); !errors.Is(err, ErrClosed) {
		t.Errorf("resume a closed store: %v", err)
	}
	b.open()
	b.commit(ids[0], "f=1")
}

// The directory of a held session is gone when it is freed: waiting writers are told.
func TestFreedSessionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p, ids := b.takeOver(1, order{})
		p.do(order{Do: "commit", ID: ids[0], Files: []string{"f=1"}})
		b.openBeside(p)
		turns := make(chan string, 2)
		b.wait(ids[0], "first", turns)
		b.wait(ids[0], "second", turns)
		b.must(os.RemoveAll(filepath.Join(b.dir, "a", ids[0])))
		if i, err := b.Get("a", ids[0]); err != nil || i.Newest.Number != 1 {
			t.Errorf("before it is freed: %+v, %v", i, err)
		}
		b.Freed("a", ids[0])
		for range 2 {
			if got := <-turns; !strings.Contains(got, ErrNotFound.Error()) {
				t.Errorf("got %s", got)
			}
		}
		if n, bytes := b.Usage("a"); n != 0 || bytes != 0 {
			t.Errorf("usage: %d, %d", n, bytes)
		}
		b.Freed("a", ids[0])
	})
}

// The quota of a tenant counts the commits of both processes.
func TestQuotaOfTwoProcesses(t *testing.T) {
	b := newBench(t)
	const blocks = 11
	b.rules = Rules{TotalBytes: blocks * diskBlock}
	p, ids := b.takeOver(2, order{Bytes: blocks * diskBlock})
	b.openBeside(p)
	id := b.create(Settings{})
	b.commit(id, "a=1", "b=1", "c=1") // 4 blocks
	if a := p.ask(order{Do: "commit", ID: ids[0], Files: []string{"a=1", "b=1", "c=1", "d=1", "e=1", "f=1", "g=1", "h=1"}}); !strings.Contains(a.Err, "on disk, of at most") {
		t.Errorf("the earlier process: %+v", a)
	}
	p.do(order{Do: "commit", ID: ids[1], Files: []string{"a=1", "b=1", "c=1"}})
	if _, err := b.try(id, b.change("d=1", "e=1")); err != nil { // 3 more, with the list
		t.Error(err)
	}
	if _, err := b.try(id, b.change("d=2", "e=2")); !isQuota(err, QuotaTenantBytes) {
		t.Errorf("the next process: %v", err)
	}
}

// Readers and writers of the next process use the sessions while the earlier one commits and releases them.
func TestTakeoverUnderLoad(t *testing.T) {
	b := newBench(t)
	p, ids := b.takeOver(12, order{})
	b.openBeside(p)
	stop := make(chan bool)
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for newest := map[string]int{}; ; {
				select {
				case <-stop:
					return
				default:
				}
				for _, i := range b.List("a") {
					if i.Newest.Number < newest[i.ID] {
						t.Errorf("version %d after %d", i.Newest.Number, newest[i.ID])
					}
					newest[i.ID] = i.Newest.Number
					if v, err := b.Read("a", i.ID, 0); err != nil || v.Version.Number < i.Newest.Number {
						t.Errorf("got %+v, %v, after version %d", v, err, i.Newest.Number)
					}
				}
			}
		})
	}
	for _, id := range ids {
		for range 2 {
			writers.Go(func() {
				w, err := b.Acquire(context.Background(), "a", id, Use{Wait: true})
				if err != nil {
					t.Error(err)
					return
				}
				defer w.Release()
				if err := w.Open(0); err != nil || w.Base() == 0 {
					t.Errorf("at %d: %v", w.Base(), err)
				}
				if _, err := w.Commit(b.change(fmt.Sprintf("f%d=1", w.Base()))); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, id := range ids {
		p.do(order{Do: "commit", ID: id, Files: []string{"f=1"}})
		b.release(p, id)
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	p.kill()
	b.must(b.Adopt(t.Context()))
	for _, id := range ids {
		b.check("files", b.head(id), []string{"f=1", "f1=1", "f2=1"})
	}
	_, bytes := b.Usage("a")
	b.restart()
	if _, again := b.Usage("a"); again != bytes {
		t.Errorf("%d bytes, %d after a restart", bytes, again)
	}
}
