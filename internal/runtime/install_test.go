package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/runtime/embedded"
)

// TestMain makes this binary a process that installs, if its environment says so, or the
// bundle, if its name says so.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "skillrun-python" {
		if err := beBundle(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("INSTALL_DIR"); dir != "" {
		_, err := Install(context.Background(), InstallConfig{Dir: dir, Bundle: os.Getenv("INSTALL_BUNDLE")})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func beBundle(args []string) error {
	if len(args) == 4 {
		return embedded.Unpack(args[1], args[3])
	}
	// The go command does not record the modules of a test binary.
	_, err := fmt.Println(fakeName)
	return err
}

const fakeName = "cpython-3.14.6-20260101-1-abc"

// fakeTree is the shell script with which fake bundles fill the directory $2.
const fakeTree = `umask 022; mkdir "$2/bin" "$2/lib"; echo program >"$2/bin/python3.14"; chmod 755 "$2/bin/python3.14"; ln -s python3.14 "$2/bin/python3"; echo one >"$2/lib/one.py"; echo two >"$2/lib/two.py"`

// fakeBundle returns the path of a program that unpacks by a shell script.
func fakeBundle(t *testing.T, name, unpack string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"bundle": "#!/bin/sh -eu\nPATH=/usr/bin:/bin\nif [ $# = 0 ]; then echo '" + name + "'; exit; fi\necho $@ >>" + dir + "/calls\n" + unpack + "\n"})
	return filepath.Join(dir, "bundle")
}

// calls returns how often a fake bundle has unpacked.
func calls(bundle string) int {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(bundle), "calls"))
	return strings.Count(string(text), "\n")
}

func mustInstall(t *testing.T, c InstallConfig) *Installation {
	t.Helper()
	i, err := Install(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

func TestInstallUnpacksOnce(t *testing.T) {
	var log strings.Builder
	c := InstallConfig{Dir: filepath.Join(t.TempDir(), "a/python"), Bundle: fakeBundle(t, fakeName, fakeTree), Log: slog.New(slog.NewTextHandler(&log, nil))}
	first := mustInstall(t, c)
	if want := filepath.Join(c.Dir, fakeName, "root"); first.Dir != want || first.Version != "3.14.6" {
		t.Errorf("got %+v, want %s and 3.14.6", first, want)
	}
	if text, err := os.ReadFile(first.Dir + "/bin/python3"); err != nil || string(text) != "program\n" {
		t.Errorf("bin/python3: %q, %v", text, err)
	}
	second := mustInstall(t, c) // while the first installation is open
	first.Close()
	second.Close()
	mustInstall(t, c)
	if got := calls(c.Bundle); got != 1 {
		t.Errorf("unpacked %d times, want once", got)
	}
	wantNames(t, c.Dir, fakeName, "lock")
	if got := strings.Count(log.String(), "unpacked"); got != 1 {
		t.Errorf("%d lines of log: %s", got, &log)
	}
	if info, err := os.Stat(c.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory: %v, %v", info.Mode(), err)
	}
}

// If several processes start at the same time, one unpacks, and all get a complete Python.
func TestInstallAtOnce(t *testing.T) {
	c := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree)}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			i, err := Install(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			defer i.Close()
			if _, err := os.Stat(i.Dir + "/lib/two.py"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := calls(c.Bundle); got != 1 {
		t.Errorf("unpacked %d times, want once", got)
	}
}

func TestInstallReplacesDamage(t *testing.T) {
	for what, damage := range map[string]func(root string) error{
		"file missing":    func(root string) error { return os.Remove(root + "/lib/one.py") },
		"file added":      func(root string) error { return os.WriteFile(root+"/lib/sitecustomize.py", nil, 0o644) },
		"file truncated":  func(root string) error { return os.Truncate(root+"/lib/one.py", 0) },
		"mode changed":    func(root string) error { return os.Chmod(root+"/lib", 0o777) },
		"setuid":          func(root string) error { return os.Chmod(root+"/bin/python3.14", 0o755|fs.ModeSetuid) },
		"owner changed":   func(root string) error { return os.Lchown(root+"/lib/one.py", 12345, 0) },
		"root missing":    os.RemoveAll,
		"root is a file":  func(root string) error { return errors.Join(os.RemoveAll(root), os.WriteFile(root, nil, 0o644)) },
		"no manifest":     func(root string) error { return os.Remove(root + "/../manifest") },
		"empty manifest":  func(root string) error { return os.Truncate(root+"/../manifest", 0) },
		"all of it empty": func(root string) error { return errors.Join(os.Remove(root+"/../manifest"), os.RemoveAll(root)) },
		"link redirected": func(root string) error {
			return errors.Join(os.Remove(root+"/bin/python3"), os.Symlink("/bin/sh", root+"/bin/python3"))
		},
		// Size and mtime stay the same, so only the ctime shows the change.
		"file changed": func(root string) error {
			before, err := os.Stat(root + "/lib/one.py")
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(root+"/lib/one.py", []byte("1ne\n"), 0o644), os.Chtimes(root+"/lib/one.py", before.ModTime(), before.ModTime()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "owner changed" && os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			var log strings.Builder
			c := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree), Log: slog.New(slog.NewTextHandler(&log, nil))}
			first := mustInstall(t, c)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(first.Dir); err != nil {
				t.Fatal(err)
			}
			second := mustInstall(t, c)
			if got := calls(c.Bundle); got != 2 {
				t.Errorf("unpacked %d times, want twice", got)
			}
			if !strings.Contains(log.String(), "damaged") {
				t.Errorf("the log does not report the damage: %s", &log)
			}
			if text, err := os.ReadFile(second.Dir + "/lib/one.py"); err != nil || string(text) != "one\n" {
				t.Errorf("lib/one.py: %q, %v", text, err)
			}
			wantNames(t, c.Dir, fakeName, "lock")
		})
	}
}

