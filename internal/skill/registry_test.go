package skill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// named returns a SKILL.md with the name.
func named(name string) string {
	return "---\nname: " + name + "\ndescription: d\n---\nbody\n"
}

func names(list []*Skill) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Name)
	}
	return out
}

// problemOf returns the problem of a folder.
func problemOf(r *Registry, folder string) (Problem, bool) {
	list := r.Problems()
	i := slices.IndexFunc(list, func(p Problem) bool { return p.Folder == folder })
	if i < 0 {
		return Problem{}, false
	}
	return list[i], true
}

func TestRoots(t *testing.T) {
	a, b, self := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "alone")
	files{
		"one/SKILL.md": named("one"), "two/skill.md": named("two"), "README.md": "x",
		".hidden/SKILL.md": named("hidden"), "node_modules/SKILL.md": named("modules"),
	}.Write(t, a)
	files{"three/SKILL.md": named("three"), "three/sub/SKILL.md": named("sub")}.Write(t, b)
	files{"SKILL.md": named("alone"), "child/SKILL.md": named("child")}.Write(t, self)
	r := open(t, RegistryConfig{Roots: Roots(a, b, self)})
	if got, want := names(r.List()), []string{"alone", "one", "three", "two"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("problems %v, want none", p)
	}
	if w := resolve(t, r, "two").Warnings; len(w) != 2 || w[0].Rule != manifest.RuleManifestName || w[0].Severity != manifest.SeverityWarning || w[1].Rule != manifest.RuleUnlisted {
		t.Errorf("warnings %v, want two about skill.md", w)
	}
}

