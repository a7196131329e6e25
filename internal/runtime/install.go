package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// InstallConfig is the source and the destination of the embedded CPython.
// The bundle is a separate program, so that a daemon can be built and shipped without the
// CPython (docs/decisions/0005-embedded-python-is-a-separate-program.md).
type InstallConfig struct {
	// Dir is where CPythons are unpacked. Install creates it, owned by root, mode 0700.
	Dir string
	// Bundle is the path of the program that carries the CPython, cmd/skillrun-python.
	Bundle string
	// Log gets a line for each unpacking. Nil: nothing is logged.
	Log *slog.Logger
}

// An Installation is an unpacked CPython. Until it is closed no Install removes it.
// The shared flock(2) on its directory says that it is in use. The kernel drops the lock
// when the process dies, so a crash leaves no stale lock.
type Installation struct {
	// Dir is the directory on the host to mount at EmbeddedDir. Its subdirectory pip
	// has pip, for PYTHONPATH.
	Dir string
	// Version is CPython's version, such as "3.14.6".
	Version string
	lock    *os.File
}

// Close lets a later version remove the installation.
func (i *Installation) Close() error { return i.lock.Close() }

// Names in InstallConfig.Dir. A CPython lies at NAME/root with its manifest next to
// it. Directories that are incomplete or about to be removed have names that begin
// with a dot.
const (
	installLock = "lock"
	newPrefix   = ".new-"
	oldPrefix   = ".old-"
	rootName    = "root"
)

const (
	// bundleTimeout bounds one unpacking, which takes seconds.
	bundleTimeout = 5 * time.Minute
	// removeTries and removeInterval bound the attempts to remove a directory into
	// which another process still writes: the bundle of a daemon that was just
	// killed.
	removeTries    = 50
	removeInterval = 20 * time.Millisecond
	// maxPlaces bounds the directory names for one version: NAME, NAME.2, ... Install
	// takes the next name if it can't move the directory at one away.
	maxPlaces = 9
)

// bundleName matches the name that a bundle gives its content. It becomes the name of
// a directory.
var bundleName = lazyregexp.New(`^cpython-([0-9]+\.[0-9]+\.[0-9]+)-[a-z0-9-]{1,64}$`)

// Install unpacks the CPython of the bundle, unless it is already there, and returns
// it. It unpacks into a temporary directory and renames that, so that a crash never
// leaves an incomplete directory under a final name. A CPython that differs from its
// manifest is replaced. Directories of crashes and of other versions are removed
// unless an Installation holds them open; failed removals are logged. Several
// processes may call Install for one Dir at the same time; one of them unpacks.
func Install(ctx context.Context, c InstallConfig) (*Installation, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	i, err := install(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("embedded Python: %w", err)
	}
	return i, nil
}

