package mount

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Bind is a directory of the host that is visible in the sandbox, read-only.
type Bind struct {
	Source string
	Target string // beneath /skills or /opt
	Owned  bool   // the files belong to the script's id on disk and appear as the script's; else owners aren't mapped
}

// mapping is the user namespace through which the owners of b's files are shown.
func (b Bind) mapping(userns *os.File) *os.File {
	if b.Owned {
		return userns
	}
	return nil
}

// An Execution says which mounts one execution adds to a waiting sandbox.
type Execution struct {
	Lower []string // directories of the host beneath the workspace's upper layer, topmost first
	Binds []Bind
}

// Mounts makes the mounts of an execution, in a sandbox with the given root. userns is the
// sandbox's user namespace. It is called once. The list is valid after an error, too: it has the
// mounts that were made before, and the caller releases it.
//
// Each sandbox has its own directories at /skills and /opt, so it does not see the mount
// points of other sandboxes.
func (st *Staging) Mounts(root *Root, e Execution, userns *os.File) (*List, error) {
	l := &List{}
	skills, opt := e.pointsUnder("/skills"), e.pointsUnder("/opt")
	points := len(e.Lower) + len(skills) + len(opt) + len(e.Binds)
	if len(opt) > 0 {
		points += linkInodes(root.links)
	}
	if err := st.makeRoom(points); err != nil {
		return l, err
	}
	if err := st.overlay(e.Lower, userns); err != nil {
		return l, err
	}
	tree, err := cloneMount(st.merged())
	if err := l.add(tree, err, WorkspaceDir); err != nil {
		return l, err
	}
	if err := st.mountsUnder(l, "/skills", skills, root, e, userns); err != nil {
		return l, err
	}
	return l, st.mountsUnder(l, "/opt", opt, root, e, userns)
}

// pointsUnder returns the directories that the binds beneath top need, parents first,
// beginning with top. It returns nil if no bind is beneath top.
func (e Execution) pointsUnder(top string) (points []string) {
	add := func(point string) {
		for i := range len(point) + 1 {
			if i > 0 && (i == len(point) || point[i] == '/') && !slices.Contains(points, point[:i]) {
				points = append(points, point[:i])
			}
		}
	}
	for _, b := range e.Binds {
		if strings.HasPrefix(b.Target, top+"/") {
			add(b.Target)
		}
	}
	if len(points) > 0 && top == "/opt" {
		add(path.Dir(LinksDir))
	}
	return points
}

// mountsUnder adds a read-only directory at top, which contains only points, and the
// mounts beneath top. The first point is top.
func (st *Staging) mountsUnder(l *List, top string, points []string, root *Root, e Execution, userns *os.File) error {
	if len(points) == 0 {
		return nil
	}
	tree, err := st.clonePoints(points)
	if err := l.add(tree, err, top); err != nil {
		return err
	}
	if top == "/opt" {
		tree, err := st.cloneLinks(root.links)
		if err := l.add(tree, err, path.Dir(LinksDir)); err != nil {
			return err
		}
	}
	for i, b := range e.Binds {
		if !strings.HasPrefix(b.Target, top+"/") {
			continue
		}
		tree, err := st.cloneBind(e.Lower, i, b, userns)
		if err := l.add(tree, err, b.Target); err != nil {
			return err
		}
	}
	return nil
}

// clonePoints makes directories on the tmpfs, outside the workspace. It returns a detached
// read-only mount of the first one, which contains the others.
func (st *Staging) clonePoints(points []string) (int, error) {
	for _, point := range points {
		if _, err := makeDir(st.dir, point); err != nil {
			return -1, err
		}
	}
	return CloneReadOnly(st.dir+points[0], unix.MOUNT_ATTR_NOEXEC)
}

// cloneBind returns a detached mount of b's directory, made by layTree. If the directory is
// already mounted as a lower layer of the workspace, cloneBind uses that mount. i is b's index
// in its Execution.
func (st *Staging) cloneBind(lower []string, i int, b Bind, userns *os.File) (int, error) {
	if at := slices.Index(lower, b.Source); at >= 0 && b.Owned {
		return st.layTree(filepath.Join(st.dir, lowerName(at)))
	}
	target, err := makeDir(st.dir, fmt.Sprintf("below%d", i))
	if err != nil {
		return -1, err
	}
	if err := BindMapped(b.Source, target, b.mapping(userns)); err != nil {
		return -1, err
	}
	return st.layTree(target)
}

// cloneLinks makes the links of LinksDir again, for a sandbox in which a mount at /opt hides
// the root's links. It returns a detached mount of the parent directory of LinksDir.
func (st *Staging) cloneLinks(links map[string]string) (int, error) {
	top := filepath.Join(st.dir, "links")
	own := map[string]string{}
	for path, target := range links {
		if filepath.Dir(path) == LinksDir {
			own[path] = target
		}
	}
	if err := os.MkdirAll(top+LinksDir, 0o755); err != nil {
		return -1, err
	}
	if err := placeLinks(top, own); err != nil {
		return -1, err
	}
	return CloneReadOnly(top+filepath.Dir(LinksDir), 0)
}

// linkInodes is the number of inodes that cloneLinks uses.
func linkInodes(links map[string]string) int { return 4 + len(links) }
