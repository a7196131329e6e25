package workspace

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// upper is an upper layer that a test builds by hand.
type upper struct {
	t   testing.TB
	dir string
}

func newUpper(t testing.TB) upper {
	t.Helper()
	return upper{t, t.TempDir()}
}

func (u upper) path(name string) string {
	u.t.Helper()
	full := filepath.Join(u.dir, name)
	u.must(os.MkdirAll(filepath.Dir(full), 0o755))
	return full
}

func (u upper) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

func (u upper) file(name, content string, mode fs.FileMode) {
	u.t.Helper()
	u.must(os.WriteFile(u.path(name), []byte(content), 0o600))
	u.must(os.Chmod(u.path(name), mode))
}

func (u upper) node(name string, kind uint32, device int) {
	u.t.Helper()
	u.must(unix.Mknod(u.path(name), kind|0o666, device))
}

func (u upper) link(name, target string) {
	u.t.Helper()
	u.must(os.Symlink(target, u.path(name)))
}

func (u upper) opaque(name string) {
	u.t.Helper()
	u.must(os.MkdirAll(u.path(name), 0o755))
	u.must(unix.Setxattr(u.path(name), "trusted.overlay.opaque", []byte("y"), 0))
}

func (u upper) root() *os.Root {
	u.t.Helper()
	root, err := os.OpenRoot(u.dir)
	u.must(err)
	u.t.Cleanup(func() { root.Close() })
	return root
}

// collect runs Collect with u as the upper layer and checks size, hash, mode and owner of
// each copy. It returns the artifacts as "path=content", with a "*" after an executable's
// path.
func (u upper) collect(w *Workspace, l CollectLimits) (Collected, []string) {
	u.t.Helper()
	into := filepath.Join(u.t.TempDir(), "artifacts")
	got, err := w.Collect(u.root(), into, l)
	u.must(err)
	var artifacts []string
	for i, a := range got.Artifacts {
		path := filepath.Join(into, strconv.Itoa(i))
		data, err := os.ReadFile(path)
		u.must(err)
		if int64(len(data)) != a.SizeBytes || fmt.Sprintf("%x", sha256.Sum256(data)) != a.SHA256 {
			u.t.Errorf("%q has another size or hash than its Artifact says", a.Path)
		}
		fi, err := os.Lstat(path)
		u.must(err)
		if st := fi.Sys().(*syscall.Stat_t); fi.Mode() != 0o600 || st.Uid != 0 || st.Gid != 0 {
			u.t.Errorf("%q: got %v %d:%d", a.Path, fi.Mode(), st.Uid, st.Gid)
		}
		mark := ""
		if a.Executable {
			mark = "*"
		}
		artifacts = append(artifacts, a.Path+mark+"="+string(data))
	}
	if files, err := os.ReadDir(into); len(files) != len(artifacts) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.t.Errorf("%d files for %d artifacts, %v", len(files), len(artifacts), err)
	}
	return got, artifacts
}

func checkLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func TestCollect(t *testing.T) {
	skill := snapshot(t, map[string]string{
		"data.txt": "as it was", "run.sh": "#!", "sub/deep/x": "deep", "link": "-> data.txt", "dirlink": "-> sub", "was-dir/x": "x", "empty": "",
	})
	for _, test := range []struct {
		name               string
		make               func(u upper)
		artifacts, refused []string
		deleted            []string
	}{
		{"nothing", func(u upper) {}, nil, nil, nil},
		{"new", func(u upper) {
			u.file("out.txt", "hi", 0o644)
			u.file("a/b/c", "", 0o644)
			u.file("tool", "#!", 0o700)
			u.must(os.MkdirAll(u.path("only/directories"), 0o755))
		}, []string{"a/b/c=", "out.txt=hi", "tool*=#!"}, nil, nil},
		{"order is that of paths", func(u upper) {
			for _, name := range []string{"a/x", "a.txt", "a-b", "a0", "B", "b/c/d", "b/c.d", "\xff", "\x01"} {
				u.file(name, "", 0o644)
			}
		}, []string{"\x01=", "B=", "a-b=", "a.txt=", "a/x=", "a0=", "b/c.d=", "b/c/d=", "\xff="}, nil, nil},
		{"only touched", func(u upper) {
			u.file("data.txt", "as it was", 0o640)
			u.file("sub/deep/x", "deep", 0o444)
			u.file("empty", "", 0o600)
		}, nil, nil, nil},
		{"changed", func(u upper) {
			u.file("data.txt", "As it was", 0o644)
			u.file("sub/deep/x", "deeper", 0o644)
		}, []string{"data.txt=As it was", "sub/deep/x=deeper"}, nil, nil},
		{"shorter", func(u upper) { u.file("data.txt", "as it", 0o644) }, []string{"data.txt=as it"}, nil, nil},
		{"made executable", func(u upper) { u.file("run.sh", "#!", 0o744) }, []string{"run.sh*=#!"}, nil, nil},
		{"group may execute", func(u upper) { u.file("run.sh", "#!", 0o654) }, []string{"run.sh*=#!"}, nil, nil},
		{"file in place of a link", func(u upper) { u.file("link", "as it was", 0o644) }, []string{"link=as it was"}, nil, nil},
		{"directory in place of a link", func(u upper) { u.file("dirlink/deep/x", "deep", 0o644) }, []string{"dirlink/deep/x=deep"}, nil, nil},
		{"file in place of a directory", func(u upper) { u.file("was-dir", "x", 0o644) }, []string{"was-dir=x"}, nil, nil},
		{"deleted", func(u upper) {
			u.node("data.txt", unix.S_IFCHR, 0)
			u.node("sub/deep", unix.S_IFCHR, 0)
			u.file("sub/new", "n", 0o644)
		}, []string{"sub/new=n"}, nil, []string{"data.txt", "sub/deep"}},
		// The directory hides the lower layers, so everything in it is new.
		{"made again", func(u upper) {
			u.opaque("sub")
			u.file("sub/deep/x", "deep", 0o644)
		}, []string{"sub/deep/x=deep"}, nil, []string{"sub"}},
		{"no regular files", func(u upper) {
			u.link("l", "/etc/shadow")
			u.link("dangling", "nowhere")
			u.link("directory", "/etc")
			u.node("fifo", unix.S_IFIFO, 0)
			u.node("null", unix.S_IFCHR, int(unix.Mkdev(1, 3)))
			u.node("disk", unix.S_IFBLK, int(unix.Mkdev(254, 0)))
			u.node("sock", unix.S_IFSOCK, 0)
		}, nil, []string{"dangling: symbolic link", "directory: symbolic link", "disk: device", "fifo: named pipe",
			"l: symbolic link", "null: device", "sock: socket"}, nil},
		{"block device 0:0 is not a whiteout", func(u upper) { u.node("b", unix.S_IFBLK, 0) }, nil, []string{"b: device"}, nil},
		{"nobody may read", func(u upper) {
			u.file("closed/secret", "read", 0)
			u.must(os.Chmod(u.path("closed"), 0))
		}, []string{"closed/secret=read"}, nil, nil},
		{"special bits", func(u upper) {
			u.file("setuid", "s", 0o755|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)
		}, []string{"setuid*=s"}, nil, nil},
		{"names", func(u upper) {
			for _, name := range []string{"new\nline", "\xff\xfe", "\x1b[31m", `"quoted"`, " ", "-rf", "☃", long} {
				u.file(name, "", 0o644)
				u.link("link "+name[:min(len(name), 200)], "x")
			}
		}, []string{"\x1b[31m=", " =", `"quoted"=`, "-rf=", "new\nline=", long + "=", "☃=", "\xff\xfe="},
			[]string{`"link \x1b[31m": symbolic link`, "link  : symbolic link", `"link \"quoted\"": symbolic link`, "link -rf: symbolic link",
				`"link new\nline": symbolic link`, "link " + long[:200] + ": symbolic link", "link ☃: symbolic link", `"link \xff\xfe": symbolic link`}, nil},
		{"two names", func(u upper) {
			u.file("one", "same", 0o644)
			u.must(os.Link(u.path("one"), u.path("two")))
		}, []string{"one=same", "two=same"}, nil, nil},
		{"user's attribute is no mark", func(u upper) {
			u.file("sub/deep/x", "deep", 0o644)
			u.must(unix.Setxattr(u.path("sub"), "user.overlay.opaque", []byte("y"), 0))
		}, nil, nil, nil},
		{"compiled modules", func(u upper) {
			u.file("scripts/__pycache__/x.cpython-311.pyc", "code", 0o644)
			u.link("scripts/__pycache__/link", "x")
			u.file("other/__pycache__", "a file of that name", 0o644)
		}, []string{"other/__pycache__=a file of that name"}, nil, nil},
		{"deleted compiled modules", func(u upper) { u.node("scripts/__pycache__", unix.S_IFCHR, 0) }, nil, nil, nil},
		{"whiteout beneath the depth", func(u upper) { u.node("a/b/c/d/e/f/g/h/i", unix.S_IFCHR, 0) }, nil,
			[]string{"a/b/c/d/e: deeper than 4"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpper(t)
			test.make(u)
			w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, skill, nil, nil)
			u.must(err)
			got, artifacts := u.collect(w, CollectLimits{Depth: 4})
			checkLines(t, "artifacts", artifacts, test.artifacts)
			checkLines(t, "refused", got.Refused, test.refused)
			checkLines(t, "deleted", got.Deleted, test.deleted)
		})
	}
}

