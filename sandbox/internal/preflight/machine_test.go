package preflight

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make namespaces and mounts")
	}
}

// TestStepsNameTheirObject makes single steps fail, as on a machine without a feature. Each error
// names its object.
func TestStepsNameTheirObject(t *testing.T) {
	needsRoot(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	odd := errors.New("odd")
	for _, tt := range []struct {
		name string
		try  func() error
		want string
	}{
		{"owners for no id", func() error { _, err := pid1.OpenUserNamespace(1<<32 - 1); return err }, "user namespace"},
		{"unknown namespace", func() error { _, err := tryNamespace(1)(Config{}); return err }, "unshare: invalid argument"},
		{"proc on a file", func() error { return pid1.TryMountProc(file) }, "not a directory"},
		{"proc on no path", func() error { return pid1.TryMountProc("a\x00b") }, "invalid argument"},
		{"unknown action", func() error { action := uint32(1); return seccompActionAvailable(&action) }, "operation not supported"},
		{"ids that no namespace maps", func() error { _, err := tryIDs(Config{FirstID: 1<<32 - 2, IDs: 1 << 20}); return err }, "are not in /proc/self/uid_map"},
		{"owners mapped on proc", func() error {
			_, err := tryMapped(Config{StateDir: "/proc", RunDir: dir, FirstID: 1 << 30})
			return err
		}, "map owners of mount /proc"},
		{"owners mapped to no id", func() error { _, err := tryMapped(Config{StateDir: dir, RunDir: dir, FirstID: 1<<32 - 1}); return err }, "user namespace"},
		{"workspace over proc", func() error {
			_, err := tryOverlay(Config{StateDir: "/proc", RunDir: dir, FirstID: 1 << 30})
			return err
		}, "over /proc: "},
		{"workspace for no id", func() error { _, err := tryOverlay(Config{StateDir: dir, RunDir: dir, FirstID: 1<<32 - 1}); return err }, "user namespace"},
		{"cgroups of no parent", func() error { _, err := tryCgroups(Config{CgroupParent: "/nonesuch/parent"}); return err }, "nonesuch"},
		{"filters that can't be compiled", func() error {
			_, err := trySeccomp(Config{Filters: func() (seccomp.Filters, error) { return seccomp.Filters{}, odd }})
			return err
		}, "odd"},
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

func TestMissing(t *testing.T) {
	all := []Boundary{{Name: "a", Found: true}, {Name: "b", Why: "w", Detail: "d"}, {Name: "swap"}}
	errs := Missing(all, nil)
	if len(errs) != 2 || errs[0].Error() != "b is missing (w): d" {
		t.Errorf("got %v", errs)
	}
	// A boundary that every sandbox needs stays an error, even if it is tolerated.
	if errs := Missing(all, []string{"b", "swap"}); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "b is missing") {
		t.Errorf("tolerating: got %v", errs)
	}
}

// If the kernel refuses permission, the remedy first names the permission that the process
// lacks.
func TestRemedy(t *testing.T) {
	needsRoot(t)
	f := feature{how: "a kernel with that"}
	if got := f.remedy(errors.New("other")); got != f.how {
		t.Errorf("got %q", got)
	}
	if got := f.remedy(unix.EPERM); got != f.how {
		t.Errorf("as root of the machine: got %q", got)
	}
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                                   true,
		"         0       1000          1\n":                                   false,
		"         0     100000      65536\n":                                   false,
		"         0          0          1\n         1     100000      65536\n": false,
		"": false,
	} {
		if got := allIDs(text); got != want {
			t.Errorf("uid_map %q: got %v, want %v", text, got, want)
		}
	}
}

func TestDumpsGoNowhere(t *testing.T) {
	ends := func() (bool, error) { return false, nil }
	dumps := func() (bool, error) { return true, nil }
	fails := func() (bool, error) { return false, errors.New("no fork") }
	for _, tt := range []struct {
		pattern string
		crash   func() (bool, error)
		want    string // part of the message
		found   bool
	}{
		{"core\n", dumps, "limit is too small", true},
		{"/var/crash/core.%p\n", dumps, "limit is too small", true},
		{"", dumps, "limit is too small", true},
		{"|/bin/false\n", dumps, "which discards dumps", true},
		{"|/usr/bin/false %p\n", dumps, "which discards dumps", true},
		{"|/usr/lib/systemd/systemd-coredump %P %u\n", ends, "doesn't start /usr/lib/systemd/systemd-coredump", true},
		{"|/usr/share/apport/apport -p%p\n", dumps, "a program, /usr/share/apport/apport, and this kernel starts it even with a limit of 1 byte", false},
		{"|/usr/share/apport/apport -p%p\n", fails, "a program, /usr/share/apport/apport, and the daemon can't test whether a limit of 1 byte prevents its start: no fork", false},
		{"| /bin/falsehood\n", dumps, "a program, /bin/falsehood", false},
		{"|\n", dumps, "a program", false},
		{"@/run/dumps\n", ends, "a socket, /run/dumps", false},
		{"@@/bin/false\n", ends, "a socket, /bin/false", false},
	} {
		said, err := dumpsGoNowhere(tt.pattern, tt.crash)
		if err != nil {
			said = err.Error()
		}
		if (err == nil) != tt.found || !strings.Contains(said, tt.want) {
			t.Errorf("%q: got found %v, %q, want %v, %q", tt.pattern, err == nil, said, tt.found, tt.want)
		}
	}
}

// TestCrash: a program with this limit leaves no core dump, whatever core_pattern is. If
// processes can't have the limit, the error says so.
func TestCrash(t *testing.T) {
	dumped, err := crash()
	if dumped || (err == nil) != (DumpLimit() == NoDump) {
		t.Errorf("got %v, %v", dumped, err)
	}
}

// TestCrashUnderZero runs TestCrash in a process with a hard limit of 0. With CAP_SYS_RESOURCE
// nothing changes. Without it the boundary is missing, and says so.
func TestCrashUnderZero(t *testing.T) {
	self := fmt.Sprintf("/proc/%d/exe", os.Getpid()) // which may have no other name
	out, err := exec.Command("bash", "-c", `ulimit -c 0 && exec "$0" "$@"`, self, "-test.v", "-test.run=^TestCrash$").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS: ") != 1 {
		t.Errorf("got %v\n%s", err, out)
	}
}

// A machine on which no interface can be made lacks a boundary, which cannot be skipped.
func TestNetworkDevice(t *testing.T) {
	needsRoot(t)
	c := Config{
		StateDir: t.TempDir(), RunDir: t.TempDir(), FirstID: 1 << 28, IDs: 2, Filters: seccomp.Compile,
		Sockets: func() (string, error) { return "", nil },
		Network: func() error { return errors.New("open /dev/net/tun: no such file or directory") },
	}
	at := slices.IndexFunc(Machine(c), func(b Boundary) bool {
		return b.Name == networkDevice && !b.Found && strings.HasPrefix(b.Detail, "open /dev/net/tun: no such file or directory; needs a kernel with CONFIG_TUN, CONFIG_INET_DIAG_DESTROY and /dev/net/tun")
	})
	if at < 0 || slices.Contains(Lowerable(), networkDevice) {
		t.Errorf("got %+v", Machine(c))
	}
}
