package sandbox

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A mountList is mounts that nobody sees yet, with the places where the sandbox's
// init puts them, in that order.
type mountList struct {
	trees   []int
	targets []string
}

func (l *mountList) add(tree int, err error, target string) error {
	if err != nil {
		return err
	}
	l.trees = append(l.trees, tree)
	l.targets = append(l.targets, target)
	return nil
}

func (l *mountList) close() { closeAll(l.trees) }

// premounts are mounts for a Spec that is likely to be asked for.
type premounts struct {
	list    *mountList
	spec    Spec
	sources []inode // of the Spec's directories when they were mounted
}

// An inode is a directory of the host. While it is mounted no other gets its number.
type inode struct{ device, number uint64 }

func inodeAt(dir int, path string, flags int) (inode, error) {
	var s unix.Stat_t
	if err := unix.Fstatat(dir, path, &s, flags); err != nil {
		return inode{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return inode{s.Dev, s.Ino}, nil
}

// premount makes the mounts of the Spec that c was made like.
func (c *sandbox) premount() error {
	list, err := c.executionMounts()
	c.premounts = &premounts{list: list, spec: c.spec}
	if err != nil {
		return err
	}
	for i := range c.spec.Workspace.Lower {
		if err := c.premounts.add(unix.AT_FDCWD, filepath.Join(c.staging.dir, lowerName(i))); err != nil {
			return err
		}
	}
	for _, m := range c.spec.Mounts {
		if err := c.premounts.add(list.trees[slices.Index(list.targets, m.Target)], ""); err != nil {
			return err
		}
	}
	return nil
}

func (a *premounts) add(dir int, path string) error {
	source, err := inodeAt(dir, path, unix.AT_EMPTY_PATH)
	a.sources = append(a.sources, source)
	return err
}

// fit says whether they are what s would get now. A directory that was replaced since
// is another inode.
func (a *premounts) fit(s Spec) bool {
	if a == nil || !sameMounts(a.spec, s) {
		return false
	}
	sources := slices.Clone(s.Workspace.Lower)
	for _, m := range s.Mounts {
		sources = append(sources, m.Source)
	}
	for i, source := range sources {
		now, err := inodeAt(unix.AT_FDCWD, source, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || now != a.sources[i] {
			return false
		}
	}
	return true
}

// sameMounts says whether a and b have the same directories, of sandboxes of one profile.
func sameMounts(a, b Spec) bool {
	return slices.Equal(a.Workspace.Lower, b.Workspace.Lower) && slices.Equal(a.Mounts, b.Mounts)
}

// close can be called of nil, and again.
func (a *premounts) close() {
	if a != nil {
		a.list.close()
		a.list = &mountList{}
	}
}

// mounts returns the mounts of c's Spec: those that were made before, if they fit.
func (c *sandbox) mounts() (*mountList, error) {
	ahead := c.premounts
	c.premounts = nil
	if ahead.fit(c.spec) {
		return ahead.list, nil
	}
	if ahead != nil { // nobody has seen them: from the beginning
		ahead.close()
		err := c.staging.close()
		if err == nil {
			c.staging, err = newStaging(c.dir, c.spec.Workspace, usualPoints, c.ids.script())
		}
		if err != nil {
			return &mountList{}, err
		}
	}
	return c.executionMounts()
}

// executionMounts makes the mounts of c's Spec. Beneath /skills and /opt each sandbox has
// a directory of its own, so that no mount point of another is seen.
func (c *sandbox) executionMounts() (*mountList, error) {
	l := &mountList{}
	s := c.spec
	skills, opt := s.pointsUnder("/skills"), s.pointsUnder("/opt")
	points := len(s.Workspace.Lower) + len(skills) + len(opt) + len(s.Mounts)
	if len(opt) > 0 {
		points += linkInodes(c.host.linksOf(s.Root))
	}
	if err := c.staging.makeRoom(s.Workspace, points); err != nil {
		return l, err
	}
	if err := c.staging.overlay(s.Workspace, c.userns); err != nil {
		return l, err
	}
	tree, err := cloneMount(c.staging.mount)
	if err := l.add(tree, err, workspaceDir); err != nil {
		return l, err
	}
	if err := c.mountsUnder(l, "/skills", skills); err != nil {
		return l, err
	}
	if err := c.mountsUnder(l, "/opt", opt); err != nil || s.Network != NetworkHost {
		return l, err
	}
	return l, c.staging.addServers(l)
}

// pointsUnder are the directories that the mounts beneath top need, each after the one
// that it is in, top first. None: there is no such mount.
func (s Spec) pointsUnder(top string) (points []string) {
	add := func(point string) {
		for i := range len(point) + 1 {
			if i > 0 && (i == len(point) || point[i] == '/') && !slices.Contains(points, point[:i]) {
				points = append(points, point[:i])
			}
		}
	}
	for _, m := range s.Mounts {
		if strings.HasPrefix(m.Target, top+"/") {
			add(m.Target)
		}
	}
	if len(points) > 0 && top == "/opt" {
		add(path.Dir(linksDir))
	}
	return points
}

// mountsUnder adds a read-only directory at top with nothing in it but points, of which
// the first is top, and the mounts that go there.
func (c *sandbox) mountsUnder(l *mountList, top string, points []string) error {
	if len(points) == 0 {
		return nil
	}
	tree, err := c.staging.clonePoints(points)
	if err := l.add(tree, err, top); err != nil {
		return err
	}
	if top == "/opt" {
		tree, err := c.linksTree()
		if err := l.add(tree, err, path.Dir(linksDir)); err != nil {
			return err
		}
	}
	for i, m := range c.spec.Mounts {
		if !strings.HasPrefix(m.Target, top+"/") {
			continue
		}
		tree, err := c.staging.ownMount(c.spec.Workspace, i, m, c.userns)
		if err := l.add(tree, err, m.Target); err != nil {
			return err
		}
	}
	return nil
}

// linksTree is a mount of what goes above linksDir that nobody sees yet.
func (c *sandbox) linksTree() (int, error) {
	dir, err := c.staging.linksIn(c.host.linksOf(c.spec.Root))
	if err != nil {
		return -1, err
	}
	tree, err := cloneMount(dir)
	if err != nil {
		return -1, err
	}
	return tree, lockMount(tree, lockedDown)
}

// lockMount sets flags of a mount that nobody sees yet, which it closes if it can't.
func lockMount(tree int, flags uint64) error {
	attr := unix.MountAttr{Attr_set: flags, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return fmt.Errorf("make mount read-only: %w", err)
	}
	return nil
}

// cloneMount is the mount at a place of ours again, seen by nobody.
func cloneMount(at string) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone mount %s: %w", at, err)
	}
	return tree, nil
}