// install is Install without the prefix of its errors. It holds the exclusive lock of Dir
// until the installation is locked, so that no other process removes it.
// The order is: take the exclusive lock, look for an installation, remove unused ones, unpack if needed,
// take a shared lock on the result. The deferred Close releases the exclusive lock.
func install(ctx context.Context, c InstallConfig) (*Installation, error) {
	name, version, err := askBundle(ctx, c.Bundle)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	only, err := os.OpenFile(filepath.Join(c.Dir, installLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer only.Close()
	if err := filelock.Await(ctx, only, filelock.Exclusive); err != nil {
		return nil, fmt.Errorf("lock %s: %w", only.Name(), err)
	}
	// The look comes before the removal: keep must name the copy that is used.
	place := intact(c, name)
	keep := name
	if place != "" {
		keep = filepath.Base(place)
	}
	if err := removeUnused(ctx, c, keep); err != nil {
		return nil, err
	}
	if place == "" {
		began := time.Now()
		c.Log.Info("unpacking the embedded Python; this takes some seconds", "version", version, "dir", c.Dir)
		if place, err = replace(ctx, c, name); err != nil {
			return nil, err
		}
		c.Log.Info("embedded Python unpacked", "version", version, "dir", place, "took_ms", time.Since(began).Milliseconds())
	}
	lock, err := os.Open(place)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(lock, filelock.Shared); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", place, err)
	}
	return &Installation{Dir: filepath.Join(place, rootName), Version: version, lock: lock}, nil
}

// askBundle runs a bundle to learn the name and version of its content.
// Without arguments a bundle prints the name and exits.
func askBundle(ctx context.Context, bundle string) (name, version string, err error) {
	out, err := runBundle(ctx, bundle)
	if err != nil {
		return "", "", err
	}
	name = strings.TrimSpace(out)
	m := bundleName.FindStringSubmatch(name)
	if m == nil {
		return "", "", fmt.Errorf("%s: says %.80q, want cpython-VERSION-ID", bundle, name)
	}
	return name, m[1], nil
}

// runBundle runs a bundle, which the kernel kills when this process dies. It gets an
// empty environment: the daemon's may hold secrets.
// Its output is bounded by versionBytes, because only the name and error texts are read.
func runBundle(ctx context.Context, bundle string, args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var out, said limitedBuffer
	cmd := exec.CommandContext(ctx, bundle, args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = versionGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Pdeathsig fires when the parent's thread ends, not its process, prctl(2).
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil { // so the process was killed
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{bundle}, args...), " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// placesOf returns the directories where a version may lie, the usual one first.
func placesOf(dir, name string) []string {
	places := []string{filepath.Join(dir, name)}
	for n := 2; n <= maxPlaces; n++ {
		places = append(places, filepath.Join(dir, fmt.Sprintf("%s.%d", name, n)))
	}
	return places
}

// intact returns the first place whose content matches its manifest, or "".
// Damage is logged and not an error: Install can unpack again.
func intact(c InstallConfig, name string) string {
	for _, place := range placesOf(c.Dir, name) {
		damage := checkManifest(place)
		if damage == nil {
			return place
		}
		if !errors.Is(damage, fs.ErrNotExist) {
			c.Log.Warn("the embedded Python is damaged; using another copy or unpacking it again", "dir", place, "err", damage)
		}
	}
	return ""
}

// replace unpacks into a new directory and renames it to the first place that it can
// free. It moves the old content of that place away and removes it unless an
// Installation holds it open.
// It tries another name if one can't be freed, so that a broken directory, or one that a
// file system refuses to rename, doesn't keep the daemon without a Python.
func replace(ctx context.Context, c InstallConfig, name string) (place string, err error) {
	tmp, err := os.MkdirTemp(c.Dir, newPrefix)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(context.WithoutCancel(ctx), tmp))
		}
	}()
	written, err := durable.OpenFS(c.Dir)
	if err != nil {
		return "", err
	}
	defer written.Close()
	if err := fill(ctx, c, tmp); err != nil {
		return "", err
	}
	// Before the rename makes it visible.
	if err := written.Sync(); err != nil {
		return "", err
	}
	for _, place := range placesOf(c.Dir, name) {
		err = moveAway(ctx, c, place)
		if err == nil {
			err = os.Rename(tmp, place)
		}
		if err == nil {
			return place, written.Sync()
		}
		c.Log.Warn("cannot replace the embedded Python; trying the next directory name", "dir", place, "err", err)
	}
	return "", err
}

// fill unpacks into dir and writes the manifest.
// --target is the path in sandboxes. It differs from root, where the bundle writes, and
// compiled files hold the path of their source.
func fill(ctx context.Context, c InstallConfig, dir string) error {
	root := filepath.Join(dir, rootName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if _, err := runBundle(ctx, c.Bundle, "--unpack", root, "--target", EmbeddedDir); err != nil {
		return err
	}
	if err := checkModes(root); err != nil {
		return err
	}
	return writeManifest(dir)
}

// moveAway frees a name by renaming the directory there. It does not remove it.
// A running sandbox that has mounted the directory keeps it: rename(2) doesn't touch mounts.
func moveAway(ctx context.Context, c InstallConfig, place string) error {
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := os.MkdirTemp(c.Dir, oldPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(place, filepath.Join(dir, filepath.Base(place))); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	c.removeUnless(ctx, dir)
	return nil
}

// removeUnused removes every entry that no Installation holds open, except keep and
// the lock.
// It runs under the exclusive lock, so no other Install is unpacking.
func removeUnused(ctx context.Context, c InstallConfig, keep string) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != keep && e.Name() != installLock {
			c.removeUnless(ctx, filepath.Join(c.Dir, e.Name()))
		}
	}
	return nil
}

// removeUnless removes path unless another process holds a lock on it or on an entry
// directly in it, which is where moveAway puts directories. A failed removal is logged
// and costs only space, because new content gets a new name.
func (c InstallConfig) removeUnless(ctx context.Context, path string) {
	held := []string{path}
	inside, _ := os.ReadDir(path) // empty for a file
	for _, e := range inside {
		held = append(held, filepath.Join(path, e.Name()))
	}
	for _, one := range held {
		f, err := os.OpenFile(one, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // a link, or removed by another process since ReadDir
		}
		defer f.Close()
		if errors.Is(filelock.Try(f, filelock.Exclusive), filelock.ErrHeld) {
			return
		}
	}
	if err := removeAll(ctx, path); err != nil {
		c.Log.Warn("cannot remove an old copy of the embedded Python; remove it by hand", "dir", path, "err", err)
	}
}

// removeAll removes path. It tries again, up to removeTries times, while another
// process still writes into it.
func removeAll(ctx context.Context, path string) error {
	for try := 1; ; try++ {
		err := os.RemoveAll(path)
		if !errors.Is(err, unix.ENOTEMPTY) || try == removeTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(removeInterval):
		}
	}
}
