package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

var loaded = regexp.MustCompile(`(?m)(?:=> )?(/\S+) \(0x`)

// newTree makes a small root file system: bash and a few programs of this machine with
// their libraries. It also has the libraries of the test binary, which is init in the
// sandboxes. A daemon's binary is static.
func newTree(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	programs := []string{"bash", "cat", "id", "ls", "readlink", "stat"}
	for i, name := range programs {
		programs[i] = "/usr/bin/" + name
		put(t, dir, programs[i], programs[i], 0o755)
	}
	for _, program := range append(programs, fmt.Sprintf("/proc/%d/exe", os.Getpid())) {
		libraries, err := exec.Command("ldd", program).CombinedOutput()
		if err != nil && !strings.Contains(string(libraries), "not a dynamic executable") {
			t.Fatalf("ldd %s: %v: %s", program, err, libraries)
		}
		for _, m := range loaded.FindAllStringSubmatch(string(libraries), -1) {
			put(t, dir, m[1], m[1], 0o755)
		}
	}
	return dir
}

// put copies a file of the machine to a place in a tree, once.
func put(t testing.TB, dir, name, from string, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return
	}
	b, err := os.ReadFile(from)
	err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, mode), os.Chmod(path, mode))
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes files into a tree: "-> target" is a link, a name that ends in / a
// directory.
func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(path, 0o755))
		case link:
			err = errors.Join(err, os.Symlink(target, path))
		default:
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// eachMakerWithRoots runs a test on a Host without a zygote and on one with a zygote.
func eachMakerWithRoots(t *testing.T, test func(*testing.T, *Host), roots ...Root) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { test(t, openWithRoots(t, 0, roots...)) })
	t.Run("zygote", func(t *testing.T) {
		h := openWithRoots(t, 2*len(roots)+2, roots...) // two for each root, and two for the host's
		test(t, h)
		for _, r := range roots {
			for _, c := range waitForBucket(t, h, Spec{Root: r.Name}, 1) {
				if !byZygote(c) {
					t.Errorf("root %s: the zygote made no sandbox", r.Name)
				}
			}
		}
	})
}

func openWithRoots(t *testing.T, prewarmed int, roots ...Root) *Host {
	t.Helper()
	c := testConfig(t)
	c.Roots = roots
	c.Prewarmed = prewarmed
	return openWith(t, c)
}

