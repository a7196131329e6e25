package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A hostFile is a file or directory of the host. Sandboxes see a copy, which Open makes.
type hostFile struct{ path, why string }

// hostFiles are the only files of the host outside /usr that a sandbox sees, if they
// exist. Everything else beneath /etc is generated. One of them, largeDir, is mounted
// instead of copied.
var hostFiles = []hostFile{
	{"/etc/alternatives", "Debian's links to the chosen of several programs, from /usr/bin"},
	{"/etc/ssl/certs", "the machine's trusted certificates"},
	{"/etc/ssl/openssl.cnf", "OpenSSL's programs refuse to run without it"},
	{"/etc/ld.so.cache", "the loader finds libraries outside its default directories by it"},
	{"/etc/fonts", "fontconfig finds no font without it"},
	{"/etc/matplotlibrc", "Debian's matplotlib fails to import without it"},
	{"/etc/python3", "Debian's Python tools read it"},
	{"/etc/python3.*", "sitecustomize.py in /usr/lib is a link to it"},
	{"/etc/perl", "Perl's library path and sitecustomize"},
	{"/etc/os-release", "the distribution that /usr is of; programs choose by it"},
	{"/etc/mime.types", "Python's mimetypes, and others"},
	{"/etc/services", "ports by name"},
	{"/etc/protocols", "protocols by name"},
	{"/etc/magic", "file(1)"},
	{"/etc/ImageMagick-6", "its policy and its delegates"},
	{"/etc/libreoffice", "LibreOffice's registry in /usr/lib is a link to it"},
	{"/var/lib/texmf", "the formats and font maps of TeX"},
	{"/etc/java-*", "a Java in /usr/lib/jvm keeps its configuration there"},
}

// madeUp are the generated files of /etc: users, groups, host names.
var madeUp = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nskill:x:1000:1000:skill:" + HomeDir + ":/bin/sh\n",
	"/etc/group":         "root:x:0:\nskill:x:1000:\n",
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	"/etc/shells":        "/bin/sh\n/bin/bash\n",
	// git refuses to commit without an author.
	"/etc/gitconfig": "[user]\n\tname = skill\n\temail = skill@sandbox\n",
	// Without a name server the resolver asks one on loopback (resolv.conf(5)). A
	// short timeout keeps it from waiting long.
	"/etc/resolv.conf": "options timeout:1 attempts:1\n",
}

// emptyDirs are mount points and directories that programs expect.
var emptyDirs = []string{"/proc", "/dev", "/tmp", "/usr", HomeDir, WorkspaceDir, "/skills", LinksDir, "/var", "/run"}

// largeDir may hold 100 MB, of which programs read little. So it is mounted, as /usr is.
const largeDir = "/var/lib/texmf"

// NewHostRoot builds a root file system from the host's at dir, which exists: a small tmpfs
// with copies of host files and read-only mounts. links are further links, path to target, and
// files are further files, path to text. It is mounted read-only in the end. After an error
// the caller unmounts dir.
func NewHostRoot(dir string, links, files map[string]string) (*Root, error) {
	if err := makeHostRoot(dir, links, files); err != nil {
		return nil, err
	}
	places, err := directoriesMounted(dir)
	if err != nil {
		return nil, err
	}
	root := &Root{Layers: []Layer{{"/", []string{dir}}}, Table: hostTable(links, files), links: links}
	for _, place := range places {
		root.Layers = append(root.Layers, Layer{place, []string{dir + place}})
	}
	return root, nil
}

// makeHostRoot fills the tmpfs at dir. The last step makes it read-only, so everything else must come before.
func makeHostRoot(dir string, links, files map[string]string) error {
	if err := Tmpfs(dir, rootOptions); err != nil {
		return err
	}
	if err := makeEmptyDirs(dir); err != nil {
		return err
	}
	if err := BindReadOnly("/usr", dir+"/usr"); err != nil {
		return err
	}
	for _, list := range []map[string]string{madeUp, files} {
		if err := writeFiles(dir, list); err != nil {
			return err
		}
	}
	for _, f := range hostFiles {
		if err := showHostFiles(dir, f.path); err != nil {
			return err
		}
	}
	if err := placeLinks(dir, rootLinks(links)...); err != nil {
		return err
	}
	return ReadOnly(dir)
}

// rootOptions bound the size of the generated and copied files of a root.
const rootOptions = "mode=755,size=64m,nr_inodes=16384"

