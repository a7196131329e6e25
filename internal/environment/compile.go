package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/beneath"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/sandbox"
)

// compile adds Python's compiled files to a frozen environment, since executions can't write
// them. It happens in another sandbox, in which no install code has run and none runs. So the
// compiled files follow from the sources, and thus from the digest. Sources that don't compile
// stay as they were. wall is the rest of a build's time.
// unchecked-hash (PEP 552) makes Python load a compiled file without a look at its source:
// the files are read-only and their times are not part of the digest. compileall's exit code
// doesn't count, because it is 1 if a single source doesn't compile.
func (s *Store) compile(ctx context.Context, p *plan, dir string, f frozen, wall time.Duration) (frozen, error) {
	spec := s.baseSpec(p, compilerArgs(p, "unchecked-hash", Target+"/lib"), max(wall, buildGrace))
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: dir, Target: Target})
	c := &compiledCopier{maxBytes: s.config.Bytes, frozen: &f}
	exit, err := s.runCompiler(ctx, spec, c, dir, Target)
	if err != nil {
		return frozen{}, startFailure(p, fmt.Errorf("compile: %w", err))
	}
	if ctx.Err() != nil {
		return frozen{}, context.Cause(ctx)
	}
	if exit.End == sandbox.TimedOut || exit.End == sandbox.OOMKilled {
		return frozen{}, s.explain(p, exit, nil, nil)
	}
	return f, buildFailure(p, c.err)
}

// compilerArgs is the command line that compiles the sources beneath a directory of the sandbox.
// Compiled files go to the workspace: pycache_prefix mirrors the absolute path of each source
// beneath the prefix (sys.pycache_prefix, since Python 3.8).
func compilerArgs(p *plan, mode string, args ...string) []string {
	return append([]string{
		p.python.Python.Path, "-I", "-X", "pycache_prefix=/workspace/" + builtDir,
		"-m", "compileall", "-q", "-q", "--invalidation-mode", mode,
	}, args...)
}

// runCompiler runs a compiler. c moves the compiled files into dir, which the sandbox has at target,
// next to their sources; c.err says why it could not.
func (s *Store) runCompiler(ctx context.Context, spec sandbox.Spec, c *compiledCopier, dir, target string) (sandbox.Exit, error) {
	process, err := s.config.Host.Start(ctx, spec, sandbox.IO{
		Collect: func(changes *os.Root) error {
			c.err = c.collect(changes, dir, target)
			return nil
		},
	})
	if err != nil {
		return sandbox.Exit{}, err
	}
	unwatch := context.AfterFunc(ctx, func() { process.Stop(0) })
	defer unwatch()
	return process.Wait()
}

// A compiledCopier copies compiled files out of their sandbox.
// The compiler reads untrusted sources, so its tree is treated like a build's: walked by
// descriptors, without links. Other entries than compiled files are left out, not refused.
type compiledCopier struct {
	into     *os.Root
	maxBytes int64
	frozen   *frozen // counts them
	err      error   // of collect
}

// collect moves the compiled files of the sources in dir, which the sandbox had at target.
func (c *compiledCopier) collect(changes *os.Root, dir, target string) error {
	into, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer into.Close()
	c.into = into
	top, err := openDir(changes, path.Join(builtDir, target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there was nothing to compile
	}
	if err != nil {
		return &entryError{builtDir, "not what a compiler leaves"}
	}
	defer top.Close()
	return c.walk(top, "", 1)
}

var compiledName = lazyregexp.New(`^(.+)\.cpython-[0-9]+\.pyc$`)

// walk copies the entries of dir and of its directories. prefix is dir's path in the tree, with a
// slash at its end. The order is the file system's.
func (c *compiledCopier) walk(dir *os.File, prefix string, depth int) error {
	return eachName(dir, prefix, depth, func(name string) error { return c.entry(dir, prefix, name, depth) })
}

// entry copies one compiled file or walks one directory. An entry that is no compiled file, or
// has no source in the environment, is left out.
func (c *compiledCopier) entry(dir *os.File, prefix, name string, depth int) error {
	// Sources and compiled files count together against maxFrozenFiles and the bytes.
	if c.frozen.files++; c.frozen.files > maxFrozenFiles {
		return &errOversize{"files", maxFrozenFiles}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: prefix + name, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		sub, err := beneath.OpenDir(dir, name)
		if err != nil {
			return err
		}
		return errors.Join(c.walk(sub, prefix+name+"/", depth+1), sub.Close())
	case unix.S_IFREG:
		m := compiledName.FindStringSubmatch(name)
		if m == nil {
			return nil
		}
		if fi, err := c.into.Lstat(prefix + m[1] + ".py"); err != nil || !fi.Mode().IsRegular() {
			return nil // it has no source here
		}
		from, err := beneath.Open(dir, name, unix.O_RDONLY)
		if err != nil {
			return err
		}
		return errors.Join(c.file(from, prefix, name), from.Close())
	}
	return nil
}

// O_EXCL: freeze has dropped every __pycache__, so an existing file is a mistake and not a
// file to replace.
func (c *compiledCopier) file(from *os.File, prefix, name string) error {
	cache := filepath.Join(prefix, cacheName)
	if err := c.into.Mkdir(cache, 0o755); err == nil {
		err = c.into.Chmod(cache, 0o755) // whatever the umask
		if err = errors.Join(err, charge(&c.frozen.size, 0, c.maxBytes)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	to, err := c.into.OpenFile(filepath.Join(cache, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.LimitReader(from, c.maxBytes-c.frozen.size+1))
	if err = errors.Join(err, to.Chmod(0o644), to.Close()); err != nil {
		return err
	}
	return charge(&c.frozen.size, n, c.maxBytes)
}
