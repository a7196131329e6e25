package environment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/beneath"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Bounds of a frozen environment.
const (
	maxFrozenFiles = 200_000 // entries, directories included
	maxFrozenDepth = 64      // nested directories
	maxFrozenPath  = 1024    // bytes of a path from the environment's root
	maxLinkTarget  = 1024    // bytes
	// Packages are in memory and in the manifest, and in one message of PrepareSkill. An npm project of a thousand
	// packages is a large one.
	maxPackages     = 10_000
	maxPackageBytes = 1 << 20 // of their names and versions
	// The paths of files and the targets of links are in memory until the digest is computed.
	maxPathBytes = 64 << 20
)

// ownEntries is the number of entries that the daemon adds to an environment: its directory, root, its manifest, the
// time of its last use, its key, and what writeVenv makes.
const ownEntries = 10

// builtDir is where a build leaves its result, beneath the workspace.
const builtDir = "env"

// A frozen describes the files that were copied out of a build.
type frozen struct {
	packages []string // "six==1.16.0", by name
	digest   string
	size     int64 // bytes of files, links and directories, see charge
	files    int   // files, links and directories
}

// A freezer copies a build's result out of its sandbox. The processes are dead,
// and the tree is theirs all the same: it is walked beneath descriptors, links are
// never followed, and of an entry only its kind, its bytes and one executable bit
// are taken over.
// Owners, times, extended attributes and hard links are not taken over. Each name of a hard
// link becomes a file and counts with its full size.
type freezer struct {
	during   context.Context
	into     string // exists and is empty
	maxBytes int64
	files    int
	size     int64
	lines    []string // of the digest
	paths    int      // bytes of all paths and targets of links
	links    []string
	packages map[string]string // by normal name
	named    int               // bytes of packages
	node     bool              // the tree is npm's
	// manifests are the package.json of its packages.
	manifests []string
	buf       []byte
}

// errOversize says that a build left more than fits.
type errOversize struct {
	what  string
	limit int64
}

func (e *errOversize) Error() string { return fmt.Sprintf("more than %d %s", e.limit, e.what) }

// An entryError is an entry that no environment may have.
type entryError struct{ path, what string }

func (e *entryError) Error() string { return fmt.Sprintf("%.200q is %s", e.path, e.what) }

// freeze copies the files at builtDir of changes into a directory. The interpreter of p is part of
// the digest.
// Links are checked after the walk, when all their targets are there. An error leaves a part
// of the files in into. When ctx is over, the error is its cause.
func freeze(ctx context.Context, changes *os.Root, into string, p *plan, maxBytes int64) (frozen, error) {
	f := &freezer{during: ctx, into: into, maxBytes: maxBytes, size: ownEntries * skill.DiskBytes(0), node: p.node != nil, packages: map[string]string{}, buf: make([]byte, 128<<10)}
	top, err := openDir(changes, builtDir)
	if err != nil {
		return frozen{}, &entryError{builtDir, "no directory any more"}
	}
	err = f.walk(top, "", 1)
	if err = errors.Join(err, top.Close()); err != nil {
		return frozen{}, err
	}
	for _, l := range f.links {
		if err := f.checkLink(l); err != nil {
			return frozen{}, err
		}
	}
	read, name := f.readPackages, pythonName(p.python.Python)
	if f.node {
		read, name = f.readNodePackages, p.node.name()+" "+p.node.tool
	}
	if err := read(); err != nil {
		return frozen{}, err
	}
	return f.result(name), nil
}

// openDir opens a directory of the upper layer without following a link.
func openDir(root *os.Root, name string) (*os.File, error) {
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return beneath.OpenDir(top, name)
}

// walk copies a directory.
func (f *freezer) walk(dir *os.File, prefix string, depth int) error {
	return eachName(dir, prefix, depth, func(name string) error { return f.entry(dir, prefix+name, name, depth) })
}

// eachName calls do for each name in dir, whose path in the tree is prefix. Names are read in portions
// of 1000, so that a directory with many entries is counted, and refused, before all names are in
// memory.
func eachName(dir *os.File, prefix string, depth int, do func(name string) error) error {
	if depth > maxFrozenDepth {
		return &entryError{prefix, fmt.Sprintf("deeper than %d directories", maxFrozenDepth)}
	}
	for {
		names, err := dir.Readdirnames(1000)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
	}
}

// cacheName is Python's directory for compiled files.
const cacheName = "__pycache__"

