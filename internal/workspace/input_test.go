package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// owner owns the inputs of these tests.
var owner = Owner{UID: 1000, GID: 1000}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("skipped: the tests of this package need root: files of other users, device nodes, mounts")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// snapshot creates a skill's files from paths and contents. A path that ends in "/" is a
// directory. A content "-> x" makes a link to x.
func snapshot(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, full)
		} else if strings.HasSuffix(path, "/") {
			err = os.MkdirAll(full, 0o755)
		} else {
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func content(paths ...string) []Input {
	var inputs []Input
	for _, p := range paths {
		inputs = append(inputs, Input{Path: p, Content: []byte("content of " + p)})
	}
	return inputs
}

var long = strings.Repeat("n", MaxNameBytes)

func TestStageRefuses(t *testing.T) {
	skill := map[string]string{
		"SKILL.md": "x", "scripts/run.py": "x", "link": "-> scripts", "out": "-> /etc", "up": "-> ../..", "loop": "-> loop", "empty/": "",
	}
	deep := make([]string, MaxInputParts/2000+1)
	for i := range deep {
		deep[i] = strings.Repeat("a/", 1999) + strconv.Itoa(i)
	}
	many := make([]string, MaxInputs+1)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, test := range []struct {
		name   string
		inputs []Input
		path   string // in the error; empty: the path of the last input
		reason string
	}{
		{"empty", content(""), "", "is empty"},
		{"absolute", content("/etc/passwd"), "", "is absolute"},
		{"only a slash", content("/"), "", "is absolute"},
		{"parent", content(".."), "", `".."`},
		{"parent first", content("../x"), "", `".."`},
		{"parent within", content("a/../b"), "", `".."`},
		{"parent last", content("a/.."), "", `".."`},
		{"dot", content("."), "", `"."`},
		{"dot first", content("./a"), "", `"."`},
		{"dot last", content("a/."), "", `"."`},
		{"slash last", content("a/"), "", "empty component"},
		{"two slashes", content("a//b"), "", "empty component"},
		{"NUL", content("a\x00b"), "", "control character"},
		{"newline", content("a\nb"), "", "control character"},
		{"delete", content("a\x7f"), "", "control character"},
		{"C1 control", content("a\u0085"), "", "control character"},
		{"not UTF-8", content("a\xff"), "", "not UTF-8"},
		{"surrogate", content("a\xed\xa0\x80"), "", "not UTF-8"},
		{"long name", content(long + "n"), "", "component of more than 255"},
		{"long path", content(strings.Repeat("d/", MaxPathBytes/2) + "x"), "", "longer than 4096"},
		{"twice", content("a", "b", "a"), "", "twice"},
		{"file then directory", content("a", "a/b"), "a", "as a directory"},
		{"directory then file", content("a/b/c", "a/b"), "", "as a directory"},
		{"skill's file", content("SKILL.md"), "", skillHasIt},
		{"skill's nested file", content("scripts/run.py"), "", skillHasIt},
		{"skill's directory", content("scripts"), "", skillHasIt},
		{"skill's empty directory", content("empty"), "", skillHasIt},
		{"skill's link", content("link"), "", skillHasIt},
		{"skill's broken link", content("loop"), "", skillHasIt},
		{"beneath the skill's file", content("SKILL.md/x"), "", `"SKILL.md" is not a directory`},
		{"beneath it, deeper", content("scripts/run.py/x/y"), "", `"scripts/run.py" is not a directory`},
		{"through a link", content("link/x"), "", `"link" is not a directory`},
		{"through a link out", content("out/x"), "", `"out" is not a directory`},
		{"through a link up", content("up/x/y"), "", `"up" is not a directory`},
		{"through a loop", content("loop/x"), "", `"loop" is not a directory`},
		{"known to the skill only", content("refused"), "", skillHasIt},
		{"too many", content(many...), many[MaxInputs], "more than 10000"},
		{"too many components", content(deep...), deep[len(deep)-1], "more than 200000 components together"},
		{"too many directories", content(strings.Repeat("d/", 2000)+"x", strings.Repeat("e/", 2000)+"x", strings.Repeat("f/", 2000)+"x",
			strings.Repeat("g/", 2000)+"x", strings.Repeat("h/", 2000)+"x"), "", "more than 10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "staged")
			has := func(path string) bool { return path == "refused" }
			w, err := Stage(dir, owner, snapshot(t, skill), has, test.inputs)
			bad, ok := errors.AsType[*InputError](err)
			if !ok || w != nil {
				t.Fatalf("got %v, %v", w, err)
			}
			want := test.path
			if want == "" {
				want = test.inputs[len(test.inputs)-1].Path
			}
			if bad.Path != want || !strings.Contains(bad.Reason, test.reason) {
				t.Errorf("got %v, want %q about %q", bad, test.reason, want)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("remaining files: %v", err)
			}
		})
	}
}

