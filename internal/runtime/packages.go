package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aquasecurity/go-pep440-version"

	"github.com/skillrun/skillrun/internal/skill"
)

// Bounds on what is read to know what is installed.
const (
	MaxMetadata      = 1 << 20 // bytes of one METADATA; name and version stand at its begin
	maxDistributions = 20_000
)

// Packages are the distributions that a Python finds by itself: those of its own
// directories and of a skill's virtual environment. The zero Packages are those of
// an empty Python.
type Packages struct {
	root      string
	libraries []string // the standard library's, beneath root
	// Versions are by normal names. Empty: nobody says it.
	Versions map[string]string
}

// ReadPackages lists what an interpreter finds by itself when it runs for a skill.
// rootfs is the directory whose usr a sandbox sees; embedded is where the embedded
// Python lies on the host if that is the interpreter, else empty. The zero Runtime
// has only what the skill brings along.
func ReadPackages(rootfs, embedded string, python Runtime, sk *skill.Skill) (Packages, error) {
	root, sites, libraries := sitesFor(rootfs, embedded, python)
	if python == (Runtime{}) {
		sites, libraries = nil, nil
	}
	p := Packages{root: root, libraries: libraries, Versions: map[string]string{}}
	if err := p.readSites(sites); err != nil {
		return Packages{}, err
	}
	if HasVenv(sk) {
		p.inVenv(sk)
	}
	return p, nil
}

// Has reports whether a requirement is fulfilled. If it is not, found is the version
// that is there instead; empty: none. The version of a package that doesn't say one
// fits, and so does a specifier that nobody can read. A module of the standard
// library is there, whatever version is asked for: skills list those, too. Markers
// are not looked at.
func (p Packages) Has(r skill.PythonRequirement) (found string, ok bool) {
	version, there := p.Versions[skill.NormalName(r.Name)]
	if there {
		fits, known := Satisfies(version, r.Specifier)
		ok = !known || fits
	}
	if !ok && p.inLibrary(r.Name) {
		ok = true
	}
	return version, ok
}

// PackageDirs are the directories of the host in which ReadPackages looks, but for
// those of a skill.
func PackageDirs(rootfs, embedded string, python Runtime) []string {
	root, sites, _ := sitesFor(rootfs, embedded, python)
	var dirs []string
	for _, site := range sites {
		dirs = append(dirs, filepath.Join(root, site))
	}
	return dirs
}

// sitesFor are the directories beneath a root in which a Python looks for packages,
// and its standard library's.
func sitesFor(rootfs, embedded string, python Runtime) (root string, sites, libraries []string) {
	v := minor(python.Version)
	if embedded != "" {
		lib := "lib/python" + v
		return embedded, []string{lib + "/site-packages"}, []string{lib}
	}
	local := []string{"usr/local/lib/python" + v + "/dist-packages", "usr/local/lib/python" + v + "/site-packages", "usr/local/lib64/python" + v + "/site-packages"}
	if strings.HasPrefix(python.Path, "/usr/local/") {
		return rootfs, local, []string{"usr/local/lib/python" + v}
	}
	return rootfs, append(local, "usr/lib/python3/dist-packages", "usr/lib/python"+v+"/dist-packages", "usr/lib/python"+v+"/site-packages", "usr/lib64/python"+v+"/site-packages"),
		[]string{"usr/lib/python" + v, "usr/lib64/python" + v}
}

// readSites lists the distributions in directories of the root. A directory that is
// not there has none.
func (p Packages) readSites(sites []string) error {
	for _, site := range sites {
		entries, err := readDirInside(p.root, site)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("installed packages: %w", err)
		}
		for _, e := range entries {
			if len(p.Versions) >= maxDistributions {
				return nil
			}
			p.add(e.Name(), func(file string) (io.ReadCloser, error) { return OpenInside(p.root, path.Join(site, e.Name(), file)) })
		}
	}
	return nil
}

// add notes a distribution by the name of its metadata: "PyYAML-6.0.dist-info".
func (p Packages) add(entry string, open func(file string) (io.ReadCloser, error)) {
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
		n, v := PackageMetadata(r)
		r.Close()
		if n != "" {
			name, version = n, v
			break
		}
	}
	key := skill.NormalName(name)
	if _, ok := p.Versions[key]; !ok { // the first on the path counts
		p.Versions[key] = version
	}
}

// PackageMetadata reads the name and the version of a core metadata file.
func PackageMetadata(r io.Reader) (name, version string) {
	lines := bufio.NewScanner(io.LimitReader(r, MaxMetadata))
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
func (p Packages) inVenv(sk *skill.Skill) {
	for e := range sk.Entries() {
		dir, entry := path.Split(e.Path)
		if !strings.HasPrefix(dir, "venv/lib/") || !strings.HasSuffix(dir, "/site-packages/") || strings.Count(dir, "/") != 4 {
			continue
		}
		delete(p.Versions, skill.NormalName(strings.SplitN(entry, "-", 2)[0])) // it comes first
		p.add(entry, func(file string) (io.ReadCloser, error) {
			f, _, err := sk.Open(path.Join(e.Path, file))
			return f, err
		})
	}
}

// builtins are modules that lie in the interpreter itself.
var builtins = map[string]bool{
	"sys": true, "time": true, "math": true, "itertools": true, "gc": true, "errno": true, "builtins": true, "marshal": true,
	"array": true, "select": true, "zlib": true, "binascii": true, "cmath": true, "fcntl": true, "grp": true, "pwd": true, "atexit": true,
	"signal": true, "unicodedata": true, "faulthandler": true, "syslog": true, "posix": true, "spwd": true,
}

// InLibrary reports whether a name is that of a module of an interpreter's standard
// library; the parameters are those of ReadPackages.
func InLibrary(rootfs, embedded string, python Runtime, name string) bool {
	root, _, libraries := sitesFor(rootfs, embedded, python)
	return Packages{root: root, libraries: libraries}.inLibrary(name)
}

// inLibrary reports whether a name is that of a module of the standard library.
func (p Packages) inLibrary(name string) bool {
	module := strings.ReplaceAll(skill.NormalName(name), "-", "_")
	if builtins[module] {
		return true
	}
	for _, lib := range p.libraries {
		for _, file := range []string{module + ".py", module + "/__init__.py"} {
			if f, err := OpenInside(p.root, path.Join(lib, file)); err == nil {
				f.Close()
				return true
			}
		}
		entries, err := readDirInside(p.root, path.Join(lib, "lib-dynload"))
		if err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return strings.HasPrefix(e.Name(), module+".") && strings.HasSuffix(e.Name(), ".so")
		}) {
			return true
		}
	}
	return false
}

// Satisfies reports whether a version is among those of a specifier, such as
// ">=1,<2". Pre-releases count: what is installed is there. ok is false if one of
// the two is not what PEP 440 knows.
func Satisfies(have, specifier string) (result, ok bool) {
	// The library panics at some specifiers that it takes for good.
	defer func() {
		if recover() != nil {
			result, ok = false, false
		}
	}()
	v, err := version.Parse(have)
	if err != nil {
		return false, false
	}
	if strings.TrimSpace(specifier) == "" {
		return true, true
	}
	s, err := version.NewSpecifiers(specifier, version.WithPreRelease(true))
	if err != nil {
		return false, false
	}
	return s.Check(v), true
}
