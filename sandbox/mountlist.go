package sandbox

import (
	"fmt"
	"path"
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

// add takes over the result of a function that made a mount: the list closes the descriptor. If
// err is not nil, add only returns it.
func (l *mountList) add(tree int, err error, target string) error {
	if err != nil {
		return err
	}
	l.trees = append(l.trees, tree)
	l.targets = append(l.targets, target)
	return nil
}

// close closes the descriptors. The kernel removes a detached mount with its last descriptor;
// an attached one stays.
func (l *mountList) close() { closeAll(l.trees) }

// mounts makes the mounts of c's Spec. Each sandbox has its own directories at
// /skills and /opt, so it does not see the mount points of other sandboxes.
func (c *sandbox) mounts() (*mountList, error) {
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
