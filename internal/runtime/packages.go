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

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Bounds of reading the lists of installed packages.
const (
	MaxMetadata      = 1 << 20 // bytes of one METADATA file; it starts with name and version
	maxDistributions = 20_000
)

// Packages lists the distributions that a Python finds without an environment: those
// in its own directories and in a skill's venv. The zero Packages is empty.
type Packages struct {
	root      string
	libraries []string // directories of the standard library, relative to root
	// Versions maps normalized names to versions. An empty version is unknown.
	Versions map[string]string
}

// ReadPackages lists the distributions that an interpreter finds when it runs for a
// skill. rootfs is the directory whose usr a sandbox sees. embedded is the host
// directory of the embedded Python if python is that one, else empty. For the zero
// Runtime only the packages of the skill's venv count.
// It reads directories and metadata files each time; package environment remembers results.
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

// Has reports whether a requirement is met. If not, found is the installed version,
// or empty if the package is missing. An unknown version and an unreadable specifier
// count as met. A module of the standard library meets any version: skills list such
// modules, too. Has ignores markers.
func (p Packages) Has(r manifest.PythonRequirement) (found string, ok bool) {
	version, there := p.Versions[manifest.NormalName(r.Name)]
	if there {
		fits, known := Satisfies(version, r.Specifier)
		ok = !known || fits
	}
	if !ok {
		ok, _ = p.inLibrary(r.Name) // a library that can't be read counts as one without the module
	}
	return version, ok
}

// PackageDirs returns the host directories that ReadPackages reads, except the
// directories of a skill.
func PackageDirs(rootfs, embedded string, python Runtime) []string {
	root, sites, _ := sitesFor(rootfs, embedded, python)
	var dirs []string
	for _, site := range sites {
		dirs = append(dirs, filepath.Join(root, site))
	}
	return dirs
}

// sitesFor returns the directories beneath root in which a Python looks for packages
// and for its standard library.
// The lists follow site.py on Debian (dist-packages), Fedora (lib64) and upstream
// (site-packages). A Python in /usr/local doesn't read the packages of the one in /usr.
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

// readSites adds the distributions in directories of the root. A missing directory
// has none.
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

// add records a distribution by the name of its metadata, such as
// "PyYAML-6.0.dist-info".
// .dist-info is the form of the packaging specifications ("Recording installed projects"),
// .egg-info the older one of setuptools. Without readable metadata the name of the directory
// counts.
func (p Packages) add(entry string, open func(file string) (io.ReadCloser, error)) {
	base, isInfo := strings.CutSuffix(entry, ".dist-info")
	files := []string{"METADATA"}
	if !isInfo {
		var isEgg bool
		if base, isEgg = strings.CutSuffix(entry, ".egg-info"); !isEgg {
			return
		}
		files = []string{"PKG-INFO", ""} // an egg-info is a directory or a file
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
	key := manifest.NormalName(name)
	if _, ok := p.Versions[key]; !ok { // the first on the path wins
		p.Versions[key] = version
	}
}

// PackageMetadata reads name and version from a core metadata file.
// The file has the format of e-mail headers ("Core metadata specifications"). The first empty
// line ends the headers.
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

// inVenv adds the distributions of a skill's venv.
// It reads through the skill's snapshot, not from disk, so the result is the same as in the
// sandbox.
func (p Packages) inVenv(sk *skill.Skill) {
	for e := range sk.Entries() {
		dir, entry := path.Split(e.Path)
		if !strings.HasPrefix(dir, "venv/lib/") || !strings.HasSuffix(dir, "/site-packages/") || strings.Count(dir, "/") != 4 {
			continue
		}
		delete(p.Versions, manifest.NormalName(strings.SplitN(entry, "-", 2)[0])) // the venv's wins
		p.add(entry, func(file string) (io.ReadCloser, error) {
			f, _, err := sk.Open(path.Join(e.Path, file))
			return f, err
		})
	}
}

// builtins are modules compiled into the interpreter.
// They have no file, so inLibrary would not find them. The list has the modules that some
// distribution compiles in.
var builtins = map[string]bool{
	"sys": true, "time": true, "math": true, "itertools": true, "gc": true, "errno": true, "builtins": true, "marshal": true,
	"array": true, "select": true, "zlib": true, "binascii": true, "cmath": true, "fcntl": true, "grp": true, "pwd": true, "atexit": true,
	"signal": true, "unicodedata": true, "faulthandler": true, "syslog": true, "posix": true, "spwd": true,
}

// InLibrary reports whether a name is a module of an interpreter's standard library.
// It has the same parameters as ReadPackages. The error says that the library can't be read at present.
func InLibrary(rootfs, embedded string, python Runtime, name string) (bool, error) {
	root, _, libraries := sitesFor(rootfs, embedded, python)
	return Packages{root: root, libraries: libraries}.inLibrary(name)
}

// inLibrary reports whether a name is a module of the standard library.
// lib-dynload has the compiled modules of the standard library, NAME.cpython-311-....so.
func (p Packages) inLibrary(name string) (bool, error) {
	module := strings.ReplaceAll(manifest.NormalName(name), "-", "_")
	if builtins[module] {
		return true, nil
	}
	for _, lib := range p.libraries {
		for _, file := range []string{module + ".py", module + "/__init__.py"} {
			f, err := OpenInside(p.root, path.Join(lib, file))
			if err == nil {
				f.Close()
				return true, nil
			}
			if durable.MayPass(err) {
				return false, err
			}
		}
		entries, err := readDirInside(p.root, path.Join(lib, "lib-dynload"))
		if durable.MayPass(err) {
			return false, err
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return strings.HasPrefix(e.Name(), module+".") && strings.HasSuffix(e.Name(), ".so")
		}) {
			return true, nil
		}
	}
	return false, nil
}

// Satisfies reports whether a version meets a specifier such as ">=1,<2".
// Pre-releases count, since the package is already installed. ok is false if PEP 440
// does not allow the version or the specifier.
func Satisfies(have, specifier string) (result, ok bool) {
	// The library accepts some specifiers and panics on them later.
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
