package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The places of a sandbox.
const (
	workspaceDir = "/workspace"
	homeDir      = "/home/skill"
	linksDir     = "/opt/skillrun/bin"
)

// hostFile is a file or directory of the host that sandboxes see a copy of, as it is
// when the Host is opened.
type hostFile struct{ path, why string }

// hostFiles are all that a sandbox sees of the host beside /usr, if they
// exist. Everything else beneath /etc is made up. One of them, largeDir, is no copy.
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
	{"/etc/mime.types", "Python's mimetypes, and others"},
	{"/etc/services", "ports by name"},
	{"/etc/protocols", "protocols by name"},
	{"/etc/magic", "file(1)"},
	{"/etc/ImageMagick-6", "its policy and its delegates"},
	{"/etc/libreoffice", "LibreOffice's registry in /usr/lib is a link to it"},
	{"/var/lib/texmf", "the formats and font maps of TeX"},
	{"/etc/java-*", "a Java in /usr/lib/jvm keeps its configuration there"},
}

// madeUp are the files of /etc that say who and where a program is.
var madeUp = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nskill:x:1000:1000:skill:" + homeDir + ":/bin/sh\n",
	"/etc/group":         "root:x:0:\nskill:x:1000:\n",
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	"/etc/shells":        "/bin/sh\n/bin/bash\n",
	// git commits nothing without an author.
	"/etc/gitconfig": "[user]\n\tname = skill\n\temail = skill@sandbox\n",
	// Without a server named here the resolver would ask one on loopback, and
	// wait for it.
	"/etc/resolv.conf": "options timeout:1 attempts:1\n",
}

const hostname = "sandbox"

// emptyDirs are mount points, and directories that programs expect.
var emptyDirs = []string{"/proc", "/dev", "/tmp", "/usr", homeDir, workspaceDir, "/skills", linksDir, "/var", "/run"}

// largeDir can have a hundred megabytes, of which few are read: it is mounted, as /usr is.
const largeDir = "/var/lib/texmf"

// makeRootfs builds at dir, which exists, the root of which all sandboxes of a Host have
// an overlay (view.go): a small tmpfs with copies and read-only mounts of the host in it.
// It is changed by nobody afterwards, and mounted read-only.
func makeRootfs(dir string, links map[string]string) error {
	if err := mountTmpfs(dir, rootfsOptions); err != nil {
		return err
	}
	if err := makeEmptyDirs(dir); err != nil {
		return err
	}
	if err := bindReadOnly("/usr", dir+"/usr"); err != nil {
		return err
	}
	if err := writeMadeUp(dir); err != nil {
		return err
	}
	// Python imports a module of this name by itself.
	if err := writeFile(dir+forkServerDir+"/sitecustomize.py", forkServerProgram); err != nil {
		return err
	}
	for _, f := range hostFiles {
		if err := showHostFiles(dir, f.path); err != nil {
			return err
		}
	}
	if err := makeLinks(dir, links); err != nil {
		return err
	}
	return makeReadOnly(dir)
}

// rootfsOptions bound what is made up of a root, and copied from the host's /etc.
const rootfsOptions = "mode=755,size=64m,nr_inodes=16384"

func makeEmptyDirs(dir string) error {
	for _, d := range emptyDirs {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func writeMadeUp(dir string) error {
	for _, path := range slices.Sorted(maps.Keys(madeUp)) {
		if err := writeFile(dir+path, madeUp[path]); err != nil {
			return err
		}
	}
	return nil
}

// makeReadOnly changes the mount at dir. A process that another thread forked
// may hold a file there open for writing, until its exec.
func makeReadOnly(dir string) error {
	deadline := time.Now().Add(forkPatience)
	for {
		err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_set: lockedDown})
		if err == nil {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return fmt.Errorf("make %s read-only: %w", dir, err)
		}
		time.Sleep(time.Millisecond)
	}
}

const forkPatience = 2 * time.Second

// rootTable lists the paths of a root that makeRootfs built and the mounts beneath
// /proc, which is all that a sandbox without mounts of its own sees: what ends in a
// slash is a directory in which nothing is but what is listed, too; of others whatever
// is in them belongs there.
func rootTable(links map[string]string) []string {
	table := []string{"/proc", "/dev", "/tmp", "/usr", homeDir, workspaceDir, "/skills/", linksDir + "/", "/var/", "/run/", forkServerDir}
	for path := range madeUp {
		table = append(table, path)
	}
	for _, links := range rootLinks(links) {
		for path := range links {
			table = append(table, path)
		}
	}
	for _, f := range hostFiles {
		found, _ := filepath.Glob(f.path) // of a pattern that makeRootfs has read
		table = append(table, found...)
	}
	slices.Sort(table)
	return slices.Compact(table)
}

// makeLinks makes the links of a merged /usr, and those that c asks for.
func makeLinks(dir string, extra map[string]string) error {
	return placeLinks(dir, rootLinks(extra)...)
}

func rootLinks(extra map[string]string) []map[string]string {
	all := map[string]string{}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Stat("/usr/" + name); err == nil {
			all["/"+name] = "usr/" + name
		}
	}
	// A time zone is a link into /usr on every distribution we know; a copy
	// of the file elsewhere would be somebody's own choice, and stays UTC.
	if zone, err := filepath.EvalSymlinks("/etc/localtime"); err == nil && strings.HasPrefix(zone, "/usr/") {
		all["/etc/localtime"] = zone
	}
	return []map[string]string{fixedLinks, all, extra}
}

// fixedLinks are in every root.
var fixedLinks = map[string]string{"/etc/mtab": "../proc/self/mounts", "/var/tmp": "../tmp"}

// placeLinks makes links beneath dir, path to target. Of two at one path the later
// holds.
func placeLinks(dir string, lists ...map[string]string) error {
	all := map[string]string{}
	for _, list := range lists {
		maps.Copy(all, list)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if path != filepath.Clean(path) || !filepath.IsAbs(path) || strings.HasPrefix(path, "/usr/") {
			return fmt.Errorf("link %s: not a path that can be made in a sandbox", path)
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

// showHostFiles puts what matches pattern on the host at the same path beneath dir.
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
		if err := bindReadOnly(path, dir+path); err != nil {
			return err
		}
	}
	return nil
}

// copyHostFile copies what of a file or directory everybody may read to target. Links in
// it stay links.
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
