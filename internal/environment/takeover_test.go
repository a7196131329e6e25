package environment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/runtime"
)

// openStore opens a store that builds nothing.
func openStore(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func keyOf(name string) string { return strings.Repeat(name, 64) }

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKeys(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if got := keys(s); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func isThere(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Stat(path); (err == nil) != want {
		t.Errorf("%s is there: %t, want %t", path, err == nil, want)
	}
}

// rebuild is put with the result of another build that replaces the one that is there.
func rebuild(t *testing.T, s *Store, tenant, key string) *kept {
	t.Helper()
	b, err := s.newDir()
	mustDo(t, err)
	digest := "sha256:" + keyOf(key)
	mustDo(t, s.publish(t.Context(), flightKey{tenant, keyOf(key)}, b, Environment{Digest: digest, SizeBytes: 10, Python: "system 3.11.2"}, func() bool { return true }))
	return s.tenants[tenant].kept[digest]
}

// The next store sees all builds and removals of the earlier store. Until Adopt it removes no environment, because
// executions of the earlier daemon may use any.
func TestTakeover(t *testing.T) {
	ctx := t.Context()
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments"), Bytes: 100})
	evicted := put(t, s, "acme", "a", 30)
	put(t, s, "acme", "b", 30)
	put(t, s, "gone", "c", 10)
	replaced := put(t, s, "acme", "d", 10)
	s.tenants["acme"].kept["sha256:"+keyOf("a")].used = time.Now().Add(-time.Hour)
	running := s.taken("acme", keyOf("b"))
	theirs := []string{filepath.Join(s.config.Dir, s.prefix(newPrefix)+"1"), filepath.Join(s.config.Dir, s.prefix(compiledPrefix)+"x"), filepath.Join(s.config.Dir, s.prefix(venvPrefix)+"x")}
	for _, dir := range theirs {
		mustDo(t, os.Mkdir(dir, 0o700))
	}

	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	wantKeys(t, next, "acme/a", "acme/b", "acme/d", "gone/c")
	put(t, s, "acme", "e", 30) // a goes
	isThere(t, evicted.dir, false)
	if n, _, err := s.Purge("gone"); n != 1 || err != nil {
		t.Errorf("purge: %d, %v", n, err)
	}

	mustDo(t, s.HandOver(ctx))
	mustDo(t, next.Reread(ctx))
	wantKeys(t, next, "acme/b", "acme/d", "acme/e")
	if _, err := s.join(flightKey{"acme", keyOf("f")}, nil, false); !errors.Is(err, ErrHandedOver) {
		t.Errorf("a build after HandOver: %v", err)
	}
	if _, _, err := s.Purge("acme"); !errors.Is(err, ErrHandedOver) {
		t.Errorf("a purge after HandOver: %v", err)
	}
	if _, _, err := next.Purge("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("a purge beside the earlier one: %v", err)
	}
	if _, _, err := next.Purge("nobody"); err != nil {
		t.Error(err)
	}

	// A build of the earlier one ends. Another one replaces an environment that the next one uses.
	put(t, s, "new", "f", 30)
	mine := next.taken("acme", keyOf("d"))
	again := rebuild(t, s, "acme", "d")
	if k := next.taken("new", keyOf("f")); k == nil {
		t.Error("a late build is not found")
	} else {
		next.release(k)
	}
	isThere(t, replaced.root(), true)
	// The next store is beyond its bound, and replaces an environment that the earlier one uses.
	put(t, next, "acme", "1", 30)
	newer := rebuild(t, next, "acme", "b")
	if newer.dir == running.dir {
		t.Errorf("both builds are in %s", newer.dir)
	}
	wantKeys(t, next, "acme/1", "acme/b", "acme/d", "acme/e", "new/f")
	// Damage is found by both.
	for _, store := range []*Store{s, next} {
		k := store.tenants["acme"].kept["sha256:"+keyOf("e")]
		mustDo(t, os.WriteFile(filepath.Join(k.root(), "data"), nil, 0o644))
		k.verified = false
		if store.taken("acme", keyOf("e")) != nil {
			t.Error("damage is not found")
		}
		isThere(t, k.root(), true)
	}
	s.release(running)
	s.Close()
	for _, dir := range append(theirs, running.root(), replaced.root(), again.root(), newer.root()) {
		isThere(t, dir, true)
	}

	mustDo(t, next.Adopt(ctx))
	for _, dir := range append(theirs, running.dir, again.dir) {
		isThere(t, dir, false)
	}
	isThere(t, mine.root(), true)
	isThere(t, newer.root(), true)
	var bytes int64
	for _, tenant := range next.tenants {
		for _, k := range tenant.kept {
			bytes += k.environment.SizeBytes
			isThere(t, k.root(), true)
		}
	}
	if bytes > c.Bytes {
		t.Errorf("%d bytes are kept, want at most %d", bytes, c.Bytes)
	}
	next.release(mine)
	if err := next.Adopt(ctx); err == nil {
		t.Error("adopted twice")
	}
	if got := leftIn(t, next); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
	// A plain start finds the same.
	c.Takeover = false
	if got, want := keys(openStore(t, c)), keys(next); !slices.Equal(got, want) {
		t.Errorf("after a restart %v, want %v", got, want)
	}
}

// After Resume the earlier store works as before, and removes the environments that it had to keep after HandOver.
func TestTakeoverFails(t *testing.T) {
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments"), Bytes: 50})
	put(t, s, "acme", "a", 30)
	held := s.taken("acme", keyOf("a"))
	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	mustDo(t, s.HandOver(t.Context()))
	if err := s.HandOver(t.Context()); err == nil {
		t.Error("handed over twice")
	}
	mustDo(t, next.Reread(t.Context()))
	rebuild(t, s, "acme", "a")
	put(t, s, "acme", "b", 45)
	s.release(held)
	isThere(t, held.root(), true)
	next.Close()
	mustDo(t, s.Resume())
	isThere(t, held.root(), false)
	wantKeys(t, s, "acme/b")
	if s.Resume() == nil || s.Adopt(t.Context()) == nil {
		t.Error("resumed twice, or adopted without an earlier process")
	}
}

// The next daemon builds environments and then ends. The earlier daemon has them.
func TestResumeReadsAgain(t *testing.T) {
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments")})
	put(t, s, "acme", "a", 30)
	held := s.taken("acme", keyOf("a"))
	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	mustDo(t, s.HandOver(t.Context()))
	mustDo(t, next.Reread(t.Context()))
	built := put(t, next, "acme", "b", 10)
	other := put(t, next, "new", "c", 10)
	next.Close()
	mustDo(t, s.Resume())
	wantKeys(t, s, "acme/a", "acme/b", "new/c")
	for _, k := range []*kept{held, built, other} {
		isThere(t, k.root(), true)
	}
	s.release(held)
	s.Close()
	c.Takeover = false
	wantKeys(t, openStore(t, c), "acme/a", "acme/b", "new/c")
}

// Two processes that publish the same at the same time have two directories.
func TestTakeoverOfANameThatIsTaken(t *testing.T) {
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments")})
	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	one, two := put(t, s, "acme", "a", 10), put(t, next, "acme", "a", 10)
	if one.dir == two.dir {
		t.Errorf("both are in %s", one.dir)
	}
	isThere(t, one.root(), true)
	isThere(t, two.root(), true)
}

// A build that is under way when the store is handed over ends as usual, and the next daemon has its result.
func TestBuildDuringTakeover(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base)
	s := newStore(t, x.from)
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	inv := python(t, sk, runtime.System)
	at, goOn := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := true
	result := make(chan error, 1)
	go func() {
		_, err := s.Prepare(ctx, "acme", sk, inv, false, func([]byte) error {
			if first {
				first = false
				close(at)
				<-goOn
			}
			return nil
		})
		result <- err
	}()
	<-at
	c := s.config
	c.Takeover = true
	next, err := Open(c)
	mustDo(t, err)
	mustDo(t, s.HandOver(t.Context()))
	mustDo(t, next.Reread(t.Context()))
	close(goOn)
	mustDo(t, <-result)
	s.Close()
	l, err := next.Acquire(useOf("acme", sk, inv))
	mustDo(t, err)
	mustDo(t, next.Adopt(t.Context()))
	if out, exit := run(t, sk, inv, l, "python3", "-c", "import skbase; print(skbase.NAME)"); out != "base\n" || exit.Code != 0 {
		t.Errorf("got %q, %+v", out, exit)
	}
	l.Release()
	next.Close()
}

// An Adopt that fails changes nothing that a second one needs.
func TestAdoptAgain(t *testing.T) {
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments")})
	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	mustDo(t, s.HandOver(t.Context()))
	mustDo(t, next.Reread(t.Context()))
	s.Close()
	mustDo(t, os.Rename(c.Dir, c.Dir+".away"))
	if err := next.Adopt(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	mustDo(t, os.Rename(c.Dir+".away", c.Dir))
	mustDo(t, next.Adopt(t.Context()))
	put(t, next, "acme", "a", 10)
	wantKeys(t, next, "acme/a")
}

// A tenant whose directory can't be read stops neither a start nor a takeover nor the end of a failed one. Its
// environments are found as soon as the directory can be read.
func TestTenantThatCannotBeRead(t *testing.T) {
	s := openStore(t, Config{Dir: filepath.Join(t.TempDir(), "environments")})
	put(t, s, "acme", "a", 30)
	put(t, s, "other", "b", 10)
	unmount := disktest.MountDead(t, filepath.Join(s.config.Dir, "acme"))
	unread := func(s *Store) {
		t.Helper()
		if k, err := s.take("acme", keyOf("a")); k != nil || !durable.MayPass(err) {
			t.Errorf("got %v, %v; want the error of the system", k, err)
		}
	}

	mustDo(t, s.HandOver(t.Context()))
	c := s.config
	c.Takeover = true
	next := openStore(t, c)
	mustDo(t, next.Reread(t.Context()))
	put(t, next, "other", "c", 10)
	unread(next)
	if _, _, err := next.Purge("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("a purge beside the earlier one: %v", err)
	}
	next.Close()
	mustDo(t, s.Resume())
	wantKeys(t, s, "acme/a", "other/b", "other/c")
	mustDo(t, next.Adopt(t.Context())) // as if the earlier one had ended
	unread(next)

	c.Takeover = false
	again := openStore(t, c)
	wantKeys(t, again, "other/b", "other/c")
	unread(again)
	b, err := again.newDir()
	mustDo(t, err)
	z := strings.Repeat("z", 64)
	if err := again.publish(t.Context(), flightKey{"acme", z}, b, Environment{Digest: "sha256:" + z}, func() bool { return true }); !durable.MayPass(err) {
		t.Errorf("a new environment: got %v, want the error of the system", err)
	}
	for range 2 {
		if _, _, err := again.Purge("acme"); err == nil {
			t.Error("purged without an error")
		}
	}
	again = openStore(t, c)
	unmount()
	for _, s := range []*Store{next, again} {
		if s.taken("acme", keyOf("a")) == nil {
			t.Error("not found afterwards")
		}
	}
}