// An unchanged input is not an artifact, a changed one is, and an input hides the file of a
// lower layer.
func TestCollectInputs(t *testing.T) {
	u := newUpper(t)
	skill := snapshot(t, map[string]string{"data/skill": "skill"})
	w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, skill, nil, []Input{
		{Path: "data/in", Content: []byte("in")}, {Path: "data/in2", Content: []byte("in")}, {Path: "tool", Content: []byte("#!"), Executable: true},
		{Path: "tool2", Content: []byte("#!"), Executable: true},
	})
	u.must(err)
	u.file("data/in", "in", 0o644)
	u.file("data/in2", "in and more", 0o644)
	u.file("data/skill", "skill", 0o644)
	u.file("tool", "#!", 0o755)
	u.file("tool2", "#!", 0o644)
	_, artifacts := u.collect(w, CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"data/in2=in and more", "tool2=#!"})

	// A file in the snapshot at an input's path is hidden.
	u.must(os.WriteFile(filepath.Join(skill, "data/in2"), []byte("in and more"), 0o644))
	_, artifacts = u.collect(w, CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"data/in2=in and more", "tool2=#!"})
}

func TestCollectLimits(t *testing.T) {
	for _, test := range []struct {
		name      string
		limits    CollectLimits
		artifacts []string
		refused   []string
	}{
		{"all", CollectLimits{}, []string{"a=1", "b=22", "c=333", "d/e=4444"}, nil},
		{"count", CollectLimits{Files: 2}, []string{"a=1", "b=22"}, []string{"c: more than 2 artifacts", "d/e: more than 2 artifacts"}},
		{"each", CollectLimits{FileBytes: 2}, []string{"a=1", "b=22"}, []string{"c: larger than 2 bytes", "d/e: larger than 2 bytes"}},
		{"together", CollectLimits{TotalBytes: 7}, []string{"a=1", "b=22", "c=333"}, []string{"d/e: artifacts are larger than 7 bytes together"}},
		// A file beyond the total is refused, and Collect goes on with the next.
		{"together, one out", CollectLimits{TotalBytes: 5}, []string{"a=1", "b=22"},
			[]string{"c: artifacts are larger than 5 bytes together", "d/e: artifacts are larger than 5 bytes together"}},
		{"depth", CollectLimits{Depth: 1}, []string{"a=1", "b=22", "c=333"}, []string{"d/e: deeper than 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpper(t)
			u.file("a", "1", 0o644)
			u.file("b", "22", 0o644)
			u.file("c", "333", 0o644)
			u.file("d/e", "4444", 0o644)
			got, artifacts := u.collect(&Workspace{}, test.limits)
			checkLines(t, "artifacts", artifacts, test.artifacts)
			checkLines(t, "refused", got.Refused, test.refused)
		})
	}
}

