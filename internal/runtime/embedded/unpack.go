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

// Unpack fills dir, an empty directory, with a CPython that shows up at target in
// sandboxes: bin/python3 and bin/python, lib, and pip, which is not on its path.
// All of it belongs to whoever calls and can be written by nobody else; there is
// no setuid and no link that leads out. What fails leaves dir half full.
func Unpack(dir, target string) error {
	if err := unpack(dir, target); err != nil {
		return fmt.Errorf("unpack embedded Python into %s: %w", dir, err)
	}
	return nil
}

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
	// The extractor's own lock.
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
	return settle(dir)
}

// programOf names the interpreter among the programs: python3.14.
func programOf(bin string) (string, error) {
	found, err := filepath.Glob(filepath.Join(bin, "python3.[0-9]*"))
	if err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(path string) bool { return strings.HasSuffix(path, "-config") })
	if len(found) != 1 {
		return "", fmt.Errorf("%d interpreters in bin, want one", len(found))
	}
	return filepath.Base(found[0]), nil
}

// keepPython removes what only looks usable. Of the other programs in bin none
// works: what they import is left out of the data. libpython is for programs that
// embed Python; the interpreter has it in itself. The extractor writes links as
// copies of what they point to.
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
	libraries, err := filepath.Glob(filepath.Join(dir, "lib/libpython3*"))
	if err != nil {
		return err
	}
	for _, path := range libraries {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// unpackPip puts pip into a directory of its own, for those who name it in
// PYTHONPATH: its extractor knows only where TMPDIR is, and a name of its own.
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

// compile makes the .pyc files, which no execution can write, and without which
// each would compile what it imports. Whether they fit their sources is not looked
// at again: both are read-only.
func compile(dir, target, program string) error {
	cmd := exec.Command(filepath.Join(dir, "bin", program), "-I", "-m", "compileall", "-q", "-q",
		"--invalidation-mode", "unchecked-hash", "-s", dir, "-p", target, filepath.Join(dir, "lib"), filepath.Join(dir, "pip"))
	cmd.Env = []string{}
	cmd.Dir = "/"
	// It dies with us, who die with the daemon: nobody writes on into what the next
	// one removes. The signal comes when the thread ends that started the process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("its interpreter does not run on this machine: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// settle gives everything its final mode and refuses what must not be there.
func settle(dir string) error {
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
