package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program does not change the git directory of the checkout that its artifacts are
// saved to. Its user can still ask for such a file by name.
func TestArtifactsLeaveGitAlone(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, ".git", "config")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newRecord().exit(0).fake().withArtifacts(map[string]string{"out.txt": "x", ".git/config": "evil", "sub/.GIT/hooks/post-merge": "evil", ".gitignore": "y"})
	got := f.client(t, nil, "run", "-o", dir, "demo", "x.py")
	if got.code != 0 || strings.Count(got.stderr, "not saved: ") != 2 || !strings.Contains(got.stderr, ".git/config could change what git runs") {
		t.Errorf("got %+v, want two notices", got)
	}
	for name, want := range map[string]string{"out.txt": "x", ".git/config": "mine", ".gitignore": "y"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
	into := t.TempDir()
	if got := f.client(t, nil, "artifacts", "-o", into, "e1", ".git/config"); got.code != 0 {
		t.Errorf("by name: %+v", got)
	}
	if data, err := os.ReadFile(filepath.Join(into, ".git", "config")); err != nil || string(data) != "evil" {
		t.Errorf("by name: %q, %v", data, err)
	}
}

func TestInGit(t *testing.T) {
	for _, path := range []string{
		".git", "a/.GIT/config", "a\\.git\\config", ".git /config", "a/.git./config", ".git. ./config", ".git::$INDEX_ALLOCATION/config",
		"GIT~1/config", "a/git~1", ".g\u200cit/config", "\u206a.git/config", ".git\ufeff/hooks/post-merge",
	} {
		if !inGit(path) {
			t.Errorf("%q is not in a git directory, and some file systems take it for one", path)
		}
	}
	for _, path := range []string{".gitignore", "git/config", "a.git/config", ".github/x", "git~2", ". git", "b: .git", "\xff.git"} {
		if inGit(path) {
			t.Errorf("%q is in a git directory, want not", path)
		}
	}
}
