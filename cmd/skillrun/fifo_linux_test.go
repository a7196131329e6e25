package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO without a writer is refused: to open it would wait, and an interrupt does not end that.
func TestFIFOIsRefused(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"push", fifo}, "not a folder"},
		{[]string{"run", "--file", fifo, "demo", "x.py"}, "not a regular file"},
		{[]string{"session", "cp", fifo, "s:x"}, "not a regular file"},
	} {
		if got := (&fake{}).client(t, nil, test.args...); got.code == 0 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%q: got %+v, want %q", test.args, got, test.want)
		}
	}
}
