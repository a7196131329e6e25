package skill

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

func TestOpen(t *testing.T) {
	s := load(t, files{"a/b.txt": "text", "l": "-> a/b.txt", "out": "-> /etc/passwd"})
	f, e, err := s.Open("l")
	mustDo(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil || string(text) != "text" || e.Path != "a/b.txt" || e.Size != 4 {
		t.Errorf("got %q, %+v, %v", text, e, err)
	}
	if _, _, err := s.Open("out"); !errors.As(err, new(*snapshot.PathError)) {
		t.Errorf("Open(out) = %v, want a *snapshot.PathError", err)
	}

	// Open refuses a snapshot that was changed.
	at := filepath.Join(s.Dir, "a/b.txt")
	mustDo(t, os.Remove(at))
	if _, _, err := s.Open("l"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("a file that is gone: got %v, want an error about damage", err)
	}
	mustDo(t, os.Symlink("/etc/passwd", at))
	if _, _, err := s.Open("l"); err == nil {
		t.Error("a link in the place of a file was opened")
	}
	mustDo(t, os.Remove(at))
	mustDo(t, unix.Mkfifo(at, 0o644))
	if _, _, err := s.Open("l"); err == nil {
		t.Error("a FIFO in the place of a file was opened")
	}
}

// Open never blocks on a file lease: it returns snapshot.ErrBusy at once.
func TestOpenBusy(t *testing.T) {
	signal.Ignore(syscall.SIGIO) // the kernel sends it to the holder of the lease
	t.Cleanup(func() { signal.Reset(syscall.SIGIO) })
	s := load(t, files{"a.txt": "text"})
	holder, err := os.Open(filepath.Join(s.Dir, "a.txt"))
	mustDo(t, err)
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open("a.txt"); !errors.Is(err, snapshot.ErrBusy) {
		t.Errorf("got %v, want %v", err, snapshot.ErrBusy)
	}
}
