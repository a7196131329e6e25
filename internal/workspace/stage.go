package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/beneath"
)

// Stage creates the lower layers of a workspace: the inputs, above the snapshot. snapshot
// is a directory on the host, or empty without a skill. has reports whether an input
// at a path would collide with the skill (see skill.Skill.Has). It knows refused entries,
// which the snapshot does not hold. If has is nil, only the snapshot is checked.
//
// dir must not exist. If there are inputs, Stage creates it with mode 0700 and gives the
// files in it to owner. An input with an invalid path is an *InputError. After any
// error Stage has removed dir, together with the sources that were already moved there.
func Stage(dir string, owner Owner, snapshot string, has func(path string) bool, inputs []Input) (*Workspace, error) {
	w := &Workspace{}
	if snapshot != "" {
		w.lower = []string{snapshot}
	}
	if len(inputs) == 0 {
		return w, nil
	}
	plan, err := planBeside(snapshot, has, inputs)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("stage inputs: %w", err)
	}
	layer := filepath.Join(dir, "inputs")
	if err := plan.write(layer, owner); err != nil {
		if _, callers := errors.AsType[*InputError](err); !callers {
			err = fmt.Errorf("stage inputs: %w", err)
		}
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.dir = dir
	w.lower = append([]string{layer}, w.lower...)
	return w, nil
}

// planBeside opens the snapshot and calls newPlan.
func planBeside(snapshot string, has func(string) bool, inputs []Input) (plan, error) {
	if snapshot == "" {
		return newPlan(nil, has, inputs)
	}
	root, err := os.OpenRoot(snapshot)
	if err != nil {
		return plan{}, err
	}
	defer root.Close()
	return newPlan(root, has, inputs)
}

// write creates the directory layer and the planned files in it.
func (p plan) write(layer string, owner Owner) error {
	if err := os.Mkdir(layer, 0o700); err != nil {
		return err
	}
	top, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := owner.give(top, ".", 0o755); err != nil {
		return err
	}
	// Sorted, a directory comes before its entries.
	for _, dir := range slices.Sorted(maps.Keys(p.dirs)) {
		if err := makeDir(top, dir, owner, p.dirs[dir].mode); err != nil {
			return err
		}
	}
	hidden := whiteouts{top: top}
	defer hidden.close()
	for _, in := range p.files {
		if in.Whiteout {
			err = hidden.make(in.Path)
		} else {
			err = in.write(top, owner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whiteouts makes whiteouts: see "whiteouts and opaque directories" in
// Documentation/filesystems/overlayfs.rst. Since Linux 5.8 that needs no capability. A session can have thousands
// of hidden files. So the last folder stays open, and the whiteouts are hard links to the first one: on ext4 a
// link takes a tenth of the time of a new inode.
type whiteouts struct {
	top   *os.File
	name  string   // of dir
	dir   *os.File // the last folder; nil: no folder is open
	first *os.File // the folder of the whiteout to link; nil: no whiteout exists yet
	base  string   // the name of that whiteout in first
}

// make hides one path, which is relative to top. Its folder must exist. Paths that are sorted by folder are quick.
func (w *whiteouts) make(name string) error {
	if folder := path.Dir(name); w.dir == nil || w.name != folder {
		dir, err := beneath.OpenDir(w.top, folder)
		if err != nil {
			return err
		}
		w.leave()
		w.name, w.dir = folder, dir
	}
	at, base := int(w.dir.Fd()), path.Base(name)
	if w.first != nil && unix.Linkat(int(w.first.Fd()), w.base, at, base, 0) == nil {
		return nil
	}
	// No whiteout exists yet, or the first one has as many links as a file may have.
	if err := unix.Mknodat(at, base, unix.S_IFCHR, 0); err != nil {
		return &os.PathError{Op: "mknod", Path: name, Err: err}
	}
	if w.first != nil && w.first != w.dir {
		w.first.Close()
	}
	w.first, w.base = w.dir, base
	return nil
}

// leave closes the last folder, unless first is in it.
func (w *whiteouts) leave() {
	if w.dir != nil && w.dir != w.first {
		w.dir.Close()
	}
	w.dir = nil
}

func (w *whiteouts) close() {
	w.leave()
	if w.first != nil {
		w.first.Close()
	}
}

// makeDir makes a directory beneath top, whose parent exists.
func makeDir(top *os.File, name string, owner Owner, mode fs.FileMode) error {
	dir, err := beneath.OpenDir(top, path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mkdirat(int(dir.Fd()), path.Base(name), 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return owner.give(dir, path.Base(name), mode)
}

// give sets the owner of an entry of dir and its mode, regardless of the umask. The entry is no link.
func (o Owner) give(dir *os.File, name string, mode fs.FileMode) error {
	if err := unix.Fchownat(int(dir.Fd()), name, o.UID, o.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	if err := unix.Fchmodat(int(dir.Fd()), name, uint32(mode), 0); err != nil {
		return &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}

// write creates the input's file.
func (in Input) write(top *os.File, owner Owner) error {
	dir, err := beneath.OpenDir(top, path.Dir(in.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := path.Base(in.Path)
	switch {
	case in.Source != "":
		err = in.move(dir, name)
	case in.Open != nil:
		err = in.copy(dir, name)
	default:
		err = fill(dir, name, func(f *os.File) error {
			_, err := f.Write(in.Content)
			return err
		})
	}
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if in.Executable {
		mode = 0o755
	}
	return owner.give(dir, name, mode)
}

// copy copies the file that Open opens.
func (in Input) copy(dir *os.File, name string) error {
	from, err := in.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	return fill(dir, name, func(f *os.File) error {
		_, err := io.Copy(f, io.NewSectionReader(from, 0, MaxInputBytes))
		return err
	})
}

// fill creates a file in dir and calls content to write it.
func fill(dir *os.File, name string, content func(*os.File) error) error {
	f, err := beneath.Open(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

// move renames the source to an entry of dir, or copies it from another file system.
func (in Input) move(dir *os.File, name string) error {
	// Renameat replaces nothing, because the plan has each path only once.
	err := unix.Renameat(unix.AT_FDCWD, in.Source, int(dir.Fd()), name)
	if err != unix.EXDEV {
		if err != nil {
			err = &os.LinkError{Op: "rename", Old: in.Source, New: in.Path, Err: err}
		}
		return err
	}
	from, err := os.OpenFile(in.Source, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	return fill(dir, name, func(f *os.File) error {
		_, err := io.Copy(f, io.LimitReader(from, MaxInputBytes))
		return err
	})
}
