package executor

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/internal/workspace"
)

// A URI made from a name and a path can be parsed back to both.
func FuzzSkillURI(f *testing.F) {
	for _, name := range []string{"demo", "odd name", "ä", "a%b", "a?b#c", "100", "a:b@c", "~x", "[::1]", "a&b=c+d", "%zz"} {
		f.Add(name, "SKILL.md")
		f.Add(name, "a b/"+name+"?offset=3")
	}
	f.Add("x", "\xff\x00/..")
	f.Fuzz(func(t *testing.T, name, path string) {
		if name == "" || path == "" || strings.ContainsAny(name, "/") {
			t.Skip("not a valid name or path")
		}
		uri := SkillURI(name, path)
		if _, err := url.Parse(uri); err != nil {
			t.Fatalf("%q: %v", uri, err) // the SDK would panic on it
		}
		got, ok := ParseURI(uri, SkillScheme)
		if !ok || got.Owner != name || got.Path != path || got.Offset != 0 || got.Base != uri {
			t.Errorf("%q: got %+v, %v; want %q, %q", uri, got, ok, name, path)
		}
		if piece, ok := ParseURI(uri+"?offset=7", SkillScheme); !ok || piece.Offset != 7 || piece.Base != uri {
			t.Errorf("%q from 7: %+v, %v", uri, piece, ok)
		}
	})
}

// The first segment of a URI is a namespace if a root has it. One file has one URI.
func TestSkillURIsOfNamespaces(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"plain/pdf", "team/pdf", "team/a b"} {
		folder.Files{path + "/SKILL.md": "---\nname: " + filepath.Base(path) + "\ndescription: d\n---\n"}.Write(t, dir)
	}
	skills, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{
		Roots: []skill.Root{{Dir: filepath.Join(dir, "plain")}, {Dir: filepath.Join(dir, "team"), Namespace: "team"}},
		Dir:   filepath.Join(dir, "snapshots"), Owner: skilltest.Owner(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { skills.Close() })
	for uri, name := range map[string]string{"skill://pdf/x/y": "pdf", "skill://team/pdf/x/y": "team/pdf", "skill://team/a%20b/x/y": "team/a b"} {
		u, ok := ParseSkillURI(skills.For(""), uri)
		if !ok || u.Owner != name || u.Path != "x/y" {
			t.Errorf("%s: %+v, %v", uri, u, ok)
		}
		if got := SkillURI(name, "x/y"); got != uri {
			t.Errorf("%s has the URI %s", name, got)
		}
		if piece, ok := ParseSkillURI(skills.For(""), uri+"?offset=7"); !ok || piece.Owner != name || piece.Offset != 7 || piece.Base != uri {
			t.Errorf("%s from 7: %+v, %v", uri, piece, ok)
		}
	}
	for _, uri := range []string{"skill://team/pdf", "skill://team/pdf/", "skill://team", "skill://team//x", "skill://team/"} {
		if u, ok := ParseSkillURI(skills.For(""), uri); ok && u.Owner != "team/" {
			t.Errorf("%s: %+v", uri, u)
		} else if _, err := skills.Resolve(u.Owner); ok && err == nil {
			t.Errorf("%s is a skill", uri)
		}
	}
}

// Every URI from a client is either refused or parsed to a valid target.
func FuzzParseURI(f *testing.F) {
	for _, uri := range []string{"skill://a/b", "skill:///a/b", "skill://", "skill:////", "skill://a/b?offset=1", "skill://a/%", "x"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got, ok := ParseURI(uri, SkillScheme)
		if ok && (got.Owner == "" && !strings.Contains(uri, "%") || got.Offset < 0 || !strings.HasPrefix(uri, got.Base)) {
			t.Errorf("%q: %+v", uri, got)
		}
	})
}

// The resources of one request have a bound together, and none stays open after a refusal. A request with too many
// of them is refused before one is looked up.
func TestResourcesAreBounded(t *testing.T) {
	dir := t.TempDir()
	half := filepath.Join(dir, "skills/demo/half")
	if err := errors.Join(os.MkdirAll(filepath.Dir(half), 0o755), os.WriteFile(half, nil, 0o644), os.Truncate(half, MaxResourceBytes/2)); err != nil {
		t.Fatal(err)
	}
	x := newExecutor(t, dir, newFake().runs)
	req := scriptRequest()
	for _, path := range []string{"a", "b", "c"} {
		req.Resources = append(req.Resources, Resource{Path: path, URI: SkillURI("demo", "half")})
	}
	for i, in := range x.resources(t.Context(), req) {
		f, err := in.Open()
		if i < 2 && err != nil || i == 2 && err == nil {
			t.Errorf("file %d: %v", i, err)
		}
		if err == nil {
			f.Close()
		}
	}
	_, _, err := x.Execute(t.Context(), req)
	if bad, ok := errors.AsType[*InputError](err); !ok || bad.Path != "c" || !strings.Contains(bad.Reason, "more than 67108864 bytes") {
		t.Errorf("got %v", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasSuffix(to, "/half") {
			t.Errorf("%s is open", to)
		}
	}
	for i := range workspace.MaxInputs + 1 {
		req.Resources = append(req.Resources, Resource{Path: fmt.Sprint(i), URI: "skill://demo/none"})
	}
	_, _, err = x.Execute(t.Context(), req)
	if bad, ok := errors.AsType[*InputError](err); !ok || !strings.Contains(bad.Reason, "more than 10000 input files") {
		t.Errorf("%d resources: %v", len(req.Resources), err)
	}
}
