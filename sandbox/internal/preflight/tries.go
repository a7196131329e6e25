package preflight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// tryOpenat2 uses a flag that only openat2 has; the kernel refuses unknown flags (openat2(2)).
func tryOpenat2(Config) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", err
	}
	return "works", unix.Close(fd)
}

// tryMapped makes an id-mapped clone of the mount that holds StateDir, from which sandboxes get
// the snapshots of skills. The file system must support it, and not every kind does
// (MOUNT_ATTR_IDMAP, mount_setattr(2)).
func tryMapped(c Config) (string, error) {
	dir, err := Existing(c.StateDir)
	if err != nil {
		return "", err
	}
	userns, err := pid1.OpenUserNamespace(c.FirstID)
	if err != nil {
		return "", err
	}
	defer userns.Close()
	return "works on " + dir, mount.OnThrowawayThread(func() error {
		target, err := Existing(c.RunDir)
		if err != nil {
			return err
		}
		return mount.BindMapped(dir, target, userns)
	})
}

// tryOverlay mounts a workspace like a sandbox's, in a mount namespace that only one
// thread of this process is in.
func tryOverlay(c Config) (string, error) {
	return "works", mount.OnThrowawayThread(func() error {
		dir, err := Existing(c.RunDir)
		if err != nil {
			return err
		}
		lower, err := Existing(c.StateDir)
		if err != nil {
			return err
		}
		// Open lower before the tmpfs is mounted, which may cover it: lower may be
		// in dir.
		fd, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", lower, err)
		}
		defer unix.Close(fd)
		if err := mount.Tmpfs(dir, "mode=711,size=1m"); err != nil {
			return err
		}
		staging := filepath.Join(dir, "staging")
		if err := os.Mkdir(staging, 0o755); err != nil {
			return err
		}
		userns, err := pid1.OpenUserNamespace(c.FirstID)
		if err != nil {
			return err
		}
		defer userns.Close()
		st, err := mount.NewStaging(staging, mount.Size{Bytes: 1 << 20, Files: 64}, c.FirstID)
		if err != nil {
			return err
		}
		mounts, err := st.Mounts(&mount.Root{}, mount.Execution{Lower: []string{fmt.Sprintf("/proc/self/fd/%d/.", fd)}}, userns)
		mounts.Release()
		if err != nil {
			err = fmt.Errorf("over %s: %w", lower, err)
		}
		return errors.Join(err, st.Close())
	})
}

// Existing returns the nearest directory at or above path that exists. Before the first start of
// a daemon its directories are missing; they will be on the file system of that one.
func Existing(path string) (string, error) {
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil || path == "/" {
			return resolved, err
		}
		path = filepath.Dir(path)
	}
}

// trySeals makes a memory file and forbids all writes to it (F_SEAL_WRITE, fcntl(2)).
// Isolate keeps the daemon's binary in such a file, because sandboxes start from that binary.
func trySeals(Config) (string, error) {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return "work", err
}

// tryMergedUsr accepts a link to usr/bin, relative or absolute. Sandboxes show the machine's /usr
// and have links such as /bin into it, so programs in a separate /bin would be missing.
func tryMergedUsr(Config) (string, error) {
	target, err := os.Readlink("/bin")
	if err != nil || !strings.HasSuffix(target, "usr/bin") {
		return "", errors.New("/bin is not a link to usr/bin")
	}
	return "/bin is " + target, nil
}
