package session

import (
	"errors"
	"os"
	"path"
)

// setTree makes the directory tree hold the files of a version, as hard links to its objects. It
// changes only what differs from the version that is there. A version without files needs no tree.
//
// No sandbox uses the tree at this time: the session has one writer, and its program has ended.
func (s *Store) setTree(x *session, to *manifest) error {
	if x.tree == to.Number && to.Number != 0 || len(to.files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(x.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tree{root, s.config.Owner}
	from := x.inTree()
	x.tree = 0 // until all is done
	// A tree that does not have the expected files is made again. So an interrupted change needs no repair.
	if from == nil || t.change(from.files, to.files) != nil {
		err = t.make(to.files)
	}
	if err == nil {
		x.tree = to.Number
	}
	return err
}

// inTree returns the version whose files the tree has. Nil: not known, or no longer kept.
func (x *session) inTree() *manifest {
	for _, m := range x.kept {
		if m.Number == x.tree {
			return m
		}
	}
	return nil
}

// tree changes the directory tree of a session. Paths never leave root, and it needs no limit on their
// length: os.Root goes one component at a time.
type tree struct {
	root  *os.Root
	owner Owner
}

// make makes the tree again, whatever is there.
func (t tree) make(files []File) error {
	if err := t.root.RemoveAll(treeName); err != nil {
		return err
	}
	if err := t.mkdir(treeName); err != nil {
		return err
	}
	return t.change(nil, files)
}

// change makes the tree with the files of from the tree with the files of to. It first removes, because
// a file may become a directory.
func (t tree) change(from, to []File) error {
	old := make(map[string]string, len(from))
	for _, f := range from {
		old[f.Path] = f.object
	}
	var add []File
	for _, f := range to {
		if old[f.Path] == f.object {
			delete(old, f.Path)
			continue
		}
		add = append(add, f)
	}
	// old now has the files that are only in from, and the files with another object in to.
	for p := range old {
		if err := t.remove(p); err != nil {
			return err
		}
	}
	for _, f := range add {
		if err := t.link(f); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file, and the directories that are empty then.
func (t tree) remove(p string) error {
	if err := t.root.Remove(path.Join(treeName, p)); err != nil {
		return err
	}
	for dir := range parents(p) {
		if t.root.Remove(path.Join(treeName, dir)) != nil {
			break // not empty
		}
	}
	return nil
}

// link makes the name of a file. Most files are in a directory that is there already, so link makes
// directories only after an error.
func (t tree) link(f File) error {
	name := path.Join(treeName, f.Path)
	err := t.root.Link(path.Join(objectsName, f.object), name)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for i, c := range []byte(name) {
		if c != '/' || i == len(treeName) {
			continue
		}
		if err := t.mkdir(name[:i]); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return t.root.Link(path.Join(objectsName, f.object), name)
}

// mkdir makes a directory of the tree, as the script's user sees it. Chmod follows, because the umask(2)
// reduces the mode of Mkdir.
func (t tree) mkdir(name string) error {
	if err := t.root.Mkdir(name, 0o700); err != nil {
		return err
	}
	return errors.Join(t.root.Chown(name, t.owner.UID, t.owner.GID), t.root.Chmod(name, 0o755))
}
