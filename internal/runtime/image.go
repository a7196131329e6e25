package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An Image is a root file system that sandboxes see in place of this machine's
// /usr. The zero Image is this machine.
// It is comparable, and is used as a key of maps.
type Image struct {
	Name   string // in the configuration
	Dir    string // on the host; untrusted, so its links are resolved within it
	Digest string // changes with the content; "sha256:..." for an image
}

// Rootfs returns the directory that holds the image's files: "/" for this machine.
func (i Image) Rootfs() string {
	if i == (Image{}) {
		return "/"
	}
	return i.Dir
}

// in returns a location for the end of a sentence, such as "in image data".
func (i Image) in() string {
	if i == (Image{}) {
		return ""
	}
	return " in image " + i.Name
}

// Program returns the path in a sandbox of a program on the sandbox's PATH. python
// exists wherever python3 does.
func (i Image) Program(name string) (string, bool) {
	return finder{root: i.Rootfs(), image: i != (Image{})}.program(name)
}

// hiddenDirs are top-level directories of an image that no sandbox sees. The sandbox
// has its own directories at these paths.
// It must agree with the hidden reservedDirs in sandbox/internal/mount/imageroot.go.
var hiddenDirs = []string{"dev", "home", "opt", "proc", "run", "skills", "sys", "tmp", "workspace"}

// Languages returns the keys that Route accepts: the languages of Runtime.
func Languages() []string {
	var names []string
	for _, p := range programs {
		if !slices.Contains(names, p.language) {
			names = append(names, p.language)
		}
	}
	return names
}

// Route returns a copy of s that sends each language in by to another set: scripts,
// code and command lines of that language run with that set's interpreters, in its
// image. A command line follows the first interpreter, or script of an interpreted
// language, in it.
func (s *Set) Route(by map[string]*Set) *Set {
	with := *s
	with.others = maps.Clone(by)
	return &with
}

// of returns the set that a program such as python3.11 or bash belongs to.
// The other set gets the caller's choice of a Python, since With was called on s.
func (s *Set) of(program string) *Set {
	if len(s.others) == 0 {
		return s
	}
	language := ""
	if strings.HasPrefix(program, "python") {
		language = "python"
	}
	for _, p := range programs {
		if p.name == program {
			language = p.language
		}
	}
	if other, ok := s.others[language]; ok {
		return other.With(s.asked)
	}
	return s
}

// ofCommand returns the set that a command line belongs to.
// Only one root file system can be used for a line, so the first interpreter decides.
func (s *Set) ofCommand(commands []string) *Set {
	for _, command := range commands {
		if name := interpreterOf(command); languageOf(name) != "" {
			return s.of(name)
		}
	}
	return s
}

// interpreterOf returns the interpreter of a program that is a script by its extension, else the
// program's own name.
func interpreterOf(command string) string {
	name := path.Base(command)
	if script, ok := extensions[strings.ToLower(path.Ext(name))]; ok {
		return script
	}
	if name == "nodejs" {
		return "node"
	}
	return name
}

// LanguageOf returns the language of a command line's program, if it is an interpreter such as
// python3.12, or a script by its extension. Else it returns "".
func LanguageOf(command string) string { return languageOf(interpreterOf(command)) }

// languageOf returns the language of an interpreter by its name, or "".
func languageOf(name string) string {
	if pythonName.MatchString(name) {
		return "python"
	}
	for _, p := range programs {
		if p.name == name {
			return p.language
		}
	}
	return ""
}

// Node returns the Node.js of scripts, and its root file system. ok is false if scripts have no Node.js.
func (s *Set) Node() (r Runtime, image Image, ok bool) {
	s = s.of("node")
	r, ok = s.byName["node"]
	return r, s.image, ok
}

// Image returns the root file system of the interpreters.
func (s *Set) Image() Image { return s.image }

// All returns s and the sets that Route added, each once.
func (s *Set) All() []*Set {
	all := []*Set{s}
	for _, language := range slices.Sorted(maps.Keys(s.others)) {
		other := s.others[language]
		if !slices.ContainsFunc(all, func(have *Set) bool { return have.image == other.image }) {
			all = append(all, other)
		}
	}
	return all
}

// WithoutEmbedded returns a copy of s for an image in which the embedded CPython
// cannot run. A MissingError then gives reason.
func (s *Set) WithoutEmbedded(reason string) *Set {
	with := *s
	with.lack = reason
	return &with
}

// missing returns the error for a program that is not installed.
func (s *Set) missing(program, file string) *MissingError {
	err := &MissingError{Interpreter: program, File: path.Base(file), Image: s.image.Name}
	if s.image != (Image{}) && strings.HasPrefix(program, "python") {
		err.Reason = s.lack
	}
	return err
}

// OpenInside opens a regular file or a directory of a root file system for reading.
// It resolves links within root, as a sandbox would. For this machine's root "/" it
// opens the path as it stands.
// The second open goes through /proc/self/fd and so opens the same inode that was judged,
// whatever has happened to the path since (proc_pid_fd(5)). The caller closes the file.
func OpenInside(root, name string) (*os.File, error) {
	if root == "/" {
		return os.Open(path.Join(root, name))
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// Open with O_PATH first: opening a device or a pipe has side effects.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	// A concurrent rename or mount makes a lookup that meets ".." fail with EAGAIN,
	// openat2(2).
	for try := 0; (err == unix.EAGAIN || err == unix.EINTR) && try < maxTries; try++ {
		time.Sleep(time.Duration(min(try, 10)) * 100 * time.Microsecond)
		fd, err = unix.Openat2(int(dir.Fd()), name, &how)
	}
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path.Join(root, name), Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil, fmt.Errorf("%s: neither a file nor a directory", path.Join(root, name))
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// readDirInside lists a directory of a root file system.
func readDirInside(root, name string) ([]os.DirEntry, error) {
	f, err := OpenInside(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// maxTries lasts a few seconds on a machine that renames and mounts constantly.
const maxTries = 5000

// maxEntries bounds the entries read from one directory of an untrusted image.
const maxEntries = 100_000

// An Asker runs a program of an image in a sandbox of that image and returns the
// start of its output, or nothing if it fails.
type Asker func(ctx context.Context, args []string, mounts []Mount) []byte

// AskEmbedded reports whether the embedded CPython runs in an image, which must have
// the loader and the C library.
// A CPython that is linked to glibc does not start in an image with musl. The answer is the
// only test, because looking for the loader's file would be a guess.
func (i *Installation) AskEmbedded(ctx context.Context, ask Asker) bool {
	answer := ask(ctx, []string{EmbeddedDir + "/bin/python3", "--version"}, []Mount{{Source: i.Dir, Target: EmbeddedDir}})
	return versionNumber.Find(answer) != nil
}
