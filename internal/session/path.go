package session

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of a path: PATH_MAX and NAME_MAX of Linux, and what package workspace collects.
const (
	maxPathBytes = unix.PathMax
	maxNameBytes = 255
	maxDepth     = 128
)

// checkPath returns a *PathError unless p can be the path of a file. Every other byte than "/" and NUL
// may be in a name.
func checkPath(p string) error {
	reason := ""
	switch {
	case p == "":
		reason = "is empty"
	case len(p) > maxPathBytes:
		reason = fmt.Sprintf("has more than %d bytes", maxPathBytes)
	case strings.IndexByte(p, 0) >= 0:
		reason = "has a NUL"
	case strings.Count(p, "/") >= maxDepth:
		reason = fmt.Sprintf("has more than %d components", maxDepth)
	}
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case reason != "":
		case name == "" || name == "." || name == "..":
			reason = fmt.Sprintf("has the component %q", name)
		case len(name) > maxNameBytes:
			reason = fmt.Sprintf("has a component of more than %d bytes", maxNameBytes)
		}
	}
	if reason != "" {
		return &PathError{p, reason}
	}
	return nil
}

// parents yields the directories above a path, from the nearest on.
func parents(p string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
			if !yield(p[:i]) {
				return
			}
		}
	}
}

// isBeneath reports whether a path is in one of the directories.
func isBeneath(path string, dirs map[string]bool) bool {
	for dir := range parents(path) {
		if dirs[dir] {
			return true
		}
	}
	return false
}
