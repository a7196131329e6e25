package runtime

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// searchPath lists the directories of interpreters, first match first, in the
// order of the sandbox's PATH.
var searchPath = []string{"usr/local/bin", "usr/bin", "usr/sbin"}

const (
	// maxLinks is how many links the kernel follows, path_resolution(7).
	maxLinks = 40
	// versionTimeout bounds one "--version".
	versionTimeout = 5 * time.Second
	// versionGrace bounds how long its pipes may stay open after its end.
	versionGrace = time.Second
	// versionBytes bounds how much of its output is read.
	versionBytes = 4 << 10 // programs print one line
)

// A finder looks for programs in a root file system with a sandbox's view of it.
type finder struct {
	root  string
	image bool // an image: all of it is visible but hiddenDirs
}

// searchPath returns the directories to search. Not every image has merged /bin into
// /usr.
func (f finder) searchPath() []string {
	if f.image {
		return append(slices.Clone(searchPath), "bin", "sbin")
	}
	return searchPath
}

// find returns the path of a program in the sandbox and the path that its links
// resolve to.
// A program without an executable bit is passed over, as execvp(3) does with EACCES.
func (f finder) find(name string) (program, target string, ok bool) {
	for _, dir := range f.searchPath() {
		target, ok := f.resolve(dir + "/" + name)
		if !ok {
			continue
		}
		fi, err := os.Lstat(filepath.Join(f.root, target))
		if err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return "/" + dir + "/" + name, target, true
		}
	}
	return "", "", false
}

// names lists the programs on the search path whose names match, in order.
// An image's directory may be huge, so readDirInside reads at most maxEntries of it.
func (f finder) names(pattern *lazyregexp.Regexp) []string {
	var names []string
	for _, dir := range f.searchPath() {
		entries, err := readDirInside(f.root, dir)
		if err != nil {
			continue // not every system has every directory
		}
		for _, e := range entries {
			if pattern.MatchString(e.Name()) && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

// resolve follows the links of a path within the root file system. On this machine
// only links in usr, in etc/alternatives and at the top level (bin -> usr/bin) count,
// and the result must lie in usr: a sandbox sees nothing else of this machine.
// filepath.EvalSymlinks would resolve absolute links against this machine's root instead of
// the image's.
func (f finder) resolve(name string) (target string, ok bool) {
	at, pending, links := "", strings.Split(name, "/"), 0
	for len(pending) > 0 {
		part := pending[0]
		pending = pending[1:]
		switch part {
		case "", ".":
			continue
		// At the root ".." stays at the root, as in the kernel (path_resolution(7)).
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, part)
		link, err := os.Readlink(filepath.Join(f.root, next))
		if err != nil { // not a link, or missing: Lstat below decides
			at = next
			continue
		}
		if links++; links > maxLinks || !f.linkCounts(next) {
			return "", false
		}
		if path.IsAbs(link) {
			at = ""
		}
		pending = append(strings.Split(link, "/"), pending...)
	}
	if f.image {
		return at, at != "" && !isHidden(at)
	}
	return at, strings.HasPrefix(at, "usr/")
}

// isHidden reports whether no sandbox sees a path of an image.
func isHidden(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains(hiddenDirs, top)
}

// linkCounts reports whether a link at name is also there in a sandbox. Of the host's root only
// /usr, the links into it and /etc/alternatives are; of an image everything that is not hidden.
func (f finder) linkCounts(name string) bool {
	if f.image {
		return !isHidden(name)
	}
	switch name {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return true
	}
	return strings.HasPrefix(name, "usr/") || strings.HasPrefix(name, "etc/alternatives/")
}

var versionNumber = lazyregexp.New(`[0-9]+\.[0-9]+(\.[0-9]+)?`)

// version runs a program with --version, without environment and input.
// The program belongs to this machine's root and is trusted as much as the daemon's own
// libraries. WaitDelay ends the wait if a child of the program keeps the pipe open.
func (f finder) version(ctx context.Context, target string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	var answer limitedBuffer
	cmd := exec.CommandContext(ctx, filepath.Join(f.root, target), "--version")
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &answer, &answer
	cmd.WaitDelay = versionGrace
	if err := cmd.Run(); err != nil {
		return "" // dash, for example, has no such option
	}
	return versionNumber.FindString(answer.String())
}

// A limitedBuffer keeps the first versionBytes and discards the rest.
type limitedBuffer struct{ bytes.Buffer }

// It never fails: a short write would end the program with SIGPIPE or an error.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), versionBytes-b.Len())])
	return len(p), nil
}
