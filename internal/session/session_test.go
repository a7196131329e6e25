package session

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestLifeOfASession(t *testing.T) {
	b := newBench(t)
	made, err := b.Create("a", Settings{Labels: map[string]string{"k": "v"}, IdleTTL: time.Hour, Bytes: 100, Files: 5})
	b.must(err)
	b.create(Settings{})
	if list := b.List("a"); len(list) != 2 || list[0].ID != made.ID || !maps.Equal(list[0].Labels, made.Labels) {
		t.Errorf("list: got %+v", list)
	}
	if len(b.List("b")) != 0 {
		t.Error("another tenant sees sessions")
	}
	b.clock.advance(time.Minute)
	got, err := b.Update("a", made.ID, func(s *Settings) { s.Labels, s.TTL = map[string]string{"x": ""}, 2*time.Hour })
	b.must(err)
	if got.Labels["x"] != "" || got.IdleTTL != time.Hour || got.TTL != 2*time.Hour || !got.Used.Equal(b.clock.Now()) {
		t.Errorf("update: got %+v", got)
	}
	b.restart()
	again, err := b.Get("a", made.ID)
	b.must(err)
	if !again.Created.Equal(made.Created) || !again.Used.Equal(got.Used) || again.TTL != got.TTL || again.Bytes != 100 || again.Files != 5 {
		t.Errorf("after a restart: got %+v, want %+v", again, got)
	}
	b.must(b.Delete("a", made.ID))
	for name, err := range map[string]error{
		"get": second(b.Get("a", made.ID)), "delete": b.Delete("a", made.ID), "read": second(b.Read("a", made.ID, 0)),
		"versions": second(b.Versions("a", made.ID)), "update": second(b.Update("a", made.ID, func(*Settings) {})),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of a deleted session: %v", name, err)
		}
	}
	if n, bytes := b.Usage("a"); n != 1 || bytes != 0 {
		t.Errorf("usage: %d sessions of %d bytes", n, bytes)
	}
}

func second[T any](_ T, err error) error { return err }

// Nothing of a session can be reached with the name of another tenant.
func TestOtherTenant(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=secret")
	for _, tenant := range []string{"b", "", "..", "a/../a", "A"} {
		for name, err := range map[string]error{
			"get": second(b.Get(tenant, id)), "delete": b.Delete(tenant, id), "read": second(b.Read(tenant, id, 0)),
			"versions": second(b.Versions(tenant, id)), "update": second(b.Update(tenant, id, func(*Settings) {})),
			"acquire": second(b.Acquire(t.Context(), tenant, id, Use{})),
		} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s by tenant %q: %v", name, tenant, err)
			}
		}
	}
	for _, id := range []string{"", ".", "..", "../a/" + id, id + "/", "lock"} {
		if _, err := b.Get("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("session %q: %v", id, err)
		}
	}
}

// A session that is deleted while its settings are written is not found. That is no failure of the disk.
func TestUpdateOfDeletedSession(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	if _, err := b.Update("a", id, func(*Settings) { b.must(b.Delete("a", id)) }); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestTenantNames(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"", ".", "..", "a/b", "/a", lockName, "a\x00b"} {
		if _, err := b.Create(name, Settings{}); err == nil {
			t.Errorf("tenant %q has a session", name)
		}
	}
	// Names that a tenant can have and that the store uses for other files.
	for _, name := range []string{"lock", "new-1", "old-1", "versions", "objects"} {
		made, err := b.Create(name, Settings{})
		if err != nil {
			t.Errorf("tenant %q: %v", name, err)
			continue
		}
		b.restart()
		if _, err := b.Get(name, made.ID); err != nil {
			t.Errorf("tenant %q after a restart: %v", name, err)
		}
	}
}

