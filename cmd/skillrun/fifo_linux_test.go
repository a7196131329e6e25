package main

import (
	"context"
	"errors"
	"io"
	"os"
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
		{[]string{"skills", "add", "--lock", fifo, "https://skills.example.com"}, "--lock " + fifo + ": not a regular file"},
	} {
		if got := (&fake{}).client(t, nil, test.args...); got.code == 0 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%q: got %+v, want %q", test.args, got, test.want)
		}
	}
}

// A token for an index may come from a pipe. The wait for the pipe's writer ends with an interrupt.
func TestIndexTokenFromAPipe(t *testing.T) {
	const index = "https://skills.example.com"
	mute, fifo := filepath.Join(t.TempDir(), "mute"), filepath.Join(t.TempDir(), "fifo")
	if err := errors.Join(unix.Mkfifo(mute, 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	a := &app{stderr: io.Discard}
	ctx, interrupt := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	interrupt(stop)
	if _, err := a.indexClient(ctx, index, mute); !errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "--index-token-file: "+mute) {
		t.Errorf("got %v, want the interrupt and the flag", err)
	}
	written := make(chan error)
	go func() { written <- os.WriteFile(fifo, []byte("token\n"), 0) }()
	client, err := a.indexClient(t.Context(), index, fifo)
	if err := errors.Join(err, <-written); err != nil || client.Token != "token" {
		t.Errorf("got %+v, %v; want the token", client, err)
	}
	if _, err := a.indexClient(t.Context(), index, "/dev/zero"); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("an endless file: got %v", err)
	}
}
