package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// TestStepsNameTheirObject makes single steps fail, as on a damaged or full machine. Each
// error names its object.
func TestStepsNameTheirObject(t *testing.T) {
	needsRoot(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	beneath := file + "/x" // can't be made
	none := filepath.Join(t.TempDir(), "none")
	dir := t.TempDir()
	c := Config{StateDir: dir, RunDir: dir, FirstID: 1 << 30, IDs: 2}.withDefaults()
	h := &cgroup.Hierarchy{Base: map[string]string{}}
	for _, tt := range []struct {
		name string
		try  func() error
		want string
	}{
		{"lock nowhere", func() error { _, err := filelock.Open(none+"/lock", filelock.Exclusive); return err }, none},
		{"sweep of nothing", func() error { return sweep(Config{StateDir: none}, h) }, none},
		{"instance without a state directory", func() error {
			_, err := newInstance(Config{StateDir: none, RunDir: dir, FirstID: c.FirstID, IDs: 2}, h)
			return err
		}, none},
		{"directories beneath a file", func() error { _, err := makeDirs(Config{StateDir: beneath}); return err }, file},
		{"run directory beneath a file", func() error { return CheckRunDir(beneath + "/run") }, "not a directory"},

		{"open without a state directory", func() error { _, err := Open(t.Context(), Config{}); return err }, `state directory "": not absolute`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.try(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	if points, err := mount.Points(dir); err != nil || len(points) > 0 {
		t.Errorf("mounts are left: %v, %v", points, err)
	}
}

// A policy that can't be compiled is an error at Open, not a weaker filter.
func TestOddPolicy(t *testing.T) {
	was := compileFilters
	defer func() { compileFilters = was }()
	compileFilters = func() (seccomp.Filters, error) { return seccomp.Filters{}, errors.New("odd") }
	h, err := Open(context.Background(), testConfig(t))
	if err == nil {
		h.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "seccomp is missing") {
		t.Errorf("Open: got %v", err)
	}
}

// Sandboxes start from a copy of the binary. The copy equals the binary and can't be
// changed.
func TestSealedSelf(t *testing.T) {
	f, err := sealedSelf()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err1 := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	want, err2 := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes, the binary %d (%v)", len(got), len(want), err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: got %v, want EPERM", err)
	}
	for _, size := range []int64{0, int64(len(want)) + 1} {
		if err := f.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: got %v, want EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("add seals: got %v, want EPERM", err)
	}
}

// A short-lived writable mapping delays the seal; one that stays is an error.
func TestSealWaits(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	defer f.Close()
	if err := f.Truncate(1); err != nil {
		t.Fatal(err)
	}
	held, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal(f); !errors.Is(err, unix.EBUSY) {
		t.Errorf("held: got %v, want EBUSY", err)
	}
	sealed := make(chan error)
	go func() { sealed <- seal(f) }()
	if err := unix.Munmap(held); err != nil {
		t.Fatal(err)
	}
	if err := <-sealed; err != nil {
		t.Errorf("let go: got %v", err)
	}
}

// Open names the obstacle and releases everything that it took: once the obstacle is gone,
// Open succeeds.
func TestOpenIsHindered(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name   string
		hinder func(t *testing.T, c *Config) (undo func())
		want   string
	}{
		{"another daemon sweeps", func(t *testing.T, c *Config) func() {
			lock, err := filelock.Open(filepath.Join(c.StateDir, "lock"), filelock.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			return func() { lock.Close() }
		}, "another process holds the lock: context canceled"},
		{"all ids are taken", func(t *testing.T, c *Config) func() {
			c.FirstID, c.IDs = 1<<30+8, 2
			ids, err := claimBlock(*c)
			if err != nil {
				t.Fatal(err)
			}
			return ids.close
		}, "all blocks of 2 are in use"},
		{"a process has the ids", func(t *testing.T, c *Config) func() {
			c.FirstID, c.IDs = 1<<30+16, 2
			cmd := exec.Command("/usr/bin/cat")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1<<30 + 17, Gid: 1<<30 + 17}}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { in.Close(); cmd.Wait() }
		}, "all blocks of 2 are in use"},
		{"a dead instance without a readable lock", func(t *testing.T, c *Config) func() {
			dir := filepath.Join(c.StateDir, "instances", "x")
			if err := os.MkdirAll(filepath.Join(dir, "lock"), 0o700); err != nil {
				t.Fatal(err)
			}
			return func() { os.RemoveAll(dir) }
		}, "is a directory"},
		{"a dead instance that can't be removed", func(t *testing.T, c *Config) func() {
			dir := filepath.Join(c.StateDir, "instances", "x")
			busy := filepath.Join(dir, "busy")
			if err := errors.Join(os.MkdirAll(busy, 0o700), os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), mount.Tmpfs(busy, "size=4k")); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := errors.Join(mount.Detach(busy), os.RemoveAll(dir)); err != nil {
					t.Error(err)
				}
			}
		}, "sweep of instance x"},
		{"links that can't be made", func(t *testing.T, c *Config) func() {
			c.Links = map[string]string{"/usr": "x"}
			return func() { c.Links = nil }
		}, "file exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t)
			undo := tt.hinder(t, &c)
			h, err := Open(canceled, c)
			if err == nil {
				h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
			undo()
			if h, err = Open(context.Background(), c); err != nil {
				t.Fatalf("without the hindrance: %v", err)
			}
			if left, _ := os.ReadDir(filepath.Join(c.StateDir, "instances")); len(left) != 1 {
				t.Errorf("instances: got %v, want one", left)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A closed Host starts no program, and may be closed again.
func TestClosedHost(t *testing.T) {
	h := openHost(t)
	for _, b := range h.Boundaries() {
		if !b.Found {
			t.Errorf("got %+v", b)
		}
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := h.Start(context.Background(), Spec{ID: "x", Program: command("/usr/bin/true")}, IO{})
	if !errors.Is(err, errClosed) {
		t.Errorf("got %v, want %v", err, errClosed)
	}
	if err := h.admit("x", nil); !errors.Is(err, errClosed) {
		t.Errorf("admit: got %v, want %v", err, errClosed)
	}
}

// TestPostureOfNobody checks the posture of a process that has ended.
func TestPostureOfNobody(t *testing.T) {
	cmd := exec.Command("/usr/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	gone := cmd.Process.Pid
	p := posture{initPid: os.Getpid(), rlimits: map[int]uint64{unix.RLIMIT_CORE: 0}}
	for name, check := range map[string]func(int) error{
		"status": func(pid int) error { _, err := pseudofs.ReadStatus(strconv.Itoa(pid)); return err }, "oom score": p.checkOOMScore, "namespaces": p.checkNamespaces,
		"groups": p.checkGroups, "rlimits": p.checkRlimits, "descriptors": p.checkDescriptors,
		"flags": func(pid int) error { _, err := closesOnExec(pid, 0); return err },
	} {
		if err := check(gone); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: got %v, want that there is no process %d", name, err, gone)
		}
	}
	for procs, want := range map[string]string{"x": "invalid syntax", fmt.Sprint(gone): "no such file", fmt.Sprint(os.Getpid(), "\n", gone, "\n1"): "got 2, want 1"} {
		dir := t.TempDir()
		fill(t, dir, map[string]string{"cgroup.procs": procs})
		p.group = cgroup.Group{Unified: true, Dirs: map[string]string{"": dir}}
		if _, err := p.check(2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("processes %q: got %v, want it to say %q", procs, err, want)
		}
	}
	p.group = cgroup.Group{Unified: true, Path: "/a/b"}
	if err := p.checkGroups(os.Getpid()); err == nil || !strings.Contains(err.Error(), `want .../a/b`) {
		t.Errorf("cgroup v2: got %v", err)
	}
}

// A descriptor that a program would keep over its exec is refused.
func TestPostureOfAnOpenDescriptor(t *testing.T) {
	needsRoot(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/usr/bin/cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Pipes, because the check would first refuse the null device.
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = w, w, []*os.File{w}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer func() { in.Close(); cmd.Wait() }()
	// A start returns when the exec has succeeded: these are cat's descriptors.
	if err := (posture{}).checkDescriptors(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "descriptor 3: stays open over exec") {
		t.Errorf("got %v", err)
	}
}

// Pipes that are closed are an error, not a panic.
func TestClosedPipes(t *testing.T) {
	p, err := newPipes()
	if err != nil {
		t.Fatal(err)
	}
	p.close()
	if err := p.giveTo(1 << 30); !errors.Is(err, os.ErrClosed) {
		t.Errorf("give: got %v, want %v", err, os.ErrClosed)
	}
	if n := readNow(p.stdout, make([]byte, 1)); n != 0 {
		t.Errorf("read: got %d", n)
	}
}

// A sweep removes the dead instances that it can, and names the others.
func TestSweepGoesOn(t *testing.T) {
	c := Config{StateDir: t.TempDir(), RunDir: t.TempDir()}
	instances := filepath.Join(c.StateDir, "instances")
	for _, dir := range []string{"a/lock", "b"} { // no one can lock a directory for writing
		if err := os.MkdirAll(filepath.Join(instances, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(instances, "b", "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := sweep(c, &cgroup.Hierarchy{Base: map[string]string{}})
	if err == nil || !strings.Contains(err.Error(), "sweep of instance a: ") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(instances, "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other instance: %v", err)
	}
}
