package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

const isolated = "MOUNT_TEST_ISOLATED"

// TestMain runs the tests of root in a new mount namespace, so that a killed test leaves no
// mount on the machine.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(isolated) != "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // this thread alone survives the exec (execve(2))
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), isolated+"=1"))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount and to change owners")
	}
}

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
	gone := &Staging{dir: none}
	for _, tt := range []struct {
		name string
		try  func() error
		want string
	}{
		{"bind what is not there", func() error { return BindReadOnly(none, dir) }, "clone mount " + none},
		{"bind to nowhere", func() error { return BindReadOnly("/usr", none) }, "mount at " + none},
		{"map what is not there", func() error { return BindMapped(none, dir, nil) }, "open " + none},
		{"map a file", func() error { return BindMapped(file, dir, nil) }, "open " + file},
		{"map to nowhere", func() error { return BindMapped("/usr", none, nil) }, "mount at " + none},
		{"clone what is not there", func() error { _, err := CloneReadOnly(none, 0); return err }, "clone mount " + none},
		{"clone with an odd attribute", func() error { _, err := CloneReadOnly("/usr", 1<<40); return err }, "make mount of /usr read-only"},
		{"tmpfs nowhere", func() error { return Tmpfs(none, "") }, "tmpfs at " + none},
		{"tmpfs with an odd option", func() error { return Tmpfs(dir, "size=x") }, "tmpfs at " + dir},
		{"read-only nowhere", func() error { return ReadOnly(none) }, "make " + none + " read-only"},
		{"unmount beneath a file", func() error { return Detach(beneath) }, "unmount " + beneath},
		{"private mount nowhere", func() error { _, err := Private(none); return err }, "bind " + none},

		{"root nowhere", func() error { _, err := NewHostRoot(none, nil, nil); return err }, "tmpfs at " + none},
		{"link beneath a file", func() error { return placeLinks(file, rootLinks(nil)...) }, file},
		{"link that is there", func() error { return placeLinks(dir, map[string]string{"/": "x"}) }, "file exists"},
		{"odd pattern", func() error { return showHostFiles(dir, "[") }, "syntax error in pattern"},
		{"shown beneath a file", func() error { return showHostFiles(file, "/etc/passwd") }, file},
		{"text beneath a file", func() error { return writeFile(beneath, "") }, file},
		{"text over a file", func() error { return writeFile(file, "") }, "file exists"},
		{"image nowhere", func() error { _, err := NewImageRoot(dir+"/x", none, nil); return err }, none},
		{"image at a file", func() error { _, err := NewImageRoot(file, t.TempDir(), nil); return err }, "file exists"},
		{"generated layer nowhere", func() error { return makeOver(none, none, nil) }, none},
		{"name servers nowhere", func() error { return NewNameServers(none+"/x", "") }, none},
		{"name servers where a directory is", func() error { return NewNameServers(dir, "") }, "file exists"},

		{"workspace nowhere", func() error { _, err := NewStaging(none, Size{}, 1<<30); return err }, "tmpfs at " + none},
		{"directory that is there", func() error { _, err := makeDir(filepath.Dir(dir), filepath.Base(dir)); return err }, "file exists"},
		{"more mount points nowhere", func() error { return gone.makeRoom(1) }, "resize tmpfs at " + none},
		{"lower layers nowhere", func() error { return gone.overlay([]string{dir}, nil) }, none},
		{"workspace over nothing", func() error { return gone.overlay(nil, nil) }, "overlay workspace"},
		{"layer that is not there", func() error { _, err := gone.layTree(none + "/x"); return err }, "open " + none},
		{"root of nothing", func() error { _, err := gone.RootTrees(&Root{Layers: []Layer{{"/", []string{none}}}}); return err }, "open " + none},
		{"devices nowhere", func() error { _, err := gone.deviceTree(); return err }, none},
		{"shown root nowhere", func() error { return gone.ShowRoot(&List{}) }, none},

		{"a step on a thread of its own", func() error { return OnThrowawayThread(func() error { return errors.New("x") }) }, "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.try(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	if points, err := Points(dir); err != nil || len(points) > 0 {
		t.Errorf("mounts are left: %v, %v", points, err)
	}
}

// If one mount of an execution can't be made, the execution gets no mounts, and no mount
// remains.
func TestMountsLeaveNothing(t *testing.T) {
	needsRoot(t)
	lower := filepath.Join(t.TempDir(), "lower")
	if err := errors.Join(os.Mkdir(lower, 0o755), os.Lchown(lower, pid1.ScriptID, pid1.ScriptID)); err != nil {
		t.Fatal(err)
	}
	userns, err := pid1.OpenUserNamespace(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	defer userns.Close()
	root := &Root{links: map[string]string{LinksDir + "/x": "/usr/bin/env"}}
	for name, tt := range map[string]struct {
		size Size
		Execution
	}{
		"lower that is not there":        {Size{1 << 20, 64}, Execution{Lower: []string{lower, lower + "/none"}}},
		"mount that is not there":        {Size{1 << 20, 64}, Execution{Binds: []Bind{{Source: lower + "/none", Target: "/skills/x"}}}},
		"second mount that is not there": {Size{1 << 20, 64}, Execution{Binds: []Bind{{Source: lower, Target: "/opt/x"}, {Source: lower + "/none", Target: "/opt/y"}}}},
		"no room":                        {Size{1 << 20, -1000}, Execution{}},
	} {
		t.Run(name, func(t *testing.T) {
			before, dir := openFiles(t), t.TempDir()
			st, err := NewStaging(dir, tt.size, 1<<30)
			if err == nil {
				var made *List
				made, err = st.Mounts(root, tt.Execution, userns)
				made.Release()
				if cerr := st.Close(); cerr != nil {
					t.Error(cerr)
				}
			}
			if err == nil {
				t.Error("it has all its mounts")
			}
			if points, err := Points(dir); err != nil || len(points) > 0 {
				t.Errorf("mounts are left: %v, %v", points, err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, %d were before", after, before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// The directories beneath /skills and /opt that a sandbox needs, parents first.
func TestPointsUnder(t *testing.T) {
	e := Execution{Binds: []Bind{{Target: "/skills/a"}, {Target: "/opt/x/y"}, {Target: "/skills/b"}}}
	for top, want := range map[string]string{
		"/skills": "[/skills /skills/a /skills/b]",
		"/opt":    "[/opt /opt/x /opt/x/y /opt/skillrun]",
		"/none":   "[]",
	} {
		if got := fmt.Sprint(e.pointsUnder(top)); got != want {
			t.Errorf("%s: got %s, want %s", top, got, want)
		}
	}
}

// A host with more mounts beneath /usr than a root can have is refused.
func TestTooManyMountsBeneathUsr(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	t.Cleanup(func() {
		points, err := Points(dir)
		for _, p := range points {
			err = errors.Join(err, Detach(p))
		}
		if err != nil {
			t.Error(err)
		}
	})
	for i := range maxPlaces {
		places, err := directoriesMounted(dir)
		if err != nil || len(places) != i {
			t.Fatalf("with %d: got %v, %v", i, places, err)
		}
		target := filepath.Join(dir, fmt.Sprint(i))
		if err := errors.Join(os.Mkdir(target, 0o755), Tmpfs(target, "size=4k")); err != nil {
			t.Fatal(err)
		}
	}
	if places, err := directoriesMounted(dir); err == nil || !strings.Contains(err.Error(), "are mounted in /usr") {
		t.Errorf("got %v, %v", places, err)
	}
}