// Files of a package's metadata that are treated on their own.
var (
	// RECORD lists the files of a package with their hashes ("Recording installed projects"
	// in the packaging specifications). REQUESTED is empty and says that a user asked for
	// the package. direct_url.json names the URL of an installation (PEP 610).
	recordFile    = lazyregexp.New(`^lib/python3[0-9.]*/site-packages/[^/]+\.dist-info/RECORD$`)
	requestedFile = lazyregexp.New(`^lib/python3[0-9.]*/site-packages/[^/]+\.dist-info/REQUESTED$`)
	directURL     = lazyregexp.New(`^lib/python3[0-9.]*/site-packages/[^/]+\.dist-info/direct_url\.json$`)
)

// maxRecord bounds the RECORD of one package, in bytes, because it is held in memory.
const maxRecord = 32 << 20

// pythonProgram matches the interpreter among the programs of Python and Node packages.
var pythonProgram = lazyregexp.New(`^(bin|node_modules/\.bin)/python[0-9.]*$`)

// entry copies one entry of dir. at is its path from the environment's root. Stat and open
// are two calls, but no process is left that could exchange the entry between them.
func (f *freezer) entry(dir *os.File, at, name string, depth int) error {
	if f.during.Err() != nil {
		return context.Cause(f.during)
	}
	if f.files++; f.files > maxFrozenFiles {
		return &errOversize{"files", maxFrozenFiles}
	}
	if f.node && nodeManifest.MatchString(at) {
		f.manifests = append(f.manifests, at)
	}
	if len(at) > maxFrozenPath || strings.ContainsFunc(at, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &entryError{at, "a path that is too long or has control characters"}
	}
	if err := f.keep(at); err != nil {
		return err
	}
	switch {
	// The programs of packages come before the system's directories in PATH, so a package with
	// a program python could replace the interpreter.
	case pythonProgram.MatchString(at), at == venvConfig:
		return nil // writeVenv makes them; python is the interpreter, not a package's program
	case name == cacheName:
		return nil // compile makes it anew from the digest's sources
	case requestedFile.MatchString(at):
		return nil // says who asked for a package, and nothing of it
	case directURL.MatchString(at):
		return &entryError{path.Base(path.Dir(at)), "installed from a URL, which a package that is needed names; packages come from the daemon's index and wheels only"}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: at, Err: err}
	}
	kind := st.Mode & unix.S_IFMT
	if at == "bin" && kind != unix.S_IFDIR {
		return &entryError{at, "not a directory; a link could bring another python"}
	}
	switch kind {
	case unix.S_IFDIR:
		if err := f.mkdir(at); err != nil {
			return err
		}
		sub, err := beneath.OpenDir(dir, name)
		if err != nil {
			return err
		}
		return errors.Join(f.walk(sub, at+"/", depth+1), sub.Close())
	case unix.S_IFREG:
		file, err := beneath.Open(dir, name, unix.O_RDONLY)
		if err != nil {
			return err
		}
		var from io.Reader = file
		switch {
		case recordFile.MatchString(at):
			from, err = withoutDropped(file, at)
		case path.Dir(at) == "bin":
			from, err = withPython(file, Target)
		}
		if err == nil {
			err = f.file(from, at, st.Mode&0o111 != 0)
		}
		return errors.Join(err, file.Close())
	case unix.S_IFLNK:
		return f.link(dir, at, name)
	}
	return &entryError{at, "a device, a pipe or a socket"}
}

// charge adds an entry to size, as it counts on disk; n is the length of a file, and 0 for a link or a directory. The
// error says that size is more than limit.
func charge(size *int64, n, limit int64) error {
	if *size += skill.DiskBytes(n); *size > limit {
		return &errOversize{"bytes", limit}
	}
	return nil
}

// keep counts a path or the target of a link.
func (f *freezer) keep(text string) error {
	if f.paths += len(text); f.paths > maxPathBytes {
		return &errOversize{"bytes of paths", maxPathBytes}
	}
	return nil
}

func (f *freezer) mkdir(at string) error {
	if err := charge(&f.size, 0, f.maxBytes); err != nil {
		return err
	}
	p := filepath.Join(f.into, at)
	if err := os.Mkdir(p, 0o755); err != nil {
		return err
	}
	return os.Chmod(p, 0o755) // whatever the umask
}

// withoutDropped is a package's list of files without the files that freeze drops, and without
// the hashes of programs, whose first lines freeze writes anew.
// RECORD must name only files that are there, and REQUESTED would make the digest depend on
// which of two packages the skill named.
func withoutDropped(from io.Reader, at string) (io.Reader, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxRecord {
		return nil, &entryError{at, fmt.Sprintf("longer than %d bytes", maxRecord)}
	}
	requested := []byte(path.Base(path.Dir(at)) + "/REQUESTED,")
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		switch {
		case bytes.HasPrefix(line, requested), bytes.Contains(line, []byte(cacheName+"/")):
		case bytes.HasPrefix(line, []byte("../../../bin/")):
			name, _, _ := bytes.Cut(line, []byte(","))
			kept.Write(append(bytes.Clone(name), ",,\n"...))
		default:
			kept.Write(line)
		}
	}
	return &kept, nil
}

