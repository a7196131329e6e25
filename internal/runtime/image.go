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
type Image struct {
	Name   string // in the configuration
	Dir    string // where it lies; a stranger's files, so links in it lead nowhere but into it
	Digest string // another one if what it holds is; "sha256:...", or what else is known of it
}

// Rootfs is the directory that holds the files.
func (i Image) Rootfs() string {
	if i == (Image{}) {
		return "/"
	}
	return i.Dir
}

// in says where something is, for the end of a sentence.
func (i Image) in() string {
	if i == (Image{}) {
		return ""
	}
	return " in image " + i.Name
}

// Program looks for a program by its name on the path of a sandbox, and returns
// where it is there. python is there wherever python3 is.
func (i Image) Program(name string) (string, bool) {
	return finder{root: i.Rootfs(), image: i != (Image{})}.program(name)
}

// hiddenDirs are top-level directories of an image that no sandbox sees: it has
// its own there.
var hiddenDirs = []string{"dev", "home", "opt", "proc", "run", "skills", "sys", "tmp", "workspace"}

// Languages are what Route knows: those of Runtime.
func Languages() []string {
	var names []string
	for _, p := range programs {
		if !slices.Contains(names, p.language) {
			names = append(names, p.language)
		}
	}
	return names
}

// Route returns the interpreters of s and, for the languages in by, those of
// others: scripts, code and command lines of such a language run with these, and in
// their image. Of a command line the first program that is an interpreter, or a
// script of one, decides.
func (s *Set) Route(by map[string]*Set) *Set {
	with := *s
	with.others = maps.Clone(by)
	return &with
}

// of is the set that a program, python3.11 or bash, belongs to.
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

// ofCommand is the set that a command line belongs to.
func (s *Set) ofCommand(commands []string) *Set {
	for _, command := range commands {
		name := path.Base(command)
		if script, ok := extensions[strings.ToLower(path.Ext(name))]; ok {
			name = script
		}
		if name == "nodejs" {
			name = "node"
		}
		if pythonName.MatchString(name) || slices.ContainsFunc(programs, func(p struct{ name, language string }) bool { return p.name == name }) {
			return s.of(name)
		}
	}
	return s
}

// Image is where the interpreters are.
func (s *Set) Image() Image { return s.image }

// All are the set itself and those that Route added, each once.
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

// WithoutEmbedded returns the interpreters for an image in which the embedded
// CPython can't run. reason says why, to those who ask for it.
func (s *Set) WithoutEmbedded(reason string) *Set {
	with := *s
	with.lack = reason
	return &with
}

// missing is the error that a program is not there.
func (s *Set) missing(program, file string) error {
	err := &MissingError{Interpreter: program, File: path.Base(file), Image: s.image.Name}
	if s.image != (Image{}) && strings.HasPrefix(program, "python") {
		err.Reason = s.lack
	}
	return err
}

// OpenInside opens a regular file or a directory of a root file system for
// reading, as a sandbox would find it: no link leads out. Of this machine's root it
// opens what there is.
func OpenInside(root, name string) (*os.File, error) {
	if root == "/" {
		return os.Open(path.Join(root, name))
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// A path first, since to open a device or a pipe does something.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	// A rename or a mount anywhere on the machine disturbs a path with .. in a link,
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

// maxTries is some seconds of a machine that renames and mounts all the time.
const maxTries = 5000

// maxEntries bounds what is read of a directory of a stranger's.
const maxEntries = 100_000

// An Asker runs a program of an image, in a sandbox of it, with mounts, and returns
// the begin of what it prints; nothing if it fails.
type Asker func(ctx context.Context, args []string, mounts []Mount) []byte

// AskEmbedded reports whether the embedded CPython runs in an image: whether that
// has the loader and the libraries.
func (i *Installation) AskEmbedded(ctx context.Context, ask Asker) bool {
	answer := ask(ctx, []string{EmbeddedDir + "/bin/python3", "--version"}, []Mount{{Source: i.Dir, Target: EmbeddedDir}})
	return versionNumber.Find(answer) != nil
}
