package runtime

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProgram(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/local/bin", "opt"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"usr/bin/python3": 0o755, "usr/bin/data": 0o644, "usr/local/bin/tool": 0o755, "opt/out": 0o755} {
		if err := os.WriteFile(filepath.Join(root, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/opt/out", filepath.Join(root, "usr/bin/out")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"python3": "/usr/bin/python3", "python": "/usr/bin/python3", "tool": "/usr/local/bin/tool",
		"data": "", "out": "", "none": "", "": "", "../bin/python3": "", "/usr/bin/python3": "",
	} {
		if got, ok := Program(root, name); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", name, got, ok, want)
		}
	}
}
