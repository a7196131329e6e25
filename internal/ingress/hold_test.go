package ingress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// unixListener returns a real listener in the directory of the test, and its descriptor.
func unixListener(t *testing.T) (*net.UnixListener, *os.File) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close(); f.Close() })
	return l, f
}

func call(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A held listener accepts nothing. A new connection waits for the next listener of the same socket, and
// connections that were accepted before stay open.
func TestHold(t *testing.T) {
	inner, f := unixListener(t)
	var g Group
	l := g.Listen(inner, slog.New(slog.DiscardHandler))
	accepted, ended := make(chan net.Conn, 1), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	before := call(t, l)
	first := <-accepted
	t.Cleanup(func() { first.Close() })

	// The server has not begun to read first, so Hold does not return.
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error)
	go func() { held <- g.Hold(ctx) }()
	l.mu.Lock()
	for !l.held {
		l.changed.Wait()
	}
	l.mu.Unlock()
	cancel()
	if err := <-held; !errors.Is(err, context.Canceled) {
		t.Errorf("with an unread connection: got %v, want %v", err, context.Canceled)
	}
	if _, err := before.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := g.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}

	after := call(t, l)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v, want %v", err, net.ErrClosed)
	}
	if len(accepted) > 0 {
		t.Error("a held listener has accepted a connection")
	}
	next, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	c, err := next.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(after, make([]byte, 1)); err != nil {
		t.Errorf("the connection that waited: %v", err)
	}
}

// A connection that is closed without being read does not hold up Hold.
func TestHoldForgetsClosedConnections(t *testing.T) {
	inner, _ := unixListener(t)
	l := Listen(&secureListener{Listener: inner}, Limits{}, slog.New(slog.DiscardHandler))
	l.config = nil // no handshake here: only the way to the deadline
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	call(t, l)
	call(t, l)
	if err := l.Hold(t.Context()); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := l.Hold(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: got %v, want %v", err, net.ErrClosed)
	}
}

func TestHoldNeedsADeadline(t *testing.T) {
	l := Listen(callersListener(nil), Limits{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Hold(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, want an error at once", err)
	}
}
