package durable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first, and longer", "second"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("got %q, %v; want %q", got, err, text)
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", fi.Mode(), err)
	}
	if err := WriteFile(t.TempDir(), nil); err == nil {
		t.Error("a directory was replaced")
	}
	if err := WriteFile(filepath.Join(path, "file"), nil); err == nil {
		t.Error("a file beneath a file was written")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v; want the file only", entries, err)
	}
}

func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := errors.Join(WriteFile(path, nil), os.Mkdir(filepath.Join(dir, ".new-dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".new-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(RemoveUnfinished(dir), RemoveUnfinished(filepath.Join(dir, "none"))); err != nil {
		t.Error(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".new-dir", "file"}; !slices.Equal(names, want) || err != nil {
		t.Errorf("got %v, %v; want %v", names, err, want)
	}
}

func TestRenew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Renew(path); err != nil {
		t.Errorf("no file: %v", err)
	}
	for _, size := range []int{0, 10, 1 << 20, 1<<20 + 1} {
		want := bytes.Repeat([]byte{'x', 1}, size)[:size]
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Renew(path); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	if err := Renew(t.TempDir()); err == nil {
		t.Error("a directory was renewed")
	}
}
