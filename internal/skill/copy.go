package skill

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A snapshot's entries have an owner and times of their own, so that a change to
// one shows, and so that the same skill looks the same everywhere. The time is
// after 1980, before which zip files can't go.
const (
	snapshotUID = 1000
	snapshotGID = 1000
)

var snapshotTime = time.Unix(1_577_836_800, 0) // 2020-01-01T00:00:00Z

// create makes the copy of a file. It is nil if nothing is copied.
func (s *scan) create(e Entry) (*os.File, error) {
	if s.dst == "" {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(s.dst, e.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// finish makes the links, which can be judged only when the whole tree is known,
// and, when nothing is made any more that would change the time of a directory,
// gives everything the owner, mode and time that a snapshot has.
func (s *scan) finish() error {
	for _, l := range s.tree.links() {
		if err := os.Symlink(l.Target, filepath.Join(s.dst, l.Path)); err != nil {
			return err
		}
		if err := stamp(filepath.Join(s.dst, l.Path), l); err != nil {
			return err
		}
	}
	for _, e := range s.tree.entries {
		if e.Kind == KindLink {
			continue
		}
		if err := stamp(filepath.Join(s.dst, e.Path), e); err != nil {
			return err
		}
	}
	return stamp(s.dst, Entry{Kind: KindDir})
}

// links are the links that a snapshot holds.
func (t *tree) links() []Entry {
	var list []Entry
	for _, e := range t.entries {
		if e.Kind == KindLink {
			list = append(list, e)
		}
	}
	for _, r := range t.refused {
		if r.Why == VenvInterpreter {
			list = append(list, Entry{Path: r.raw, Kind: KindLink, Target: r.target})
		}
	}
	return list
}

// stamp gives a path in a new snapshot its owner, mode and time.
func stamp(path string, e Entry) error {
	if err := os.Lchown(path, snapshotUID, snapshotGID); err != nil {
		return err
	}
	if e.Kind != KindLink { // a link has no mode
		if err := os.Chmod(path, os.FileMode(e.mode())); err != nil {
			return err
		}
	}
	ts := unix.NsecToTimespec(snapshotTime.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimensat", Path: path, Err: err}
	}
	return nil
}

// mode is the permissions that an entry has in a snapshot.
func (e Entry) mode() uint32 {
	if e.Kind == KindFile && !e.Executable {
		return 0o644
	}
	return 0o755
}
