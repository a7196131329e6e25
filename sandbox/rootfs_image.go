package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Root is a root file system that sandboxes see instead of the host's /usr and
// files of /etc. It is the lower layer of an overlay; the upper layer is generated.
// Sandboxes see all of the directory except for the hidden reservedDirs. The
// directory may not change while the Host is open.
type Root struct {
	Name  string            // for Spec.Root: [a-z0-9][a-z0-9._-]{0,63}
	Dir   string            // absolute; its last component is no link
	Links map[string]string // like Config.Links
}

var validRootName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxRoots bounds the number of mounts that each new mount namespace copies.
const maxRoots = 64

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

// checkRoots reports the first mistake in the configured roots.
func checkRoots(roots []Root) error {
	if len(roots) > maxRoots {
		return fmt.Errorf("%d root file systems: at most %d", len(roots), maxRoots)
	}
	seen := map[string]bool{}
	for _, r := range roots {
		if !validRootName.MatchString(r.Name) {
			return fmt.Errorf("root file system %q: want a name of [a-z0-9._-], at most 64 long", r.Name)
		}
		if seen[r.Name] {
			return fmt.Errorf("root file system %s: two have this name", r.Name)
		}
		seen[r.Name] = true
		if !filepath.IsAbs(r.Dir) {
			return fmt.Errorf("root file system %s: %q is not absolute", r.Name, r.Dir)
		}
	}
	return nil
}

// knowsRoot returns an error if the configuration has no root of that name.
func (h *Host) knowsRoot(name string) error {
	if name == "" {
		return nil
	}
	for _, r := range h.config.Roots {
		if r.Name == name {
			return nil
		}
	}
	return fmt.Errorf("root file system %q: none has this name", name)
}

// rootOf returns the directory where the layers of a root are mounted.
func (h *Host) rootOf(name string) string {
	return filepath.Join(h.instance.run, "root-"+name)
}

// linksOf returns the links of a root, path to target. The name "" is the host's root.
func (h *Host) linksOf(name string) map[string]string {
	for _, r := range h.config.Roots {
		if name != "" && r.Name == name {
			return r.Links
		}
	}
	return h.config.Links
}

// makeRoots mounts every root of the configuration.
func (h *Host) makeRoots() error {
	for _, r := range h.config.Roots {
		if err := h.makeRoot(r); err != nil {
			return fmt.Errorf("root file system %s: %w", r.Name, err)
		}
	}
	return nil
}

// freeRoots unmounts what makeRoots mounted.
func (h *Host) freeRoots() error {
	var errs []error
	for _, r := range h.config.Roots {
		errs = append(errs, detach(h.rootOf(r.Name)))
	}
	return errors.Join(errs...)
}

func (h *Host) makeRoot(r Root) error {
	if err := CheckRootDir(r.Dir); err != nil {
		return err
	}
	dir := h.rootOf(r.Name)
	if err := makeOpenDir(dir); err != nil {
		return err
	}
	return layRoot(dir, r)
}

// layersOf returns the directories of the generated layer and of the layer beneath it,
// of a root that layRoot mounted at dir.
func layersOf(dir string) (made, below string) {
	return filepath.Join(dir, "made"), filepath.Join(dir, "below")
}

// layRoot mounts two layers at dir: the generated one and r's directory. Each sandbox
// gets an overlay of them.
func layRoot(dir string, r Root) error {
	if err := mountTmpfs(dir, rootfsOptions); err != nil {
		return err
	}
	made, below := layersOf(dir)
	for _, dir := range []string{made, below} {
		if err := makeOpenDir(dir); err != nil {
			return err
		}
	}
	if err := bindMapped(r.Dir, below, nil); err != nil {
		return err
	}
	return makeOver(made, r.Links)
}

// makeOver makes the generated layer: mount points, files and links. An opaque
// directory in it hides the directory beneath (overlayfs.rst).
func makeOver(dir string, links map[string]string) error {
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
	if err := writeMadeUp(dir); err != nil {
		return err
	}
	return placeLinks(dir, fixedLinks, links)
}

// makeOpenDir makes a directory that every sandbox may enter, whatever the umask.
func makeOpenDir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// CheckRootDir reports why a directory can't be a Root. It must be a directory and no
// link, others may not write to it, and its reservedDirs must be directories. It may
// hold no pipe and no socket: sandboxes could use them to talk to one another or to
// the host.
func CheckRootDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
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
