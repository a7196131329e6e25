package skill

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A reason for callers that are no operators has names, and no paths of the machine.
func TestProblemWithoutPaths(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no path", ErrNoManifest, ErrNoManifest.Error()},
		{"the folder", &fs.PathError{Op: "open", Path: "/srv/skills/x", Err: fs.ErrPermission}, "open x: permission denied"},
		{"a file in it", errors.New("read /srv/skills/x/a/b: gone"), "read x/a/b: gone"},
		{"another folder", &DuplicateError{Name: "x", Kept: "/home/secret/y", Folder: "/srv/skills/x"}, `skill "x" is already loaded from y; x is ignored`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Problem{Folder: "/srv/skills/x", Err: tt.err}.withoutPaths()
			if got != tt.want || strings.Contains(got, "/srv") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Who asks for a skill whose folder did not load gets the reason, if they may see the folder.
func TestMissingSkillHasReason(t *testing.T) {
	shared, own := t.TempDir(), t.TempDir()
	files{"broken/SKILL.md": "no front matter"}.Write(t, shared)
	files{"private/SKILL.md": "no front matter"}.Write(t, own)
	r := open(t, RegistryConfig{
		Roots: []Root{{Dir: shared}}, Private: map[string][]Root{"acme": {{Dir: own}}},
		Dir: filepath.Join(t.TempDir(), "snapshots"), TenantsDir: t.TempDir(),
		Rules: func(tenant string) Rules {
			if tenant == "acme" {
				return Rules{}
			}
			return Rules{Shared: func(string) bool { return false }}
		},
	})
	const loaded = "its folder did not load: SKILL.md"
	for _, tt := range []struct {
		tenant, ref string
		told        bool
	}{
		{"acme", "broken", true},
		{"acme", "private", true},
		{"acme", "absent", false},
		{"blind", "broken", false},
		{"blind", "private", false},
	} {
		got := which(r, tt.tenant, tt.ref)
		if strings.Contains(got, loaded) != tt.told || !strings.Contains(got, ErrNotFound.Error()) || strings.Contains(got, shared) || strings.Contains(got, own) {
			t.Errorf("%s of %s: %q", tt.ref, tt.tenant, got)
		}
	}
}