// TestRootOfItsOwn makes a root with misleading files, and compares the files that a program
// sees with a list.
func TestRootOfItsOwn(t *testing.T) {
	needsRoot(t)
	tree := newTree(t)
	fill(t, tree, map[string]string{
		"usr/share/mark": "ours", "app/data": "data", "var/lib/x": "var", "etc/app.conf": "conf",
		"etc/passwd": "evil:x:1000:1000::/:/bin/sh\n", "etc/hosts": "10.0.0.1 localhost\n", "etc/nsswitch.conf": "hosts: evil\n",
		"etc/resolv.conf": "-> /app/data", "etc/group/x": "a directory", "etc/mtab": "mtab",
		"opt/secret": "", "opt/skillrun/bin/python": "evil", "home/skill/.bashrc": "", "home/other/x": "", "tmp/x": "", "run/x": "", "sys/x": "",
		"proc/x": "", "dev/x": "", "workspace/x": "", "skills/x": "", "var/tmp/x": "", "private": "secret",
	})
	for _, name := range []string{"private", "usr/bin/suid"} {
		put(t, tree, name, "/usr/bin/id", 0o755)
	}
	err := errors.Join(os.Chmod(filepath.Join(tree, "private"), 0o600), os.Chmod(filepath.Join(tree, "usr/bin/suid"), 0o755|fs.ModeSetuid|fs.ModeSetgid),
		unix.Mknod(filepath.Join(tree, "usr/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chmod(filepath.Join(tree, "usr/null"), 0o666))
	if err != nil {
		t.Fatal(err)
	}
	root := Root{Name: "tree", Dir: tree, Links: map[string]string{"/opt/skillrun/bin/python": "/usr/bin/id"}}
	eachMakerWithRoots(t, testRootOfItsOwn, root)
}

// generated returns the texts of generated files, one after the other. The host's root has the
// same ones.
func generated(t *testing.T, h *Host, paths ...string) (texts string) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(h.rootfs() + path)
		if err != nil || len(text) == 0 {
			t.Fatalf("%s has %d bytes: %v", path, len(text), err)
		}
		texts += string(text)
	}
	return texts
}

func testRootOfItsOwn(t *testing.T, h *Host) {
	skill := newSnapshot(t, nil)
	for _, tt := range []struct{ name, script, want string }{
		{"its own files", "cat /usr/share/mark /app/data /var/lib/x /etc/app.conf", "oursdatavarconf"},
		{"nothing of the machine's", "ls /usr/bin | grep -c python; type python3; ls /etc/alternatives", ""},
		{"accounts", "cat /etc/passwd /etc/group", generated(t, h, "/etc/passwd", "/etc/group")},
		{"names", "cat /etc/hosts /etc/nsswitch.conf /etc/resolv.conf", generated(t, h, "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")},
		{"hidden", "ls -A /opt /opt/skillrun /opt/skillrun/bin /home /home/skill /run /skills /workspace /tmp /var/tmp", "/home:\nskill\n\n/home/skill:\n\n/opt:\nskillrun\n\n/opt/skillrun:\nbin\n\n/opt/skillrun/bin:\npython\n\n/run:\n\n/skills:\n\n/tmp:\n\n/var/tmp:\n\n/workspace:\n"},
		{"no sys", "ls /sys", ""},
		{"dev is the sandbox's", "ls /dev/x; stat -c %F /dev/null; cat /dev/null && echo works", "character special file\nworks\n"},
		{"proc is the sandbox's", "ls /proc/x; cat /proc/self/comm", "cat\n"},
		{"links", "python -u; stat -c %N /opt/skillrun/bin/python /etc/mtab", "1000\n'/opt/skillrun/bin/python' -> '/usr/bin/id'\n'/etc/mtab' -> '../proc/self/mounts'\n"},
		{"setuid", "/usr/bin/suid -u; /usr/bin/suid -ru", "1000\n1000\n"},
		{"devices", "stat -c %F /usr/null; (: < /usr/null) 2>/dev/null || echo refused", "character special file\nrefused\n"},
		{"what others can't read", "cat /private 2>/dev/null || echo refused", "refused\n"},
		{"nothing can be written", "for f in /usr/x /etc/x /x /var/x /app/data /opt/x /etc/passwd; do (: >> $f) 2>/dev/null && echo $f; done; echo done", "done\n"},
		{"the workspace can", "echo a > /workspace/a && cat /workspace/a", "a\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: bash(tt.script), Env: testEnv, Root: "tree"}, "")
			if got.stdout != tt.want {
				t.Errorf("got %q (stderr %q), want %q", got.stdout, got.stderr, tt.want)
			}
		})
	}
	t.Run("mounts beneath /opt", func(t *testing.T) {
		got := run(t, h, Spec{Program: bash("python -u; ls /opt"), Env: testEnv, Root: "tree", Mounts: []Mount{{Source: skill, Target: "/opt/x"}}}, "")
		if want := "1000\nskillrun\nx\n"; got.stdout != want {
			t.Errorf("got %q, %q, want %q", got.stdout, got.stderr, want)
		}
	})
	t.Run("mount table", func(t *testing.T) {
		got := run(t, h, Spec{Program: command("cat", "/proc/self/mountinfo"), Env: testEnv, Root: "tree"}, "")
		for line := range strings.Lines(got.stdout) {
			fields := strings.Fields(line)
			if point := fields[4]; point == "/" {
				for _, flag := range []string{"ro", "nosuid", "nodev"} {
					if !slices.Contains(strings.Split(fields[5], ","), flag) {
						t.Errorf("the root has %s, want %s", fields[5], flag)
					}
				}
			} else if top := strings.Split(point, "/")[1]; !slices.Contains([]string{"proc", "dev", "tmp", "home", "workspace"}, top) {
				t.Errorf("mount %s is not expected", point)
			}
		}
	})
}

