package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inodeChanges tries everything that changes an inode without its content, on the files of its
// arguments. It prints one line for each attempt: the file, the operation, and the error's name.
const inodeChanges = `
import errno, os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    name = os.open(path, os.O_PATH)
    link = '/proc/self/fd/%d' % name
    again = os.open(link, os.O_RDONLY)
    os.read(fd, 1), os.read(again, 1)
    if os.fstat(again)[:3] != os.stat(path)[:3]:
        print(path, 'another inode by O_PATH')
    for what, change in {
        'chmod': lambda: os.chmod(path, 0o777),
        'fchmod': lambda: os.fchmod(fd, 0o777),
        'chmod by O_PATH': lambda: os.chmod(link, 0o777),
        'fchmod by O_PATH': lambda: os.fchmod(again, 0o777),
        'chown': lambda: os.chown(path, os.getuid(), os.getgid()),
        'fchown': lambda: os.fchown(fd, os.getuid(), os.getgid()),
        'chown by O_PATH': lambda: os.chown(link, os.getuid(), os.getgid()),
        'utimes': lambda: os.utime(path, (1, 1)),
        'futimes': lambda: os.utime(fd, (1, 1)),
        'access time': lambda: os.utime(path, ns=(1, os.stat(path).st_mtime_ns)),
        'times by O_PATH': lambda: os.utime(link, (1, 1)),
        'removexattr': lambda: os.removexattr(path, 'user.mark'),
        'fremovexattr': lambda: os.removexattr(fd, 'user.mark'),
        'removexattr by O_PATH': lambda: os.removexattr(link, 'user.mark'),
        'open to write': lambda: os.open(path, os.O_RDWR),
        'open to write by O_PATH': lambda: os.open(link, os.O_RDWR),
        'truncate by O_PATH': lambda: os.truncate(link, 0),
    }.items():
        try:
            change()
            print(path, what, 'works')
        except OSError as e:
            print(path, what, errno.errorcode[e.errno])
`

// A script changes no inode of a file that sandboxes share, though its own skill's files
// appear as the script's: each attempt gives EROFS, and the inodes on the host stay the same.
func TestSharedInodesStay(t *testing.T) { eachMaker(t, testSharedInodesStay) }

func testSharedInodesStay(t *testing.T, h *Host) {
	snapshot := newSnapshot(t, map[string]string{"a": "a"})
	skill := filepath.Join(snapshot, "a")
	mark := unix.Setxattr(skill, "user.mark", []byte("x"), 0)
	if mark != nil && !errors.Is(mark, unix.ENOTSUP) {
		t.Fatal(mark)
	}
	// Times of long ago: with relatime (mount(8)) the next read changes the access time.
	if err := os.Chtimes(skill, time.Unix(1e9, 0), time.Unix(1e9+1, 0)); err != nil {
		t.Fatal(err)
	}
	onHost := []string{skill, "/usr/bin/env", "/etc/passwd", filepath.Join(h.rootfs(), "etc/passwd")}
	before := inodesAt(t, onHost)
	shared := []string{"/skills/s/a", "/usr/bin/env", "/etc/passwd"}
	got := run(t, h, Spec{
		Program:   command(append([]string{"python3", "-c", inodeChanges}, append(shared, "/workspace/own")...)...),
		Env:       testEnv,
		Workspace: Workspace{Lower: []string{newSnapshot(t, map[string]string{"own": "own"})}},
		Mounts:    []Mount{{Source: snapshot, Target: "/skills/s", Owned: true}},
	}, "")
	if got.exit.End != Exited || got.exit.Code != 0 {
		t.Fatalf("got %+v", got)
	}
	tried := map[string]int{}
	for line := range strings.Lines(got.stdout) {
		line = strings.TrimSpace(line)
		path, what, _ := strings.Cut(line, " ")
		tried[path]++
		// The same attempts work on the script's own files, so they are made correctly.
		if path == "/workspace/own" {
			if !strings.HasSuffix(what, " works") && !strings.Contains(what, "removexattr") {
				t.Errorf("a file of the workspace: %s", line)
			}
		} else if !strings.HasSuffix(what, " EROFS") {
			t.Errorf("%s, want EROFS", line)
		}
	}
	for _, path := range append(shared, "/workspace/own") {
		if want := strings.Count(inodeChanges, "lambda"); tried[path] != want {
			t.Errorf("%s: %d attempts, want %d", path, tried[path], want)
		}
	}
	for i, after := range inodesAt(t, onHost) {
		if after != before[i] {
			t.Errorf("%s: got %+v, want %+v", onHost[i], after, before[i])
		}
	}
	if _, err := unix.Getxattr(skill, "user.mark", nil); mark == nil && err != nil {
		t.Errorf("the extended attribute of %s: %v", skill, err)
	}
}

// An inodeState has the parts of an inode that its owner may change.
type inodeState struct {
	mode, uid, gid      uint32
	atime, mtime, ctime unix.Timespec
}

func inodesAt(t *testing.T, paths []string) (states []inodeState) {
	t.Helper()
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		states = append(states, inodeState{st.Mode, st.Uid, st.Gid, st.Atim, st.Mtim, st.Ctim})
	}
	return states
}
