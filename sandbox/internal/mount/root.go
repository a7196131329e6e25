package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// Directories of a sandbox.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/skill"
	LinksDir     = "/opt/skillrun/bin" // links to interpreters; at the end of PATH
)

// A Root is a root file system that sandboxes see. It is mounted in this process's mount
// namespace.
type Root struct {
	// Layers are the overlays of which the root consists, outer mounts first. The first one
	// is at "/". Only fault injection changes them after the Root is made.
	Layers []Layer
	// Table lists all paths that a sandbox without binds sees, for the host's root. A path
	// with a slash at its end is a directory that holds only paths of the list. A directory
	// without a slash at its end may hold any file. nil: the root is an image's.
	Table []string
	links map[string]string // path to target
}

// A Layer is one overlay: directories of this process's mount namespace, uppermost first,
// and the place in the sandbox at which it is mounted.
type Layer struct {
	Place string
	Dirs  []string
}

// maxPlaces bounds the overlays of which a root consists. The zygote counts /dev as well.
const maxPlaces = pid1.MaxPlaces - 1

// Places are where the mounts of the root go in a sandbox, in the order of
// Staging.RootTrees. Every root has the first two.
func (r *Root) Places() []string {
	places := []string{"/", "/dev"}
	for _, layer := range r.Layers[1:] {
		places = append(places, layer.Place)
	}
	return places
}

// NewNameServers makes the directory dir, which goes over any root ([Staging.RootTrees]) and gives it another
// /etc/resolv.conf with this text.
func NewNameServers(dir, text string) error {
	etc := filepath.Join(dir, "etc")
	if err := errors.Join(makeOpenDir(dir), makeOpenDir(etc)); err != nil {
		return err
	}
	return writeFile(filepath.Join(etc, "resolv.conf"), text)
}

// directoriesMounted lists the directories that are mounted beneath dir, relative to dir,
// outer mounts first. Sandboxes do not see files that are mounted there, because a file
// can't be a layer of an overlay.
func directoriesMounted(dir string) ([]string, error) {
	points, err := Points(dir)
	if err != nil {
		return nil, err
	}
	slices.Reverse(points) // oldest first
	var places []string
	for _, p := range points {
		info, err := os.Lstat(p)
		if err != nil {
			return nil, err
		}
		if place := strings.TrimPrefix(p, dir); place != "" && info.IsDir() && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) >= maxPlaces {
		return nil, fmt.Errorf("%d directories are mounted in /usr; at most %d are possible", len(places)-1, maxPlaces-2)
	}
	return places, nil
}