func TestRootsAreApart(t *testing.T) {
	one, two := newTree(t), newTree(t)
	fill(t, one, map[string]string{"usr/share/which": "one"})
	fill(t, two, map[string]string{"usr/share/which": "two"})
	eachMakerWithRoots(t, testRootsAreApart, Root{Name: "one", Dir: one}, Root{Name: "two", Dir: two})
}

func testRootsAreApart(t *testing.T, h *Host) {
	for root, want := range map[string]string{"one": "one", "two": "two", "": ""} {
		got := run(t, h, Spec{Program: bash("cat /usr/share/which 2>/dev/null"), Env: testEnv, Root: root}, "")
		if got.stdout != want {
			t.Errorf("root %q: got %q, want %q", root, got.stdout, want)
		}
	}
	_, err := h.Start(t.Context(), Spec{ID: "none", Program: command("true"), Root: "three"}, IO{})
	var setup *SetupError
	if !errors.As(err, &setup) || setup.Step != "spec" || !strings.Contains(err.Error(), `root file system "three"`) {
		t.Errorf("a root that is none: got %v", err)
	}
}

// Open refuses a bad root before any mount, and the error names the root.
func TestRootsAreChecked(t *testing.T) {
	c := testConfig(t)
	dir := t.TempDir()
	fill(t, dir, map[string]string{"tmp": "-> /etc"})
	for _, tt := range []struct {
		roots []Root
		want  string
	}{
		{[]Root{{Name: "bad", Dir: dir}}, `root file system bad: its /tmp is a link to "/etc"`},
		{[]Root{{Name: "a/b", Dir: dir}}, "want a name"},
		{[]Root{{Name: "", Dir: dir}}, "want a name"},
		{[]Root{{Name: "..", Dir: dir}}, "want a name"},
		{[]Root{{Name: "x", Dir: "relative"}}, "is not absolute"},
		{[]Root{{Name: "x", Dir: "/y"}, {Name: "x", Dir: "/z"}}, "two have this name"},
		{make([]Root, maxRoots+1), "at most 64"},
	} {
		c.Roots = tt.roots
		if h, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
			if err == nil {
				h.Close()
			}
		}
	}
	left, err := mount.Points(defaultRunDir)
	if err != nil || slices.ContainsFunc(left, func(p string) bool { return strings.Contains(p, "/root-") || strings.Contains(p, "/scratch") }) {
		t.Errorf("mounts are left: %v, %v", left, err)
	}
}

// The next daemon unmounts the roots of a dead daemon. The files of the root's directory
// stay.
func TestSweepLeavesRootsWhole(t *testing.T) {
	tree := newTree(t)
	fill(t, tree, map[string]string{"usr/share/mark": "ours"})
	c := testConfig(t)
	c.Roots = []Root{{Name: "tree", Dir: tree}}
	dead, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	dead.instance.lock.Close() // as the kernel does when it dies
	dead.instance.ids.close()
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if left, err := mount.Points(dead.instance.run); len(left) > 0 || err != nil {
		t.Errorf("mounts are left: %v, %v", left, err)
	}
	if _, err := os.Stat(dead.instance.run); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's directory is left: %v", err)
	}
	got := run(t, h, Spec{Program: bash("cat /usr/share/mark"), Env: testEnv, Root: "tree"}, "")
	if got.stdout != "ours" {
		t.Errorf("got %q, %q", got.stdout, got.stderr)
	}
}