// Every folder that cannot be loaded is a problem with a typed error, and the other folders
// load.
func TestProblems(t *testing.T) {
	root := t.TempDir()
	files{
		"good/SKILL.md": named("good"), "a-first/SKILL.md": named("twin"), "b-second/SKILL.md": named("twin"),
		"empty/": "", "no-front/SKILL.md": "# x", "broken/SKILL.md": "---\nname: [\n---\n",
		"no-name/SKILL.md": "---\ndescription: d\n---\n", "no-description/SKILL.md": "---\nname: x\n---\n",
		"bad-name/SKILL.md": named("../x"), "dir/SKILL.md/": "", "out/SKILL.md": "-> /etc/passwd",
		"large/SKILL.md": named("large") + strings.Repeat("x", manifest.MaxBytes), "wide/SKILL.md": named("wide"),
		"linked": "-> good", "gone/SKILL.md": "-> nothing",
	}.Write(t, root)
	mustDo(t, os.Mkdir(filepath.Join(root, "fifo"), 0o755))
	mustDo(t, unix.Mkfifo(filepath.Join(root, "fifo/SKILL.md"), 0o644))
	for i := range 20 {
		files{fmt.Sprintf("wide/%d", i): ""}.Write(t, root)
	}
	missing := filepath.Join(root, "missing")
	r := open(t, RegistryConfig{Roots: Roots(root, missing, filepath.Join(root, "a-first/SKILL.md")), MaxFiles: 20})

	rule := func(want string) func(error) bool {
		return func(err error) bool {
			var me *manifest.ManifestError
			return errors.As(err, &me) && me.Finding.Rule == want
		}
	}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	path := func(want snapshot.Reason) func(error) bool {
		return func(err error) bool { return reason(err) == want }
	}
	tests := map[string]func(error) bool{
		"empty":          is(ErrNoManifest),
		"no-front":       rule(manifest.RuleFrontMatter),
		"broken":         rule(manifest.RuleYAML),
		"no-name":        rule(manifest.RuleNameMissing),
		"no-description": rule(manifest.RuleDescription),
		"bad-name":       rule(manifest.RuleNameInvalid),
		"large":          rule(manifest.RuleManifestSize),
		"dir":            path(snapshot.ReasonDirectory),
		"out":            path(snapshot.ReasonEscapes),
		"fifo":           path(snapshot.ReasonRefused),
		"gone":           path(snapshot.ReasonNotFound),
		"wide":           func(err error) bool { var be *snapshot.BoundError; return errors.As(err, &be) && be.What == "entries" },
		"linked":         is(ErrLinkedFolder),
		"missing":        is(fs.ErrNotExist),
		"b-second": func(err error) bool {
			var d *DuplicateError
			return errors.As(err, &d) && d.Name == "twin" && filepath.Base(d.Kept) == "a-first" && filepath.Base(d.Folder) == "b-second"
		},
		"a-first/SKILL.md": is(unix.ENOTDIR),
	}
	for name, ok := range tests {
		p, found := problemOf(r, filepath.Join(root, name))
		if !found || !ok(p.Err) || p.Kept != "" {
			t.Errorf("%s: problem %+v", name, p)
		}
	}
	if got := len(r.Problems()); got != len(tests) {
		t.Errorf("%d problems, want %d: %v", got, len(tests), r.Problems())
	}
	if got, want := names(r.List()), []string{"good", "twin"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	if got := storeNames(t, r.config.Dir); len(got) != 2 {
		t.Errorf("the store has %v, want two snapshots", got)
	}
}

// If two roots have a skill of the same name, the first root wins.
func TestDuplicateAcrossRoots(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	files{"z/SKILL.md": named("demo"), "z/from": "a"}.Write(t, a)
	files{"a/SKILL.md": named("demo"), "a/from": "b"}.Write(t, b)
	for _, roots := range [][]string{{a, b}, {b, a}} {
		r := open(t, RegistryConfig{Roots: Roots(roots...)})
		text, err := os.ReadFile(filepath.Join(resolve(t, r, "demo").Dir, "from"))
		if want := map[string]string{a: "a", b: "b"}[roots[0]]; string(text) != want {
			t.Errorf("from %q, %v, want %q", text, err, want)
		}
		if p := r.Problems(); len(p) != 1 || !errors.As(p[0].Err, new(*DuplicateError)) {
			t.Errorf("problems %v, want one duplicate", p)
		}
	}
}

// A folder cannot take the name of another folder's skill, whichever comes first.
func TestNameOfAnotherFolder(t *testing.T) {
	root := t.TempDir()
	files{"demo/SKILL.md": named("demo"), "demo/from": "demo"}.Write(t, root)
	from := func(r *Registry) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(resolve(t, r, "demo").Dir, "from"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	r := open(t, RegistryConfig{Roots: Roots(root)})
	files{"a/SKILL.md": named("demo"), "a/from": "a"}.Write(t, root)
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := from(r); got != "demo" {
		t.Errorf("after a reload: from %q, want demo", got)
	}
	if p, found := problemOf(r, filepath.Join(root, "a")); !found || !errors.As(p.Err, new(*DuplicateError)) {
		t.Errorf("problem of the other folder: %+v", p)
	}
	if got := from(open(t, RegistryConfig{Roots: Roots(root)})); got != "demo" {
		t.Errorf("after a start: from %q, want demo", got)
	}
}

// The same root may be given twice.
func TestRootTwice(t *testing.T) {
	root, _ := skillDir(t, nil)
	r := open(t, RegistryConfig{Roots: Roots(root, root+"/.")})
	if len(r.List()) != 1 || len(r.Problems()) != 0 {
		t.Errorf("skills %v, problems %v, want demo and none", names(r.List()), r.Problems())
	}
}

func TestResolve(t *testing.T) {
	root, _ := skillDir(t, nil)
	r := open(t, RegistryConfig{Roots: Roots(root)})
	s := resolve(t, r, "demo")
	if resolve(t, r, "demo@"+s.Digest) != s {
		t.Error("the pinned skill is another one")
	}
	other := "sha256:" + strings.Repeat("0", 64)
	_, err := r.Resolve("demo@" + other)
	var mismatch *DigestMismatch
	if !errors.As(err, &mismatch) || *mismatch != (DigestMismatch{"demo", other, s.Digest}) {
		t.Errorf("err = %v, want a *DigestMismatch", err)
	}
	for _, ref := range []string{"none", "Demo", "ｄｅｍｏ", "demо", "demo ", "none@" + other} { // the fourth name has a Cyrillic o
		if _, err := r.Resolve(ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("Resolve(%q) = %v, want ErrNotFound", ref, err)
		}
	}
	if _, err := r.Resolve("../demo"); !errors.As(err, new(*manifest.InvalidNameError)) {
		t.Errorf("err = %v, want an *manifest.InvalidNameError", err)
	}
	if _, err := r.Resolve("demo@sha256:1"); !errors.As(err, new(*InvalidPinError)) {
		t.Errorf("err = %v, want an *InvalidPinError", err)
	}
}

func TestReload(t *testing.T) {
	root := t.TempDir()
	at := func(p string) string { return filepath.Join(root, p) }
	files{"a/SKILL.md": named("a"), "b/SKILL.md": named("b"), "c/SKILL.md": named("c")}.Write(t, root)
	r := open(t, RegistryConfig{Roots: Roots(root)})
	had := map[string]*Skill{}
	for _, s := range r.List() {
		had[s.Name] = s
	}
	reload := func(want Changes) {
		t.Helper()
		got, err := r.Reload(context.Background())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("Reload = %+v, %v, want %+v", got, err, want)
		}
	}
	reload(Changes{})
	if resolve(t, r, "a") != had["a"] {
		t.Error("a skill that didn't change was replaced")
	}

	files{"a/new": "x", "d/SKILL.md": named("d")}.Write(t, root)
	mustDo(t, os.RemoveAll(at("b")))
	mustDo(t, os.WriteFile(at("c/SKILL.md"), []byte("broken"), 0o644))
	reload(Changes{Added: []string{"d"}, Updated: []string{"a"}, Removed: []string{"b"}})
	if s := resolve(t, r, "a"); s.Digest == had["a"].Digest || !s.Has("new") {
		t.Error("a is not the new version")
	}
	if resolve(t, r, "c") != had["c"] {
		t.Error("c, which is broken, didn't keep its version")
	}
	if p, _ := problemOf(r, at("c")); p.Kept != "c" || !errors.As(p.Err, new(*manifest.ManifestError)) {
		t.Errorf("problem of c: %+v", p)
	}
	// The snapshots of former versions still exist.
	for _, s := range had {
		if err := r.store.Verify(&s.tree); err != nil {
			t.Errorf("former version of %s: %v", s.Name, err)
		}
	}

	// c is still broken and keeps its version, even without any manifest. A folder that is
	// gone loses its skill.
	reload(Changes{})
	mustDo(t, os.Remove(at("c/SKILL.md")))
	reload(Changes{})
	mustDo(t, os.RemoveAll(at("c")))
	reload(Changes{Removed: []string{"c"}})
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("problems %v, want none", p)
	}

	// A folder gets a skill of another name.
	mustDo(t, os.WriteFile(at("d/SKILL.md"), []byte(named("e")), 0o644))
	reload(Changes{Added: []string{"e"}, Removed: []string{"d"}})

	// The root is moved away.
	mustDo(t, os.Rename(root, root+"2"))
	reload(Changes{Removed: []string{"a", "e"}})
	mustDo(t, os.WriteFile(root, nil, 0o644)) // not a directory
	reload(Changes{})
	mustDo(t, os.Remove(root))
	mustDo(t, os.Rename(root+"2", root))
	reload(Changes{Added: []string{"a", "e"}})
}

