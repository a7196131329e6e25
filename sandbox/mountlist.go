package sandbox

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A mountList is a list of detached mounts, which no process sees yet, with the targets to
// which the sandbox's init attaches them, in that order.
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

// premounts are mounts for a likely Spec, made before a request comes.
type premounts struct {
	list    *mountList
	spec    Spec
	sources []inode // the Spec's directories at the time of the mount
}

// An inode identifies a directory of the host. No other file gets its number while it is
// mounted.
type inode struct{ device, number uint64 }

func inodeAt(dir int, path string, flags int) (inode, error) {
	var s unix.Stat_t
	if err := unix.Fstatat(dir, path, &s, flags); err != nil {
		return inode{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return inode{s.Dev, s.Ino}, nil
}

// premount makes the mounts of the Spec for which c was made.
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

// fit reports whether s would get the same mounts now. A directory that was replaced in
// between has another inode.
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

// sameMounts reports whether a and b, which have one profile, mount the same directories.
func sameMounts(a, b Spec) bool {
	return slices.Equal(a.Workspace.Lower, b.Workspace.Lower) && slices.Equal(a.Mounts, b.Mounts)
}

// close closes the mounts. It may be called on nil, and more than once.
func (a *premounts) close() {
	if a != nil {
		a.list.close()
		a.list = &mountList{}
	}
}

// mounts returns the mounts of c's Spec. It uses the premounts if they fit.
func (c *sandbox) mounts() (*mountList, error) {
	ahead := c.premounts
	c.premounts = nil
	if ahead.fit(c.spec) {
		return ahead.list, nil
	}
	if ahead != nil { // no process has seen them: start again with a new staging
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

// executionMounts makes the mounts of c's Spec. Each sandbox has its own directories at
// /skills and /opt, so it does not see the mount points of other sandboxes.
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

// pointsUnder returns the directories that the mounts beneath top need, parents first,
// beginning with top. It returns nil if no mount is beneath top.
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

// mountsUnder adds a read-only directory at top, which contains only points, and the
// mounts beneath top. The first point is top.
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

// linksTree returns a detached mount of linksDir's parent, with the root's links.
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

// lockMount sets flags of a detached mount. After an error the mount is closed.
func lockMount(tree int, flags uint64) error {
	attr := unix.MountAttr{Attr_set: flags, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return fmt.Errorf("make mount read-only: %w", err)
	}
	return nil
}

// cloneMount returns a detached clone of the mount at a path of the daemon.
func cloneMount(at string) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone mount %s: %w", at, err)
	}
	return tree, nil
}
