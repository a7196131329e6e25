// Package hosttest gives tests the parts of a daemon that take long to make: a Host of
// sandboxes, the machine's interpreters and the embedded CPython. All tests of a package share
// them. A part is made when the first test asks for it.
package hosttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// PythonVar names the variable with the directory where the embedded CPython is unpacked. make
// test and make check set it, so that the tests of all packages use one copy. Without it each package unpacks
// its own.
const PythonVar = "SKILLRUN_TEST_PYTHON"

// Main runs the tests of a package and returns the exit code for os.Exit. TestMain calls it. For
// root it makes the process like a daemon (sandbox.Isolate). A normal user can make no sandboxes,
// and the tests that need one are skipped, also with -short.
func Main(m *testing.M) int {
	if os.Geteuid() == 0 {
		if err := sandbox.Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if err := closeAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// made has a function for each part that exists. It ends the part.
var made struct {
	sync.Mutex
	closers []func() error
}

// closeLater notes how a part ends. The parts live until all tests of the package have run.
func closeLater(f func() error) {
	made.Lock()
	defer made.Unlock()
	made.closers = append(made.closers, f)
}

// closeAll ends the parts, the newest first.
func closeAll() (err error) {
	for i := len(made.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, made.closers[i]())
	}
	return err
}

// root is the directory of all tests. It is in /var/tmp, because /tmp may be an overlay, and the
// kernel refuses an overlay on an overlay. Sandboxes may search it.
var root = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "skillrun-test-")
	if err != nil {
		return "", err
	}
	closeLater(func() error { return os.RemoveAll(dir) })
	return dir, os.Chmod(dir, 0o711)
})

// Dir returns a new directory that sandboxes may search. It is removed after the test.
func Dir(t testing.TB) string {
	t.Helper()
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(top, "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

var runtimes = sync.OnceValues(func() (*runtime.Set, error) {
	return runtime.Discover(context.Background(), runtime.Config{Rootfs: "/"})
})

// Runtimes returns the machine's interpreters.
func Runtimes(t testing.TB) *runtime.Set {
	t.Helper()
	set, err := runtimes()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var host = sync.OnceValues(func() (*sandbox.Host, error) {
	top, err := root()
	if err != nil {
		return nil, err
	}
	set, err := runtimes()
	if err != nil {
		return nil, err
	}
	h, err := sandbox.Open(context.Background(), sandbox.Config{StateDir: filepath.Join(top, "sandbox"), Links: set.Links()})
	if err == nil {
		closeLater(h.Close)
	}
	return h, err
})

// Host returns the Host of sandboxes. It skips the test with -short, and if the user is not root.
func Host(t testing.TB) *sandbox.Host {
	t.Helper()
	if testing.Short() {
		t.Skip("makes real sandboxes: -short leaves it out")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes real sandboxes, which needs root")
	}
	h, err := host()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var python = sync.OnceValues(func() (*runtime.Installation, error) {
	bundle, err := pythonBundle()
	if err != nil {
		return nil, err
	}
	dir := os.Getenv(PythonVar)
	if dir == "" {
		top, err := root()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(top, "python")
	}
	i, err := runtime.Install(context.Background(), runtime.InstallConfig{Dir: dir, Bundle: bundle})
	if err == nil {
		closeLater(i.Close)
	}
	return i, err
})

// pythonBundle returns the path of the program that carries the CPython. It is the one in
// SKILLRUN_BIN, from make build or make check, or one that is built here.
func pythonBundle() (string, error) {
	if dir := os.Getenv("SKILLRUN_BIN"); dir != "" {
		bundle := filepath.Join(dir, "skillrun-python")
		if _, err := os.Stat(bundle); err == nil {
			return bundle, nil
		}
	}
	top, err := root()
	if err != nil {
		return "", err
	}
	bundle := filepath.Join(top, "skillrun-python")
	if out, err := exec.Command("go", "build", "-o", bundle, "github.com/skillrun/skillrun/cmd/skillrun-python").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bundle, nil
}

// Python returns the embedded CPython and its pip, unpacked.
func Python(t testing.TB) *runtime.Installation {
	t.Helper()
	i, err := python()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

var pip = sync.OnceValues(func() (string, error) {
	i, err := python()
	if err != nil {
		return "", err
	}
	top, err := root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(top, "pip")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(i.Dir, "pip"))); err != nil {
		return "", err
	}
	system, err := exec.LookPath("python3")
	if err != nil {
		return dir, nil // no test can use it
	}
	if out, err := exec.Command(system, "-I", "-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: compile pip: %w: %s", system, err, out)
	}
	return dir, nil
})

// Pip returns a copy of the embedded CPython's pip that also has compiled files for the machine's
// Python. Without them each build with the machine's Python compiles pip anew, which takes longer
// than the rest of a small build.
func Pip(t testing.TB) string {
	t.Helper()
	dir, err := pip()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