func TestStageTooManyBytes(t *testing.T) {
	source := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(source, MaxInputBytes); err != nil {
		t.Fatal(err)
	}
	_, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, "", nil, []Input{{Path: "a", Source: source}, {Path: "b", Content: []byte("x")}})
	if bad, ok := errors.AsType[*InputError](err); !ok || bad.Path != "b" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(source); err != nil {
		t.Errorf("the source of a refused input was moved: %v", err)
	}
}

func checkFile(t *testing.T, path string, mode fs.FileMode, content string) {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
		return
	}
	st := fi.Sys().(*syscall.Stat_t)
	if fi.Mode() != mode || int(st.Uid) != owner.UID || int(st.Gid) != owner.GID {
		t.Errorf("%s: got %v %d:%d, want %v", path, fi.Mode(), st.Uid, st.Gid, mode)
	}
	if fi.IsDir() {
		return
	}
	if got, err := os.ReadFile(path); string(got) != content || err != nil {
		t.Errorf("%s: got %q, %v", path, got, err)
	}
}

func TestStage(t *testing.T) {
	skill := snapshot(t, map[string]string{"data/x": "the skill's", "odd/x": ""})
	if err := os.Chmod(filepath.Join(skill, "odd"), 0o750); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "uploaded")
	if err := os.WriteFile(source, []byte("uploaded"), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := os.CreateTemp("/dev/shm", "input")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(elsewhere.Name())
	elsewhere.WriteString("elsewhere")
	elsewhere.Close()

	// The modes do not depend on the umask.
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "staged")
	inputs := append(content("in.csv", "data/in.csv", "odd/in", "a/b/c", "ünï/☃", "...", " ", long+"/"+long),
		Input{Path: "bin/tool", Content: []byte("#!"), Executable: true},
		Input{Path: "bin/moved", Source: source, Executable: true},
		Input{Path: "copied", Source: elsewhere.Name()},
		Input{Path: "nothing"})
	w, err := Stage(dir, owner, skill, func(string) bool { return false }, inputs)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Lower()) != 2 || w.Lower()[1] != skill {
		t.Fatalf("got %v", w.Lower())
	}
	layer := w.Lower()[0]
	for _, test := range []struct {
		path    string
		mode    fs.FileMode
		content string
	}{
		{".", fs.ModeDir | 0o755, ""},
		{"in.csv", 0o644, "content of in.csv"},
		{"data", fs.ModeDir | 0o755, ""},
		{"data/in.csv", 0o644, "content of data/in.csv"},
		{"odd", fs.ModeDir | 0o750, ""},
		{"a/b", fs.ModeDir | 0o755, ""},
		{"a/b/c", 0o644, "content of a/b/c"},
		{"ünï/☃", 0o644, "content of ünï/☃"},
		{"...", 0o644, "content of ..."},
		{" ", 0o644, "content of  "},
		{long + "/" + long, 0o644, "content of " + long + "/" + long},
		{"bin/tool", 0o755, "#!"},
		{"bin/moved", 0o755, "uploaded"},
		{"copied", 0o644, "elsewhere"},
		{"nothing", 0o644, ""},
	} {
		checkFile(t, filepath.Join(layer, test.path), test.mode, test.content)
	}
	if _, err := os.Stat(source); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the source is still there: %v", err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", fi, err)
	}
	for range 2 {
		if err := w.Remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remaining files: %v", err)
	}
	if _, err := os.Stat(filepath.Join(skill, "data/x")); err != nil {
		t.Errorf("the skill has changed: %v", err)
	}
}