// file copies a file. One byte more than fits is read, which tells a file that fits exactly
// from a larger one.
func (f *freezer) file(from io.Reader, at string, executable bool) error {
	mode := fs.FileMode(0o644)
	kind := "file"
	if executable {
		mode, kind = 0o755, "exec"
	}
	to, err := os.OpenFile(filepath.Join(f.into, at), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(to, sum), io.LimitReader(from, f.maxBytes-f.size+1), f.buf)
	if err = errors.Join(err, to.Chmod(mode), to.Close()); err != nil {
		return err
	}
	if err := charge(&f.size, n, f.maxBytes); err != nil {
		return err
	}
	f.note(kind, at, hex.EncodeToString(sum.Sum(nil)))
	return nil
}

// link copies a link. It doesn't judge the target; freeze calls checkLink for it later.
func (f *freezer) link(dir *os.File, at, name string) error {
	buf := make([]byte, maxLinkTarget+1)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return &os.PathError{Op: "readlink", Path: at, Err: err}
	}
	if n > maxLinkTarget {
		return &entryError{at, "a link that is too long"}
	}
	if err := charge(&f.size, 0, f.maxBytes); err != nil {
		return err
	}
	target := string(buf[:n])
	if err := f.keep(target); err != nil {
		return err
	}
	if err := os.Symlink(target, filepath.Join(f.into, at)); err != nil {
		return err
	}
	f.links = append(f.links, at)
	f.note("link", at, target)
	return nil
}

// checkLink refuses a link that leads out of the environment, directly or through another
// link.
// A sandbox mounts the environment at Target, so an absolute target would not lead into it
// here. RESOLVE_BENEATH refuses absolute links (openat2(2)).
func (f *freezer) checkLink(at string) error {
	root, err := os.Open(f.into)
	if err != nil {
		return err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), at, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return &entryError{at, "a link that leads out, or nowhere"}
	}
	return unix.Close(fd)
}

// note keeps a line of the digest: everything that is copied has one.
// A NUL separates the parts. Neither a path nor a link's target can have one, so two
// different trees never have the same lines.
func (f *freezer) note(kind, at, value string) {
	f.lines = append(f.lines, kind+"\x00"+at+"\x00"+value+"\x00")
}

// readPackages lists the installed packages.
// It reads the copy, not the sandbox's tree: only the daemon can change the copy.
func (f *freezer) readPackages() error {
	// Not filepath.Glob: the path of state_dir may have characters of a pattern.
	infos, err := fs.Glob(os.DirFS(f.into), "lib/python3*/site-packages/*.dist-info")
	if err != nil {
		return err
	}
	for _, info := range infos {
		data, err := readFile(filepath.Join(f.into, info, "METADATA"), maxMetadata)
		if err != nil {
			return &entryError{filepath.Base(info), "without readable METADATA"}
		}
		name, version := metadata(bytes.NewReader(data))
		if _, err := manifest.ParseRequirement(name + "==" + version); name == "" || err != nil {
			return &entryError{filepath.Base(info), "of a package without a valid name and version"}
		}
		if err := f.add(manifest.NormalName(name), name+"=="+version); err != nil {
			return err
		}
	}
	return nil
}

// add adds a package, as "six==1.16.0". The same package may be there more than once.
func (f *freezer) add(key, text string) error {
	if f.packages[key] == text {
		return nil
	}
	f.packages[key] = text
	if len(f.packages) > maxPackages {
		return &errOversize{"packages", maxPackages}
	}
	if f.named += len(text); f.named > maxPackageBytes {
		return &errOversize{"bytes of names of packages", maxPackageBytes}
	}
	return nil
}

// readFile reads a small regular file, and follows no link.
// O_NONBLOCK: the opening of a pipe without a writer would wait for ever (fifo(7)).
func readFile(name string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a file", name)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// result computes the digest, version 3: the SHA-256 of "skillrun environment 3", the
// interpreter, each package as name==version in order, and the lines of note in order, each
// followed by a NUL. The lines are sorted because readdir has no order (readdir(3)).
func (f *freezer) result(python string) frozen {
	keys := make([]string, 0, len(f.packages))
	for k := range f.packages {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	out := frozen{size: f.size, files: f.files}
	h := sha256.New()
	fmt.Fprintf(h, "skillrun environment 3\x00%s\x00", python)
	for _, k := range keys {
		out.packages = append(out.packages, f.packages[k])
		fmt.Fprintf(h, "%s\x00", f.packages[k])
	}
	slices.Sort(f.lines)
	for _, line := range f.lines {
		io.WriteString(h, line)
	}
	out.digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return out
}
