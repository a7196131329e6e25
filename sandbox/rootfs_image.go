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
// its files of /etc: a directory, laid beneath what we make up. All of the
// directory can be seen but for what lies where a sandbox has its own:
// reservedDirs. It may not change while the Host is open.
type Root struct {
	Name  string            // what Spec.Root says: [a-z0-9][a-z0-9._-]{0,63}
	Dir   string            // absolute, its last component no link
	Links map[string]string // as Config.Links
}

var validRootName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxRoots bounds what every sandbox's mount namespace is copied from.
const maxRoots = 64

// reservedDirs are places where a sandbox has mounts, directories or files of its
// own. A link there would say that they belong elsewhere, so a root with one is
// refused. Of hidden ones nothing can be seen in a sandbox.
var reservedDirs = []struct {
	name   string
	hidden bool
}{
	{"dev", true}, {"etc", false}, {"home", true}, {"opt", true}, {"proc", true}, {"run", true}, {"skills", true},
	{"sys", true}, {"tmp", true}, {"usr", false}, {"var", false}, {"workspace", true},
}

// checkRoots says what is wrong with roots before anything is made of them.
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
			return fmt.Errorf("root file system %s: is there twice", r.Name)
		}
		seen[r.Name] = true
		if !filepath.IsAbs(r.Dir) {
			return fmt.Errorf("root file system %s: %q is not absolute", r.Name, r.Dir)
		}
	}
	return nil
}

// knowsRoot reports whether a Spec may name a root.
func (h *Host) knowsRoot(name string) error {
	if name == "" {
		return nil
	}
	for _, r := range h.config.Roots {
		if r.Name == name {
			return nil
		}
	}
	return fmt.Errorf("root file system %q: this host has none of that name", name)
}

// rootOf is where the layers of a root are mounted.
func (h *Host) rootOf(name string) string {
	return filepath.Join(h.instance.run, "root-"+name)
}

// linksOf are the links of a root, path to target.
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

// layersOf are what we make up and what it lies over, of a root whose layers layRoot
// mounted at dir.
func layersOf(dir string) (made, below string) {
	return filepath.Join(dir, "made"), filepath.Join(dir, "below")
}

// layRoot mounts at dir what we make up and r's directory, the layers of which each
// sandbox has an overlay.
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

// makeOver makes the layer that lies over a root: mount points, what is made up,
// and links. A directory of it that is opaque hides what is beneath.
func makeOver(dir string, links map[string]string) error {
	for _, d := range reservedDirs {
		path := filepath.Join(dir, d.name)
		if d.name == "sys" { // sandboxes have none: a whiteout
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

// CheckRootDir reports what makes a directory unfit to be a Root: it is a link or
// none, others may write to it, one of its reserved places is no directory, or it has
// a pipe or a socket, by which sandboxes could talk to one another or to the host.
func CheckRootDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
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
			target, _ := root.Readlink(d.name) // for the eye only
			return fmt.Errorf("its /%s is a link, to %q, where a sandbox has a directory of its own: make it a directory, or leave it out", d.name, target)
		}
		if !info.IsDir() {
			return fmt.Errorf("its /%s is no directory, where a sandbox has one of its own: make it one, or leave it out", d.name)
		}
		if !d.hidden {
			if err := onlyOurs("/"+d.name, info); err != nil {
				return fmt.Errorf("its %w", err)
			}
		}
	}
	return onlyFiles(dir)
}

// onlyFiles refuses pipes and sockets: a mount that is read-only doesn't close them.
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
			return fmt.Errorf("its /%s is a pipe or a socket, by which sandboxes could talk to others: remove it", name)
		}
		for _, r := range reservedDirs {
			if r.hidden && name == r.name {
				return filepath.SkipDir // which is not seen
			}
		}
		return nil
	})
}

// maxRootFiles bounds what is looked through.
const maxRootFiles = 5_000_000

// onlyOurs refuses a directory that somebody else could change while sandboxes run
// programs from it.
func onlyOurs(name string, info fs.FileInfo) error {
	if info.Sys().(*syscall.Stat_t).Uid != 0 {
		return fmt.Errorf("%s belongs to another user than root", name)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %#o, so that others than root can change it: chmod go-w it", name, info.Mode().Perm())
	}
	return nil
}