// A root that cannot be read keeps its skills.
func TestUnreadableRoot(t *testing.T) {
	root, dir := skillDir(t, nil)
	files{"SKILL.md": named("alone")}.Write(t, filepath.Join(root, "x/alone"))
	alone := filepath.Join(root, "x/alone")
	r := open(t, RegistryConfig{Roots: Roots(root, alone)})
	for _, p := range []string{root, alone} {
		mustDo(t, os.Rename(p, p+".moved"))
		mustDo(t, os.MkdirAll(filepath.Dir(p), 0o755))
		mustDo(t, os.WriteFile(p, nil, 0o644)) // ENOTDIR
		c, err := r.Reload(context.Background())
		if err != nil || !reflect.DeepEqual(c, Changes{}) {
			t.Errorf("Reload without %s = %+v, %v, want no changes", p, c, err)
		}
		mustDo(t, os.Remove(p))
		mustDo(t, os.Rename(p+".moved", p))
	}
	if resolve(t, r, "demo").Name != filepath.Base(dir) || resolve(t, r, "alone") == nil {
		t.Error("skills are gone")
	}
}

// A reload that is stopped changes nothing.
func TestReloadStopped(t *testing.T) {
	root, dir := skillDir(t, nil)
	r := open(t, RegistryConfig{Roots: Roots(root)})
	before := resolve(t, r, "demo")
	files{"new": "x"}.Write(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Reload(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	if resolve(t, r, "demo") != before || len(r.Problems()) != 0 {
		t.Error("the stopped reload had an effect")
	}
	if got := storeNames(t, r.config.Dir); len(got) != 1 {
		t.Errorf("remaining files: %v", got)
	}
}

func TestReloadLogsOnce(t *testing.T) {
	root := t.TempDir()
	files{"a/SKILL.md": named("a"), "b/SKILL.md": "broken"}.Write(t, root)
	var log bytes.Buffer
	r := open(t, RegistryConfig{Roots: Roots(root), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if got := log.String(); strings.Count(got, "skill not loaded") != 1 || strings.Count(got, "skills loaded") != 1 {
		t.Errorf("log: %s", got)
	}
	log.Reset()
	if _, err := r.Reload(context.Background()); err != nil || log.Len() > 0 {
		t.Errorf("a reload without changes: %v, log: %s", err, &log)
	}
}

// Readers that hold a version see all of it while skills change, reloads overlap and former versions are removed.
func TestConcurrentReload(t *testing.T) {
	root, dir := skillDir(t, files{"v": "0"})
	r := open(t, RegistryConfig{Roots: Roots(root)})
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		writers.Go(func() {
			for i := range 15 {
				os.WriteFile(filepath.Join(dir, "v"), fmt.Append(nil, i), 0o644)
				if _, err := r.Reload(context.Background()); err != nil {
					t.Errorf("Reload: %v", err)
				}
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, release, err := r.For("").Hold("demo")
				if err != nil {
					t.Errorf("Hold: %v", err)
					return
				}
				f, e, err := s.Open("v")
				if err == nil {
					err = r.store.Verify(&s.tree)
				}
				release()
				if err != nil {
					t.Errorf("a version that is held: %v", err)
					return
				}
				f.Close()
				if e.Path != "v" || len(r.List()) != 1 {
					t.Errorf("got %+v", e)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func TestOpenRegistryFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	mustDo(t, os.WriteFile(file, nil, 0o644))
	if _, err := OpenRegistry(context.Background(), RegistryConfig{Dir: file, Owner: owner}); err == nil || !strings.HasPrefix(err.Error(), "skill snapshots: ") {
		t.Errorf("err = %v, want an error that names the snapshots", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	if _, err := OpenRegistry(ctx, RegistryConfig{Dir: dir, Owner: owner, Roots: Roots(t.TempDir())}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	open(t, RegistryConfig{Dir: dir}) // fails if the lock is still held
	for _, nobody := range []snapshot.Owner{{}, {UID: 1000}, {GID: 1000}, {UID: -1, GID: -1}} {
		if _, err := OpenRegistry(t.Context(), RegistryConfig{Dir: t.TempDir(), Owner: nobody}); err == nil {
			t.Errorf("snapshots may belong to %v", nobody)
		}
	}
}

func TestEffectiveVersion(t *testing.T) {
	tests := []struct {
		m    manifest.Manifest
		want string
	}{
		{manifest.Manifest{}, "0.0.0"},
		{manifest.Manifest{Metadata: map[string]string{"version": "1.2.3"}}, "1.2.3"},
		{manifest.Manifest{Version: "2", Metadata: map[string]string{"version": "1.2.3"}}, "2"},
	}
	for _, tt := range tests {
		if got := (&Skill{Manifest: tt.m}).EffectiveVersion(); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.m, got, tt.want)
		}
	}
}

func reason(err error) snapshot.Reason {
	var pe *snapshot.PathError
	errors.As(err, &pe)
	if pe == nil {
		return 0
	}
	return pe.Reason
}
