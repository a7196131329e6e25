package skill

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// writeNamespaces writes three roots. Each has a skill demo, whose file "from" has the letter of the
// root; b and c have one more skill each.
func writeNamespaces(t *testing.T) (a, b, c string) {
	t.Helper()
	a, b, c = t.TempDir(), t.TempDir(), t.TempDir()
	for letter, root := range map[string]string{"a": a, "b": b, "c": c} {
		files{"demo/SKILL.md": named("demo"), "demo/from": letter, letter + "-only/SKILL.md": named(letter + "-only")}.Write(t, root)
	}
	return a, b, c
}

// from returns the letter of the root of a skill.
func from(t *testing.T, r *Registry, ref string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(resolve(t, r, ref).Dir, "from"))
	mustDo(t, err)
	return string(text)
}

// A skill has the full name of its namespace and its name. The name alone works while it is unique.
func TestNamespaces(t *testing.T) {
	a, b, c := writeNamespaces(t)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: b, Namespace: "two"}, {Dir: a, Namespace: "one"}}})
	if got, want := names(r.List()), []string{"one/a-only", "one/demo", "two/b-only", "two/demo"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	sk := resolve(t, r, "two/demo")
	if from(t, r, "one/demo") != "a" || from(t, r, "two/demo") != "b" || from(t, r, "two/demo@"+sk.Digest) != "b" {
		t.Error("a full name leads to another skill")
	}
	if resolve(t, r, "a-only").Name != "one/a-only" || resolve(t, r, "a-only@"+resolve(t, r, "a-only").Digest).Name != "one/a-only" {
		t.Error("a unique name leads to another skill")
	}
	if sk.BareName() != "demo" || sk.BaseDir() != "/skills/demo" || sk.Activate().Name != "two/demo" {
		t.Errorf("%s, %s, %s", sk.BareName(), sk.BaseDir(), sk.Activate().Name)
	}
	_, err := r.Resolve("demo")
	if e, ok := errors.AsType[*AmbiguousError](err); !ok || !slices.Equal(e.Candidates, []string{"one/demo", "two/demo"}) {
		t.Errorf("the name of two skills: %v", err)
	}
	if _, err := r.Resolve("a-only@sha256:" + strings.Repeat("0", 64)); !errors.As(err, new(*DigestMismatch)) {
		t.Errorf("another digest: %v", err)
	}
	if _, err := r.Resolve("one/nope"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no skill of a namespace: %v", err)
	}
	if _, err := r.Resolve("three/demo"); !errors.As(err, new(*manifest.InvalidNameError)) {
		t.Errorf("no namespace: %v", err)
	}

	// A skill without a namespace has no other name than demo.
	r = open(t, RegistryConfig{Roots: []Root{{Dir: a, Namespace: "one"}, {Dir: b, Namespace: "two"}, {Dir: c}}})
	if from(t, r, "demo") != "c" || from(t, r, "one/demo") != "a" || len(r.Problems()) != 0 {
		t.Errorf("demo is from %s; problems %v", from(t, r, "demo"), r.Problems())
	}
}

// The names of one namespace are unique, whichever roots they come from.
func TestDuplicateInANamespace(t *testing.T) {
	a, b, _ := writeNamespaces(t)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: a, Namespace: "one"}, {Dir: b, Namespace: "one"}}})
	if from(t, r, "one/demo") != "a" || resolve(t, r, "b-only").Name != "one/b-only" {
		t.Errorf("skills %v", names(r.List()))
	}
	p, _ := problemOf(r, filepath.Join(b, "demo"))
	if e, ok := errors.AsType[*DuplicateError](p.Err); !ok || e.Name != "one/demo" || len(r.Problems()) != 1 {
		t.Errorf("problems %v", r.Problems())
	}
}

// A skill without a namespace cannot have the name of a namespace: their URIs would collide.
func TestNameOfANamespace(t *testing.T) {
	a, b, _ := writeNamespaces(t)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: a}, {Dir: b, Namespace: "a-only"}}})
	if got, want := names(r.List()), []string{"a-only/b-only", "a-only/demo", "demo"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	if p, _ := problemOf(r, filepath.Join(a, "a-only")); !errors.As(p.Err, new(*NamespaceError)) {
		t.Errorf("problems %v", r.Problems())
	}
}

// Two roots may have the same folder under different namespaces. A folder that no longer loads keeps
// its skill in both.
func TestFolderOfTwoNamespaces(t *testing.T) {
	a, _, _ := writeNamespaces(t)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: a, Namespace: "one"}, {Dir: a, Namespace: "two"}}})
	want := []string{"one/a-only", "one/demo", "two/a-only", "two/demo"}
	for range 2 {
		if got := names(r.List()); !slices.Equal(got, want) {
			t.Errorf("skills %v, want %v", got, want)
		}
		mustDo(t, os.WriteFile(filepath.Join(a, "demo/SKILL.md"), []byte("no front matter"), 0o644))
		if _, err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p := r.Problems(); len(p) != 2 || p[0].Kept != "one/demo" || p[1].Kept != "two/demo" {
		t.Errorf("problems %v", p)
	}
	l := &loading{registry: r, old: r.now.Load(), next: &snapshotOfRoots{}}
	l.lost(place{"two", a}, os.ErrPermission)
	if len(l.found) != 2 || l.found[0].skill.Name != "two/a-only" || l.found[1].skill.Name != "two/demo" {
		t.Errorf("kept %v", l.found)
	}
}
