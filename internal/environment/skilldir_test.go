package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// modules are the files of a skill that is compiled: modules in scripts and in a venv. The
// compiler must not run any of them: hang.py would not end, and compileall.py would hide the
// compiler's own module.
func modules(version string) map[string]string {
	site := "venv/lib/python" + version + "/site-packages/"
	files := map[string]string{
		"venv/bin/python3": "-> /home/me/bin/python3", "venv/pyvenv.cfg": "home = /home/me/bin\nversion = " + version + ".0\n",
		site + "mine.py": "", site + "run.pth": "import hang\n", site + "hang.py": "while True: pass\n",
		"scripts/hang.py": "while True: pass\n", "scripts/compileall.py": "raise SystemExit(3)\n", "scripts/wrong.py": "(\n", "scripts/linked.py": "-> m0.py",
		"scripts/py.txt": "",
	}
	for i := range minModules {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	return files
}

// skillDir is the directory for an execution that ends at once.
func skillDir(s *Store, u Use) string {
	l := &Lease{}
	defer l.Release()
	return s.SkillDir(u, l)
}

// occupy takes the place of a compilation for a tenant until leave is called.
func occupy(t *testing.T, s *Store, tenant string) (leave func()) {
	t.Helper()
	if err := s.compiling.enter(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	return func() { s.compiling.leave(tenant) }
}

// manyModules are the files of a skill that is compiled and has no venv.
func manyModules() map[string]string {
	files := map[string]string{}
	for i := range minModules {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	return files
}

// pushedSkill returns a skill that a tenant has pushed.
func pushedSkill(t *testing.T, tenant, name string, files map[string]string) *skill.Skill {
	t.Helper()
	dir := hosttest.Dir(t)
	files = maps.Clone(files)
	files["SKILL.md"] = "---\nname: " + name + "\ndescription: Is pushed.\n---\n"
	for p, text := range files {
		p = filepath.Join(dir, "folder", p)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{
		Dir: filepath.Join(dir, "snapshots"), TenantsDir: filepath.Join(dir, "tenants"), Owner: skilltest.Owner(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	p, err := r.For(tenant).Push(t.Context(), skill.Push{Parent: dir, Folder: "folder"})
	if err != nil {
		t.Fatal(err)
	}
	return p.Skill
}

// variants are uses of one skill by interpreters that don't exist. Each has a compilation of its own, which fails soon.
func variants(sk *skill.Skill, n int) (uses []Use) {
	for i := range n {
		python := runtime.Runtime{Language: "python", Path: "/usr/bin/no-such-python3", Version: fmt.Sprintf("3.11.%d", i)}
		uses = append(uses, Use{Tenant: "acme", Skill: sk, Python: python, RunsPython: true})
	}
	return uses
}

// compiledDir returns the directory with compiled files of a skill, when it has been made.
func compiledDir(t *testing.T, s *Store, u Use) string {
	t.Helper()
	if dir := skillDir(s, u); dir != u.Skill.Dir {
		t.Fatalf("the first call returned %s", dir)
	}
	s.builds.Wait()
	dir := skillDir(s, u)
	if dir == u.Skill.Dir {
		t.Fatal("the skill was not compiled")
	}
	return dir
}

// A skill with modules is compiled once, for all tenants. The copy has the files of the snapshot
// and one compiled file for each source.
func TestSkillIsCompiled(t *testing.T) {
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	sk := newSkill(t, "", modules(version))
	u := useOf("acme", sk, python(t, sk, runtime.Auto))
	dir := compiledDir(t, s, u)
	u.Tenant = "other"
	if again := skillDir(s, u); again != dir {
		t.Errorf("another tenant got %s", again)
	}
	var cached []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		got, _ := os.Lstat(p)
		st := got.Sys().(*syscall.Stat_t)
		if owner := skilltest.Owner(); int(st.Uid) != owner.UID || int(st.Gid) != owner.GID {
			t.Errorf("%s belongs to %d:%d", rel, st.Uid, st.Gid)
		}
		original, missing := os.Lstat(filepath.Join(sk.Dir, rel))
		switch {
		case missing != nil && filepath.Base(filepath.Dir(rel)) == cacheName:
			cached = append(cached, strings.TrimSuffix(rel, ".cpython-"+strings.ReplaceAll(version, ".", "")+".pyc"))
		case missing != nil && d.Name() == cacheName && d.IsDir():
		case missing != nil:
			t.Errorf("%s is not in the snapshot", rel)
		case d.IsDir() && (got.Mode() != original.Mode() || !got.ModTime().Equal(original.ModTime())):
			t.Errorf("%s: %v %v, in the snapshot %v %v", rel, got.Mode(), got.ModTime(), original.Mode(), original.ModTime())
		case !d.IsDir() && !os.SameFile(got, original):
			t.Errorf("%s is another file than the snapshot's", rel)
		}
		return err
	})
	want := []string{"scripts/__pycache__/compileall", "scripts/__pycache__/hang"}
	for i := range minModules {
		want = append(want, fmt.Sprintf("scripts/__pycache__/m%d", i))
	}
	want = append(want, "venv/lib/python"+version+"/site-packages/__pycache__/hang", "venv/lib/python"+version+"/site-packages/__pycache__/mine")
	if err != nil || !slices.Equal(cached, want) {
		t.Errorf("compiled files %v, %v\nwant %v", cached, err, want)
	}
	for e := range sk.Entries() {
		if _, err := os.Lstat(filepath.Join(dir, e.Path)); err != nil {
			t.Error(err)
		}
	}
}

// Two tenants push equal files. Each tenant has its own snapshot, and nothing that was made for one tenant may be seen
// in the other's executions: no compiled files before its own compilation, and no inodes.
func TestEqualSkillsShareNothing(t *testing.T) {
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	use := func(tenant string) Use {
		sk := newSkill(t, "", modules(version))
		return useOf(tenant, sk, python(t, sk, runtime.Auto))
	}
	first, second := use("acme"), use("other")
	if first.Skill.Digest != second.Skill.Digest || first.Skill.Dir == second.Skill.Dir {
		t.Fatal("want two snapshots of the same files")
	}
	one, venvs := compiledDir(t, s, first), map[string]bool{}
	two := compiledDir(t, s, second) // checks that the first call returns the snapshot
	for _, p := range []string{"scripts/m0.py", "SKILL.md", "venv/pyvenv.cfg"} {
		of, err := os.Stat(filepath.Join(one, p))
		mine, err2 := os.Stat(filepath.Join(two, p))
		if err != nil || err2 != nil || os.SameFile(of, mine) {
			t.Errorf("%s: one inode for both, %v, %v", p, err, err2)
		}
	}
	for _, u := range []Use{first, second} {
		l := &Lease{}
		dir, err := s.venvOf(l, u)
		if err != nil || venvs[dir] {
			t.Errorf("venv of %s: %s, %v", u.Tenant, dir, err)
		}
		venvs[dir] = true
		defer l.Release()
		if _, err := s.checked(u); err != nil {
			t.Error(err)
		}
	}
	if len(s.passed) != 2 {
		t.Errorf("%d checks are remembered", len(s.passed))
	}
}

// Each interpreter has its own compiled files.
func TestSkillIsCompiledForEachPython(t *testing.T) {
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	files := modules("3.11")
	for name := range files {
		if strings.HasPrefix(name, "venv/") {
			delete(files, name)
		}
	}
	sk := newSkill(t, "", files)
	seen := map[string]bool{}
	for _, kind := range []runtime.Python{runtime.System, runtime.Embedded} {
		u := useOf("acme", sk, python(t, sk, kind))
		dir := compiledDir(t, s, u)
		m0, err := filepath.Glob(filepath.Join(dir, "scripts/__pycache__/m0.cpython-"+strings.ReplaceAll(minorOf(u.Python.Version), ".", "")+".pyc"))
		if len(m0) != 1 || err != nil || seen[dir] {
			t.Errorf("%s: %v, %v in %s", kind, m0, err, dir)
		}
		seen[dir] = true
	}
}

// A skill with few modules, and an execution without a Python, get the snapshot. So does each
// execution once the store is closed, and compiled files end with the process.
func TestSkillIsNotCompiled(t *testing.T) {
	hosttest.Host(t)
	s := newStore(t, nil)
	files := modules("3.11")
	many := newSkill(t, "", files)
	delete(files, "scripts/m0.py")
	for name := range files {
		if strings.HasPrefix(name, "venv/") || name == "scripts/hang.py" || name == "scripts/linked.py" || name == "scripts/wrong.py" {
			delete(files, name)
		}
	}
	files["scripts/compileall.py"] = "-> m1.py" // a link does not count as another module
	few := newSkillNamed(t, "few", "", files)
	system := python(t, few, runtime.System)
	snapshotOf := func(u Use) {
		t.Helper()
		for range 2 {
			if got := skillDir(s, u); got != u.Skill.Dir {
				t.Errorf("%s: got %s", u.Skill.Name, got)
			}
			s.builds.Wait()
		}
	}
	snapshotOf(useOf("acme", few, system))
	snapshotOf(Use{Tenant: "acme", Skill: many})
	if left := leftIn(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	u := Use{Tenant: "acme", Skill: many, Python: system.Python, RunsPython: true}
	compiledDir(t, s, u)
	s.Close()
	u.Python.Version += ".1" // another key
	snapshotOf(u)
	again, err := Open(s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if left := leftIn(t, again); len(left) != 0 {
		t.Errorf("after a start: %v", left)
	}
	s = again
	u = Use{Tenant: "acme", Skill: many, Python: system.Python, RunsPython: true}
	compiledDir(t, s, u)
}

// Compiled files count towards the bound of all environments, and the least recently used ones go, but not
// under an execution. Executions go on with the snapshot then.
func TestCompiledFilesAreBounded(t *testing.T) {
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	files := map[string]string{}
	for i := range minModules {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	use := func(name string) Use {
		sk := newSkillNamed(t, name, "", files)
		return useOf("acme", sk, python(t, sk, runtime.System))
	}
	first, second := use("first"), use("second")
	one := compiledDir(t, s, first)
	size := s.compiled[s.compiledKey(first)].size
	var onDisk int64
	err := filepath.WalkDir(one, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			onDisk += skill.DiskBytes(0)
		case strings.HasSuffix(p, ".pyc"):
			fi, err := d.Info()
			if err != nil {
				return err
			}
			onDisk += skill.DiskBytes(fi.Size())
		}
		return nil
	})
	if err != nil || size != onDisk || size == 0 {
		t.Fatalf("counts %d bytes, and has %d on disk, %v", size, onDisk, err)
	}
	s.config.Bytes = size * 3 / 2 // both have the same size
	l := &Lease{}
	if got := s.SkillDir(first, l); got != one {
		t.Fatalf("got %s", got)
	}
	// The first one is in use, so the second one goes.
	if skillDir(s, second) != second.Skill.Dir {
		t.Fatal("the second skill was there already")
	}
	s.builds.Wait()
	if _, err := os.Lstat(one); err != nil || skillDir(s, second) != second.Skill.Dir {
		t.Errorf("in use: %v, the second skill has %s", err, skillDir(s, second))
	}
	l.Release()
	// A smaller bound takes the first one at the next look.
	s.config.Bytes = size - 1
	third := use("third")
	skillDir(s, third)
	s.builds.Wait()
	if skillDir(s, first) != first.Skill.Dir {
		t.Error("the first skill's compiled files stay")
	}
	if left := leftIn(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Beyond the bound, the store removes compiled files of the tenant with the most, although another tenant's were used
// longer ago, and although the tenant with the most uses all of its own.
func TestNeighboursKeepTheirCompiledFiles(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Bytes = 100 })
	t.Cleanup(s.Close)
	now := time.Now()
	add := func(tenant, name string, bytes int64, used time.Time) *compiledSkill {
		c := &compiledSkill{derived: derived{dir: filepath.Join(s.config.Dir, compiledPrefix+name)}, tenant: tenant, size: bytes, used: used}
		s.mu.Lock()
		defer s.unlock()
		s.compiled[name] = c
		s.evict()
		return c
	}
	quiet := []*compiledSkill{add("quiet", "a", 10, now), add("quiet", "b", 10, time.Time{}), add("", "c", 20, now)}
	var hog []*compiledSkill
	for i := range 4 {
		hog = append(hog, add("hog", fmt.Sprint("hog", i), 30, now.Add(time.Duration(i+1)*time.Second)))
	}
	left := func() (names []string) {
		for name, c := range s.compiled {
			if c.dir != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	if got, want := left(), []string{"a", "b", "c", "hog2", "hog3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, c := range hog {
		c.leases++
	}
	add("quiet", "d", 10, now)
	if got, want := left(), []string{"a", "b", "c", "d", "hog2", "hog3"}; !slices.Equal(got, want) {
		t.Errorf("in use: got %v, want %v", got, want)
	}
	for _, c := range hog[2:] {
		s.releaseCompiled(c)
	}
	if got, want := left(), []string{"a", "b", "c", "d", "hog3"}; !slices.Equal(got, want) {
		t.Errorf("given back: got %v, want %v", got, want)
	}
	for _, c := range quiet {
		if c.size == 0 {
			t.Errorf("a copy of %q is gone", c.tenant)
		}
	}
}

// A skill with a venv is compiled before its first execution. Compiled files that no execution has used go first, and
// the first execution compiles the skill again.
func TestVenvIsCompiledBeforeItsFirstExecution(t *testing.T) {
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	use := func(name string) Use {
		sk := newSkillNamed(t, name, "", modules(version))
		u := useOf("acme", sk, python(t, sk, runtime.Auto))
		if !u.Venv {
			t.Fatalf("%s has no venv", name)
		}
		return u
	}
	first, second := use("first"), use("second")
	for range 2 {
		if !s.CompileVenv(t.Context(), first) {
			t.Fatal("there is room")
		}
	}
	if skillDir(s, first) == first.Skill.Dir {
		t.Error("the first execution has no compiled files")
	}
	without := first
	without.Venv, without.Python.Version = false, without.Python.Version+".1" // another key
	if !s.CompileVenv(t.Context(), without) || s.compiled[s.compiledKey(without)] != nil {
		t.Error("a skill without a venv was compiled")
	}
	s.config.Bytes = s.compiled[s.compiledKey(first)].size * 3 / 2 // both have the same size
	if s.CompileVenv(t.Context(), second) {
		t.Error("the second skill has room")
	}
	if skillDir(s, first) == first.Skill.Dir {
		t.Error("used files went, not the unused ones")
	}
	s.config.Bytes *= 2
	if compiledDir(t, s, second); len(leftIn(t, s)) != 2 {
		t.Errorf("left: %v", leftIn(t, s))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	third := use("third")
	leave := occupy(t, s, "") // another skill is being compiled
	if !s.CompileVenv(ended, third) {
		t.Error("there is room")
	}
	leave()
	s.builds.Wait()
	s.Close()
	if fourth := use("fourth"); !s.CompileVenv(t.Context(), fourth) || s.compiled[s.compiledKey(fourth)] != nil {
		t.Error("a closed store compiles")
	}
}

// Executions go on with the snapshot if compiling fails. It is tried once.
func TestSkillCantBeCompiled(t *testing.T) {
	sk := newSkill(t, "", modules("3.11"))
	python := runtime.Runtime{Language: "python", Path: "/usr/bin/no-such-python3", Version: "3.11.2"}
	for _, c := range []struct {
		what  string
		spoil func(*Store, *skill.Skill) error
	}{
		{"no such interpreter", func(*Store, *skill.Skill) error { return nil }},
		{"no directory of the store", func(s *Store, _ *skill.Skill) error { return os.RemoveAll(s.config.Dir) }},
		{"no snapshot", func(_ *Store, sk *skill.Skill) error { return os.RemoveAll(sk.Dir) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			var log bytes.Buffer
			s := newStore(t, func(c *Config) { c.Log = logTo(&log) })
			if err := c.spoil(s, sk); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := skillDir(s, Use{Tenant: "acme", Skill: sk, Python: python, RunsPython: true}); got != sk.Dir {
					t.Errorf("got %s", got)
				}
				s.builds.Wait()
			}
			s.Close()
			if n := strings.Count(log.String(), "skill not compiled"); n != 1 {
				t.Errorf("%d attempts: %s", n, log.String())
			}
			if entries, err := os.ReadDir(s.config.Dir); len(entries) != 0 {
				t.Errorf("left: %v, %v", entries, err)
			}
		})
	}
}

// The compilations of skills that are gone end, also those that wait, so that their skills do not stay in memory.
func TestCompilationsOfRemovedSkillsEnd(t *testing.T) {
	hosttest.Host(t)
	s := newStore(t, nil)
	leave := occupy(t, s, "")
	t.Cleanup(s.Close)
	t.Cleanup(leave)
	u := variants(pushedSkill(t, "acme", "pushed", manyModules()), 1)[0]
	for range 100 {
		skillDir(s, u)
		s.Forget(u.Skill.Dir)
	}
	ended := make(chan struct{})
	go func() { s.builds.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("compilations of removed skills wait")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queued)+len(s.compiled) > 0 {
		t.Errorf("%d tenants have compilations, %d copies are known", len(s.queued), len(s.compiled))
	}
}

// A tenant's pushed skills don't keep other skills from being compiled: the tenants take turns, and few compilations of
// a tenant wait.
func TestCompilationsOfTenantsTakeTurns(t *testing.T) {
	hosttest.Host(t)
	var log bytes.Buffer
	s := newStore(t, func(c *Config) { c.Log = logTo(&log) })
	t.Cleanup(s.Close)
	hog, quiet := pushedSkill(t, "hog", "of-hog", manyModules()), pushedSkill(t, "quiet", "of-quiet", manyModules())
	shared := newSkillNamed(t, "shared", "", manyModules())
	leave := occupy(t, s, "hog")
	asked := variants(hog, maxQueued+10)
	for _, u := range append(append(asked, variants(quiet, 1)...), variants(shared, 1)...) {
		skillDir(s, u)
	}
	waiting := func() int {
		s.compiling.mu.Lock()
		defer s.compiling.mu.Unlock()
		return len(s.compiling.waiting)
	}
	for late := time.After(time.Minute); waiting() < maxQueued+2; goruntime.Gosched() {
		select {
		case <-late:
			t.Fatalf("%d compilations wait, want %d", waiting(), maxQueued+2)
		default:
		}
	}
	leave()
	s.builds.Wait()
	var order []string
	for _, m := range regexp.MustCompile(`skill not compiled.* skill=(\S+)`).FindAllStringSubmatch(log.String(), -1) {
		order = append(order, m[1])
	}
	if len(order) != maxQueued+2 {
		t.Fatalf("%d compilations: %v", len(order), order)
	}
	first := order[:2]
	slices.Sort(first)
	if want := []string{"of-quiet", "shared"}; !slices.Equal(first, want) {
		t.Errorf("first came %v, want %v", first, want)
	}
	last := asked[len(asked)-1]
	if s.compiled[s.compiledKey(last)] != nil {
		t.Fatal("a compilation beyond the bound is remembered")
	}
	skillDir(s, last)
	s.builds.Wait()
	if s.compiled[s.compiledKey(last)] == nil {
		t.Error("a later execution does not compile the skill")
	}
}

// The copy of a snapshot that was removed goes at once, after its last lease, or at the end of its compilation. Its hard
// links would keep the snapshot's files on the disk. Other skills keep their copies.
func TestCopiesOfRemovedSnapshotsGo(t *testing.T) {
	hosttest.Host(t)
	s := newStore(t, nil)
	t.Cleanup(s.Close)
	files := map[string]string{}
	for i := range minModules {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	use := func(name string) Use {
		sk := newSkillNamed(t, name, "", files)
		return useOf("acme", sk, python(t, sk, runtime.System))
	}
	idle, used, other := use("idle"), use("used"), use("other")
	for _, u := range []Use{idle, used, other} {
		compiledDir(t, s, u)
	}
	l := &Lease{}
	dir := s.SkillDir(used, l)
	s.Forget(idle.Skill.Dir)
	s.Forget(used.Skill.Dir)
	if left := leftIn(t, s); len(left) != 2 {
		t.Errorf("left: %v, want the copy that is in use and the other skill's", left)
	}
	if _, err := os.Lstat(filepath.Join(dir, "scripts/m0.py")); err != nil {
		t.Errorf("in use: %v", err)
	}
	l.Release()
	if left := leftIn(t, s); len(left) != 1 || skillDir(s, other) == other.Skill.Dir {
		t.Errorf("left: %v, want the other skill's copy", left)
	}
	// The same files may belong to another snapshot, which is compiled anew.
	compiledDir(t, s, idle)

	leave := occupy(t, s, "") // another skill is being compiled
	late := use("late")
	skillDir(s, late)
	s.Forget(late.Skill.Dir)
	leave()
	s.builds.Wait()
	if left := leftIn(t, s); len(left) != 2 {
		t.Errorf("left: %v, want two copies", left)
	}
}
