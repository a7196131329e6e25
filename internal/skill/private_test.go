package skill

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// which returns the text of the file which in a skill, or the error's.
func which(r *Registry, tenant, ref string) string {
	sk, err := r.For(tenant).Resolve(ref)
	if err != nil {
		return err.Error()
	}
	text, err := os.ReadFile(filepath.Join(sk.Dir, "which"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// A tenant from which all skills of a namespace are hidden gets the same errors as for a namespace that does not exist,
// with and without a private root of that namespace.
func TestHiddenNamespaces(t *testing.T) {
	shared, own := t.TempDir(), t.TempDir()
	files{"one/SKILL.md": named("one")}.Write(t, shared)
	files{"mine/SKILL.md": named("mine")}.Write(t, own)
	r := open(t, RegistryConfig{
		Roots:   []Root{{Dir: shared, Namespace: "secret"}},
		Private: map[string][]Root{"own": {{Dir: own, Namespace: "secret"}}, "free": {{Dir: own, Namespace: "none"}}},
		Dir:     filepath.Join(t.TempDir(), "snapshots"), TenantsDir: t.TempDir(),
		Rules: func(tenant string) Rules {
			if tenant == "sees" {
				return Rules{}
			}
			return Rules{Shared: func(string) bool { return false }}
		},
	})
	for _, tt := range []struct{ tenant, ref, want string }{
		{"blind", "secret/x", manifest.ValidName("secret/x").Error()},
		{"blind", "secret/one", manifest.ValidName("secret/one").Error()},
		{"blind", "none/x", manifest.ValidName("none/x").Error()},
		{"sees", "secret/x", (&NotFoundError{Name: "secret/x"}).Error()},
		{"own", "secret/x", (&NotFoundError{Name: "secret/x"}).Error()},
		{"free", "none/x", (&NotFoundError{Name: "none/x"}).Error()},
	} {
		if got := which(r, tt.tenant, tt.ref); got != tt.want {
			t.Errorf("%s of %s: got %q, want %q", tt.ref, tt.tenant, got, tt.want)
		}
	}
	if r.For("blind").HasNamespace("secret") || !r.For("sees").HasNamespace("secret") {
		t.Error("the namespace is seen by the wrong tenant")
	}
	var all []string
	for _, sk := range r.OfRoots() {
		all = append(all, sk.Name)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"none/mine", "secret/mine", "secret/one"}) {
		t.Errorf("all roots have %q", all)
	}
}

// Only the tenant with a root sees the root's skills, which hide shared skills of the same name.
func TestPrivateRoots(t *testing.T) {
	shared, a, b := t.TempDir(), t.TempDir(), t.TempDir()
	files{"both/SKILL.md": named("both"), "both/which": "shared", "x/SKILL.md": named("x"), "x/which": "shared"}.Write(t, shared)
	files{"both/SKILL.md": named("both"), "both/which": "a", "only/SKILL.md": named("only"), "only/which": "a",
		"reserved/SKILL.md": named("reserved"), "team/SKILL.md": named("team"), "bad/x": ""}.Write(t, a)
	files{"both/SKILL.md": named("both"), "both/which": "b"}.Write(t, b)
	dir := filepath.Join(t.TempDir(), "snapshots")
	config := RegistryConfig{
		Roots: Roots(shared), Private: map[string][]Root{"a": {{Dir: a}, {Dir: b, Namespace: "team"}}}, Dir: dir,
		TenantsDir: t.TempDir(), Reserved: []string{"reserved"},
		Rules: func(string) Rules { return Rules{Shared: func(name string) bool { return name == "both" }} },
	}
	r := open(t, config)
	digest := func(name string) string {
		sk, err := r.For("a").Resolve(name)
		mustDo(t, err)
		return sk.Digest
	}
	for _, tt := range []struct{ tenant, ref, want string }{
		{"a", "both", "a"}, {"a", "only", "a"}, {"a", "team/both", "b"}, {"b", "both", "shared"},
		{"a", "both@" + digest("both"), "a"},
		{"b", "only", (&NotFoundError{Name: "only"}).Error()},
		{"a", "team/none", (&NotFoundError{Name: "team/none"}).Error()},
		{"b", "team/both", manifest.ValidName("team/both").Error()},
		{"a", "reserved", (&NotFoundError{Name: "reserved", Why: (&ReservedNameError{Name: "reserved"}).Error()}).Error()},
		{"a", "x", (&NotFoundError{Name: "x"}).Error()},
	} {
		if got := which(r, tt.tenant, tt.ref); got != tt.want {
			t.Errorf("%s of %s: got %q, want %q", tt.ref, tt.tenant, got, tt.want)
		}
	}
	if _, err := r.For("a").Resolve("both@sha256:" + strings.Repeat("0", 64)); !isMismatch(err) {
		t.Errorf("another digest: %v", err)
	}
	if _, err := r.For("b").Resolve("both@" + digest("both")); !isMismatch(err) {
		t.Errorf("the digest of another tenant's skill: %v", err)
	}
	if got := names(r.For("a").List()); !slices.Equal(got, []string{"both", "only", "team/both"}) {
		t.Errorf("a sees %v", got)
	}
	if got := names(r.For("b").List()); !slices.Equal(got, []string{"both"}) {
		t.Errorf("b sees %v", got)
	}
	if v, err := r.For("a").Versions("only"); err != nil || len(v) != 1 || v[0].Digest != digest("only") {
		t.Errorf("versions: %v, %v", v, err)
	}
	if !r.For("a").HasNamespace("team") || r.For("b").HasNamespace("team") {
		t.Error("the namespace is not a's alone")
	}
	if _, err := r.For("a").Delete(t.Context(), "only"); !errors.As(err, new(*NotPushedError)) {
		t.Errorf("delete: %v", err)
	}
	problems := map[string]error{}
	for _, p := range r.Problems() {
		if p.Tenant != "a" {
			t.Errorf("got %+v, want it to be a's", p)
		}
		problems[filepath.Base(p.Folder)] = p.Err
	}
	if len(problems) != 3 || !errors.Is(problems["bad"], ErrNoManifest) || !errors.As(problems["reserved"], new(*ReservedNameError)) || !errors.As(problems["team"], new(*NamespaceError)) {
		t.Errorf("got %v", problems)
	}

	// The same roots again: the snapshots are kept over a restart.
	before := storeNames(t, dir)
	mustDo(t, r.Close())
	r = open(t, config)
	if got := storeNames(t, dir); !slices.Equal(got, before) || which(r, "a", "only") != "a" {
		t.Errorf("after a restart: %v, want %v", got, before)
	}

	mustDo(t, r.SetPrivate(t.Context(), map[string][]Root{"b": {{Dir: b}}, "c": nil}))
	if got := []string{which(r, "a", "both"), which(r, "b", "both"), which(r, "c", "both")}; !slices.Equal(got, []string{"shared", "b", "shared"}) {
		t.Errorf("after the change: %v", got)
	}
}

// If a tenant's roots change and the new ones cannot be loaded, the tenant loses the skills of the old ones.
func TestPrivateRootsFail(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b, c} {
		files{"s/SKILL.md": named("s"), "s/which": dir}.Write(t, dir)
	}
	r := open(t, RegistryConfig{Private: map[string][]Root{"a": {{Dir: a}}, "b": {{Dir: b}}}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	next := map[string][]Root{"b": {{Dir: b}}, "c": {{Dir: a}}}
	if err := r.SetPrivate(ended, next); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	none := (&NotFoundError{Name: "s"}).Error()
	if got := []string{which(r, "a", "s"), which(r, "b", "s"), which(r, "c", "s")}; !slices.Equal(got, []string{none, b, none}) {
		t.Errorf("got %v", got)
	}
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := []string{which(r, "a", "s"), which(r, "b", "s"), which(r, "c", "s")}; !slices.Equal(got, []string{none, b, a}) {
		t.Errorf("after a reload: %v", got)
	}
}

// If a tenant replaces its folder, or a directory above it, by a link, the daemon does not follow the link.
func TestPrivateRootsFollowNoLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	mustDo(t, err)
	files{"acme/skills/own/SKILL.md": named("own"), "acme/skills/own/which": "acme",
		"globex/skills/secret/SKILL.md": named("secret"), "globex/skills/secret/which": "globex"}.Write(t, dir)
	root := filepath.Join(dir, "acme", "skills")
	r := open(t, RegistryConfig{Private: map[string][]Root{"acme": {{Dir: root, NoLinks: true}}}, Dir: filepath.Join(t.TempDir(), "snapshots")})
	for _, path := range []string{root, filepath.Dir(root)} {
		mustDo(t, os.Rename(path, path+".old"))
		mustDo(t, os.Symlink(strings.Replace(path, "acme", "globex", 1), path))
		_, err := r.Reload(t.Context())
		mustDo(t, err)
		if got := names(r.For("acme").List()); !slices.Equal(got, []string{"own"}) {
			t.Errorf("%s is a link: acme sees %v", path, got)
		}
		mustDo(t, os.Remove(path))
		mustDo(t, os.Rename(path+".old", path))
	}
}

// Snapshots of one tenant that can't be written are that tenant's problem. The other tenants' skills load.
func TestPrivateRootsFailAlone(t *testing.T) {
	a, b, later := t.TempDir(), t.TempDir(), t.TempDir()
	files{"one/SKILL.md": named("one"), "one/which": "old"}.Write(t, a)
	files{"two/SKILL.md": named("two"), "two/which": "old"}.Write(t, b)
	files{"three/SKILL.md": named("three")}.Write(t, later)
	r := open(t, RegistryConfig{Private: map[string][]Root{"a": Roots(a), "b": Roots(b)}, Dir: filepath.Join(t.TempDir(), "snapshots")})
	files{"one/which": "new"}.Write(t, a)
	files{"two/which": "new"}.Write(t, b)
	publish, full := r.publish, errors.New("the disk is full")
	r.publish = func(tenant string, staged []*snapshot.Staged) error {
		if tenant == "a" {
			return full
		}
		return publish(tenant, staged)
	}
	for range 2 {
		_, err := r.Reload(t.Context())
		mustDo(t, err)
		if one, two := which(r, "a", "one"), which(r, "b", "two"); one != "old" || two != "new" {
			t.Errorf("got %q and %q", one, two)
		}
		if p := r.mine().of("a").problems; len(p) != 1 || !errors.Is(p[0].Err, full) {
			t.Errorf("problems: %v", p)
		}
	}
	// When the roots change, the tenant loses the skills of its former roots.
	mustDo(t, r.SetPrivate(t.Context(), map[string][]Root{"a": Roots(later), "b": Roots(b)}))
	if got := names(r.For("a").List()); len(got) > 0 {
		t.Errorf("a sees %v", got)
	}
	r.publish = publish
	_, err := r.Reload(t.Context())
	mustDo(t, err)
	if got := names(r.For("a").List()); !slices.Equal(got, []string{"three"}) {
		t.Errorf("a sees %v", got)
	}
}
