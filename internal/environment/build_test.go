package environment

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// Prepared packages and their dependencies can be imported, and their programs run, by the
// system's Python and by the embedded one.
func TestPreparedPackagesRun(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base, top)
	s := newStore(t, x.from)
	for _, kind := range []runtime.Python{runtime.System, runtime.Embedded} {
		t.Run(string(kind), func(t *testing.T) {
			sk := newSkill(t, "python_packages: [sk-top]\n", nil)
			inv := python(t, sk, kind)
			_, err := s.Acquire(useOf("acme", sk, inv))
			var missing *PackagesError
			if !errors.As(err, &missing) || !slices.Equal(missing.Packages, []string{"sk-top"}) || missing.Fix() != "skillrun prepare demo" {
				t.Fatalf("before: got %v, want sk-top missing", err)
			}
			env, log, err := prepare(t, s, "acme", sk, kind)
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			if want := []string{"sk-top==2.0", "skbase==1.2.0"}; !slices.Equal(env.Packages, want) || env.Reused || !strings.HasPrefix(env.Python, string(kind)+" 3.") {
				t.Errorf("got %+v, want %v", env, want)
			}
			if !strings.Contains(log, "Successfully installed") {
				t.Errorf("got log %q, want pip's", log)
			}
			again := mustPrepare(t, s, "acme", sk, kind)
			if !again.Reused || again.Digest != env.Digest {
				t.Errorf("got %+v, want the same environment again", again)
			}
			l, err := s.Acquire(useOf("acme", sk, inv))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			out, exit := run(t, sk, inv, l, "python3", "-c", "import sktop, skbase; print(skbase.__file__, skbase.__cached__); sktop.main()")
			if want := "/opt/env/lib/python3."; exit.End != sandbox.Exited || exit.Code != 0 || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "top on base\n") {
				t.Errorf("got %q, %+v", out, exit)
			}
			if out, exit := run(t, sk, inv, l, "sktop"); out != "top on base\n" || exit.Code != 0 {
				t.Errorf("program: got %q, %+v", out, exit)
			}
			if out, exit := run(t, sk, inv, l, "python3", "-c", "open('/opt/env/x', 'w')"); exit.Code == 0 || !strings.Contains(out, "Read-only file system") {
				t.Errorf("writing: got %q, %+v", out, exit)
			}
		})
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A build is in its tenant's group of sandboxes, so the tenant's bounds hold for it, too. Other tenants build on.
func TestBuildsAreInTheTenantsGroup(t *testing.T) {
	t.Parallel()
	x, h := newIndex(t, base), hosttest.Host(t)
	s := newStore(t, func(c *Config) {
		x.from(c)
		c.Group = func(tenant string) string { return "of-" + tenant }
	})
	if err := h.SetGroup("of-small", sandbox.GroupLimits{MemoryBytes: 24 << 20}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.RemoveGroup("of-small") })
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	refused := func(want string) {
		t.Helper()
		_, log, err := prepare(t, s, "small", sk, runtime.System)
		var failed *BuildError
		if !errors.As(err, &failed) || !strings.Contains(failed.Reason, want) {
			t.Errorf("got %v, want a BuildError with %q\n%s", err, want, log)
		}
	}
	refused("the tenant's memory (cgroup.memory)")
	mustPrepare(t, s, "large", sk, runtime.System)
	h.RemoveGroup("of-small")
	refused("the tenant was removed")
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A user reads what to do. Only a bound that has a key of the configuration names it.
func TestTooLargeErrorHelps(t *testing.T) {
	for what, key := range map[string]bool{"bytes": true, "files": false, "packages": false, "bytes of names of packages": false} {
		err := buildFailure(&plan{skill: "demo"}, &errOversize{what, 7})
		if got := err.Error(); !strings.Contains(got, "more than 7 "+what) || !strings.Contains(got, "declare fewer") || strings.Contains(got, "environments.bytes") != key {
			t.Errorf("%s: got %q", what, got)
		}
	}
}

// A directory that can't be removed after a failed build goes when the next build starts.
func TestNextBuildRemovesWhatIsStuck(t *testing.T) {
	t.Parallel()
	x := newIndex(t, base)
	s := newStore(t, x.from)
	stuck := ""
	x.handle = func(w http.ResponseWriter, _ *http.Request) bool {
		found, err := filepath.Glob(filepath.Join(s.config.Dir, newPrefix+"*", rootName))
		if err != nil || len(found) != 1 {
			t.Errorf("builds %v, %v; want one", found, err)
		} else if err := unix.Mount("none", found[0], "tmpfs", 0, ""); err != nil { // a mount point can't be removed: EBUSY, rmdir(2)
			t.Error(err)
		} else {
			stuck = found[0]
			t.Cleanup(func() { _ = unix.Unmount(stuck, unix.MNT_DETACH) }) // EINVAL: the test has unmounted it
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	sk := newSkill(t, "python_packages: [skbase]\n", nil)
	var failed *IndexError
	if _, log, err := prepare(t, s, "acme", sk, runtime.System); !errors.As(err, &failed) {
		t.Fatalf("got %v, want an IndexError\n%s", err, log)
	}
	if got := leftIn(t, s); len(got) != 1 {
		t.Errorf("left behind: %v; want what could not be removed, or this test shows nothing", got)
	}
	if err := unix.Unmount(stuck, 0); err != nil {
		t.Fatal(err)
	}
	x.handle = nil
	mustPrepare(t, s, "acme", sk, runtime.System)
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A removal that fails leaves no empty directory.
func TestFailedRemovalLeavesNothing(t *testing.T) {
	s := newStore(t, nil)
	dir := filepath.Join(s.config.Dir, "environment")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil { // a mount point can't be renamed: EBUSY, rename(2)
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	k := &kept{dir: dir, environment: Environment{Digest: "d"}}
	s.mu.Lock()
	err := s.drop(&tenant{kept: map[string]*kept{"d": k}}, k)
	s.unlock()
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want EBUSY", err)
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// The path of the store may have characters of a pattern.
func TestStoreInADirectoryWithBrackets(t *testing.T) {
	t.Parallel()
	x := newIndex(t, pkg{name: "skbase", version: "1.0", files: map[string]string{"skbase.py": "x=1\n"}})
	s := newStore(t, func(c *Config) { x.from(c); c.Dir += "[1]" })
	env, log, err := prepare(t, s, "acme", newSkill(t, "python_packages: [skbase]\n", nil), runtime.System)
	if err != nil || !slices.Equal(env.Packages, []string{"skbase==1.0"}) {
		t.Errorf("got %+v, %v\n%s", env, err, log)
	}
}
