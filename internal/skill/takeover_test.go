package skill

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/scarcetest"
)

// next opens the registry of the next daemon, while b's is open.
func (b *tenantBench) next() *tenantBench {
	b.t.Helper()
	next := &tenantBench{t: b.t, root: b.root, state: b.state, folders: 1000}
	next.now = open(b.t, RegistryConfig{
		Roots: Roots(b.root), Dir: filepath.Join(b.state, "snapshots"), TenantsDir: filepath.Join(b.state, "tenants"),
		Rules: func(string) Rules { return next.rules }, Takeover: true,
	})
	return next
}

func (b *tenantBench) held(tenant, ref string) (dir string, release func()) {
	b.t.Helper()
	sk, release, err := b.now.For(tenant).Hold(ref)
	mustDo(b.t, err)
	return sk.Dir, release
}

func stays(t *testing.T, dir string, want bool) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "SKILL.md")); (err == nil) != want {
		t.Errorf("%s is there: %t, want %t", dir, err == nil, want)
	}
}

// The next registry sees all pushes and deletions of the earlier registry before HandOver. Until Adopt it removes no
// snapshot, because executions of the earlier daemon may use any.
func TestTakeover(t *testing.T) {
	b := newTenantBench(t)
	ctx := t.Context()
	b.push("acme", "one", "1")
	b.push("acme", "one", "2")
	b.push("acme", "two", "deleted early")
	b.push("gone", "one", "purged")
	shared := resolve(t, b.now, "demo").Dir
	running, releaseRunning := b.held("acme", "one")
	early, releaseEarly := b.held("acme", "two")

	next := b.next()
	// The next one has read the lists. The earlier one goes on.
	next.want("acme", "two", "deleted early")
	next.want("gone", "one", "purged")
	files{"which": "new"}.Write(t, filepath.Join(b.root, "demo"))
	if _, err := b.now.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	b.push("acme", "three", "pushed late")
	b.push("new", "one", "of a new tenant")
	if _, err := b.now.For("acme").Delete(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	b.rules.NoPush = true
	if _, _, err := b.now.Purge(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	b.rules.NoPush = false

	mustDo(t, b.now.HandOver(ctx))
	_, pushErr := b.try("acme", "one", "too late", nil)
	_, deleteErr := b.now.For("acme").Delete(ctx, "one")
	_, _, purgeErr := b.now.Purge(ctx, "new")
	if !errors.Is(pushErr, ErrHandedOver) || !errors.Is(deleteErr, ErrHandedOver) || !errors.Is(purgeErr, ErrHandedOver) {
		t.Errorf("after HandOver: %v, %v, %v", pushErr, deleteErr, purgeErr)
	}
	files{"which": "newer"}.Write(t, filepath.Join(b.root, "demo"))
	before := len(storeNames(t, b.now.config.Dir))
	if c, err := b.now.Reload(ctx); err != nil || len(c.Updated) > 0 || len(storeNames(t, b.now.config.Dir)) != before {
		t.Errorf("a reload after HandOver: %v, %v", c, err)
	}
	b.want("acme", "one", "2")

	mustDo(t, next.now.Reread(ctx))
	next.want("acme", "one", "2")
	next.want("acme", "three", "pushed late")
	next.want("new", "one", "of a new tenant")
	next.want("acme", "demo", "newer")
	for _, name := range []string{"two"} {
		if _, err := next.now.For("acme").Resolve(name); !errors.As(err, new(*NotFoundError)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := next.now.For("gone").Resolve("one"); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("of a purged tenant: got %v", err)
	}

	// Both delete and push the same; the earlier one's execution goes on.
	if _, err := next.now.For("acme").Delete(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	again := next.push("acme", "two", "deleted early").Skill.Dir
	if again != early {
		t.Errorf("pushed again: %s, want %s", again, early)
	}
	releaseEarly() // of the earlier one: it would have removed the snapshot before HandOver
	next.rules.NoPush = true
	if _, _, err := next.now.Purge(ctx, "new"); !errors.Is(err, ErrInUse) {
		t.Errorf("a purge beside the earlier one: %v", err)
	}
	if n, _, err := next.now.Purge(ctx, "nobody"); n > 0 || err != nil {
		t.Errorf("a purge of nothing: %d, %v", n, err)
	}
	next.rules.NoPush = false
	stays(t, running, true)
	stays(t, again, true)
	stays(t, shared, true)
	mine, releaseMine := next.held("acme", "three")
	if _, err := next.now.For("acme").Delete(ctx, "three"); err != nil {
		t.Fatal(err)
	}
	former := resolve(t, next.now, "demo").Dir // an execution of the next one may use it
	files{"which": "newest"}.Write(t, filepath.Join(b.root, "demo"))
	if _, err := next.now.Reload(ctx); err != nil {
		t.Fatal(err)
	}

	releaseRunning()
	mustDo(t, b.now.Close())
	for _, dir := range []string{running, again, shared, mine, former} {
		stays(t, dir, true)
	}
	files{"new-1/x": ""}.Write(t, next.now.config.Dir)
	mustDo(t, next.now.Adopt(ctx))
	for dir, want := range map[string]bool{running: false, again: true, shared: false, mine: true, former: true, resolve(t, next.now, "demo").Dir: true} {
		stays(t, dir, want)
	}
	if _, err := os.Stat(filepath.Join(next.now.config.Dir, "new-1")); err == nil {
		t.Error("an incomplete snapshot is left")
	}
	next.want("acme", "two", "deleted early")

	// As after a plain start.
	releaseMine()
	owner := next.now.owner("acme")
	owner.removal.Wait()
	stays(t, mine, false)
	if err := next.now.Adopt(ctx); err == nil {
		t.Error("adopted twice")
	}
	next.rules.NoPush = true
	if n, _, err := next.now.Purge(ctx, "new"); n != 1 || err != nil {
		t.Errorf("a purge: %d, %v", n, err)
	}
	next.rules.NoPush = false
	third := next.next()
	mustDo(t, next.now.HandOver(ctx))
	mustDo(t, third.now.Reread(ctx))
	third.want("acme", "two", "deleted early")
}

// After Resume the earlier registry works as before, and removes the snapshots that it had to keep after HandOver.
func TestTakeoverFails(t *testing.T) {
	b := newTenantBench(t)
	b.push("acme", "one", "1")
	dir, release := b.held("acme", "one")
	if _, err := b.now.For("acme").Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	next := b.next()
	next.want("acme", "demo", "shared")
	mustDo(t, b.now.HandOver(t.Context()))
	if err := b.now.HandOver(t.Context()); err == nil {
		t.Error("handed over twice")
	}
	release()
	mustDo(t, next.now.Reread(t.Context()))
	mustDo(t, next.now.Close())
	stays(t, dir, true)
	mustDo(t, b.now.Resume())
	b.now.owner("acme").removal.Wait()
	stays(t, dir, false)
	b.push("acme", "one", "2")
	b.want("acme", "one", "2")
	if err := b.now.Resume(); err == nil {
		t.Error("resumed twice")
	}
	if err := b.now.Adopt(t.Context()); err == nil {
		t.Error("adopted without an earlier process")
	}
}

// The next daemon answers calls and then ends. The earlier one knows what it has answered.
func TestResumeReadsAgain(t *testing.T) {
	b := newTenantBench(t)
	ctx := t.Context()
	b.push("acme", "one", "1")
	b.push("acme", "two", "1")
	dir, release := b.held("acme", "two")
	if _, err := b.now.For("new").Resolve("one"); err == nil {
		t.Fatal("a skill of a tenant without skills")
	}
	next := b.next()
	mustDo(t, b.now.HandOver(ctx))
	mustDo(t, next.now.Reread(ctx))
	next.push("acme", "one", "2")
	next.push("new", "one", "of a new tenant")
	if _, err := next.now.For("acme").Delete(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	mustDo(t, next.now.Close())

	changed := b.now.Changed()
	mustDo(t, b.now.Resume())
	select {
	case <-changed:
	default:
		t.Error("the change was not announced")
	}
	check := func() {
		t.Helper()
		b.want("acme", "one", "2")
		b.want("new", "one", "of a new tenant")
		if _, err := b.now.For("acme").Resolve("two"); !errors.As(err, new(*NotFoundError)) {
			t.Errorf("a deleted skill: got %v", err)
		}
	}
	check()
	stays(t, dir, true)
	release()
	b.now.owner("acme").removal.Wait()
	stays(t, dir, false)
	b.push("acme", "three", "pushed afterwards")
	b.restart()
	check()
}

// A list that the next daemon has left damaged, or that can't be read, is not used. The daemon serves the other
// tenants.
func TestResumeOfADamagedList(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(index string) error
		want   func(error) bool
	}{
		"damaged": {
			func(index string) error { return os.WriteFile(index, []byte("{"), 0o600) },
			func(err error) bool { return errors.As(err, new(*DamagedError)) },
		},
		"not readable": {
			// The first page of the memory can't be read: EIO (mem_rw in fs/proc/base.c of Linux).
			func(index string) error { return os.Symlink("/proc/self/mem", index) },
			func(err error) bool { return errors.Is(err, unix.EIO) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTenantBench(t)
			b.push("acme", "one", "1")
			b.push("acme", "deleted", "1")
			b.push("other", "one", "1")
			dir, release := b.held("acme", "deleted")
			if _, err := b.now.For("acme").Delete(t.Context(), "deleted"); err != nil {
				t.Fatal(err)
			}
			mustDo(t, b.now.HandOver(t.Context()))
			index := filepath.Join(b.now.owner("acme").dir, indexName)
			good, err := os.ReadFile(index)
			mustDo(t, err)
			mustDo(t, os.Remove(index))
			mustDo(t, tt.damage(index))
			mustDo(t, b.now.Resume())
			if _, err := b.now.For("acme").Resolve("one"); !tt.want(err) {
				t.Errorf("got %v", err)
			}
			if _, err := b.try("acme", "one", "2", nil); !tt.want(err) {
				t.Errorf("a push: got %v", err)
			}
			release()
			b.now.owner("acme").removal.Wait()
			stays(t, dir, true) // the next daemon may have listed it again
			b.want("other", "one", "1")
			mustDo(t, os.Remove(index))
			mustDo(t, os.WriteFile(index, good, 0o600))
			b.restart()
			b.want("acme", "one", "1")
			stays(t, dir, false)
		})
	}
}

// Without descriptors Resume fails, and can be called again.
func TestResumeWithoutDescriptors(t *testing.T) {
	b := newTenantBench(t)
	b.push("acme", "one", "1")
	mustDo(t, b.now.HandOver(t.Context()))
	scarcetest.WithoutDescriptors(t, func() {
		if err := b.now.Resume(); !durable.MayPass(err) {
			t.Errorf("got %v", err)
		}
	})
	mustDo(t, b.now.Resume())
	b.want("acme", "one", "1")
}

// HandOver waits for a push that is under way.
func TestHandOverWaits(t *testing.T) {
	b := newTenantBench(t)
	b.push("acme", "one", "1")
	o := b.now.owner("acme")
	o.changing <- struct{}{} // as a push does
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.now.HandOver(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-o.changing
	b.push("acme", "one", "2") // nothing has changed
	mustDo(t, b.now.HandOver(t.Context()))
}

// The kernel releases the lock of a killed daemon, so a daemon that starts in the usual way removes unused snapshots.
// In a takeover, the next daemon keeps a tenant's snapshots even if it has opened them before the earlier daemon.
func TestBesideRemovesNothing(t *testing.T) {
	b := newTenantBench(t)
	b.push("acme", "one", "1")
	b.restart() // the earlier one has not opened the skills of the tenant
	unlisted := filepath.Join(b.now.owner("acme").dir, "1111111111111111111111111111111111111111111111111111111111111111")
	files{"SKILL.md": ""}.Write(t, unlisted)
	next := b.next()
	next.want("acme", "one", "1")
	stays(t, unlisted, true)
	mustDo(t, b.now.Close())
	mustDo(t, next.now.Adopt(t.Context()))
	stays(t, unlisted, false)
	next.want("acme", "one", "1")
}
