package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/kluctl/go-embed-python/pip"
	"github.com/kluctl/go-embed-python/python"
)

// Unpack fills dir, an empty directory, with a CPython that sandboxes see at target:
// bin/python3, bin/python, lib, and pip, which is not on its path. The caller's user
// owns all files, and no other user can write to them. There are no setuid files and no
// links out. A failed Unpack leaves dir incomplete.
func Unpack(dir, target string) error {
	if err := unpack(dir, target); err != nil {
		return fmt.Errorf("unpack embedded Python into %s: %w", dir, err)
	}
	return nil
}

// unpack is Unpack without the words around its errors.
func unpack(dir, target string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return errors.New("not empty")
	}
	p, err := python.NewEmbeddedPythonWithTmpDir(dir, false)
	if err != nil {
		return err
	}
	// The extractor leaves its lock file.
	if err := os.Remove(dir + ".lock"); err != nil {
		return err
	}
	program, err := programOf(filepath.Join(p.GetExtractedPath(), "bin"))
	if err != nil {
		return err
	}
	if err := keepPython(dir, program); err != nil {
		return err
	}
	if err := unpackPip(dir); err != nil {
		return err
	}
	if err := compile(dir, target, program); err != nil {
		return err
	}
	return setModes(dir)
}

// programOf returns the name of the interpreter in bin, such as python3.14.
func programOf(bin string) (string, error) {
	found, err := fs.Glob(os.DirFS(bin), "python3.[0-9]*")
	if err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, "-config") })
	if len(found) != 1 {
		return "", fmt.Errorf("%d interpreters in bin, want one", len(found))
	}
	return found[0], nil
}

// keepPython removes files that do not work. The other programs in bin import modules
// that the data leave out. libpython is for programs that embed Python; the
// interpreter links it statically. The extractor writes links as copies of their
// targets.
func keepPython(dir, program string) error {
	programs, err := os.ReadDir(filepath.Join(dir, "bin"))
	if err != nil {
		return err
	}
	for _, e := range programs {
		if e.Name() != program {
			if err := os.RemoveAll(filepath.Join(dir, "bin", e.Name())); err != nil {
				return err
			}
		}
	}
	for _, link := range []string{"python3", "python"} {
		if err := os.Symlink(program, filepath.Join(dir, "bin", link)); err != nil {
			return err
		}
	}
	libraries, err := fs.Glob(os.DirFS(dir), "lib/libpython3*")
	if err != nil {
		return err
	}
	for _, name := range libraries {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// unpackPip unpacks pip into a separate directory, for users who set PYTHONPATH. Its
// extractor can only unpack into TMPDIR, under a name that it chooses.
func unpackPip(dir string) error {
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	before, was := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		return err
	}
	lib, err := pip.NewPipLib("lib")
	if was {
		err = errors.Join(err, os.Setenv("TMPDIR", before))
	} else {
		err = errors.Join(err, os.Unsetenv("TMPDIR"))
	}
	if err != nil {
		return err
	}
	if err := os.Rename(lib.GetExtractedPath(), filepath.Join(dir, "pip")); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}

// compile makes the .pyc files. Executions cannot write them, and would otherwise
// compile every import. The .pyc files are never checked against their sources, since
// both are read-only.
func compile(dir, target, program string) error {
	cmd := exec.Command(filepath.Join(dir, "bin", program), "-I", "-m", "compileall", "-q", "-q",
		"--invalidation-mode", "unchecked-hash", "-s", dir, "-p", target, filepath.Join(dir, "lib"), filepath.Join(dir, "pip"))
	cmd.Env = []string{}
	cmd.Dir = "/"
	// The compiler must die with this process, which dies with the daemon. Otherwise it
	// would write on into a directory that the next daemon removes. Pdeathsig fires
	// when the parent's thread ends, prctl(2).
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("its interpreter does not run on this machine: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// setModes sets the final mode of every entry and refuses entries that must not exist.
func setModes(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch e.Type() {
		case fs.ModeDir:
			return os.Chmod(path, 0o755)
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err == nil && (filepath.IsAbs(to) || !within(dir, filepath.Join(filepath.Dir(path), to))) {
				err = fmt.Errorf("link %s leads to %s", path, to)
			}
			return err
		case 0:
			info, err := e.Info()
			if err != nil {
				return err
			}
			mode := fs.FileMode(0o644)
			if info.Mode()&0o111 != 0 {
				mode = 0o755
			}
			return os.Chmod(path, mode)
		}
		return fmt.Errorf("%s: %v, want a file, a directory or a link", path, e.Type())
	})
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
