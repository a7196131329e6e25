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
	// removeTries and removeInterval bound how often a directory is removed into
	// which somebody still writes: the bundle of a daemon that was just killed.
	removeTries    = 50
	removeInterval = 20 * time.Millisecond
	// maxPlaces bounds the names for one version: NAME, NAME.2, ... The next is
	// taken where what lies at one can't be moved away.
	maxPlaces = 9
)

// bundleName is how a bundle names what it carries. It becomes a directory.
var bundleName = regexp.MustCompile(`^cpython-([0-9]+\.[0-9]+\.[0-9]+)-[a-z0-9-]{1,64}$`)

// Install returns the CPython that the bundle carries, unpacked. It is unpacked
// once: beside, and then renamed, so that a crash leaves nothing that looks whole.
// One that is not as it was unpacked is replaced. What is left of crashes and of
// other versions is removed unless someone has it open; what can't be removed is
// logged and left. Several processes may call it for one Dir; one of them unpacks.
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
		if place, err = replace(ctx, c, name); err != nil {
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

// placesOf are the directories where a version may lie, the usual one first.
func placesOf(dir, name string) []string {
	places := []string{filepath.Join(dir, name)}
	for n := 2; n <= maxPlaces; n++ {
		places = append(places, filepath.Join(dir, fmt.Sprintf("%s.%d", name, n)))
	}
	return places
}

// intact is the first place whose content is as it was unpacked. Empty: there is
// none.
func intact(c InstallConfig, name string) string {
	for _, place := range placesOf(c.Dir, name) {
		damage := checkManifest(place)
		if damage == nil {
			return place
		}
		if !errors.Is(damage, fs.ErrNotExist) {
			c.Log.Warn("embedded Python is damaged and is not used: a copy is, or it is unpacked anew", "dir", place, "err", damage)
		}
	}
	return ""
}

// replace unpacks to a new directory and renames it to the first place that can be
// had. What was there is moved away first and removed if nobody has it open.
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
	if err := fill(ctx, c, tmp); err != nil {
		return "", err
	}
	for _, place := range placesOf(c.Dir, name) {
		err = moveAway(ctx, c, place)
		if err == nil {
			err = os.Rename(tmp, place)
		}
		if err == nil {
			return place, syncAll(c.Dir)
		}
		c.Log.Warn("embedded Python can't be put at its place; the next name is tried", "dir", place, "err", err)
	}
	return "", err
}

// fill unpacks to dir, with the manifest, and writes all of it to the disk before
// a name says that it is there.
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
	if err := writeManifest(dir); err != nil {
		return err
	}
	return syncAll(dir)
}

// moveAway frees a name. What was there need not be gone.
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

// removeUnused removes what nobody has open, but keep and the lock.
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

// removeUnless removes path unless someone holds a lock on it or on what lies
// directly in it, where moveAway put it. What can't be removed is logged: it takes
// space and is in nobody's way, for what is new gets a name of its own.
func (c InstallConfig) removeUnless(ctx context.Context, path string) {
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
			return
		}
	}
	if err := removeAll(ctx, path); err != nil {
		c.Log.Warn("an old copy of the embedded Python can't be removed and is left; remove it by hand", "dir", path, "err", err)
	}
}

// removeAll removes path, again as long as somebody writes into it, but not
// forever.
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