// makeEmptyDirs makes emptyDirs beneath dir; some may exist.
func makeEmptyDirs(dir string) error {
	for _, d := range emptyDirs {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes files, path to text, beneath dir.
func writeFiles(dir string, files map[string]string) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(dir+path, files[path]); err != nil {
			return err
		}
	}
	return nil
}

// hostTable is the Table of a host's root. A directory with further files may hold any file.
func hostTable(links, files map[string]string) []string {
	table := []string{"/proc", "/dev", "/tmp", "/usr", HomeDir, WorkspaceDir, "/skills/", LinksDir + "/", "/var/", "/run/"}
	for path := range files {
		table = append(table, filepath.Dir(path))
	}
	for path := range madeUp {
		table = append(table, path)
	}
	for _, links := range rootLinks(links) {
		for path := range links {
			table = append(table, path)
		}
	}
	for _, f := range hostFiles {
		found, _ := filepath.Glob(f.path) // makeHostRoot has returned the error of a malformed pattern
		table = append(table, found...)
	}
	slices.Sort(table)
	return slices.Compact(table)
}

// HostPoints returns the mount points of a sandbox with the host's root and without binds,
// apart from mounts over files of /proc. Beneath a path that ends in a slash there may be more.
func HostPoints() []string {
	return []string{"/", "/usr", "/usr/", "/proc", "/dev", "/dev/shm", "/tmp", HomeDir, WorkspaceDir, largeDir, largeDir + "/"}
}

// rootLinks are the links of a merged /usr, of every root, and the extra ones.
func rootLinks(extra map[string]string) []map[string]string {
	all := map[string]string{}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Stat("/usr/" + name); err == nil {
			all["/"+name] = "usr/" + name
		}
	}
	// /etc/localtime is a link into /usr on every distribution that we know. If it
	// is not, sandboxes have UTC.
	if zone, err := filepath.EvalSymlinks("/etc/localtime"); err == nil && strings.HasPrefix(zone, "/usr/") {
		all["/etc/localtime"] = zone
	}
	return []map[string]string{fixedLinks, all, extra}
}

// nodeLink leads to the mount point of prepared Node packages. Node looks for packages in the
// node_modules of each directory above a program, and in /node_modules last.
const nodeLink = "/node_modules"

// fixedLinks are in every root.
var fixedLinks = map[string]string{"/etc/mtab": "../proc/self/mounts", "/var/tmp": "../tmp", nodeLink: "opt/node_modules"}

// placeLinks makes links beneath dir, path to target. If two lists have the same path,
// the later list wins.
func placeLinks(dir string, lists ...map[string]string) error {
	all := map[string]string{}
	for _, list := range lists {
		maps.Copy(all, list)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if path != filepath.Clean(path) || !filepath.IsAbs(path) || strings.HasPrefix(path, "/usr/") {
			return fmt.Errorf("link %s: a sandbox can't have a link at this path", path)
		}
		if err := os.MkdirAll(filepath.Dir(dir+path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(all[path], dir+path); err != nil {
			return err
		}
	}
	return nil
}

// showHostFiles copies or mounts the host's files that match pattern to the same paths
// beneath dir.
func showHostFiles(dir, pattern string) error {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			continue // a dangling link shows nothing
		}
		if path != largeDir || !info.IsDir() {
			if err := copyHostFile(path, dir+path); err != nil {
				return fmt.Errorf("copy %s: %w", path, err)
			}
			continue
		}
		if err := os.MkdirAll(dir+path, 0o755); err != nil {
			return err
		}
		if err := BindReadOnly(path, dir+path); err != nil {
			return err
		}
	}
	return nil
}

// copyHostFile copies a file or directory to target, except for parts that others may not
// read: the daemon is root, and a copy must not show scripts more than a user of the machine sees.
// Links in a directory stay links.
func copyHostFile(path, target string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return filepath.WalkDir(resolved, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := target + strings.TrimPrefix(at, resolved)
		switch mode := info.Mode(); {
		case mode.IsDir() && mode.Perm()&0o005 == 0o005:
			return os.MkdirAll(to, 0o755)
		case mode.IsDir():
			return filepath.SkipDir
		case mode&fs.ModeSymlink != 0:
			link, err := os.Readlink(at)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		case mode.IsRegular() && mode.Perm()&0o004 != 0:
			text, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			if err := writeFile(to, string(text)); err != nil {
				return err
			}
			return os.Chmod(to, mode.Perm()&0o755) // scripts of /etc may be programs
		}
		return nil
	})
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	// The process's umask may be anything.
	return errors.Join(err, f.Chmod(0o644), f.Close())
}
