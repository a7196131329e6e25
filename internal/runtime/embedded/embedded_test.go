package embedded

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestName(t *testing.T) {
	good := debug.Module{Path: module, Version: "v0.0.0-3.14.6-20260610-1", Sum: "h1:abc="}
	name := func(m debug.Module) string {
		t.Helper()
		got, err := nameOf([]*debug.Module{{Path: "other", Version: "v1.0.0", Sum: "h1:x"}, &m})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := name(good)
	if !strings.HasPrefix(first, "cpython-3.14.6-20260610-1-") || len(first) != len("cpython-3.14.6-20260610-1-")+12 || name(good) != first {
		t.Errorf("got %q", first)
	}
	other := good
	other.Sum = "h1:def="
	if name(other) == first {
		t.Error("a module with another checksum has the same name")
	}
	replaced := good
	replaced.Replace = &other
	if name(replaced) != name(other) {
		t.Error("a replaced module has the same name")
	}
	for what, m := range map[string]debug.Module{
		"no checksum":   {Path: module, Version: good.Version},
		"local":         {Path: module, Version: good.Version, Replace: &debug.Module{Path: "../x"}},
		"other version": {Path: module, Version: "v1.2.3", Sum: "h1:abc="},
		"a path":        {Path: module, Version: "v0.0.0-3.14.6-../..-1", Sum: "h1:abc="},
		"not there":     {Path: "other", Version: good.Version, Sum: "h1:abc="},
	} {
		if got, err := nameOf([]*debug.Module{&m}); err == nil {
			t.Errorf("%s: got %q, want an error", what, got)
		}
	}
}

func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[python]") // characters of a pattern mean nothing
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", "/nowhere")
	if err := Unpack(dir, "/opt/python"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/python", "bin/python3", "lib/python3.14/json/__pycache__/__init__.cpython-314.pyc", "pip/pip/__main__.py"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"bin/pip", "bin/idle3", "lib/libpython3.14.so.1.0", "tmp", "../python.lock"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s still exists", name)
		}
	}
	if got := os.Getenv("TMPDIR"); got != "/nowhere" {
		t.Errorf("TMPDIR is %q afterwards", got)
	}
	// If the interpreter cannot run, Unpack fails and leaves no final modes.
	if err := os.WriteFile(filepath.Join(dir, "bin/python3.14"), []byte("#!/nowhere/ld-musl\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := compile(dir, "/opt/python", "python3.14"); err == nil || !strings.Contains(err.Error(), "does not run on this machine") {
		t.Errorf("got %v", err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(dir, "/opt/python"); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory with something in it: %v", err)
	}
	if err := Unpack(filepath.Join(dir, "missing"), "/opt/python"); err == nil {
		t.Error("a missing directory was accepted")
	}
}

func TestSetModes(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"program": 0o4711, "data": 0o666} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode&0o777|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("program", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := setModes(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"program": 0o755, "data": 0o644, ".": fs.ModeDir | 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	for _, to := range []string{"/etc/passwd", "../x", "a/../../x"} {
		link := filepath.Join(dir, "out")
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		if err := setModes(dir); err == nil || !strings.Contains(err.Error(), to) {
			t.Errorf("a link to %s: %v", to, err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

// The compiling interpreter is killed when its parent process dies.
func TestCompileDiesWithItsParent(t *testing.T) {
	if dir := os.Getenv("COMPILE_DIR"); dir != "" {
		t.Fatal(compile(dir, "/opt/python", "python3.14"))
	}
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	interpreter := "#!/bin/sh\necho $$ >" + fifo + "\nexec /bin/sleep 1000\n"
	if err := os.WriteFile(filepath.Join(dir, "bin/python3.14"), []byte(interpreter), 0o755); err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCompileDiesWithItsParent$")
	parent.Env = []string{"COMPILE_DIR=" + dir}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(fifo)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()           // the error says that it was killed
	ready, err := 0, unix.EINTR // signals of the Go runtime interrupt poll(2)
	for err == unix.EINTR {
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}, 10_000)
	}
	if err != nil || ready != 1 {
		t.Errorf("the interpreter outlived its parent: %v", errors.Join(err, unix.PidfdSendSignal(child, unix.SIGKILL, nil, 0)))
	}
}
