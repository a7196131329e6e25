package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Locks of two opens of a file exclude each other in one process, too.
func TestKinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(path, Shared)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(path, Shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := Try(second, Exclusive); !errors.Is(err, ErrHeld) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	if _, err := Open(path, Exclusive); !errors.Is(err, ErrHeld) {
		t.Errorf("open exclusive beside shared: %v", err)
	}
	if err := errors.Join(Unlock(first), Lock(second, Exclusive)); err != nil {
		t.Fatal(err)
	}
	if err := Try(first, Shared); !errors.Is(err, ErrHeld) {
		t.Errorf("shared beside exclusive: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Try(first, Exclusive); err != nil {
		t.Errorf("after the close: %v", err)
	}
}

func TestAwait(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	held, err := Open(path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	late := errors.New("late")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	if err := Await(over, other, Shared); !errors.Is(err, ErrHeld) || !errors.Is(err, late) {
		t.Errorf("got %v, want both errors", err)
	}
	got := make(chan error, 1)
	go func() { got <- Await(t.Context(), other, Exclusive) }()
	time.Sleep(3 * pause)
	select {
	case err := <-got:
		t.Fatalf("locked beside the other: %v", err)
	default:
	}
	held.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}

	go func() {
		f, err := AwaitOpen(t.Context(), path, Exclusive)
		if err == nil {
			f.Close()
		}
		got <- err
	}()
	time.Sleep(3 * pause)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal: got %v, want %v", err, fs.ErrNotExist)
	}
}