// A setting above its bound has the bound in units, and the key of the configuration.
func TestSettingsAboveTheirBounds(t *testing.T) {
	rules := Rules{MaxTTL: 720 * time.Hour, Bytes: 1 << 30, Files: 10_000}
	for want, set := range map[string]Settings{
		"ttl must be at most 720h (sessions.ttl in the daemon's configuration)":          {TTL: 721 * time.Hour},
		"max_bytes must be at most 1 GiB (sessions.bytes in the daemon's configuration)": {Bytes: 1<<30 + 1},
		"max_files must be at most 10000 (sessions.files in the daemon's configuration)": {Files: 10_001},
		"max_bytes must not be negative":                                                 {Bytes: -1},
	} {
		if err := set.check(rules); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	b := newBench(t)
	b.rules = Rules{MaxTTL: time.Hour, DefaultIdle: time.Minute, Bytes: 10, Files: 10}
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[strings.Repeat("k", i+1)] = ""
	}
	for setting, sets := range map[string][]Settings{
		"idle_ttl":  {{IdleTTL: -1}},
		"ttl":       {{TTL: -1}, {TTL: time.Hour + 1}},
		"max_bytes": {{Bytes: -1}, {Bytes: 11}},
		"max_files": {{Files: -1}, {Files: 11}},
		"labels":    {{Labels: many}, {Labels: map[string]string{"": "v"}}, {Labels: map[string]string{"k": strings.Repeat("v", 257)}}},
	} {
		for _, set := range sets {
			_, err := b.Create("a", set)
			if bad, ok := errors.AsType[*SettingsError](err); !ok || bad.Setting != setting {
				t.Errorf("%s: %+v: %v", setting, set, err)
			}
		}
	}
	i, err := b.Create("a", Settings{})
	b.must(err)
	if i.TTL != time.Hour || i.IdleTTL != time.Minute || !i.Expires.Equal(b.clock.Now().Add(time.Minute)) {
		t.Errorf("defaults: got %+v", i)
	}
	if _, err := b.Update("a", i.ID, func(s *Settings) { s.TTL = 2 * time.Hour }); err == nil {
		t.Error("an update has set a TTL above the maximum")
	}
	// The operator lowers the bounds below the settings of a session. The other settings can still be changed.
	made, err := b.Create("a", Settings{Bytes: 9, Files: 9})
	b.must(err)
	b.rules = Rules{MaxTTL: time.Minute, Bytes: 5, Files: 5}
	got, err := b.Update("a", made.ID, func(s *Settings) { s.Labels = map[string]string{"k": "v"} })
	if err != nil || got.Labels["k"] != "v" || got.TTL != time.Hour {
		t.Errorf("an update of labels: %+v, %v", got, err)
	}
	if _, err := b.Update("a", made.ID, func(s *Settings) { s.Bytes = 8 }); err == nil {
		t.Error("an update has set bytes above the maximum")
	}
}

// A session ends when it was idle for too long or is too old, also while no daemon runs. A writer delays
// the end.
func TestExpiry(t *testing.T) {
	b := newBench(t)
	idle := b.create(Settings{IdleTTL: time.Hour})
	old := b.create(Settings{TTL: 90 * time.Minute})
	stays := b.create(Settings{})
	b.commit(idle, "f=1")
	b.clock.advance(59 * time.Minute)
	b.files(idle, 0) // a use
	b.clock.advance(time.Minute)
	b.restart()
	if n, err := b.Sweep(); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	w := b.acquire(idle, 0)
	b.clock.advance(61 * time.Minute)
	if _, err := b.Get("a", old); !errors.Is(err, ErrNotFound) {
		t.Errorf("a session that is too old: %v", err)
	}
	if n, err := b.Sweep(); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want the old one", n, err)
	}
	w.Release() // a use
	if n, err := b.Sweep(); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	b.clock.advance(time.Hour)
	if list := b.List("a"); len(list) != 1 || list[0].ID != stays {
		t.Errorf("list: got %+v", list)
	}
	if n, err := b.Sweep(); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if names, _ := os.ReadDir(filepath.Join(b.dir, "a")); len(names) != 1 {
		t.Errorf("left on disk: %v", names)
	}
	if n, bytes := b.Usage("a"); n != 1 || bytes != 0 {
		t.Errorf("usage: %d sessions of %d bytes", n, bytes)
	}
}

// The sweep frees memory, and the next use reads the session again.
func TestForget(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	b.clock.advance(idleMemory)
	if _, err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	x := b.tenants["a"].sessions[id]
	if x.loaded || x.kept != nil {
		t.Error("the session is still in memory")
	}
	b.commit(id, "g=2")
	b.check("files", b.head(id), []string{"f=1", "g=2"})
}

