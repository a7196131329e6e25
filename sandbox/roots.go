package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A Root is a root file system that sandboxes see instead of the host's /usr and
// files of /etc. It is the lower layer of an overlay; the upper layer is generated.
// Sandboxes see all of the directory except for the hidden directories: the places of mounts,
// and private ones such as /home. The directory may not change while the Host is open.
type Root struct {
	Name  string            // for Spec.Root: [a-z0-9][a-z0-9._-]{0,63}
	Dir   string            // absolute; its last component is no link; CheckRootDir says what else
	Links map[string]string // like Config.Links
}

// CheckRootDir reports why a directory can't be a Root. It must be a directory and no
// link, others may not write to it, and the directories that every sandbox has must not be
// links in it. It may hold no pipe and no socket: sandboxes could use them to talk to one
// another or to the host.
func CheckRootDir(dir string) error { return mount.CheckImage(dir) }

var validRootName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxRoots bounds the number of mounts that each new mount namespace copies.
const maxRoots = 64

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

// rootfs is where the host's root is mounted. The zygote has it as its own root.
func (h *Host) rootfs() string { return filepath.Join(h.instance.run, "rootfs") }

// rootOf returns the directory where the layers of a root of the configuration are mounted.
func (h *Host) rootOf(name string) string { return filepath.Join(h.instance.run, "root-"+name) }

// nameServers is the directory that goes over the root of a sandbox with a network.
func (h *Host) nameServers() string { return filepath.Join(h.instance.run, "name-servers") }

// makeRoots mounts the host's root and every root of the configuration. It also makes the directory nameServers.
func (h *Host) makeRoots() (err error) {
	if err := os.Mkdir(h.rootfs(), 0o755); err != nil {
		return err
	}
	if err := mount.NewNameServers(h.nameServers(), resolvConf); err != nil {
		return err
	}
	// Python imports the module sitecustomize at its start (site.py).
	files := map[string]string{}
	for name, text := range pyzygote.Files() {
		files[filepath.Join(pyzygote.Dir, name)] = text
	}
	h.roots = map[string]*mount.Root{}
	if h.roots[""], err = mount.NewHostRoot(h.rootfs(), h.config.Links, files); err != nil {
		return err
	}
	for _, r := range h.config.Roots {
		if h.roots[r.Name], err = mount.NewImageRoot(h.rootOf(r.Name), r.Dir, r.Links); err != nil {
			return fmt.Errorf("root file system %s: %w", r.Name, err)
		}
	}
	return nil
}

// freeRoots unmounts what makeRoots mounted, also after an error of makeRoots.
func (h *Host) freeRoots() error {
	errs := []error{mount.Detach(h.rootfs())}
	for _, r := range h.config.Roots {
		errs = append(errs, mount.Detach(h.rootOf(r.Name)))
	}
	return errors.Join(errs...)
}

// knowsRoot returns an error if no root has that name. The name "" is the host's root.
func (h *Host) knowsRoot(name string) error {
	if h.roots[name] == nil {
		return fmt.Errorf("root file system %q: none has this name", name)
	}
	return nil
}

// rootTrees returns the mounts of c's root. The caller releases the list, also after an error.
func (c *sandbox) rootTrees() (*mount.List, error) {
	var over []string
	if c.spec.Network != nil {
		over = []string{c.host.nameServers()}
	}
	l, err := c.staging.RootTrees(c.host.roots[c.spec.Root], over...)
	if err == nil {
		err = faultyMounts(c, l)
	}
	return l, err
}
