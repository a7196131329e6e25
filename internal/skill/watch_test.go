package skill

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// loadedHandler sends a token whenever a registry logs that skills have changed.
type loadedHandler struct {
	slog.Handler
	loaded chan struct{}
}

func (h loadedHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "skills loaded" {
		h.loaded <- struct{}{}
	}
	return nil
}

func (h loadedHandler) Enabled(context.Context, slog.Level) bool { return true }

// Every change is noticed. Each step waits until the step before it was noticed.
func TestWatch(t *testing.T) {
	base := t.TempDir()
	root, late, alone := filepath.Join(base, "root"), filepath.Join(base, "late"), filepath.Join(base, "alone")
	files{"a/SKILL.md": named("a")}.Write(t, root)
	files{"SKILL.md": named("alone")}.Write(t, alone)
	loaded := make(chan struct{}, 100)
	r := open(t, RegistryConfig{
		Roots: Roots(root, late, alone),
		Log:   slog.New(loadedHandler{slog.DiscardHandler, loaded}),
	})
	<-loaded // from OpenRegistry

	ctx, cancel := context.WithCancel(context.Background())
	files{"early/SKILL.md": named("early")}.Write(t, root) // before Watch starts
	ended := make(chan error, 1)
	go func() { ended <- r.Watch(ctx) }()

	at := func(p string) string { return filepath.Join(root, p) }
	outside := t.TempDir()
	files{"moved/SKILL.md": named("moved"), "moved/scripts/x.py": ""}.Write(t, outside)
	has := func(name, p string) func() bool {
		return func() bool {
			s, err := r.Resolve(name)
			return err == nil && s.Has(p)
		}
	}
	lacks := func(name string) func() bool {
		return func() bool { _, err := r.Resolve(name); return err != nil }
	}
	steps := []struct {
		name   string
		change func()
		done   func() bool
	}{
		{"before the watch", func() {}, has("early", "SKILL.md")},
		{"new file", func() { files{"a/new": ""}.Write(t, root) }, has("a", "new")},
		{"new folder", func() { files{"b/SKILL.md": named("b")}.Write(t, root) }, has("b", "SKILL.md")},
		{"deep in a new folder", func() { files{"b/scripts/deep/x.py": ""}.Write(t, root) }, has("b", "scripts/deep/x.py")},
		{"in what was just made", func() { files{"b/scripts/deep/y.py": ""}.Write(t, root) }, has("b", "scripts/deep/y.py")},
		{"moved in", func() { mustDo(t, os.Rename(filepath.Join(outside, "moved"), at("moved"))) }, has("moved", "scripts/x.py")},
		{"in what was moved in", func() { files{"moved/scripts/y.py": ""}.Write(t, root) }, has("moved", "scripts/y.py")},
		{"permissions", func() { mustDo(t, os.Chmod(at("a/new"), 0o755)) }, func() bool {
			s, err := r.Resolve("a")
			if err != nil {
				return false
			}
			e, err := s.Lookup("new")
			return err == nil && e.Executable
		}},
		{"removed", func() { mustDo(t, os.RemoveAll(at("b"))) }, lacks("b")},
		{"root comes", func() { files{"c/SKILL.md": named("c")}.Write(t, late) }, has("c", "SKILL.md")},
		{"in the root that came", func() { files{"d/SKILL.md": named("d")}.Write(t, late) }, has("d", "SKILL.md")},
		{"root that is a skill", func() { files{"new": ""}.Write(t, alone) }, has("alone", "new")},
		{"root replaced", func() {
			files{"e/SKILL.md": named("e")}.Write(t, late+"2")
			mustDo(t, os.Rename(late, late+"1"))
			mustDo(t, os.Rename(late+"2", late))
		}, has("e", "SKILL.md")},
		{"in the root that replaced it", func() { files{"f/SKILL.md": named("f")}.Write(t, late) }, has("f", "SKILL.md")},
	}
	for _, step := range steps {
		step.change()
		for !step.done() {
			select {
			case <-loaded:
			case <-t.Context().Done():
				t.Fatal("the test is over")
			}
		}
		t.Log(step.name)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Watch = %v, want nil", err)
	}
}

func TestConcerns(t *testing.T) {
	r := &Registry{config: RegistryConfig{Roots: Roots("/srv/skills", "/opt/x")}}
	tests := map[string]bool{
		"/srv/skills": true, "/srv/skills/a": true, "/srv/skills/a/b": true, "/opt/x": true,
		"/srv": false, "/srv/skills2": false, "/srv/other": false, "/opt/y/skills": false,
		"/srv/skills/a/.git": false, "/srv/skills/a/__pycache__": false,
	}
	for name, want := range tests {
		if got := r.concerns(name); got != want {
			t.Errorf("concerns(%q) = %t, want %t", name, got, want)
		}
	}
}
