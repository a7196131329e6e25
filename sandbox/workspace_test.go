package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newSnapshot makes a directory like the snapshot of a skill, owned 1000:1000.
func newSnapshot(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, ScriptID, ScriptID))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// listChanges lists an upper layer: path to a file's text, "deleted" or "dir".
func listChanges(into map[string]string) func(*os.Root) error {
	return func(root *os.Root) error {
		return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == "." {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			switch {
			case d.IsDir():
				into[path] = "dir"
			case info.Mode()&fs.ModeCharDevice != 0 && info.Sys().(*syscall.Stat_t).Rdev == 0:
				into[path] = "deleted"
			case info.Mode().IsRegular():
				b, err := root.ReadFile(path)
				into[path] = fmt.Sprintf("%s %v", b, info.Mode())
				return err
			default:
				into[path] = info.Mode().Type().String()
			}
			return nil
		})
	}
}

func TestWorkspace(t *testing.T) { eachMaker(t, testWorkspace) }

func testWorkspace(t *testing.T, h *Host) {
	files := map[string]string{"data.txt": "old", "scripts/x.py": "x", "dir/a": "a", "gone": "g", "mode": "m", "untouched": "u"}
	for _, tt := range []struct {
		name, script string
		want         map[string]string
	}{
		{"nothing", "cat data.txt scripts/x.py >/dev/null", map[string]string{}},
		{"create", "echo -n new >out", map[string]string{"out": "new -rw-------"}},
		{"append", "echo -n er >>data.txt", map[string]string{"data.txt": "older -rw-r--r--"}},
		{"truncate", ": >data.txt", map[string]string{"data.txt": " -rw-r--r--"}},
		{"chmod", "chmod 700 mode", map[string]string{"mode": "m -rwx------"}},
		{"delete", "rm gone", map[string]string{"gone": "deleted"}},
		{"delete a tree", "rm -r dir", map[string]string{"dir": "deleted"}},
		{"rename a file", "mv gone here", map[string]string{"gone": "deleted", "here": "g -rw-r--r--"}},
		{"rename a directory", "mv dir dir2", map[string]string{"dir": "deleted", "dir2": "dir", "dir2/a": "a -rw-r--r--"}},
		{"rename into a directory", "mv gone dir/", map[string]string{"gone": "deleted", "dir": "dir", "dir/gone": "g -rw-r--r--"}},
		{"replace a directory", "rm -r dir && mkdir dir && echo -n n >dir/n", map[string]string{"dir": "dir", "dir/n": "n -rw-------"}},
		{"write and delete", "echo >tmp; rm tmp", map[string]string{}},
		{"link", "ln -s /etc/shadow l", map[string]string{"l": "L---------"}},
		{"pipe", "mkfifo p", map[string]string{"p": "p---------"}},
		{"beside the script", "cd scripts && echo -n n >new", map[string]string{"scripts": "dir", "scripts/new": "n -rw-------"}},
		{"sed -i", "sed -i s/old/new/ data.txt", map[string]string{"data.txt": "new -rw-r--r--"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			snapshot := newSnapshot(t, files)
			before := tree(t, snapshot)
			got := map[string]string{}
			k := startTalk(t, h, Spec{Program: bash(tt.script), Workspace: Workspace{Lower: []string{snapshot}}}, listChanges(got))
			if exit := k.wait(); exit.Code != 0 || exit.CollectErr != nil {
				t.Errorf("got %+v", exit)
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if after := tree(t, snapshot); after != before {
				t.Errorf("the snapshot changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

// tree lists everything that a program could change about a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		var text []byte
		if info.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		lines = append(lines, fmt.Sprintf("%s %v %d:%d %v %q", path, info.Mode(), st.Uid, st.Gid, info.ModTime(), text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestTwoLowers(t *testing.T) { eachMaker(t, testTwoLowers) }

func testTwoLowers(t *testing.T, h *Host) {
	skill := newSnapshot(t, map[string]string{"a": "skill a", "b": "skill b", "d/x": "x"})
	input := newSnapshot(t, map[string]string{"a": "input a", "in.csv": "1,2", "d/y": "y"})
	got := map[string]string{}
	var out strings.Builder
	p, err := h.Start(context.Background(), Spec{
		ID: "lowers", Env: testEnv, Program: bash("cat a b in.csv; echo; ls d; echo -n + >>b; rm in.csv"),
		Workspace: Workspace{Lower: []string{input, skill}},
	}, IO{Stdout: &out, Collect: listChanges(got)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := "input askill b1,2\nx\ny\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if want := map[string]string{"b": "skill b+ -rw-r--r--", "in.csv": "deleted"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMounts(t *testing.T) { eachMaker(t, testMounts) }

func testMounts(t *testing.T, h *Host) {
	skill := newSnapshot(t, map[string]string{"run.sh": "echo I am $(id -un), file of $(stat -c %U /skills/demo/run.sh)"})
	runtime := t.TempDir()
	if err := os.WriteFile(filepath.Join(runtime, "tool"), []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(runtime, 0o755); err != nil {
		t.Fatal(err)
	}
	got := run(t, h, Spec{
		Env:     testEnv,
		Program: bash("bash /skills/demo/run.sh; /opt/rt/tool; ls /skills /opt; for d in /skills/demo /skills /opt /opt/rt; do touch $d/x; done"),
		Mounts:  []Mount{{Source: skill, Target: "/skills/demo", Owned: true}, {Source: runtime, Target: "/opt/rt"}},
	}, "")
	if want := "I am skill, file of skill\ntool\n/opt:\nrt\nskillrun\n\n/skills:\ndemo\n"; got.stdout != want {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
	if n := strings.Count(got.stderr, "Read-only file system"); n != 4 {
		t.Errorf("got %q", got.stderr)
	}
}

// TestCollectComesLast: Collect is called after the last process has ended.
func TestCollectComesLast(t *testing.T) { eachMaker(t, testCollectComesLast) }

func testCollectComesLast(t *testing.T, h *Host) {
	calls := 0
	var k *talk
	ready := make(chan struct{})
	k = startTalk(t, h, Spec{Program: bash("while :; do echo x >>f; done & until [ -s f ]; do :; done; read x")}, func(root *os.Root) error {
		<-ready
		calls++
		pids, err := k.p.sandbox.group.Pids()
		if len(pids) > 0 {
			t.Errorf("processes %v live", pids)
		}
		return err
	})
	close(ready)
	k.in.Close()
	if exit := k.wait(); exit.CollectErr != nil || calls != 1 {
		t.Errorf("got %+v after %d calls", exit, calls)
	}
}

func TestCollectError(t *testing.T) { eachMaker(t, testCollectError) }

func testCollectError(t *testing.T, h *Host) {
	broken := errors.New("disk full")
	k := startTalk(t, h, Spec{Program: command("true")}, func(*os.Root) error { return broken })
	if exit := k.wait(); exit.CollectErr != broken || exit.Code != 0 {
		t.Errorf("got %+v", exit)
	}
}

func TestDir(t *testing.T) { eachMaker(t, testDir) }

func testDir(t *testing.T, h *Host) {
	lower := newSnapshot(t, map[string]string{"a/b/c": "", "real/f": ""})
	if err := os.Symlink("/etc", filepath.Join(lower, "out")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dir, want string }{{"", "/workspace\n"}, {".", "/workspace\n"}, {"a/b", "/workspace/a/b\n"}} {
		got := run(t, h, Spec{Program: command("pwd", "-P"), Env: testEnv, Dir: tt.dir, Workspace: Workspace{Lower: []string{lower}}}, "")
		if got.stdout != tt.want {
			t.Errorf("%q: got %q, want %q", tt.dir, got.stdout, tt.want)
		}
	}
	_, err := h.Start(context.Background(), Spec{ID: "out", Program: command("true"), Dir: "out", Workspace: Workspace{Lower: []string{lower}}}, IO{})
	if !errors.Is(err, syscall.EXDEV) {
		t.Errorf("got %v, want %v", err, syscall.EXDEV)
	}
}
