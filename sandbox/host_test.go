package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func machine(t *testing.T) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Machine[:])
}

func TestBoundariesAreFound(t *testing.T) {
	for _, b := range Boundaries(testConfig(t)) {
		if !b.Found || b.Name == "" || b.Why == "" || b.Detail == "" {
			t.Errorf("got %+v", b)
		}
	}
}

// Neither directory need exist. Both may have the same existing parent. Then the probe of
// one must not hide the other: before Linux 6.3 a tmpfs can't be id-mapped.
func TestBoundariesBeforeTheFirstStart(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	c := Config{StateDir: filepath.Join(dir, "state/sandbox"), RunDir: filepath.Join(dir, "run")}
	for _, b := range Boundaries(c) {
		if !b.Found {
			t.Errorf("%s: %s", b.Name, b.Detail)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestOpenNamesEverythingMissing(t *testing.T) {
	c := testConfig(t)
	c.CgroupParent = "/nonesuch/parent"
	// procfs can't be id-mapped. A state directory there is as useless as one on
	// overlayfs.
	c.StateDir = "/proc/sys/skillrun"
	h, err := Open(context.Background(), c)
	if err == nil {
		h.Close()
		t.Fatal("opened")
	}
	for _, want := range []string{"cgroups is missing", "Delegate=yes", "id-mapped mounts is missing", "not on overlayfs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func TestProbesLeaveNothing(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	Boundaries(testConfig(t))
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("mounts were %s, are %s", before, after)
	}
}

func TestConfigCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
	}{
		{"no state directory", func(c *Config) { c.StateDir = "" }},
		{"relative run directory", func(c *Config) { c.RunDir = "run" }},
		{"relative cgroup", func(c *Config) { c.CgroupParent = "x" }},
		{"ids of accounts", func(c *Config) { c.FirstID = 1000 }},
		{"one id", func(c *Config) { c.IDs = 1 }},
		{"ids past the end", func(c *Config) { c.FirstID = 1<<32 - 10 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{StateDir: "/x"}
			tt.change(&c)
			if err := c.withDefaults().check(); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestIDBlocks(t *testing.T) {
	needsRoot(t)
	c := Config{RunDir: t.TempDir(), FirstID: 1 << 30, IDs: 4}.withDefaults()
	a, err := claimBlock(c)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := claimBlock(c); err == nil {
		b.close()
		t.Error("a block was claimed twice")
	}
	// A daemon with other ids, as after a change of its configuration, gets none of the block's.
	for _, other := range []Config{{FirstID: 1<<30 - 2, IDs: 4}, {FirstID: 1<<30 + 2, IDs: 2}, {FirstID: 1<<30 - 8, IDs: 16}} {
		if b, err := claimBlock(other); err == nil {
			b.close()
			t.Errorf("ids %d to %d were claimed although another daemon has some of them", b.first, b.first+uint32(2*len(b.used))-1)
		}
	}
	if id, lock, err := claimHelperID(1<<30+3, 0); err != nil || id != 1<<30+4 {
		t.Errorf("a helper got the id %d, %v, want the first one after the block", id, err)
	} else {
		lock.Close()
	}
	first, err1 := a.take()
	second, err2 := a.take()
	if err := errors.Join(err1, err2); err != nil || first.root != 1<<30 || second.root != 1<<30+2 || first.script() != 1<<30+1 {
		t.Errorf("got %v, %v, %v", first, second, err)
	}
	if _, err := a.take(); err == nil {
		t.Error("three pairs out of four ids")
	}
	a.release(first)
	if again, err := a.take(); err != nil || again != first {
		t.Errorf("got %v, %v, want %v", again, err, first)
	}
	a.close()
	b, err := claimBlock(c)
	if err != nil {
		t.Fatal(err)
	}
	b.close()
}

// Any user may make directories in /run/lock. Locks in a directory of another user would exclude no one, or would be
// files elsewhere.
func TestIDLocksOfAnotherUser(t *testing.T) {
	needsRoot(t)
	for name, prepare := range map[string]func(dir string) error{
		"owner": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 1000, 1000)) },
		"mode":  func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"link":  func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		dir := filepath.Join(t.TempDir(), "locks")
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		if f, err := openIDLocks(dir); err == nil {
			f.Close()
			t.Errorf("%s: it was used", name)
		} else if !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// If no sandbox could reach the run directory, the error says so.
func TestRunDirMustBeReachable(t *testing.T) {
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	c := testConfig(t)
	c.RunDir = filepath.Join(private, "run")
	h, err := Open(t.Context(), c)
	if err == nil {
		h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), private+" has mode 0700") {
		t.Errorf("got %v, want an error that names %s", err, private)
	}
}
