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
)

// Stage makes the lower layers of a workspace: the inputs above the snapshot, a
// host directory. has says whether the skill has anything at a path, or a file
// where the path has a directory; it may know more than the snapshot holds. Nil:
// the snapshot alone is asked. An empty snapshot: there is none.
//
// dir, which must not exist, becomes the place of the staged inputs, if there are
// any; it is closed to all but its owner, and what is in it belongs to Owner. An
// input that can't be there is an *InputError; then, and after any other error,
// nothing is left of dir. Sources that were moved by then are gone.
func Stage(dir, snapshot string, has func(path string) bool, inputs []Input) (*Workspace, error) {
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
	if err := plan.write(layer); err != nil {
		return nil, errors.Join(fmt.Errorf("stage inputs: %w", err), os.RemoveAll(dir))
	}
	w.dir = dir
	w.lower = append([]string{layer}, w.lower...)
	return w, nil
}

// planBeside is newPlan with the snapshot opened.
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

// write makes layer and everything planned in it.
func (p plan) write(layer string) error {
	if err := os.Mkdir(layer, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(layer)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := give(root, ".", 0o755); err != nil {
		return err
	}
	// In this order a directory comes before what is in it.
	for _, dir := range slices.Sorted(maps.Keys(p.dirs)) {
		if err := root.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := give(root, dir, p.dirs[dir]); err != nil {
			return err
		}
	}
	for _, in := range p.files {
		if err := in.write(root); err != nil {
			return err
		}
	}
	return nil
}

// give makes path the sandbox's, with a mode that no umask touches.
func give(root *os.Root, path string, mode fs.FileMode) error {
	if err := root.Chown(path, Owner, Owner); err != nil {
		return err
	}
	return root.Chmod(path, mode)
}

// write puts the input at its place.
func (in Input) write(root *os.Root) error {
	var err error
	if in.Source != "" {
		err = in.move(root)
	} else {
		err = fill(root, in.Path, func(f *os.File) error {
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
	return give(root, in.Path, mode)
}

// fill makes a file and its content.
func fill(root *os.Root, path string, content func(*os.File) error) error {
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

// move makes the source the input.
func (in Input) move(root *os.Root) error {
	dir, err := root.Open(path.Dir(in.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	// The plan has each path once, so nothing is replaced.
	err = unix.Renameat(unix.AT_FDCWD, in.Source, int(dir.Fd()), path.Base(in.Path))
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
	return fill(root, in.Path, func(f *os.File) error {
		_, err := io.Copy(f, io.LimitReader(from, MaxInputBytes))
		return err
	})
}
