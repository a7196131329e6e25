package skill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A skill folder is swapped again and again with a link to a skill that the folder's owner
// may not read. The linked skill is never imported.
func TestFolderSwappedForLink(t *testing.T) {
	base := t.TempDir()
	root, private, spare := filepath.Join(base, "root"), filepath.Join(base, "private"), filepath.Join(base, "spare")
	files{"demo/SKILL.md": minimal}.write(t, root)
	files{"SKILL.md": named("private"), "secret": "x"}.write(t, private)
	mustDo(t, os.Symlink(private, spare))
	r := open(t, RegistryConfig{Roots: []string{root}})

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "demo"), unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 200 {
		if _, err := r.Reload(context.Background()); err != nil {
			t.Fatalf("Reload: %v", err)
		}
		for _, s := range r.List() {
			if s.Name != "demo" || s.Has("secret") {
				t.Fatalf("imported %s with %d files", s.Name, s.FileCount)
			}
		}
	}
	close(stop)
	swapping.Wait()
}

// The snapshot has no refused entries, and importing never opens them.
func TestRefusedIsNotImported(t *testing.T) {
	root, dir := skillDir(t, files{"out": "-> /etc/shadow", "loop": "-> loop", "outdir": "-> /etc", "ok": "x", "venv/bin/python": "-> /usr/bin/python3"})
	at := func(p string) string { return filepath.Join(dir, p) }
	mustDo(t, os.WriteFile(at("suid"), []byte("x"), 0o755))
	mustDo(t, os.Chmod(at("suid"), 0o755|os.ModeSetuid))
	mustDo(t, unix.Mkfifo(at("fifo"), 0o644)) // opening it would block
	mustDo(t, os.MkdirAll(at("bad\nname/inner"), 0o755))
	s := resolve(t, open(t, RegistryConfig{Roots: []string{root}}), "demo")

	list, err := os.ReadDir(s.Dir)
	mustDo(t, err)
	var got []string
	for _, d := range list {
		got = append(got, d.Name())
	}
	if want := "SKILL.md ok venv"; strings.Join(got, " ") != want {
		t.Errorf("the snapshot has %q, want %s", got, want)
	}
	if len(s.Refused) != 7 || s.FileCount != 2 {
		t.Errorf("refused %v, %d files, want 7 and 2", s.Refused, s.FileCount)
	}
	for _, p := range []string{"out", "loop", "outdir", "suid", "fifo", "bad\nname", "bad\nname/inner", "venv/bin/python"} {
		if !s.Has(p) {
			t.Errorf("an input may be put at %q", p)
		}
	}
}

// A skill may have thousands of files.
func TestManyFiles(t *testing.T) {
	root := manyFiles(t, 1500)
	r := open(t, RegistryConfig{Roots: []string{root}})
	s := resolve(t, r, "demo")
	if s.FileCount != 1501 {
		t.Errorf("%d files, want 1501", s.FileCount)
	}
	if e, err := s.Lookup("d42/f1242"); err != nil || e.Size != 4 {
		t.Errorf("Lookup = %+v, %v", e, err)
	}
	if _, err := r.Reload(context.Background()); err != nil || resolve(t, r, "demo") != s {
		t.Errorf("the skill was replaced: %v", err)
	}
}

// A root with too many names is a problem.
func TestCrowdedRoot(t *testing.T) {
	root := memoryDir(t)
	for i := range maxRootNames + 1 {
		mustDo(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o644))
	}
	r := open(t, RegistryConfig{Roots: []string{root}})
	var be *BoundError
	if p, _ := problemOf(r, root); !errors.As(p.Err, &be) {
		t.Errorf("problem %+v, want a *BoundError", p)
	}
}

// memoryDir returns a directory in memory if the machine has one, for trees that would
// take long to write on disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skill-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain é 日本", "plain é 日本"},
		{"a\nb\x1b[31m\x00", `a\u000ab\u001b[31m\u0000`},
		{"a\u2028b\u0085", `a\u2028b\u0085`},
		{"a\xffb", "a\ufffdb"},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat("x", 201), strings.Repeat("x", 200) + "..."},
	}
	for _, tt := range tests {
		if got := printable(tt.in); got != tt.want {
			t.Errorf("printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestExcluded(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".hg": true, ".svn": true, "__pycache__": true, ".DS_Store": true, ".pytest_cache": true,
		"node_modules": false, "venv": false, ".venv": false, ".github": false, ".gitignore": false, "git": false, "": false,
	} {
		if got := excluded(name); got != want {
			t.Errorf("excluded(%q) = %t, want %t", name, got, want)
		}
	}
}

// The reasons' texts are part of the digest: they must never change.
func TestRefusedWhyText(t *testing.T) {
	want := []string{"unknown", "leaves-skill", "venv-interpreter", "link-loop", "set-id", "not-regular", "bad-name", "too-deep", "unreadable", "unknown"}
	for i, w := range want {
		if got := RefusedWhy(i).String(); got != w {
			t.Errorf("%d: %s, want %s", i, got, w)
		}
	}
}

func TestOrChanging(t *testing.T) {
	for _, err := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.EAGAIN, unix.ESTALE, unix.EINVAL} {
		if got := orChanging(err); !errors.Is(got, ErrChanging) {
			t.Errorf("%v: got %v, want ErrChanging", err, got)
		}
	}
	for _, err := range []error{unix.EIO, unix.EACCES, unix.EMFILE} {
		if got := orChanging(err); got != err {
			t.Errorf("%v: got %v, want the same", err, got)
		}
	}
}

// Entries are split at commas and blanks, but never inside parentheses.
func FuzzSplitTools(f *testing.F) {
	for _, s := range []string{"Bash(git:*), Read", `"Read,Write"`, "Bash (a b)", "Bash(", ")(", "a,,b", "Bash((a) b) c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, entry := range splitTools(text) {
			if entry == "" || strings.TrimSpace(entry) == "" && !strings.ContainsAny(entry, "()") && strings.ContainsAny(entry, " \t\r\n,") {
				t.Errorf("%q has the entry %q", text, entry)
			}
			if head, _, _ := strings.Cut(entry, "("); strings.ContainsAny(head, " \t\r\n,") {
				t.Errorf("%q has the entry %q", text, entry)
			}
			// Splitting an entry again gives the same entry.
			if strings.Count(entry, "(") == strings.Count(entry, ")") && !strings.ContainsAny(entry, `"'`) {
				if again := splitTools(entry); len(again) != 1 || again[0] != entry {
					t.Errorf("%q has the entry %q, which is %q", text, entry, again)
				}
			}
		}
	})
}

func FuzzDescribe(f *testing.F) {
	f.Add("#!/usr/bin/env python3\n\"\"\"Doc.\n\"\"\"\n")
	f.Add("/**\n * x\n */")
	f.Add("=pod\nx\n=cut\n")
	f.Add("REM x\n<# y #>\n'''z")
	f.Fuzz(func(t *testing.T, text string) {
		for _, language := range append(sortedKeys(commentsOf), "none") {
			d := describe(language, []byte(text))
			if n := len([]rune(d)); n > maxScriptDescription || strings.TrimSpace(d) != d {
				t.Errorf("%s: %d characters: %q", language, n, d)
			}
		}
	})
}
