package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Source is a skill's folder. If Root is set, a link that leads out of the folder to a regular
// file beneath Root counts as that file: repositories share scripts and manifests between skills
// by such links. All other links out of the folder are refused.
type Source struct {
	Dir  *os.File
	Root *os.File // nil: no link out of the folder is followed
	Path string   // of Dir beneath Root
}

// openForReading never blocks: a FIFO or a leased file may have replaced the file (open(2), fcntl(2)).
const openForReading = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// openBeneath opens a path that must not lead out of dir. It retries after EINTR, and after EAGAIN:
// then an entry beneath dir was renamed during the call (openat2(2)).
func openBeneath(dir *os.File, path string, flags int, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
	for attempt := 0; ; attempt++ {
		fd, err := unix.Openat2(int(dir.Fd()), path, how)
		again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN)
		if !again || attempt == maxLinks {
			return fd, err
		}
	}
}

// leaves reports whether a link at path, with this target, leads out of the folder.
func leaves(path, target string) bool {
	return !filepath.IsAbs(target) && !filepath.IsLocal(filepath.Join(filepath.Dir(path), target))
}

// openLinked opens the file that a link at path leads to. The file is beneath Root, and no name on
// the way to it is excluded. The error is errNotFollowed if the link must not be followed.
func (src Source) openLinked(path string) (int, error) {
	if src.Root == nil {
		return -1, errNotFollowed
	}
	fd, err := openBeneath(src.Root, filepath.Join(src.Path, path), openForReading, 0)
	if err != nil {
		return -1, errNotFollowed
	}
	at, err := src.beneathRoot(fd)
	if err != nil || slices.ContainsFunc(strings.Split(at, "/"), Excluded) {
		unix.Close(fd)
		return -1, errors.Join(errNotFollowed, err)
	}
	return fd, nil
}

var errNotFollowed = errors.New("the link leads out of the skill")

// beneathRoot returns the path of an open file beneath Root.
func (src Source) beneathRoot(fd int) (string, error) {
	file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	root, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", src.Root.Fd()))
	if err != nil {
		return "", err
	}
	return filepath.Rel(root, file)
}