// An Installation that is open is not removed, even if it is damaged or old.
func TestInstallLeavesWhatIsUsed(t *testing.T) {
	c := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree)}
	old := mustInstall(t, c)
	if err := os.Remove(old.Dir + "/lib/one.py"); err != nil {
		t.Fatal(err)
	}
	repaired := mustInstall(t, c)
	held, err := filepath.Glob(filepath.Join(c.Dir, ".old-*", fakeName, "root/lib/two.py"))
	if err != nil || len(held) != 1 {
		t.Errorf("the damaged installation, which is open: %v, %v", held, err)
	}
	newer := c
	newer.Bundle = fakeBundle(t, "cpython-3.14.7-20270101-1-def", fakeTree)
	mustInstall(t, newer)
	if got := names(t, c.Dir); len(got) != 4 {
		t.Errorf("with all open: %v", got)
	}
	old.Close()
	repaired.Close()
	mustInstall(t, newer)
	wantNames(t, c.Dir, "cpython-3.14.7-20270101-1-def", "lock")
}

func TestInstallRemovesLeftovers(t *testing.T) {
	c := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree)}
	outside := t.TempDir()
	write(t, outside, map[string]string{"kept": "x"})
	write(t, c.Dir, map[string]string{
		".new-1/root/bin/python3.14": "half", ".old-1/" + fakeName + "/root/x": "x", "cpython-3.13.0-1-1-a/root/x": "x", "file": "x", "link": "-> " + outside,
	})
	if err := unix.Mkfifo(filepath.Join(c.Dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, c)
	wantNames(t, c.Dir, fakeName, "lock")
	wantNames(t, outside, "kept")
}

// If a process dies while it unpacks, its bundle dies too, and no directory has a final
// name.
func TestInstallCrash(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// The bundle sends its pid when it is half done, and keeps the pipe open.
	half := fakeBundle(t, fakeName, fakeTree+"\nexec 3>"+fifo+"; echo $$ >&3; exec sleep 1000")
	crash := exec.CommandContext(t.Context(), os.Args[0])
	crash.Env = []string{"INSTALL_DIR=" + dir, "INSTALL_BUNDLE=" + half}
	if err := crash.Start(); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	lines := bufio.NewReader(pipe)
	pid, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := crash.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = crash.Wait() // the error says that it was killed
	waitUntilGone(t, strings.TrimSpace(pid))
	if got := names(t, dir); len(got) != 2 || !strings.HasPrefix(got[0], newPrefix) {
		t.Errorf("remaining after the crash: %v", got)
	}
	mustInstall(t, InstallConfig{Dir: dir, Bundle: fakeBundle(t, fakeName, fakeTree)})
	wantNames(t, dir, fakeName, "lock")
}

