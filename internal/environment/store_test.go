package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/scarcetest"
	"github.com/skillrun/skillrun/internal/skill"
)

// keyFor is the key of a skill's requirements.
func (s *Store) keyFor(t *testing.T, sk *skill.Skill, inv runtime.Invocation) string {
	t.Helper()
	p, err := s.newPlan(sk, inv)
	if err != nil {
		t.Fatal(err)
	}
	return p.key
}

func TestPrepareNeedsASource(t *testing.T) {
	sk := newSkill(t, "python_packages: [six]\n", nil)
	for _, c := range []struct {
		name string
		edit func(*Config)
		want func(error) bool
	}{
		{"no source", nil, func(err error) bool { return errors.Is(err, ErrNoSource) }},
		{"no pip", func(c *Config) { c.Index, c.Pip = "https://h/", "" }, func(err error) bool { return errors.Is(err, ErrNoPip) }},
		{"no wheels", func(c *Config) { c.Wheels = "/nonexistent" }, unavailable("/nonexistent")},
	} {
		_, _, err := prepare(t, newStore(t, c.edit), "acme", sk, runtime.System)
		if err == nil || !c.want(err) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	none := newSkill(t, "system_packages: [jq]\n", nil)
	if env, _, err := prepare(t, newStore(t, nil), "acme", none, runtime.System); err != nil || env.Digest != "" || !strings.HasPrefix(env.Python, "system 3.") {
		t.Errorf("nothing needed: got %+v, %v", env, err)
	}
	if _, err := Open(Config{Dir: t.TempDir(), Index: "file:///x"}); err == nil {
		t.Error("bad index: got no error")
	}
}

func TestRequirementsThatCantBeInstalled(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Index = "http://127.0.0.1:1/" })
	for text, want := range map[string]string{
		"==2":                      "is not valid",
		"six @ https://e/six.whl":  "names a URL",
		"six ; what == 'x'":        "environment marker",
		"six ; os_name == 'a --x'": "environment marker",
		"six ; os_name == '$HOME'": "environment marker",
		"six --hash=md5:0":         "--hash is not",
	} {
		sk := newSkill(t, "", map[string]string{"requirements.txt": text + "\n"})
		_, _, err := prepare(t, s, "acme", sk, runtime.System)
		var bad *RequirementError
		if !errors.As(err, &bad) || bad.File != "requirements.txt" || bad.Line != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestRequirementLinesAreWrittenAnew(t *testing.T) {
	s := newStore(t, nil)
	sk := newSkill(t, "python_packages: ['Rich[a,b] (>= 1.0, <2) ; python_version >= \"3\"', six]\n", map[string]string{
		"requirements.txt": "six # again\nnum==1 --hash=sha256:" + strings.Repeat("a", 64) + "\n",
		"scripts/x.py":     "# /// script\n# dependencies = ['six']\n# ///\n",
	})
	p, err := s.newPlan(sk, python(t, sk, runtime.System))
	want := "Rich[a,b]>=1.0,<2 ; python_version >= \"3\"\nnum==1 --hash=sha256:" + strings.Repeat("a", 64) + "\nsix\n"
	if err != nil || string(p.requirements) != want {
		t.Errorf("got %q, %v; want %q", p.requirements, err, want)
	}
}

// Packages that come with the interpreter are not installed, and no index is asked for them.
func TestPlanLeavesOutTheInterpreter(t *testing.T) {
	s := newStore(t, nil)
	sk := newSkill(t, "python_packages: [json, os, 'argparse>=1.0', 'dataclasses>=0.6', 'python>=3.8', six]\n", nil)
	for _, kind := range []runtime.Python{runtime.System, runtime.Embedded} {
		if p, err := s.newPlan(sk, python(t, sk, kind)); err != nil || string(p.requirements) != "six\n" {
			t.Errorf("%s: got %+v, %v; want six", kind, p, err)
		}
	}
	var other *InterpreterError
	sk = newSkill(t, "python_packages: ['python>=9']\n", nil)
	if _, err := s.newPlan(sk, python(t, sk, runtime.System)); !errors.As(err, &other) || other.Want != ">=9" {
		t.Errorf("got %v, want another interpreter", err)
	}
}

// Wheels of a directory, without an index.
func TestPrepareFromWheels(t *testing.T) {
	t.Parallel()
	wheels := hosttest.Dir(t)
	if err := os.Chmod(wheels, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []pkg{base, top} {
		name, data := p.wheel()
		if err := os.WriteFile(filepath.Join(wheels, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(hosttest.Dir(t), "wheels")
	if err := os.Symlink(wheels, link); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(c *Config) { c.Wheels = link })
	sk := newSkill(t, "python_packages: [sk-top]\n", nil)
	if env := mustPrepare(t, s, "acme", sk, runtime.Embedded); len(env.Packages) != 2 {
		t.Errorf("got %+v", env)
	}
	var none *NoPackageError
	if _, _, err := prepare(t, s, "acme", newSkill(t, "python_packages: [sknone]\n", nil), runtime.Embedded); !errors.As(err, &none) || none.Name != "sknone" {
		t.Errorf("got %v, want sknone missing", err)
	}
}

// A hash in requirements.txt holds.
func TestHashesAreHonoured(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base)
	s := newStore(t, x.from)
	sk := newSkill(t, "", map[string]string{"requirements.txt": "skbase==1.2.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n"})
	_, log, err := prepare(t, s, "acme", sk, runtime.System)
	var failed *BuildError
	if !errors.As(err, &failed) || !strings.Contains(log, "DO NOT MATCH THE HASHES") {
		t.Errorf("got %v\n%s", err, log)
	}
}

// Two skills that resolve to the same packages share an environment; two tenants
// never do.
func TestWhoSharesAnEnvironment(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base, top)
	s := newStore(t, x.from)
	one := mustPrepare(t, s, "acme", newSkillNamed(t, "one", "python_packages: [sk-top]\n", nil), runtime.System)
	two := newSkillNamed(t, "two", "python_packages: [skbase, 'sk-top>=2']\n", nil)
	other := mustPrepare(t, s, "acme", two, runtime.System)
	if one.Digest != other.Digest || other.Reused {
		t.Errorf("got %+v and %+v, want one digest", one, other)
	}
	if n := len(s.tenants["acme"].kept); n != 1 {
		t.Errorf("got %d environments, want 1", n)
	}
	inv := python(t, two, runtime.System)
	for _, tenant := range []string{"beta", "../acme", "ACME"} {
		var missing *PackagesError
		if _, err := s.Acquire(useOf(tenant, two, inv)); !errors.As(err, &missing) {
			t.Errorf("tenant %s: got %v, want missing packages", tenant, err)
		}
	}
	theirs := mustPrepare(t, s, "../acme", two, runtime.System)
	if theirs.Reused || theirs.Digest != one.Digest {
		t.Errorf("got %+v, want one built for this tenant", theirs)
	}
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil || len(entries) != 2 || !strings.HasPrefix(entries[0].Name(), "+") {
		t.Errorf("got %v, %v; want two tenants' directories", entries, err)
	}
}

// A virtual environment of the skill's own comes first.
func TestVenvComesFirst(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base, top)
	s := newStore(t, x.from)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	site := "venv/lib/python" + version + "/site-packages/"
	sk := newSkillNamed(t, "it's \"odd\"", "python_packages: [sk-top]\n", map[string]string{
		"venv/bin/python3": "-> /usr/bin/python3", "venv/pyvenv.cfg": "version = " + version + ".0\n", site + "skbase.py": "NAME = 'venv'\n",
	})
	mustPrepare(t, s, "acme", sk, runtime.Auto)
	inv := python(t, sk, runtime.Auto)
	for range 2 {
		l, err := s.Acquire(useOf("acme", sk, inv))
		if err != nil {
			t.Fatal(err)
		}
		if out, exit := run(t, sk, inv, l, "python3", "-c", "import sktop; sktop.main()"); out != "top on venv\n" || exit.Code != 0 {
			t.Errorf("got %q, %+v", out, exit)
		}
		l.Release()
		l.Release() // once is enough
	}
}

// Callers that want the same share one build; one that goes away doesn't end it.
func TestOneBuildForAll(t *testing.T) {
	t.Parallel()
	asked, proceed := make(chan struct{}), make(chan struct{})
	x := newIndex(t, base)
	first := true
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		if first {
			first = false
			close(asked)
			<-proceed
		}
		return false
	}
	s := newStore(t, x.from)
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	inv := python(t, sk, runtime.System)
	type answer struct {
		env Environment
		log string
		err error
	}
	start := func(ctx context.Context) chan answer {
		out := make(chan answer, 1)
		go func() {
			var log bytes.Buffer
			env, err := s.Prepare(ctx, "acme", sk, inv, true, func(p []byte) error { log.Write(p); return nil })
			out <- answer{env, log.String(), err}
		}()
		return out
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := start(ctx)
	<-asked
	stays := []chan answer{start(t.Context()), start(t.Context())}
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return onlyFlight(s).waiters == 3 })
	leave()
	if a := <-gone; !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %v, want canceled", a.err)
	}
	close(proceed)
	var digests []string
	for _, c := range stays {
		a := <-c
		if a.err != nil || !strings.Contains(a.log, "Successfully installed") {
			t.Errorf("got %v, %q", a.err, a.log)
		}
		digests = append(digests, a.env.Digest)
	}
	if digests[0] != digests[1] || digests[0] == "" {
		t.Errorf("got %v", digests)
	}
	if n := strings.Count(strings.Join(x.requests(), " "), "/files/"); n != 1 {
		t.Errorf("got %d downloads, want 1", n)
	}
}

