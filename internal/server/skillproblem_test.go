package server

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
)

// A reason for callers that are no operators has names, and no paths of the machine.
func TestSkillProblems(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no path", skill.ErrNoManifest, skill.ErrNoManifest.Error()},
		{"the folder", &fs.PathError{Op: "open", Path: "/srv/skills/x", Err: fs.ErrPermission}, "open x: permission denied"},
		{"a file in it", errors.New("read /srv/skills/x/a/b: gone"), "read x/a/b: gone"},
		{"another folder", &skill.DuplicateError{Name: "x", Kept: "/home/secret/y", Folder: "/srv/skills/x"}, `skill "x" is already loaded from y; x is ignored`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := withoutPaths(skill.Problem{Folder: "/srv/skills/x", Err: tt.err})
			if got != tt.want || strings.Contains(got, "/srv") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