// mountAt makes path a mount point. Like an immutable file it can be neither removed nor
// renamed.
func mountAt(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	// Unmount by descriptor, because the directory may have been renamed.
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		f.Close()
		if err == nil {
			err = unix.Unmount(at, 0)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// An entry that cannot be removed or renamed costs a log line. The installation succeeds
// now and at the next start.
func TestInstallDespiteWhatCanNotBeRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	for what, c := range map[string]struct {
		stuck string // path in Dir
		place string
		left  int // remaining entries of Dir, including the installation and the lock
	}{
		"half unpacked":        {".new-1/root/lib", fakeName, 3},
		"replaced":             {".old-1/" + fakeName + "/root", fakeName, 3},
		"another version":      {"cpython-3.13.0-1-1-a", fakeName, 3},
		"inside of the place":  {fakeName + "/root/lib", fakeName, 3},
		"the place":            {fakeName, fakeName + ".2", 3},
		"the place's next one": {fakeName + ".2", fakeName, 3},
	} {
		t.Run(what, func(t *testing.T) {
			var log strings.Builder
			config := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree), Log: slog.New(slog.NewTextHandler(&log, nil))}
			mountAt(t, filepath.Join(config.Dir, c.stuck))
			for range 3 {
				i := mustInstall(t, config)
				if got, want := i.Dir, filepath.Join(config.Dir, c.place, "root"); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if text, err := os.ReadFile(i.Dir + "/lib/two.py"); err != nil || string(text) != "two\n" {
					t.Errorf("lib/two.py: %q, %v", text, err)
				}
				i.Close()
			}
			if got := calls(config.Bundle); got != 1 {
				t.Errorf("unpacked %d times, want once", got)
			}
			if got := names(t, config.Dir); len(got) != c.left {
				t.Errorf("remaining: %v, want %d", got, c.left)
			}
			if !strings.Contains(log.String(), "cannot remove") {
				t.Errorf("the log does not report the failure: %s", &log)
			}
		})
	}
	t.Run("all places", func(t *testing.T) {
		config := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree)}
		places := placesOf(config.Dir, fakeName)
		for _, place := range places {
			mountAt(t, place)
		}
		if _, err := Install(t.Context(), config); !errors.Is(err, unix.EBUSY) {
			t.Errorf("got %v, want EBUSY", err)
		}
		if got, want := len(names(t, config.Dir)), len(places)+1; got != want {
			t.Errorf("%d entries, want %d: the places and the lock", got, want)
		}
	})
}

// A directory into which a process still writes for a moment is removed.
func TestInstallRemovesWhatIsStillWritten(t *testing.T) {
	c := InstallConfig{Dir: t.TempDir(), Bundle: fakeBundle(t, fakeName, fakeTree)}
	busy := filepath.Join(c.Dir, ".new-1/root/lib")
	write(t, busy, map[string]string{"first": "x"})
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := range 2000 {
				if err := os.WriteFile(fmt.Sprintf("%s/%d.%d", busy, w, n), nil, 0o644); errors.Is(err, fs.ErrNotExist) {
					return // the directory has been removed
				}
			}
		})
	}
	mustInstall(t, c)
	writers.Wait()
	wantNames(t, c.Dir, fakeName, "lock")
}

// waitUntilGone waits for the end of a process that is not a child of this one.
func waitUntilGone(t *testing.T, pid string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ready, err := 0, unix.EINTR // signals of the Go runtime interrupt poll(2)
	for err == unix.EINTR {
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
	}
	if err != nil || ready != 1 {
		t.Errorf("the bundle outlived its parent: %v", err)
	}
}

