package environment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
)

// Bounds on what is read to know what is installed.
const (
	maxMetadata      = 1 << 20 // bytes of one METADATA; name and version stand at its begin
	maxDistributions = 20_000
)

// installed is what an interpreter can import by distribution: version by normal
// name. The version may be empty: nobody says it.
type installed map[string]string

// sitesOf are the directories beneath a root file system in which a Python of the
// system looks for packages, and its standard library's.
func sitesOf(python runtime.Runtime) (sites, libraries []string) {
	v := minorOf(python.Version)
	local := []string{"usr/local/lib/python" + v + "/dist-packages", "usr/local/lib/python" + v + "/site-packages", "usr/local/lib64/python" + v + "/site-packages"}
	if strings.HasPrefix(python.Path, "/usr/local/") {
		return local, []string{"usr/local/lib/python" + v}
	}
	return append(local, "usr/lib/python3/dist-packages", "usr/lib/python"+v+"/dist-packages", "usr/lib/python"+v+"/site-packages", "usr/lib64/python"+v+"/site-packages"),
		[]string{"usr/lib/python" + v, "usr/lib64/python" + v}
}

// readSites lists the distributions in directories of root. A directory that is
// not there has none. stamp changes when one of them does.
func readSites(root string, sites []string) (found installed, err error) {
	found = installed{}
	for _, site := range sites {
		dir := filepath.Join(root, site)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("installed packages: %w", err)
		}
		for _, e := range entries {
			if len(found) >= maxDistributions {
				return found, nil
			}
			found.add(e.Name(), func(file string) (io.ReadCloser, error) { return os.Open(filepath.Join(dir, e.Name(), file)) })
		}
	}
	return found, nil
}

// add notes a distribution by the name of its metadata: "PyYAML-6.0.dist-info".
func (in installed) add(entry string, open func(file string) (io.ReadCloser, error)) {
	base, isInfo := strings.CutSuffix(entry, ".dist-info")
	files := []string{"METADATA"}
	if !isInfo {
		var isEgg bool
		if base, isEgg = strings.CutSuffix(entry, ".egg-info"); !isEgg {
			return
		}
		files = []string{"PKG-INFO", ""} // a directory, or a file
	}
	name, version, _ := strings.Cut(base, "-")
	if !isInfo { // name-version-py3.11
		version, _, _ = strings.Cut(version, "-py")
	}
	for _, file := range files {
		r, err := open(file)
		if err != nil {
			continue
		}
		n, v := metadata(r)
		r.Close()
		if n != "" {
			name, version = n, v
			break
		}
	}
	key := skill.NormalName(name)
	if _, ok := in[key]; !ok { // the first on the path counts
		in[key] = version
	}
}

// metadata reads the name and the version of a core metadata file.
func metadata(r io.Reader) (name, version string) {
	lines := bufio.NewScanner(io.LimitReader(r, maxMetadata))
	for lines.Scan() && lines.Text() != "" && (name == "" || version == "") {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.ToLower(key) {
		case "name":
			name = strings.TrimSpace(value)
		case "version":
			version = strings.TrimSpace(value)
		}
	}
	return name, version
}

// inVenv lists the distributions of a skill's own virtual environment.
func (in installed) inVenv(sk *skill.Skill) {
	for e := range sk.Entries() {
		dir, entry := path.Split(e.Path)
		if !strings.HasPrefix(dir, "venv/lib/") || !strings.HasSuffix(dir, "/site-packages/") || strings.Count(dir, "/") != 4 {
			continue
		}
		delete(in, skill.NormalName(strings.SplitN(entry, "-", 2)[0])) // it comes first
		in.add(entry, func(file string) (io.ReadCloser, error) {
			f, _, err := sk.Open(path.Join(e.Path, file))
			return f, err
		})
	}
}

// stampOf changes when an entry of one of the directories is added or removed.
func stampOf(root string, sites []string) string {
	var stamp strings.Builder
	for _, site := range sites {
		if fi, err := os.Stat(filepath.Join(root, site)); err == nil {
			fmt.Fprintf(&stamp, "%s %s\n", site, fi.ModTime().Format(time.RFC3339Nano))
		}
	}
	return stamp.String()
}

// builtins are modules that lie in the interpreter itself.
var builtins = map[string]bool{
	"sys": true, "time": true, "math": true, "itertools": true, "gc": true, "errno": true, "builtins": true, "marshal": true,
	"array": true, "select": true, "zlib": true, "binascii": true, "cmath": true, "fcntl": true, "grp": true, "pwd": true, "atexit": true,
	"signal": true, "unicodedata": true, "faulthandler": true, "syslog": true, "posix": true, "spwd": true,
}

// inLibrary reports whether a name is that of a module of the standard library:
// skills list those, too, though no index has them.
func inLibrary(root string, libraries []string, name string) bool {
	module := strings.ReplaceAll(skill.NormalName(name), "-", "_")
	if builtins[module] {
		return true
	}
	for _, lib := range libraries {
		for _, file := range []string{module + ".py", module + "/__init__.py"} {
			if _, err := os.Stat(filepath.Join(root, lib, file)); err == nil {
				return true
			}
		}
		if found, _ := filepath.Glob(filepath.Join(root, lib, "lib-dynload", module+".*.so")); len(found) > 0 {
			return true
		}
	}
	return false
}
