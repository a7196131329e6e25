package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A Root is a directory that holds skill folders, or is a skill folder.
type Root struct {
	Dir string
	// Namespace begins the full names of the root's skills. Empty: none. See ValidNamespace.
	Namespace string
	// Recursive: skill folders are at any level beneath Dir, up to 16. A folder with a manifest is a
	// skill, and folders in it are the skill's own. A link to a file beneath Dir is followed.
	Recursive bool
	// NoLinks refuses a link in any component of Dir. It is for a root whose owner may replace a directory by a
	// link to files that the daemon may read and the owner may not.
	NoLinks bool
}

// open opens the directory of a root. It follows links only if NoLinks is not set.
func (root Root) open() (*os.File, error) {
	if !root.NoLinks {
		return os.Open(root.Dir)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, root.Dir, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open without links", Path: root.Dir, Err: err}
	}
	return os.NewFile(uintptr(fd), root.Dir), nil
}

// ValidNamespace reports whether a root may have a namespace.
func ValidNamespace(namespace string) bool { return manifest.PublishedName(namespace) }

// ValidFullName reports whether a skill can have the name, with or without a namespace.
func ValidFullName(full string) bool {
	_, name := manifest.SplitName(full)
	return manifest.ValidName(name) == nil
}

// Roots returns roots that are not recursive.
func Roots(dirs ...string) (list []Root) {
	for _, dir := range dirs {
		list = append(list, Root{Dir: dir})
	}
	return list
}

// folder is a directory that may be a skill: one beneath a root, or the root itself.
type folder struct {
	root      *os.File
	relative  string // its path beneath root; "." is the root itself
	name      string // of the directory; the skill should have the same name
	path      string // for messages
	namespace string // of the root
	follow    bool   // links to files beneath root
}

// open follows no link. The caller closes the directory.
func (f folder) open() (*os.File, error) {
	dir, err := snapshot.OpenDir(f.root, f.relative)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return dir, nil
}

func (f folder) source(dir *os.File) snapshot.Source {
	if !f.follow {
		return snapshot.Source{Dir: dir}
	}
	return snapshot.Source{Dir: dir, Root: f.root, Path: f.relative}
}

// A search lists the folders of a root that may be skills.
type search struct {
	root      *os.File
	recursive bool
	namespace string
	entries   int // looked at so far

	found    []folder
	problems []Problem // of links, and of folders that are too deep
	lost     []Problem // of folders that can't be read
}

// foldersOf searches a root, in the order of paths. If the root itself has a manifest, it is the only
// folder. Files and hidden directories are skipped. A link to a directory is not followed; it is a
// problem.
func foldersOf(dir *os.File, root Root) (*search, error) {
	s := &search{root: dir, recursive: root.Recursive, namespace: root.Namespace}
	return s, s.dir(".", 0)
}

// dir searches a directory, which relative leads to.
func (s *search) dir(relative string, depth int) error {
	dir, err := snapshot.OpenDir(s.root, relative)
	if err != nil {
		return err
	}
	defer dir.Close()
	has, err := hasManifest(int(dir.Fd()))
	if err != nil {
		return err
	}
	if has {
		s.add(relative)
		return nil
	}
	names, err := s.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue // removed since the directory was read
		}
		if err != nil {
			return err
		}
		at := filepath.Join(relative, name)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			if err := s.subdir(at, depth+1); err != nil {
				return err
			}
		case unix.S_IFLNK:
			s.link(dir, name, at)
		}
	}
	return nil
}

// subdir takes a directory of a root as a folder, or searches it. An error is about the whole root.
func (s *search) subdir(at string, depth int) error {
	switch {
	case !s.recursive:
		s.add(at)
		return nil
	case depth > maxRootDepth:
		s.problems = append(s.problems, Problem{Folder: s.path(at), Err: ErrTooDeep})
		return nil
	}
	err := s.dir(at, depth)
	if bound := (*snapshot.BoundError)(nil); err == nil || errors.As(err, &bound) {
		return err
	}
	s.lost = append(s.lost, Problem{Folder: s.path(at), Err: err})
	return nil
}

// link notes a link in place of a folder. In a recursive root only links to directories count: such a
// root also has other files.
func (s *search) link(dir *os.File, name, at string) {
	var st unix.Stat_t
	if s.recursive && (unix.Fstatat(int(dir.Fd()), name, &st, 0) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR) {
		return
	}
	s.problems = append(s.problems, Problem{Folder: s.path(at), Err: ErrLinkedFolder})
}

func (s *search) add(relative string) {
	path := s.path(relative)
	s.found = append(s.found, folder{root: s.root, relative: relative, name: filepath.Base(path), path: path, namespace: s.namespace, follow: s.recursive})
}

func (s *search) path(relative string) string { return filepath.Join(s.root.Name(), relative) }

// names lists a directory in byte order, without names that can't be skills.
func (s *search) names(dir *os.File) ([]string, error) {
	most := maxRootNames
	if s.recursive {
		most = maxTreeNames
	}
	names, err := dir.Readdirnames(most - s.entries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if s.entries += len(names); s.entries > most {
		return nil, &snapshot.BoundError{What: "entries", Most: int64(most)}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, ".") || snapshot.Excluded(name) || name == "node_modules"
	})
	slices.Sort(names)
	return names, nil
}
