package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reservedDirs are the paths of mounts, directories or files that every sandbox has.
// A root with a link at one of them is refused, because the link would lead elsewhere.
// A sandbox sees nothing of a root's hidden directories.
var reservedDirs = []struct {
	name   string
	hidden bool
}{
	{"dev", true}, {"etc", false}, {"home", true}, {"opt", true}, {"proc", true}, {"run", true}, {"skills", true},
	{"sys", true}, {"tmp", true}, {"usr", false}, {"var", false}, {"workspace", true},
}

// NewImageRoot builds a root file system at dir, which it makes: generated files over the
// directory image, which CheckImage must accept and which may not change from then on. links
// are further links, path to target. After an error the caller unmounts dir.
func NewImageRoot(dir, image string, links map[string]string) (*Root, error) {
	if err := CheckImage(image); err != nil {
		return nil, err
	}
	if err := makeOpenDir(dir); err != nil {
		return nil, err
	}
	if err := Tmpfs(dir, rootOptions); err != nil {
		return nil, err
	}
	made, below := filepath.Join(dir, "made"), filepath.Join(dir, "below")
	for _, dir := range []string{made, below} {
		if err := makeOpenDir(dir); err != nil {
			return nil, err
		}
	}
	if err := BindMapped(image, below, nil); err != nil {
		return nil, err
	}
	if err := makeOver(made, image, links); err != nil {
		return nil, err
	}
	return &Root{Layers: []Layer{{"/", []string{made, below}}}, links: links}, nil
}

// makeOver makes the generated layer: mount points, files and links. An opaque
// directory in it hides the directory beneath (overlayfs.rst). Node packages of the image itself
// stay visible.
func makeOver(dir, image string, links map[string]string) error {
	for _, d := range reservedDirs {
		path := filepath.Join(dir, d.name)
		if d.name == "sys" { // sandboxes have no /sys: a whiteout hides the root's (overlayfs.rst)
			if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
				return fmt.Errorf("hide /sys: %w", err)
			}
			continue
		}
		if err := makeOpenDir(path); err != nil {
			return err
		}
		if d.hidden {
			if err := unix.Lsetxattr(path, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
				return fmt.Errorf("hide /%s: %w", d.name, err)
			}
		}
	}
	if err := makeEmptyDirs(dir); err != nil {
		return err
	}
	if err := writeFiles(dir, madeUp); err != nil {
		return err
	}
	fixed := maps.Clone(fixedLinks)
	if _, err := os.Lstat(image + nodeLink); err == nil {
		delete(fixed, nodeLink)
	}
	return placeLinks(dir, fixed, links)
}

// makeOpenDir makes a directory that every sandbox may enter, whatever the umask.
func makeOpenDir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// CheckImage reports why a directory can't be the image of a Root. It must be a directory and no
// link, others may not write to it, and its reservedDirs must be directories. It may
// hold no pipe and no socket: sandboxes could use them to talk to one another or to
// the host.
func CheckImage(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%w; write a directory with a root file system", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; write a directory with a root file system", dir)
	}
	if err := onlyOurs(dir, info); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range reservedDirs {
		info, err := root.Lstat(d.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, _ := root.Readlink(d.name) // only for the message
			return fmt.Errorf("its /%s is a link to %q, but a sandbox needs a directory there; make it a directory, or remove it", d.name, target)
		}
		if !info.IsDir() {
			return fmt.Errorf("its /%s is not a directory, but a sandbox needs one there; make it a directory, or remove it", d.name)
		}
		if !d.hidden {
			if err := onlyOurs("/"+d.name, info); err != nil {
				return fmt.Errorf("its %w", err)
			}
		}
	}
	return onlyFiles(dir)
}

// onlyFiles refuses pipes and sockets: programs can use them even on a read-only mount.
func onlyFiles(dir string) error {
	seen := 0
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > maxRootFiles {
			return fmt.Errorf("it has more than %d files", maxRootFiles)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		if d.Type()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			return fmt.Errorf("its /%s is a pipe or a socket, through which sandboxes could communicate; remove it", name)
		}
		for _, r := range reservedDirs {
			if r.hidden && name == r.name {
				return filepath.SkipDir // sandboxes don't see it
			}
		}
		return nil
	})
}

// maxRootFiles bounds the number of files that onlyFiles visits.
const maxRootFiles = 5_000_000

// onlyOurs refuses a directory that a user other than root could change while sandboxes
// run programs from it.
func onlyOurs(name string, info fs.FileInfo) error {
	if info.Sys().(*syscall.Stat_t).Uid != 0 {
		return fmt.Errorf("%s does not belong to root", name)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %#o, so other users than root can change it; run chmod go-w on it", name, info.Mode().Perm())
	}
	return nil
}