func onlyFlight(s *Store) *flight {
	for _, f := range s.flights {
		return f
	}
	return &flight{}
}

// waitFor waits for a condition that no event announces.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for ctx := t.Context(); !ok(); {
		select {
		case <-ctx.Done():
			t.Fatal("never")
		case <-time.After(time.Millisecond):
		}
	}
}

// A build whose last waiting caller has left is ended, and leaves no files.
func TestBuildEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 8)
	x := newIndex(t, base)
	hold := make(chan struct{})
	defer close(hold)
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		return true
	}
	s := newStore(t, x.from)
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	for _, end := range []string{"caller", "store"} {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.Prepare(ctx, "acme", sk, python(t, sk, runtime.System), false, func([]byte) error { return nil })
			done <- err
		}()
		<-asked
		want := context.Canceled
		if end == "caller" {
			leave()
		} else {
			s.end()
			want = ErrClosed
		}
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", end, err, want)
		}
		s.builds.Wait()
		leave()
		if got := leftIn(t, s); len(got) > 0 || len(s.flights) > 0 {
			t.Errorf("left behind: %v, %d builds", got, len(s.flights))
		}
	}
	s.Close()
}

func TestTooManyBuilds(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Index = "http://127.0.0.1:1/" })
	for i := range maxBuilds + maxWaiting {
		s.flights[flightKey{"acme", string(rune('a' + i))}] = &flight{}
	}
	var busy *BusyError
	if _, _, err := prepare(t, s, "acme", newSkill(t, "python_packages: [six]\n", nil), runtime.System); !errors.As(err, &busy) {
		t.Errorf("got %v, want a full queue", err)
	}
}

