package snapshot

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Owner is a user id and a group id on this machine. A snapshot's entries belong to the ids
// that package sandbox shows as the script's. To give entries to another user, the daemon
// needs CAP_CHOWN; a test that runs as a normal user gives them to that user.
type Owner struct{ UID, GID int }

// valid reports whether snapshots can belong to o. Root is refused: it is the owner that
// a caller gets by giving none.
func (o Owner) valid() bool { return o.UID > 0 && o.GID > 0 }

// ModTime is the modification time of every entry of a snapshot. Since all entries have the same
// owner and time, any change to an entry shows (see Store.Verify), and a skill looks the same on
// every machine. The time is after 1980 because zip files cannot hold earlier ones.
var ModTime = time.Unix(1_577_836_800, 0) // 2020-01-01T00:00:00Z

// create creates the copy of a file. It returns nil if the scan only reads.
func (s *scan) create(e Entry) (*os.File, error) {
	if s.dst == nil {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(s.dst.dir, e.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// finish creates the links and then sets owner, mode and time of every entry. Links come
// after the scan because only a complete tree says which links may be kept. The stamps come
// last because creating an entry changes the time of its directory.
func (s *scan) finish() error {
	for _, l := range s.tree.links() {
		if err := os.Symlink(l.Target, filepath.Join(s.dst.dir, l.Path)); err != nil {
			return err
		}
		if err := s.dst.stamp(l); err != nil {
			return err
		}
	}
	for _, e := range s.tree.Entries {
		if e.Kind == KindLink {
			continue
		}
		if err := s.dst.stamp(e); err != nil {
			return err
		}
	}
	return s.dst.stamp(Entry{Kind: KindDir})
}

// links returns the links that a snapshot holds.
func (t *Tree) links() []Entry {
	var list []Entry
	for _, e := range t.Entries {
		if e.Kind == KindLink {
			list = append(list, e)
		}
	}
	for _, r := range t.Refused {
		if r.Why == VenvInterpreter {
			list = append(list, Entry{Path: r.raw, Kind: KindLink, Target: r.target})
		}
	}
	return list
}

// destination is the directory of a new snapshot. It is empty at first, and only the daemon
// can reach it. The store renames it when it is complete.
type destination struct {
	dir   string
	owner Owner
}

// stamp sets the owner, mode and time of one entry. The zero path is the directory itself.
func (d *destination) stamp(e Entry) error {
	path := filepath.Join(d.dir, e.Path)
	if err := os.Lchown(path, d.owner.UID, d.owner.GID); err != nil {
		return err
	}
	if e.Kind != KindLink { // a link has no mode
		if err := os.Chmod(path, os.FileMode(e.mode())); err != nil {
			return err
		}
	}
	ts := unix.NsecToTimespec(ModTime.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimensat", Path: path, Err: err}
	}
	return nil
}

// mode returns the permission bits of an entry in a snapshot.
func (e Entry) mode() uint32 {
	if e.Kind == KindFile && !e.Executable {
		return 0o644
	}
	return 0o755
}