func TestCollectRefusedLines(t *testing.T) {
	u := newUpper(t)
	for i := range MaxRefused + 23 {
		u.link(fmt.Sprintf("%04d", i), "x")
	}
	got, _ := u.collect(&Workspace{}, CollectLimits{})
	if len(got.Refused) != MaxRefused || got.Refused[MaxRefused-2] != "0098: symbolic link" || got.Refused[MaxRefused-1] != "and 24 more" {
		t.Errorf("got %d, the last %q", len(got.Refused), got.Refused[len(got.Refused)-2:])
	}
	u = newUpper(t)
	u.link(strings.Repeat("d/", 100)+long, "x")
	got, _ = u.collect(&Workspace{}, CollectLimits{})
	if want := `"` + strings.Repeat("d/", 100) + long[:maxShownPath-200] + `"...: symbolic link`; len(got.Refused) != 1 || got.Refused[0] != want {
		t.Errorf("got %q, want %q", got.Refused, want)
	}
}

// A huge sparse file costs neither time nor disk space. If it is too large it is not read;
// otherwise the copy is sparse too.
func TestCollectSparse(t *testing.T) {
	u := newUpper(t)
	u.file("tera", "", 0o644)
	u.must(os.Truncate(u.path("tera"), 1<<40))
	u.file("sparse", "head", 0o644)
	u.must(os.Truncate(u.path("sparse"), 3<<20+17))
	f, err := os.OpenFile(u.path("sparse"), os.O_WRONLY, 0)
	u.must(err)
	_, err = f.WriteAt([]byte("middle"), 2<<20-3)
	u.must(err)
	f.Close()
	want, err := os.ReadFile(u.path("sparse"))
	u.must(err)

	into := filepath.Join(t.TempDir(), "artifacts")
	got, err := (&Workspace{}).Collect(u.root(), into, CollectLimits{})
	u.must(err)
	checkLines(t, "refused", got.Refused, []string{"tera: larger than 268435456 bytes"})
	copied, err := os.ReadFile(filepath.Join(into, "0"))
	u.must(err)
	if !bytes.Equal(copied, want) || got.Artifacts[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256(want)) {
		t.Error("the copy has other content")
	}
	fi, err := os.Stat(filepath.Join(into, "0"))
	u.must(err)
	if held := fi.Sys().(*syscall.Stat_t).Blocks * 512; held > 1<<20 {
		t.Errorf("the copy takes %d bytes", held)
	}
}

// A path may change between Fstatat and open if a process still runs.
func TestCollectChanging(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(path string) error
	}{
		{"gone", os.Remove},
		{"link", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/etc/passwd", p)) }},
		{"fifo", func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o666)) }},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o777)) }},
		{"socket", func(p string) error { return errors.Join(os.Remove(p), unix.Mknod(p, unix.S_IFSOCK|0o666, 0)) }},
		{"another", func(p string) error {
			return errors.Join(os.WriteFile(p+"2", []byte("x"), 0o666), os.Rename(p+"2", p))
		}},
		{"shorter", func(p string) error { return os.Truncate(p, 3) }},
		{"longer", func(p string) error { return os.Truncate(p, 300) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpper(t)
			u.file("x", "content", 0o644)
			dir, err := os.Open(u.dir)
			u.must(err)
			defer dir.Close()
			entries, _, err := readDir(dir, 100)
			u.must(err)
			u.must(test.change(u.path("x")))
			c := &collector{limits: CollectLimits{}.withDefaults(), into: t.TempDir()}
			u.must(c.file(dir, &entries[0], []byte("x"), false))
			checkLines(t, "refused", c.got.Refused, []string{"x: changed while it was read"})
			if left, err := os.ReadDir(c.into); len(left) != 0 || err != nil {
				t.Errorf("remaining files: %v, %v", left, err)
			}
		})
	}
	t.Run("directory becomes a link", func(t *testing.T) {
		u := newUpper(t)
		u.file("d/x", "content", 0o644)
		dir, err := os.Open(u.dir)
		u.must(err)
		defer dir.Close()
		entries, _, err := readDir(dir, 100)
		u.must(err)
		u.must(errors.Join(os.RemoveAll(u.path("d")), os.Symlink("/etc", u.path("d"))))
		c := &collector{limits: CollectLimits{}.withDefaults(), into: t.TempDir()}
		u.must(c.enter(dir, &entries[0], []byte("d"), 1, false))
		checkLines(t, "refused", c.got.Refused, []string{"d: changed while it was read"})
	})
}