// Without inputs, Stage creates no directory.
func TestStageNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "staged")
	for _, skill := range []string{"", t.TempDir()} {
		w, err := Stage(dir, owner, skill, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Lower()) > 1 || len(w.Lower()) == 1 && w.Lower()[0] != skill {
			t.Errorf("got %v", w.Lower())
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("created: %v", err)
		}
		if err := w.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// An error of the daemon is not an InputError, and no files remain.
func TestStageFails(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, dir, snapshot, source string
	}{
		{"no parent", "missing/staged", "", ""},
		{"no snapshot", "staged", "/nonexistent", ""},
		{"no source", "staged", "", "/nonexistent"},
		{"source is a directory", "staged", "", "/etc"},
		{"source is a link", "staged", "", link},
		{"source is a device", "staged", "", "/dev/null"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), test.dir)
			_, err := Stage(dir, owner, test.snapshot, nil, []Input{{Path: "x", Source: test.source}})
			if _, ok := errors.AsType[*InputError](err); err == nil || ok {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("remaining files: %v", err)
			}
		})
	}
	t.Run("not twice", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "staged")
		w, err := Stage(dir, owner, "", nil, content("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Stage(dir, owner, "", nil, content("b")); err == nil {
			t.Error("staged over another")
		}
		checkFile(t, filepath.Join(w.Lower()[0], "a"), 0o644, "content of a")
	})
}

func FuzzInputPath(f *testing.F) {
	for _, p := range []string{"a", "../a", "a/../b", "/a", "a//b", "a\x00", "ünï/☃", "SKILL.md/x", "link/x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if pathReason(p) == "" && !fs.ValidPath(p) {
			t.Errorf("%q is accepted", p)
		}
	})
}

// Whiteouts hide files whose names a program has chosen. They are not the caller's mistake, whatever the
// names and however many there are, and an input in the place of the hidden file is allowed.
func TestStageWhiteouts(t *testing.T) {
	dir := snapshot(t, map[string]string{"scripts/run.py": "x", "file": "x"})
	inputs := content("a.py", "pkg", "deep/in/x")
	for _, path := range []string{"a.py", "pkg/b.py", "deep/in", "file/c.py", "scripts/run.py", "scripts/a\nb", "scripts/\xff", "new\r/x.py"} {
		inputs = append(inputs, Input{Path: path, Whiteout: true})
	}
	for i := range MaxInputs {
		inputs = append(inputs, Input{Path: "many/" + strconv.Itoa(i), Whiteout: true})
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	plan, err := newPlan(root, func(p string) bool { return p == "scripts/run.py" }, inputs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, in := range plan.files {
		if !strings.HasPrefix(in.Path, "many/") {
			got = append(got, fmt.Sprintf("%q %v", in.Path, in.Whiteout))
		}
	}
	checkLines(t, "files", got, []string{
		`"a.py" false`, `"pkg" false`, `"deep/in/x" false`, `"scripts/a\nb" true`, `"scripts/\xff" true`, `"new\r/x.py" true`,
	})
	if n := len(plan.files); n != 6+MaxInputs {
		t.Errorf("%d files", n)
	}
	for _, has := range []func(string) bool{nil, func(p string) bool { return p == "scripts/run.py" }} {
		w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, dir, has, append(inputs[:11+20:11+20], Input{Path: "scripts/a", Whiteout: true}))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"scripts/a\nb", "scripts/\xff", "new\r/x.py", "many/0", "many/19", "scripts/a"} {
			fi, err := os.Lstat(filepath.Join(w.Lower()[0], path))
			if err != nil || fi.Sys().(*syscall.Stat_t).Mode&syscall.S_IFMT != syscall.S_IFCHR {
				t.Errorf("%q: %v, %v; want a whiteout", path, fi, err)
			}
		}
		if err := w.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// A plan looks at each directory of the snapshot once, however many inputs are in it: a request can have
// thousands of files in a deep directory.
func TestPlanLooksAtADirectoryOnce(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o750), os.Chmod(sub, 0o750)); err != nil {
		t.Fatal(err)
	}
	has := func(path string) bool {
		if path == "sub/second" {
			if err := os.Remove(sub); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	p, err := planBeside(dir, has, content("sub/first", "sub/second"))
	if want := (plannedDir{mode: 0o750, there: true}); err != nil || p.dirs["sub"] != want {
		t.Errorf("got %+v, %v; want %+v", p.dirs["sub"], err, want)
	}
}
