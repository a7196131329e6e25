package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// openScreen returns the program's side of a pseudo-terminal, and what gives all
// that was written to it once it is closed.
func openScreen(t *testing.T) (*os.File, func() string) {
	t.Helper()
	control := openTerminal(t)
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	written := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		_, err := io.Copy(&all, control)
		// EIO is how the kernel says that the other side is closed.
		if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read the screen: %v", err)
		}
		written <- all.String()
	}()
	return screen, func() string {
		screen.Close()
		return <-written
	}
}

// The position in the queue is drawn on a terminal, and erased before the program's output.
func TestWaitingIsShown(t *testing.T) {
	t.Setenv("TERM", "xterm")
	r := newRecord().started().stderr("oops\n").exit(0)
	queued := func(s eventtest.Server, position uint32) {
		s.Send(&pb.ExecutionEvent{ExecutionId: "e1", Sequence: 1, Event: &pb.ExecutionEvent_Queued{Queued: &pb.ExecutionQueued{Position: position}}})
		s.Send(&pb.ExecutionEvent{ExecutionId: "e1", Sequence: 1, Event: &pb.ExecutionEvent_Keepalive{Keepalive: &pb.ExecutionKeepalive{}}})
	}
	f := r.fake()
	serve := func(s eventtest.Server, after uint64) error {
		if after == 0 {
			r.send(s, 0, 1)
		}
		queued(s, 12)
		queued(s, 3)
		return r.send(s, 1, 0)
	}
	f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error { return serve(s, 0) }
	f.attach = func(a *pb.AttachExecutionRequest, s eventtest.Server) error { return serve(s, a.GetAfterSequence()) }
	f.serve(t, "unix")
	const shown = "skillrun: waiting, position 12\r\x1b[Kskillrun: waiting, position 3\r\x1b[Koops\r\n"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "demo", "x.py"}, shown},
		{[]string{"attach", "e1"}, shown},
		{[]string{"attach", "--after", "1", "e1"}, shown},
		{[]string{"run", "-q", "demo", "x.py"}, "oops\r\n"},
		{[]string{"run", "--json", "demo", "x.py"}, ""},
	} {
		screen, all := openScreen(t)
		code := run(t.Context(), append([]string{"--address", f.address}, test.args...), nil, io.Discard, screen)
		if got := all(); code != 0 || got != test.want {
			t.Errorf("%v: got %d and %q, want %q", test.args, code, got, test.want)
		}
	}
	if got := f.client(t, nil, "run", "demo", "x.py"); got.stderr != "oops\n" {
		t.Errorf("no terminal: got %q", got.stderr)
	}
}

// Bars are drawn on a terminal, removed at the end, and nowhere else.
func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	large := make([]byte, 3<<20)
	rand.Read(large)
	source := filepath.Join(t.TempDir(), "large.bin")
	if err := os.WriteFile(source, large, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRecord().started().exit(0)
	f := r.fake().withArtifacts(map[string]string{"out/chart\x1b[31m.png": strings.Repeat("x", 5000), "empty": ""})
	f.interactive = func(s eventtest.Interactive) error {
		for got := 0; got < len(large); {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			got += len(m.GetFileChunk().GetData())
		}
		return r.send(s, 0, 0)
	}
	f.serve(t, "unix")
	runs := []string{"run", "--file", source, "-o", filepath.Join(t.TempDir(), "a"), "demo", "x.py"}
	saves := []string{"artifacts", "e1", "-o", filepath.Join(t.TempDir(), "b")}
	for _, test := range []struct {
		name string
		args []string
		want []string // nil: nothing
	}{
		{"run", runs, []string{"uploading files", "saving out/chart"}},
		{"detached", append([]string{"run", "-d", "--file", source}, "demo", "x.py"), []string{"uploading files"}},
		{"artifacts", saves, []string{"saving out/chart"}},
		{"quiet run", append([]string{"run", "-q"}, runs[1:]...), nil},
		{"quiet after the skill", append(append([]string{}, runs[:len(runs)-1]...), "--quiet", "x.py"), nil},
		{"quiet artifacts", append(saves, "--quiet"), nil},
		{"json", append([]string{"--json"}, runs...), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			screen, all := openScreen(t)
			var stdout bytes.Buffer
			code := run(t.Context(), append([]string{"--address", f.address}, test.args...), nil, &stdout, screen)
			got := all()
			if code != 0 {
				t.Fatalf("exit code %d, the screen says %q", code, got)
			}
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %q", want, got)
				}
			}
			if test.want == nil && got != "" {
				t.Errorf("got %q, want nothing", got)
			}
			if strings.Contains(got, "\x1b[31m") {
				t.Errorf("a file's name reaches the terminal as it is: %q", got)
			}
			// The last thing written removes the bar: blanks or an erased line, and back.
			if _, end, _ := cutLast(strings.TrimRight(got, "\r"), "\r"); strings.Trim(end, " ") != "" && !strings.HasSuffix(got, "\x1b[2K\r") {
				t.Errorf("left on the screen: %q", end)
			}
		})
	}
	t.Run("no terminal", func(t *testing.T) {
		if got := f.client(t, nil, runs...); got.code != 0 || got.stderr != "" {
			t.Errorf("got %d, %q, want 0 and nothing on stderr", got.code, got.stderr)
		}
	})
	t.Run("dumb terminal", func(t *testing.T) {
		t.Setenv("TERM", "dumb")
		screen, all := openScreen(t)
		code := run(t.Context(), append([]string{"--address", f.address}, saves...), nil, io.Discard, screen)
		if got := all(); code != 0 || got != "" {
			t.Errorf("got %d, %q, want 0 and nothing", code, got)
		}
	})
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return "", s, false
}
