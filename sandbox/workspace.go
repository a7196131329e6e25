package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// staging holds the mounts of one sandbox while libcontainer binds them in.
// They all lie beneath one tmpfs, whose upper directory becomes the
// workspace's changes, so that one detach takes them away again.
type staging struct {
	dir   string // the tmpfs
	mount string // the merged workspace
	skill []string
	upper *os.Root // stays open after the detach
}

// inodes that the staging itself needs on the tmpfs, beside lowers and mounts.
const stagingInodes = 8

// stage mounts the workspace and the extra directories of s beneath dir, which
// exists, for the script's host id.
func stage(dir string, s Spec, script uint32) (_ *staging, err error) {
	userns, err := openUserNamespace(script)
	if err != nil {
		return nil, err
	}
	defer userns.Close()
	w := s.Workspace
	inodes := w.Files + int64(len(w.Lower)+len(s.Mounts)+stagingInodes)
	if err := mountTmpfs(dir, fmt.Sprintf("mode=711,size=%d,nr_inodes=%d", w.SizeBytes, inodes)); err != nil {
		return nil, err
	}
	st := &staging{dir: dir, mount: filepath.Join(dir, "merged")}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	if err := st.overlay(w, userns, script); err != nil {
		return nil, err
	}
	for i, m := range s.Mounts {
		target, err := makeDir(dir, fmt.Sprintf("mount%d", i))
		if err != nil {
			return nil, err
		}
		var mapping *os.File
		if m.Owned {
			mapping = userns
		}
		if err := bindMapped(m.Source, target, mapping); err != nil {
			return nil, err
		}
		st.skill = append(st.skill, target)
	}
	return st, nil
}

// overlay mounts the workspace in the initial user namespace: mounted by the
// sandbox, files of a lower layer could not be copied up. The lower layers are
// clones that show the script as the owner of what belongs to 1000 on disk.
func (st *staging) overlay(w Workspace, userns *os.File, script uint32) error {
	var lowers []string
	for i, source := range w.Lower {
		target, err := makeDir(st.dir, fmt.Sprintf("lower%d", i))
		if err != nil {
			return err
		}
		if err := bindMapped(source, target, userns); err != nil {
			return err
		}
		lowers = append(lowers, target)
	}
	if len(lowers) == 0 { // an overlay needs one
		target, err := makeDir(st.dir, "empty")
		if err != nil {
			return err
		}
		lowers = []string{target}
	}
	upper, err := makeDir(st.dir, "upper")
	if err != nil {
		return err
	}
	if err := os.Chown(upper, int(script), int(script)); err != nil {
		return err
	}
	work, err := makeDir(st.dir, "work")
	if err != nil {
		return err
	}
	if _, err := makeDir(st.dir, "merged"); err != nil {
		return err
	}
	// Without redirects and metadata-only copies the upper layer holds every
	// change whole, so it is the list of artifacts. The price is EXDEV when a
	// directory of a lower layer is renamed, which programs answer by copying.
	options := "redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir=" + strings.Join(lowers, ":") +
		",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", st.mount, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay workspace: %w", err)
	}
	st.upper, err = os.OpenRoot(upper)
	return err
}

// release takes the mounts out of this process's namespace; the sandbox has
// its own by now. The upper layer stays open.
func (st *staging) release() error { return detach(st.dir) }

// close releases and closes everything. It can be called again.
func (st *staging) close() error {
	if st.upper != nil {
		st.upper.Close()
	}
	return st.release()
}

func makeDir(parent, name string) (string, error) {
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o755) // whatever the umask
}
