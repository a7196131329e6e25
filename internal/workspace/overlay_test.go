package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Collect reads a real overlay, mounted like the sandbox's, after typical changes.
func TestCollectFromOverlay(t *testing.T) {
	skill := snapshot(t, map[string]string{
		"SKILL.md": "skill", "data.txt": "data", "run.sh": "#!", "gone.txt": "x", "gone/x": "x", "again/x": "x", "again/y": "y",
		"sub/keep": "keep", "back.txt": "back", "link": "-> data.txt",
	})
	w, err := Stage(filepath.Join(t.TempDir(), "staged"), owner, skill, nil, []Input{
		{Path: "in.csv", Content: []byte("1,2")}, {Path: "sub/in.csv", Content: []byte("3,4")}, {Path: "old.csv", Content: []byte("5,6")},
	})
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	if err := unix.Mount("tmpfs", top, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=16m,nr_inodes=1000"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(top, unix.MNT_DETACH)
	u := upper{t, filepath.Join(top, "upper")}
	merged := filepath.Join(top, "merged")
	for _, dir := range []string{u.dir, merged, filepath.Join(top, "work")} {
		u.must(os.Mkdir(dir, 0o755))
	}
	u.must(unix.Mount("overlay", merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
		"redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir="+strings.Join(w.Lower(), ":")+
			",upperdir="+u.dir+",workdir="+filepath.Join(top, "work")))
	defer unix.Unmount(merged, unix.MNT_DETACH)

	in := func(name string) string { return filepath.Join(merged, name) }
	write := func(name, data string) {
		t.Helper()
		u.must(os.WriteFile(in(name), []byte(data), 0o644))
	}
	// The directory shows the entries of both layers.
	for _, name := range []string{"sub/keep", "sub/in.csv"} {
		if _, err := os.Stat(in(name)); err != nil {
			t.Error(err)
		}
	}
	write("out.txt", "out")
	write("sub/new", "new")
	write("in.csv", "1,2")       // rewritten with the same content
	write("sub/in.csv", "3,4,5") // changed
	u.must(os.Chmod(in("SKILL.md"), 0o600))
	u.must(os.Chtimes(in("data.txt"), time.Unix(0, 0), time.Unix(1, 0)))
	u.must(os.Chmod(in("run.sh"), 0o755))
	u.must(os.Remove(in("gone.txt")))
	u.must(os.RemoveAll(in("gone")))
	u.must(os.RemoveAll(in("again")))
	u.must(os.Mkdir(in("again"), 0o755))
	write("again/x", "x")
	u.must(os.Remove(in("back.txt")))
	write("back.txt", "back")
	u.must(os.Rename(in("old.csv"), in("moved.csv")))
	u.must(os.Symlink("/etc/shadow", in("shadow")))
	u.must(os.Remove(in("link")))
	u.must(unix.Mkfifo(in("fifo"), 0o666))
	u.must(unix.Unmount(merged, unix.MNT_DETACH))

	got, artifacts := u.collect(w, CollectLimits{})
	checkLines(t, "artifacts", artifacts, []string{"again/x=x", "moved.csv=5,6", "out.txt=out", "run.sh*=#!", "sub/in.csv=3,4,5", "sub/new=new"})
	checkLines(t, "refused", got.Refused, []string{"fifo: named pipe", "shadow: symbolic link"})
	checkLines(t, "deleted", got.Deleted, []string{"again", "gone", "gone.txt", "link", "old.csv"})
	checkFile(t, filepath.Join(w.Lower()[0], "in.csv"), 0o644, "1,2")
	u.must(w.Remove())
}