// put makes an environment of a size without a build.
func put(t testing.TB, s *Store, tenant, key string, size int) *kept {
	t.Helper()
	b, err := s.newDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "data"), bytes.Repeat([]byte(key), size/len(key)), 0o644); err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat(key, 64)
	err = s.publish(t.Context(), flightKey{tenant, strings.Repeat(key, 64)}, b, Environment{Digest: digest, Packages: []string{key + "==1"}, SizeBytes: int64(size), Python: "system 3.11.2"}, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	return s.tenants[tenant].kept[digest]
}

func keys(s *Store) []string {
	var all []string
	for name, t := range s.tenants {
		for _, k := range t.kept {
			all = append(all, name+"/"+k.environment.Digest[7:8])
		}
	}
	slices.Sort(all)
	return all
}

// Beyond the bound the least recently used of the tenant with the most goes, and never one in use.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Bytes = 100 })
	now := time.Now()
	for i, name := range []string{"a", "b", "c"} {
		k := put(t, s, "acme", name, 30)
		k.used = now.Add(time.Duration(i) * time.Second)
	}
	held := s.taken("acme", strings.Repeat("b", 64))
	s.tenants["acme"].kept["sha256:"+strings.Repeat("b", 64)].used = now.Add(-time.Hour)
	put(t, s, "beta", "d", 30)
	if got, want := keys(s), []string{"acme/b", "acme/c", "beta/d"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s.taken("acme", strings.Repeat("a", 64)) != nil {
		t.Error("what was removed is still found")
	}
	put(t, s, "beta", "e", 90)
	if got, want := keys(s), []string{"acme/b", "beta/e"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.release(held)
	if got, want := keys(s), []string{"acme/b"}; !slices.Equal(got, want) { // beta has the most
		t.Errorf("given back: got %v, want %v", got, want)
	}
	put(t, s, "beta", "f", 10)
	if got, want := keys(s), []string{"acme/b", "beta/f"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// A lower bound counts from the next start on.
	c := s.config
	c.Bytes = 20
	again, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := keys(again), []string{"beta/f"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want what fits: %v", got, want)
	}
}

// A start removes the remains of a crash. Complete environments stay, with their times.
func TestStartAfterACrash(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Dir += "[1]" }) // characters of a pattern mean nothing
	put(t, s, "acme", "a", 10)
	put(t, s, "acme", "b", 10)
	dir := s.config.Dir
	for _, name := range []string{newPrefix + "1/root/x", oldPrefix + "1/environment/x", "acme/prepared/nonsense", "acme/prepared/folder/x", "acme/" + newPrefix + "1", "acme/" + strings.Repeat("a", 64) + "/" + newPrefix + "1/x", "acme/prepared/" + strings.Repeat("c", 64), "acme/note", "file"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("sha256:"+strings.Repeat("f", 64)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "acme", strings.Repeat("b", 64), manifestName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := keys(again), []string{"acme/a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := leftIn(t, again); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
	found, err := os.ReadDir(filepath.Join(dir, "acme", preparedName))
	if err != nil || len(found) != 1 {
		t.Errorf("got %v, %v; want one key", found, err)
	}
	if k := again.taken("acme", strings.Repeat("a", 64)); k == nil {
		t.Error("the whole one is not found")
	}
	if _, err := os.Lstat(filepath.Join(dir, "acme", strings.Repeat("a", 64), newPrefix+"1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part that was not finished: got %v, want that it is gone", err)
	}
}

// A manifest that a start could not read is not written.
func TestManifestIsBounded(t *testing.T) {
	s := newStore(t, nil)
	for _, over := range []int{0, 1} {
		b, err := s.newDir()
		if err != nil {
			t.Fatal(err)
		}
		defer b.fs.Close()
		env := Environment{Digest: "sha256:" + keyOf("a"), Packages: []string{""}, SizeBytes: 1}
		inodes, err := inodesOf(b.root)
		if err != nil {
			t.Fatal(err)
		}
		empty, err := json.Marshal(manifestFile{env.Digest, env.Packages, env.SizeBytes, env.Python, inodes})
		if err != nil {
			t.Fatal(err)
		}
		env.Packages[0] = strings.Repeat("x", maxManifestBytes-len(empty)+over)
		err = s.publish(t.Context(), flightKey{"acme", keyOf("a")}, b, env, func() bool { return true })
		if (err == nil) != (over == 0) {
			t.Errorf("%d bytes beyond the bound: got %v", over, err)
		}
		s.discard(b.dir)
		if got, want := keys(openStore(t, s.config)), []string{"acme/a"}; !slices.Equal(got, want) {
			t.Errorf("%d bytes beyond the bound: a start finds %v, want %v", over, got, want)
		}
	}
}

// An environment whose manifest does not say its size on disk is built anew. It would not count.
func TestEnvironmentWithoutSizeIsDropped(t *testing.T) {
	s := newStore(t, nil)
	k := put(t, s, "acme", "a", 10)
	name := filepath.Join(k.dir, manifestName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	without := bytes.Replace(text, []byte("disk_bytes"), []byte("size_bytes"), 1)
	if err := os.WriteFile(name, without, 0o600); err != nil || bytes.Equal(text, without) {
		t.Fatalf("%v; %s", err, text)
	}
	again := openStore(t, s.config)
	if got := keys(again); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// A start doesn't wait for the removal of what is not kept: the remains of a crash, a damaged environment, and one
// beyond the bound. Their names are free at once, and the next start removes what a crash has left.
func TestStartRemovesInTheBackground(t *testing.T) {
	s := newStore(t, nil)
	damaged := put(t, s, "acme", "a", 10)
	put(t, s, "acme", "b", 10).used = time.Now().Add(-time.Hour)
	put(t, s, "acme", "c", 10)
	if err := os.Chtimes(filepath.Join(s.config.Dir, "acme", keyOf("b"), usedName), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(damaged.dir, manifestName)), os.Mkdir(filepath.Join(s.config.Dir, newPrefix+"1"), 0o700)); err != nil {
		t.Fatal(err)
	}
	c := s.config
	c.Bytes = 15
	opened := make(chan struct{})
	c.removeAll = func(dir string) error {
		<-opened
		return errors.New("this start is killed")
	}
	killed := openStore(t, c)
	if got, want := keys(killed), []string{"acme/c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, err := filepath.Glob(filepath.Join(c.Dir, ".[no]*")); err != nil || len(got) < 3 { // and keys
		t.Errorf("to be removed: %v, %v; want three directories", got, err)
	}
	isThere(t, damaged.dir, false)
	close(opened)
	killed.removal.Wait()
	again := openStore(t, s.config)
	if got, want := keys(again), []string{"acme/c"}; !slices.Equal(got, want) {
		t.Errorf("after a crash: got %v, want %v", got, want)
	}
	if got := leftIn(t, again); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// An environment that was changed is not used, and can be built anew.
func TestDamageIsNoticed(t *testing.T) {
	for name, damage := range map[string]func(root string) error{
		"a file changed": func(root string) error { return os.WriteFile(filepath.Join(root, "data"), []byte("aaaaaaaaaa"), 0o644) },
		"a file added":   func(root string) error { return os.WriteFile(filepath.Join(root, "more"), nil, 0o644) },
		"a file removed": func(root string) error { return os.Remove(filepath.Join(root, "data")) },
		"a mode":         func(root string) error { return os.Chmod(filepath.Join(root, "data"), 0o4755) },
		"all of it":      os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := newStore(t, func(c *Config) { c.Log = logTo(&log) })
			k := put(t, s, "acme", "a", 10)
			if err := damage(k.root()); err != nil {
				t.Fatal(err)
			}
			again, err := Open(s.config)
			if err != nil {
				t.Fatal(err)
			}
			if again.taken("acme", strings.Repeat("a", 64)) != nil || !strings.Contains(log.String(), "damaged environment") {
				t.Errorf("used all the same; log %s", log.String())
			}
			put(t, again, "acme", "a", 10)
			if k := again.taken("acme", strings.Repeat("a", 64)); k == nil {
				t.Error("the new one is not found")
			}
		})
	}
}

// An environment that cannot be read for a moment is not damaged: it stays, and is used as soon as it can be read. The
// moment may be at the first use, at the start, or at the end of a takeover.
func TestEnvironmentThatCannotBeReadForAMoment(t *testing.T) {
	key := strings.Repeat("a", 64)
	s := newStore(t, nil)
	put(t, s, "acme", "a", 10)
	again, err := Open(s.config)
	if err != nil {
		t.Fatal(err)
	}
	refuses := func() {
		if k, err := again.take("acme", key); k != nil || !durable.MayPass(err) {
			t.Errorf("got %v, %v; want the error of the system", k, err)
		}
	}
	scarcetest.WithoutDescriptors(t, refuses)
	if again.taken("acme", key) == nil {
		t.Fatal("lost after the first use")
	}

	if again, err = Open(s.config); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(s.config.Dir, "acme"))
	if err != nil {
		t.Fatal(err)
	}
	again.mu.Lock()
	clear(again.tenants["acme"].kept)
	clear(again.tenants["acme"].prepared)
	scarcetest.WithoutDescriptors(t, func() {
		if _, err := again.learnKept(again.tenants["acme"], entries, os.RemoveAll); err != nil {
			t.Error(err)
		}
	})
	again.unlock()
	scarcetest.WithoutDescriptors(t, refuses)
	if again.taken("acme", key) == nil {
		t.Error("lost after the lists were read")
	}

	c := s.config
	c.Takeover = true
	if again, err = Open(c); err != nil {
		t.Fatal(err)
	}
	clear(again.tenants)
	scarcetest.WithoutDescriptors(t, func() {
		if err := again.Adopt(t.Context()); !durable.MayPass(err) {
			t.Errorf("adopt: got %v", err)
		}
		refuses()
	})
	if again.taken("acme", key) == nil {
		t.Error("lost after a takeover")
	}
}

// A damaged environment is replaced by a build of the same.
func TestDamageIsReplaced(t *testing.T) {
	s := newStore(t, nil)
	k := put(t, s, "acme", "a", 10)
	k.verified = false
	if err := os.WriteFile(filepath.Join(k.root(), "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fresh := put(t, s, "acme", "a", 10)
	if _, err := os.Stat(filepath.Join(fresh.root(), "more")); fresh == k || err == nil {
		t.Error("the damaged one is still there")
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base)
	s := newStore(t, x.from)
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	first := mustPrepare(t, s, "acme", sk, runtime.System)
	name, data := pkg{name: "skbase", version: "1.3", files: base.files}.wheel()
	x.files[name] = data
	env, err := s.Prepare(t.Context(), "acme", sk, python(t, sk, runtime.System), true, func([]byte) error { return nil })
	if err != nil || env.Digest == first.Digest || !slices.Equal(env.Packages, []string{"skbase==1.3"}) {
		t.Errorf("got %+v, %v; want the new version", env, err)
	}
	if again := mustPrepare(t, s, "acme", sk, runtime.System); again.Digest != env.Digest || !again.Reused {
		t.Errorf("got %+v, want what was built last", again)
	}
	failed := errors.New("gone")
	if _, err := s.Prepare(t.Context(), "acme", sk, python(t, sk, runtime.System), true, func([]byte) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want what log returned", err)
	}
	s.Close()
}

// A rebuild replaces an environment even if the result is the same. A lease of the old
// environment keeps it until the end.
func TestRebuildReplacesTheSame(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base)
	s := newStore(t, x.from)
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	inv := python(t, sk, runtime.System)
	first := mustPrepare(t, s, "acme", sk, runtime.System)
	held, err := s.Acquire(useOf("acme", sk, inv))
	if err != nil {
		t.Fatal(err)
	}
	old := s.tenants["acme"].kept[first.Digest]
	again, err := s.Prepare(t.Context(), "acme", sk, inv, true, func([]byte) error { return nil })
	if err != nil || again.Digest != first.Digest {
		t.Fatalf("got %+v, %v; want the same digest", again, err)
	}
	if s.tenants["acme"].kept[first.Digest] == old {
		t.Error("the old one is still there")
	}
	fresh, err := s.Acquire(useOf("acme", sk, inv))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Lease{held, fresh} {
		if out, exit := run(t, sk, inv, l, "python3", "-c", "import skbase; print(skbase.NAME)"); out != "base\n" || exit.Code != 0 {
			t.Errorf("got %q, %+v", out, exit)
		}
	}
	reopened, err := Open(s.config) // as after a crash: the old one has ended
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old.dir); err == nil || len(reopened.tenants["acme"].prepared) != 1 {
		t.Errorf("%s is still there, or the new one is not", old.dir)
	}
	held.Release()
	fresh.Release()
	if l, err := reopened.Acquire(useOf("acme", sk, inv)); err != nil || l.Digest != first.Digest {
		t.Errorf("got %+v, %v; want the new one", l, err)
	}
}

func TestTail(t *testing.T) {
	for said, want := range map[string]string{
		"":                               "it said nothing",
		"one\ntwo\n\n":                   "two",
		"ERROR: a\nERROR: b\n[notice]\n": "b",
		strings.Repeat("x", 600):         strings.Repeat("x", maxReason) + "...",
	} {
		l := &tail{to: &bytes.Buffer{}}
		l.Write([]byte(strings.Repeat("\n", maxTail)))
		l.Write([]byte(said))
		if got := l.reason(); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
	f := &flight{changed: make(chan struct{})}
	f.Write(make([]byte, 2*maxLog))
	if len(f.log) > maxLog+100 {
		t.Errorf("got %d bytes of log, want a bound", len(f.log))
	}
}

func TestParseIndex(t *testing.T) {
	for text, want := range map[string]bool{
		"https://pypi.org/simple/": true, "http://10.0.0.1:8080/root/pypi/+simple": true, "https://u:p@h/": true,
		"": false, "pypi.org": false, "file:///x": false, "https:///x": false, "https://h/?q": false, "https://h/#f": false, "https://u:s3cret@%zz/": false,
	} {
		_, err := ParseIndex(text)
		if (err == nil) != want || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want good: %t", text, err, want)
		}
	}
}