// A tree deeper than PATH_MAX, which a program can build with chdir.
func TestCollectDeep(t *testing.T) {
	const depth = 3_000 // its paths are longer than PATH_MAX
	u := newUpper(t)
	dir, err := unix.Open(u.dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	u.must(err)
	for range depth {
		u.must(unix.Mkdirat(dir, "d", 0o777))
		next, err := unix.Openat(dir, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		u.must(err)
		unix.Close(dir)
		dir = next
	}
	unix.Close(dir)
	// RemoveAll is faster here than the clean-up of the testing package.
	defer os.RemoveAll(filepath.Join(u.dir, "d"))
	u.file("e", "still found", 0o644)
	got, artifacts := u.collect(&Workspace{}, CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"e=still found"})
	if len(got.Refused) != 1 || !strings.HasSuffix(got.Refused[0], ": deeper than 128") {
		t.Errorf("got %q", got.Refused)
	}
	// With a larger depth, the length of the path is the limit.
	got, _ = u.collect(&Workspace{}, CollectLimits{Depth: depth})
	if len(got.Refused) != 1 || !strings.HasSuffix(got.Refused[0], "path is longer than 4096 bytes") {
		t.Errorf("got %q", got.Refused)
	}
}

func TestCollectMany(t *testing.T) {
	const files = 100_000
	u := newUpper(t)
	u.must(unix.Mount("tmpfs", u.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=16m"))
	defer unix.Unmount(u.dir, unix.MNT_DETACH)
	names := make([]string, files)
	for i := range files {
		names[i] = strconv.Itoa(i)
		f, err := os.Create(filepath.Join(u.dir, strconv.Itoa(i)))
		u.must(err)
		f.Close()
	}
	got, artifacts := u.collect(&Workspace{}, CollectLimits{Files: 1000})
	slices.Sort(names)
	for i := range names {
		names[i] += "="
	}
	if !slices.Equal(artifacts, names[:1000]) {
		t.Errorf("got %d artifacts, the last %q", len(artifacts), artifacts[len(artifacts)-1])
	}
	if last := got.Refused[MaxRefused-1]; last != "and 98901 more" {
		t.Errorf("got %q", last)
	}
}

// Collect looks at no more than Entries names, in one directory or in many.
func TestCollectEntries(t *testing.T) {
	u := newUpper(t)
	for i := range 30 {
		u.file(fmt.Sprintf("d%02d/x", i), "x", 0o644)
	}
	for _, tt := range []struct{ entries, artifacts, refused int }{
		{60, 30, 0}, // 30 directories with a file each
		{59, 29, 1},
		{40, 10, 20},
		{30, 0, 30},
		{29, 0, 30}, // 29 directories, and one line for the top
		{1, 0, 2},
	} {
		got, artifacts := u.collect(&Workspace{}, CollectLimits{Entries: tt.entries})
		if len(artifacts) != tt.artifacts || len(got.Refused) != tt.refused {
			t.Errorf("%d: got %d artifacts and %q, want %d and %d", tt.entries, len(artifacts), got.Refused, tt.artifacts, tt.refused)
		}
		for _, line := range got.Refused {
			if !strings.HasSuffix(line, fmt.Sprintf("/.: more than %d entries: the rest was skipped", tt.entries)) && !strings.HasPrefix(line, ".: more than") {
				t.Errorf("%d: got %q", tt.entries, line)
			}
		}
	}
}

func TestCollectFails(t *testing.T) {
	u := newUpper(t)
	u.file("x", "content", 0o644)
	taken := t.TempDir()
	u.must(os.WriteFile(filepath.Join(taken, "0"), []byte("mine"), 0o600))
	for _, test := range []struct {
		name, into string
		lower      []string
	}{
		{"no parent", filepath.Join(t.TempDir(), "a/b"), nil},
		{"no directory", "", nil},
		{"something is there", taken, nil},
		{"no lower layer", t.TempDir(), []string{"/nonexistent"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := (&Workspace{lower: test.lower}).Collect(u.root(), test.into, CollectLimits{}); err == nil {
				t.Errorf("got %v", got)
			}
		})
	}
	if data, err := os.ReadFile(filepath.Join(taken, "0")); string(data) != "mine" || err != nil {
		t.Errorf("overwritten: %q, %v", data, err)
	}
}

// Collect closes all its descriptors and never waits for a FIFO.
func TestCollectDescriptors(t *testing.T) {
	u := newUpper(t)
	u.file("a/b/c/d", "x", 0o644)
	u.node("a/fifo", unix.S_IFIFO, 0)
	u.file("same", "x", 0o644)
	w := &Workspace{lower: []string{snapshot(t, map[string]string{"same": "x"})}}
	root := u.root()
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		u.must(err)
		return len(fds)
	}
	before := count()
	for range 10 {
		_, err := w.Collect(root, filepath.Join(t.TempDir(), "artifacts"), CollectLimits{})
		u.must(err)
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// A caller that needs every change learns what hides a file of a lower layer, and whether a file or a
// deletion is missing in the result.
func TestCollectIsCompleteOrSaysSo(t *testing.T) {
	for _, test := range []struct {
		name       string
		make       func(u upper)
		limits     CollectLimits
		hiding     []string
		incomplete bool
	}{
		{"files and deletions", func(u upper) { u.file("f", "1", 0o644); u.node("gone", unix.S_IFCHR, 0) }, CollectLimits{}, nil, false},
		{"other kinds", func(u upper) { u.link("d/l", "x"); u.node("fifo", unix.S_IFIFO, 0) }, CollectLimits{}, []string{"d/l", "fifo"}, false},
		{"many files", func(u upper) { u.file("a", "1", 0o644); u.file("b", "1", 0o644) }, CollectLimits{Files: 1}, nil, true},
		{"a large file", func(u upper) { u.file("a", "12", 0o644) }, CollectLimits{FileBytes: 1}, nil, true},
		{"much together", func(u upper) { u.file("a", "1", 0o644); u.file("b", "1", 0o644) }, CollectLimits{TotalBytes: 1}, nil, true},
		{"deep", func(u upper) { u.file("a/b/c", "1", 0o644) }, CollectLimits{Depth: 2}, nil, true},
		{"many entries", func(u upper) { u.file("a", "1", 0o644); u.file("b", "1", 0o644) }, CollectLimits{Entries: 1}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpper(t)
			test.make(u)
			w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, "", nil, nil)
			u.must(err)
			got, _ := u.collect(w, test.limits)
			checkLines(t, "hiding", got.Hiding, test.hiding)
			if got.Incomplete != test.incomplete {
				t.Errorf("incomplete: got %v", got.Incomplete)
			}
		})
	}
}

// A file is compared with the directory below all others, too.
func TestOver(t *testing.T) {
	u := newUpper(t)
	skill := snapshot(t, map[string]string{"both": "skill's"})
	below := snapshot(t, map[string]string{"both": "session's", "own": "session's"})
	w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, skill, nil, []Input{{Path: "in", Content: []byte("1")}})
	u.must(err)
	over := w.Over(below)
	if n := len(w.Lower()); n != 2 {
		t.Errorf("the first workspace has %d layers", n)
	}
	checkLines(t, "layers", over.Lower(), append(slices.Clone(w.Lower()), below))
	u.file("both", "session's", 0o644)
	u.file("own", "session's", 0o644)
	u.file("in", "1", 0o644)
	_, artifacts := u.collect(over, CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"both=session's"})
	u.must(over.Remove())
	if _, err := os.Stat(w.Lower()[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the inputs: %v", err)
	}
}

// A whiteout among the inputs hides a file of the directory below, so a file that the program writes there
// is an artifact even if it is the same.
func TestWhiteout(t *testing.T) {
	u := newUpper(t)
	below := snapshot(t, map[string]string{"dir/hidden": "same", "dir/seen": "same"})
	w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, "", nil, []Input{{Path: "dir/hidden", Whiteout: true}})
	u.must(err)
	fi, err := os.Lstat(filepath.Join(w.Lower()[0], "dir/hidden"))
	u.must(err)
	if st := fi.Sys().(*syscall.Stat_t); st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Rdev != 0 {
		t.Errorf("got %v, %+v; want a whiteout", fi.Mode(), st)
	}
	u.file("dir/hidden", "same", 0o644)
	u.file("dir/seen", "same", 0o644)
	_, artifacts := u.collect(w.Over(below), CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"dir/hidden=same"})
}