func TestInstallErrors(t *testing.T) {
	for what, c := range map[string]struct{ name, unpack, want string }{
		"unpacking fails":      {fakeName, "echo 'disk full' >&2; exit 3", "disk full"},
		"name is a path":       {"cpython-3.14.6-../../x", fakeTree, "want cpython-VERSION-ID"},
		"name says nothing":    {"", fakeTree, "want cpython-VERSION-ID"},
		"name without version": {"cpython-x-1", fakeTree, "want cpython-VERSION-ID"},
		"setuid":               {fakeName, fakeTree + `; chmod 4755 "$2/bin/python3.14"`, "mode"},
		"setgid directory":     {fakeName, fakeTree + `; chmod 2755 "$2/lib"`, "mode"},
		"writable by others":   {fakeName, fakeTree + `; chmod 666 "$2/lib/one.py"`, "mode"},
		"writable by a group":  {fakeName, fakeTree + `; chmod 775 "$2/lib"`, "mode"},
		"not readable":         {fakeName, fakeTree + `; chmod 600 "$2/lib/one.py"`, "mode"},
		"not searchable":       {fakeName, fakeTree + `; chmod 744 "$2/lib"`, "mode"},
		"absolute link":        {fakeName, fakeTree + `; ln -s /etc/passwd "$2/lib/x"`, "outside of the installation"},
		"link out":             {fakeName, fakeTree + `; ln -s ../../manifest "$2/lib/x"`, "outside of the installation"},
		"a pipe":               {fakeName, fakeTree + `; mkfifo "$2/lib/x"`, "want a file"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Install(t.Context(), InstallConfig{Dir: dir, Bundle: fakeBundle(t, c.name, c.unpack)})
			if err == nil || !strings.HasPrefix(err.Error(), "embedded Python: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got := slices.DeleteFunc(names(t, dir), func(name string) bool { return name == "lock" }); len(got) > 0 {
				t.Errorf("remaining: %v", got)
			}
		})
	}
	if _, err := Install(t.Context(), InstallConfig{Dir: t.TempDir(), Bundle: "/nowhere/skillrun-python"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bundle: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": "x"})
	if _, err := Install(t.Context(), InstallConfig{Dir: file, Bundle: fakeBundle(t, fakeName, fakeTree)}); err == nil {
		t.Error("a file in place of the directory was accepted")
	}
}

// Waiting for another process to unpack can be cancelled.
func TestInstallWaitIsCancelled(t *testing.T) {
	dir := t.TempDir()
	held, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	// The bundle is asked for its name before Install waits for the lock.
	asked := filepath.Join(t.TempDir(), "asked")
	if err := unix.Mkfifo(asked, 0o600); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	write(t, filepath.Dir(bundle), map[string]string{"bundle": "#!/bin/sh\necho " + fakeName + "\necho >" + asked + "\n"})
	failed := make(chan error, 1)
	go func() {
		_, err := Install(ctx, InstallConfig{Dir: dir, Bundle: bundle})
		failed <- err
	}()
	if _, err := os.ReadFile(asked); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// embeddedConfig returns the program of make build and the directory into which the tests of all
// packages unpack it. Without them, this test binary is the program (beBundle).
func embeddedConfig(t *testing.T) InstallConfig {
	t.Helper()
	if bin, dir := os.Getenv("SKILLRUN_BIN"), os.Getenv("SKILLRUN_TEST_PYTHON"); bin != "" && dir != "" {
		return InstallConfig{Dir: dir, Bundle: filepath.Join(bin, "skillrun-python")}
	}
	bundle := filepath.Join(t.TempDir(), "skillrun-python")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, bundle)
	}
	if err != nil {
		t.Fatal(err)
	}
	return InstallConfig{Dir: t.TempDir(), Bundle: bundle}
}

// The real bundle: its Python runs by every name, from a directory that others cannot write
// to, and has the modules that scripts import.
func TestInstallEmbedded(t *testing.T) {
	i := mustInstall(t, embeddedConfig(t))
	wantNames(t, i.Dir, "bin", "lib", "pip")
	wantNames(t, i.Dir+"/bin", "python", "python3", "python"+minor(i.Version))
	for _, name := range names(t, i.Dir+"/bin") {
		got := output(t, []string{filepath.Join(i.Dir, "bin", name), "-c", "import sys, ssl, sqlite3, ctypes, zoneinfo, multiprocessing; print(sys.version.split()[0], sys.prefix)"}, nil)
		if want := i.Version + " " + i.Dir + "\n"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	// Imports use the .pyc file and never check the source (flags 1, see PEP 552).
	got := output(t, []string{i.Dir + "/bin/python3", "-c", "import json; print(open(json.__cached__, 'rb').read()[4:8])"}, nil)
	if want := "b'\\x01\\x00\\x00\\x00'\n"; got != want {
		t.Errorf("flags of a .pyc: got %q, want %q", got, want)
	}
	got = output(t, []string{i.Dir + "/bin/python3", "-m", "pip", "--version"}, []string{"PYTHONPATH=" + i.Dir + "/pip"})
	if !strings.HasPrefix(got, "pip ") {
		t.Errorf("pip: got %q", got)
	}
	if err := checkModes(i.Dir); err != nil {
		t.Error(err)
	}
}