// A tenant that was removed gets no new session, but its writers commit, within bounds.
func TestRemovedTenant(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.rules = Rules{Removed: true, TotalBytes: 4 * diskBlock}
	if _, err := b.Create("a", Settings{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("create: %v", err)
	}
	b.commit(id, "f=1")
	if _, err := b.try(id, b.change("g=2", "h=3", "i=4")); !errors.As(err, new(*QuotaError)) {
		t.Errorf("above the bound: %v", err)
	}
	if _, _, err := b.Purge("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create("a", Settings{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("create after the purge: %v", err)
	}
}

// A session that is made during a purge stays.
func TestPurgeAndCreate(t *testing.T) {
	b := newBench(t)
	inStep, goOn := make(chan bool), make(chan bool)
	b.step = func(name string) {
		if name == "create" {
			close(inStep)
			<-goOn
		}
	}
	done := make(chan error)
	go func() {
		_, err := b.Create("a", Settings{})
		done <- err
	}()
	<-inStep
	if _, _, err := b.Purge("a"); err == nil {
		t.Error("a purge during a creation has no error")
	}
	close(goOn)
	b.must(<-done)
	// Now the purge sees no tenant when it begins, and a session when it ends.
	b = newBench(t)

	var id string
	b.step = func(name string) {
		if name == "purge" {
			id = b.create(Settings{})
		}
	}
	if _, _, err := b.Purge("a"); err == nil {
		t.Error("a purge has removed a new session")
	}
	b.commit(id, "f=1")
}

func TestPurge(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.create(Settings{})
	b.commit(id, "f=1")
	other, err := b.Create("b", Settings{})
	b.must(err)
	_, used := b.Usage("a")
	w := b.acquire(id, 0)
	if _, _, err := b.Purge("a"); err == nil {
		t.Error("a session with a writer was purged")
	}
	w.Release()
	before := len(b.List("a"))
	if n, bytes, err := b.Purge("a"); n != before || bytes != used || err != nil {
		t.Errorf("purge: %d sessions of %d bytes, %v; want %d of %d", n, bytes, err, before, used)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the tenant: %v", err)
	}
	if n, bytes, err := b.Purge("nobody"); n != 0 || bytes != 0 || err != nil {
		t.Errorf("purge of an unknown tenant: %d, %d, %v", n, bytes, err)
	}
	if _, err := b.Get("b", other.ID); err != nil {
		t.Errorf("another tenant's session: %v", err)
	}
}

func TestOneProcess(t *testing.T) {
	b := newBench(t)
	if _, err := Open(b.config()); err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("a second store: %v", err)
	}
	id := b.create(Settings{})
	w := b.acquire(id, 0)
	b.must(b.Close())
	if _, err := w.Commit(b.change("f=1")); !errors.Is(err, ErrClosed) {
		t.Errorf("commit after Close: %v", err)
	}
	w.Release()
	if _, err := b.Get("a", id); !errors.Is(err, ErrClosed) {
		t.Errorf("get after Close: %v", err)
	}
	if _, err := b.Create("a", Settings{}); !errors.Is(err, ErrClosed) {
		t.Errorf("create after Close: %v", err)
	}
	b.open()
	b.check("files", b.head(id), []string{})
}

func TestOwnerIsNeverRoot(t *testing.T) {
	if _, err := Open(Config{Dir: t.TempDir()}); err == nil {
		t.Error("files may belong to root")
	}
}

// Reads of one tenant's lists wait for each other. They do not delay another tenant's reads.
func TestReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.create(Settings{})
		other, err := b.Create("other", Settings{})
		b.must(err)
		b.commit(id, "f=1")
		var ends []func()
		for range maxTenantReading {
			ends = append(ends, b.beginReading("a"))
		}
		done := make(chan error, 2)
		read := func(tenant, id string) {
			_, err := b.Read(tenant, id, 0)
			_, versionsErr := b.Versions(tenant, id)
			done <- errors.Join(err, versionsErr)
		}
		go read("a", id)
		go read("other", other.ID)
		b.must(<-done)
		synctest.Wait()
		if len(done) > 0 {
			t.Error("a read beyond the tenant's share did not wait")
		}
		for _, end := range ends {
			end()
		}
		b.must(<-done)
		if len(b.reading) != 0 {
			t.Errorf("%d reads under way", len(b.reading))
		}
	})
}

// A read of the newest version finds it, even if commits remove the version that was the newest when the read began. A
// version that is no longer kept is not found, and the error does not say that the session is gone.
func TestReadDuringCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.rules.Versions = 1
		id := b.create(Settings{})
		b.commit(id, "f=1")
		w := b.acquire(id, 0)
		var ends []func()
		for range maxTenantReading {
			ends = append(ends, b.beginReading("a"))
		}
		read := make(chan error, 1)
		go func() {
			v, err := b.Read("a", id, 0)
			if err == nil && v.Version.Number != 2 {
				err = fmt.Errorf("version %d, want 2", v.Version.Number)
			}
			read <- err
		}()
		synctest.Wait() // the read waits for its share, and knows the newest version
		_, err := w.Commit(b.change("f=2"))
		b.must(err)
		w.Release()
		for _, end := range ends {
			end()
		}
		b.must(<-read)
		_, err = b.Read("a", id, 1)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "version 1: not found") {
			t.Errorf("a version that is not kept: %v", err)
		}
	})
}

// Versions that are read from the disk share the strings of their common files.
func TestVersionsShareMemory(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1", "g=1")
	b.commit(id, "g=2")
	b.restart()
	w := b.acquire(id, 0)
	defer w.Release()
	first, second := w.x.kept[0].files, w.x.kept[1].files
	if unsafe.StringData(first[0].Path) != unsafe.StringData(second[0].Path) || unsafe.StringData(first[0].SHA256) != unsafe.StringData(second[0].SHA256) {
		t.Error("an unchanged file is in memory twice")
	}
	if second[1].SHA256 == first[1].SHA256 {
		t.Error("a changed file has the hash of the earlier version")
	}
}
