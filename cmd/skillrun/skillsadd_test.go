package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A lock file with null is a lock file without pins, to which add can write.
func TestReadPinsOfNull(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), lockName)
	if err := os.WriteFile(file, []byte("null\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pins, err := lockFile(file).read()
	if err != nil {
		t.Fatal(err)
	}
	pins["pdf"] = pin{Version: "1"}
	if len(pins) != 1 {
		t.Errorf("got %v, want one pin", pins)
	}
}

// Commands that pin skills at the same time lose no pin, and leave no other file.
func TestPinsAtTheSameTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock := lockFile(filepath.Join(dir, lockName))
	const all = 20
	var adders sync.WaitGroup
	for i := range all {
		adders.Go(func() {
			err := lock.change(t.Context(), func(pins map[string]pin) error {
				pins[fmt.Sprint(i)] = pin{Version: "1"}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	adders.Wait()
	if pins, err := lock.read(); err != nil || len(pins) != all {
		t.Errorf("got %d pins, %v; want %d", len(pins), err, all)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got %v, %v; want the lock file alone", files, err)
	}
}

// The wait for another command ends with the context.
func TestGuardOfALockFile(t *testing.T) {
	t.Parallel()
	lock := lockFile(filepath.Join(t.TempDir(), lockName))
	stop := errors.New("stop")
	err := lock.guarded(t.Context(), func() error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		return lock.check(ctx)
	})
	if !errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "--lock "+string(lock)) {
		t.Errorf("got %v, want an error about --lock", err)
	}
	if err := lock.check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLockFileThatCannotBeChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, want := range map[string]string{
		dir:                                   "not a regular file",
		filepath.Join(dir, "no", "lock.json"): "no such file or directory",
	} {
		lock := lockFile(file)
		_, err := lock.read()
		if err == nil {
			err = lock.check(t.Context())
		}
		if err == nil || err.Error() != "--lock "+file+": "+want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
