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
	"regexp"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// InstallConfig says where the embedded CPython comes from and goes to.
type InstallConfig struct {
	// Dir holds what was unpacked. It is made if missing, root-owned 0700.
	Dir string
	// Bundle is the program that carries the CPython: cmd/skillrun-python.
	Bundle string
	// Log gets a line when something is unpacked. Nil: none.
	Log *slog.Logger
}

// An Installation is an unpacked CPython. As long as it is open nobody removes it.
type Installation struct {
	// Dir is on the host and what a sandbox is to see at EmbeddedDir. There is a pip
	// in its pip, for PYTHONPATH.
	Dir string
	// Version is CPython's own: "3.14.6".
	Version string
	lock    *os.File
}

// Close lets a later version remove the installation.
func (i *Installation) Close() error { return i.lock.Close() }

// Names in InstallConfig.Dir. What is unpacked lies at NAME/root, with its
// manifest beside it; what is not yet, or no longer, so begins with a dot.
const (
	installLock = "lock"
	newPrefix   = ".new-"
	oldPrefix   = ".old-"
	rootName    = "root"
)

const (
	// bundleTimeout bounds one unpacking; it takes seconds.
	bundleTimeout = 5 * time.Minute
	// lockInterval is how often a taken lock is looked at.
	lockInterval = 20 * time.Millisecond
)

// bundleName is how a bundle names what it carries. It becomes a directory.
var bundleName = regexp.MustCompile(`^cpython-([0-9]+\.[0-9]+\.[0-9]+)-[a-z0-9-]{1,64}$`)

// Install returns the CPython that the bundle carries, unpacked. It is unpacked
// once: beside, and then renamed, so that a crash leaves nothing that looks whole.
// One that is not as it was unpacked is replaced. What is left of crashes and of
// other versions is removed unless someone has it open. Several processes may call
// it for one Dir; one of them unpacks.
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
	if err := lockExclusive(ctx, only); err != nil {
		return nil, err
	}
	if err := removeUnused(c.Dir, name); err != nil {
		return nil, err
	}
	place := filepath.Join(c.Dir, name)
	damage := checkManifest(place)
	if damage != nil {
		if !errors.Is(damage, fs.ErrNotExist) {
			c.Log.Warn("embedded Python is damaged and is unpacked anew", "dir", place, "err", damage)
		}
		began := time.Now()
		if err := replace(ctx, c, place); err != nil {
			return nil, err
		}
		c.Log.Info("embedded Python unpacked", "version", version, "dir", place, "took", time.Since(began).Round(time.Millisecond))
	}
	lock, err := os.Open(place)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", place, err)
	}
	return &Installation{Dir: filepath.Join(place, rootName), Version: version, lock: lock}, nil
}

// askBundle asks a bundle what it carries.
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

// runBundle runs a bundle, which dies with this process. It gets no environment:
// nothing of the daemon's is its business.
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
	// The signal comes when the thread ends that started the process.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil { // and so it was killed
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{bundle}, args...), " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// replace unpacks beside place and renames. What was at place is moved away first
// and removed if nobody has it open.
func replace(ctx context.Context, c InstallConfig, place string) (err error) {
	tmp, err := os.MkdirTemp(c.Dir, newPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	root := filepath.Join(tmp, rootName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if _, err := runBundle(ctx, c.Bundle, "--unpack", root, "--target", EmbeddedDir); err != nil {
		return err
	}
	if err := checkModes(root); err != nil {
		return err
	}
	if err := writeManifest(tmp); err != nil {
		return err
	}
	// Everything must be on disk before the name says that it is.
	if err := syncAll(tmp); err != nil {
		return err
	}
	if err := moveAway(place); err != nil {
		return err
	}
	if err := os.Rename(tmp, place); err != nil {
		return err
	}
	return syncAll(c.Dir)
}

// moveAway frees a name.
func moveAway(place string) error {
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(place), oldPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(place, filepath.Join(dir, filepath.Base(place))); err != nil {
		return err
	}
	return removeUnless(dir)
}

// removeUnused removes what nobody has open, but keep and the lock.
func removeUnused(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == keep || e.Name() == installLock {
			continue
		}
		if err := removeUnless(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeUnless removes path unless someone holds a lock on it or on what lies
// directly in it, where moveAway put it.
func removeUnless(path string) error {
	held := []string{path}
	inside, _ := os.ReadDir(path) // of a file: none
	for _, e := range inside {
		held = append(held, filepath.Join(path, e.Name()))
	}
	for _, one := range held {
		f, err := os.OpenFile(one, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // a link, or gone
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
	}
	return os.RemoveAll(path)
}

// syncAll writes everything of dir's file system to its disk: once for a thousand
// files.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return f.Sync()
}

func lockExclusive(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock %s, which another process holds: %w", f.Name(), ctx.Err())
		case <-time.After(lockInterval):
		}
	}
}
