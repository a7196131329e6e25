package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestSyncFS(t *testing.T) {
	dir := t.TempDir()
	if err := SyncFS(dir); err != nil {
		t.Error(err)
	}
	if err := SyncFS(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a missing directory", err)
	}
	// syncfs(2) takes a descriptor of any file system; fsync(2) refuses one of /proc.
	if err := SyncFS("/proc/self"); err == nil {
		t.Error("a directory that cannot be synced was synced")
	}
}
