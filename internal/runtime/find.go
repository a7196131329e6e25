package runtime

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// searchPath is where interpreters are looked for, first match first: the order
// of the sandbox's own PATH.
var searchPath = []string{"usr/local/bin", "usr/bin", "usr/sbin"}

const (
	// maxLinks is how many links the kernel follows, path_resolution(7).
	maxLinks = 40
	// versionTimeout bounds one "--version".
	versionTimeout = 5 * time.Second
	// versionGrace is how long its pipes may stay open after that.
	versionGrace = time.Second
	// versionBytes bounds what is read of its answer.
	versionBytes = 4 << 10
)

// A finder looks for programs in a root file system as a sandbox would see it.
type finder struct {
	root  string
	image bool // a sandbox sees all of it but hiddenDirs
}

// searchPath is that of the root file system: not every image has merged /bin into
// /usr.
func (f finder) searchPath() []string {
	if f.image {
		return append(slices.Clone(searchPath), "bin", "sbin")
	}
	return searchPath
}

// find returns the path of a program in the sandbox, and where its links lead.
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
func (f finder) names(pattern *regexp.Regexp) []string {
	var names []string
	for _, dir := range f.searchPath() {
		entries, err := readDirInside(f.root, dir)
		if err != nil {
			continue // not every system has all of them
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

// resolve follows the links of a path within the root file system. Of this machine
// only links of usr, of etc/alternatives and of the top level (bin -> usr/bin) count,
// and the end must lie in usr: nothing else of the root file system is in a sandbox.
func (f finder) resolve(name string) (target string, ok bool) {
	at, pending, links := "", strings.Split(name, "/"), 0
	for len(pending) > 0 {
		part := pending[0]
		pending = pending[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, part)
		link, err := os.Readlink(filepath.Join(f.root, next))
		if err != nil { // no link, or nothing: Lstat will tell
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

// isHidden reports whether a path of an image is in no sandbox.
func isHidden(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains(hiddenDirs, top)
}

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

var versionNumber = regexp.MustCompile(`[0-9]+\.[0-9]+(\.[0-9]+)?`)

// version asks a program for its version. It gets no environment and no input.
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
		return "" // dash, for one, has no such option
	}
	return versionNumber.FindString(answer.String())
}

// A limitedBuffer keeps the first versionBytes and swallows the rest.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), versionBytes-b.Len())])
	return len(p), nil
}
