package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/mod/semver"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Bounds of the directory environments.tarballs. Its files may come from strangers.
const (
	maxTarballs = 10_000
	// bytes of a file, packed; packages of npm's registry have up to 300 MB
	maxTarball = 512 << 20
	// bytes of a file, unpacked, in which package.json must end
	maxTarballScan = 512 << 20
	// bytes of the fields of one package.json that npm needs, and of all of them
	maxTarballFields = 64 << 10
	maxAllFields     = 64 << 20
	maxPackageJSON   = 1 << 20 // bytes of one package.json
)

// Tarballs is the directory environments.tarballs. It has files of Node packages, as `npm pack`
// writes them and as registries serve them. Files are read once, and again when they have changed.
type Tarballs struct {
	dir string
	log *slog.Logger

	// The turn to read files, of one build at a time: two builds would read the same new files twice. It is a
	// channel, so that a build that ends stops waiting.
	turn chan struct{}
	read map[string]tarball // by the name of the file; belongs to the turn
}

// NewTarballs returns the Tarballs of a directory, and reads nothing yet. log is the daemon's: it gets a
// line for each file that can't be used.
func NewTarballs(dir string, log *slog.Logger) *Tarballs {
	return &Tarballs{dir: dir, log: log, turn: make(chan struct{}, 1), read: map[string]tarball{}}
}

// A tarball is one file of the directory. problem says why it can't be used.
type tarball struct {
	stamp         string // changes with the file
	file          string
	name, version string
	fields        map[string]json.RawMessage // of a version in a packument
	size          int                        // bytes of fields
	problem       error
}

// Load reads the files of the directory for one build. It writes to the build's log why files
// are left out. The result answers the requests of npm. It asks next, the function of a registry's
// Fetcher, for packages that the directory lacks; nil: no registry. The error is an *IndexError, or the cause of ctx's
// end. Files that have not changed are opened, but not read. If ctx ends, the next build goes on where this one stopped.
func (t *Tarballs) Load(ctx context.Context, log io.Writer, next func(context.Context, string) Response) (get func(context.Context, string) Response, err error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, t.fail("%v", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	switch {
	case err != nil:
		return nil, t.fail("%v", err)
	case len(entries) > maxTarballs:
		return nil, t.fail("it has more than %d files", maxTarballs)
	}
	read := map[string]tarball{}
	local := &localRegistry{dir: t.dir, packages: map[string][]tarball{}, files: map[string]bool{}, next: next}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".tgz") && !strings.HasSuffix(e.Name(), ".tar.gz") {
			continue
		}
		file := t.look(ctx, root, e.Name())
		// Reading 10,000 large files takes long, and the caller may have gone. The last file may be half read.
		if ctx.Err() != nil {
			maps.Copy(t.read, read)
			return nil, context.Cause(ctx)
		}
		read[e.Name()] = file
		err := file.problem
		if err == nil {
			if err = local.add(file); err != nil && t.read[e.Name()].stamp != file.stamp {
				t.leftOut(e.Name(), err)
			}
		}
		if err != nil {
			fmt.Fprintf(log, "environments.tarballs: %.200q is left out: %v\n", e.Name(), err)
		}
	}
	t.read = read
	return local.get, nil
}

func (t *Tarballs) fail(format string, args ...any) error {
	return &IndexError{Index: t.dir, Reason: fmt.Sprintf(format, args...), Key: "environments.tarballs"}
}

// look returns a file of the directory. It reads the file if it is new or has changed.
// Failures are kept, too, so the daemon's log has one line for each bad file, not one for each
// build.
func (t *Tarballs) look(ctx context.Context, root *os.Root, name string) tarball {
	f, stamp, err := openTarball(root, name)
	if err != nil {
		return tarball{problem: err}
	}
	defer f.Close()
	if known, ok := t.read[name]; ok && known.stamp == stamp {
		return known
	}
	file, err := readTarball(ctx, f)
	if file.stamp, file.file, file.problem = stamp, name, err; err != nil && ctx.Err() == nil {
		t.leftOut(name, err)
	}
	return file
}

// leftOut logs why a file that is new, or has changed, can't be used.
func (t *Tarballs) leftOut(name string, err error) {
	t.log.Warn("a Node package is left out", "dir", t.dir, "file", name, "err", err)
}

// openTarball opens a regular file. Links may lead to other files of the directory.
func openTarball(root *os.Root, name string) (f *os.File, stamp string, err error) {
	// O_NONBLOCK: the open of a named pipe would wait for its writer.
	if f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		var wrapped *os.PathError // names the file again
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, "", err
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case !fi.Mode().IsRegular():
		err = errors.New("not a file")
	case fi.Size() > maxTarball:
		err = fmt.Errorf("it is %d bytes long, the maximum is %d", fi.Size(), int64(maxTarball))
	}
	if err != nil {
		f.Close()
		return nil, "", err
	}
	// The time of the last status change can't be set by a program (stat(2), ctime), so a file that
	// was replaced under an old modification time is noticed.
	st := fi.Sys().(*syscall.Stat_t)
	return f, fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), nil
}

// tarballFields are the fields of package.json that npm gets: the fields of a registry's short form
// (github.com/npm/registry, docs/responses/package-metadata.md), except fields that the registry
// computes.
var tarballFields = []string{
	"name", "version", "dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta", "bundleDependencies",
	"bundledDependencies", "bin", "engines", "os", "cpu", "libc", "deprecated",
}

// readTarball reads the package.json of a file, and the file's hash.
// It hashes the compressed file, because npm compares the hash with the bytes that it downloads.
func readTarball(ctx context.Context, f *os.File) (tarball, error) {
	r := untilDone{ctx, f}
	sum := sha512.New()
	if _, err := io.Copy(sum, r); err != nil {
		return tarball{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return tarball{}, err
	}
	text, err := packageJSON(r)
	if err != nil {
		return tarball{}, err
	}
	programs, err := programDir(text)
	if err != nil {
		return tarball{}, fmt.Errorf("its package.json: %w", err)
	}
	var bin map[string]string
	if programs != "" {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return tarball{}, err
		}
		if bin, err = programsIn(r, programs); err != nil {
			return tarball{}, err
		}
	}
	file, err := newTarball(text, bin)
	if err != nil {
		return tarball{}, fmt.Errorf("its package.json: %w", err)
	}
	file.fields["dist"], _ = json.Marshal(dist{ // can't fail
		Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)),
	})
	return file, nil
}

// An untilDone ends with the error of a context.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// A tarballReader reads the regular files of a tarball, one after the other.
type tarballReader struct {
	*tar.Reader
	left *io.LimitedReader
}

func unpack(f io.Reader) (tarballReader, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return tarballReader{}, notTar(err)
	}
	left := &io.LimitedReader{R: z, N: maxTarballScan}
	return tarballReader{tar.NewReader(left), left}, nil
}

var errLongTarball = fmt.Errorf("longer than %d bytes, unpacked", int64(maxTarballScan))

// next returns the next file, and its path without the first part, which npm ignores. The error is io.EOF after the
// last file, or errLongTarball.
func (p tarballReader) next() (*tar.Header, string, error) {
	for {
		h, err := p.Next()
		switch {
		case p.left.N <= 0:
			return nil, "", errLongTarball
		case err == io.EOF:
			return nil, "", err
		case err != nil:
			return nil, "", notTar(err)
		}
		if _, at, _ := strings.Cut(h.Name, "/"); h.Typeflag == tar.TypeReg {
			return h, at, nil
		}
	}
}

func notTar(err error) error { return fmt.Errorf("not a tar file in gzip: %w", err) }

// packageJSON finds the package.json of a file.
func packageJSON(f io.Reader) ([]byte, error) {
	files, err := unpack(f)
	if err != nil {
		return nil, err
	}
	for {
		h, at, err := files.next()
		switch {
		case err == errLongTarball:
			return nil, fmt.Errorf("no package.json in its first %d bytes, unpacked", int64(maxTarballScan))
		case err == io.EOF:
			return nil, errors.New("it has no package.json")
		case err != nil:
			return nil, err
		case at != "package.json":
			continue
		case h.Size > maxPackageJSON:
			return nil, fmt.Errorf("its package.json is %d bytes long, the maximum is %d", h.Size, int64(maxPackageJSON))
		}
		return io.ReadAll(files)
	}
}

// programDir returns the directory whose files are the programs of a package: directories.bin of its package.json,
// which counts if there is no bin. Without one it is empty.
func programDir(text []byte) (string, error) {
	var p struct {
		Bin         any             `json:"bin"`
		Directories json.RawMessage `json:"directories"`
	}
	if err := json.Unmarshal(withoutMark(text), &p); err != nil {
		return "", errUnknownForm
	}
	var dirs struct {
		Bin string `json:"bin"`
	}
	if p.Bin != nil || len(p.Directories) == 0 || json.Unmarshal(p.Directories, &dirs) != nil || dirs.Bin == "" {
		return "", nil
	}
	return path.Join("/", dirs.Bin)[1:] + "/", nil
}

// programsIn returns the programs of a tarball whose package.json names a directory for them: all files beneath it,
// under their last names. A registry stores this mapping, so npm does not make it. As in npm, names that begin with a
// dot do not count (@npmcli/package-json, lib/normalize.js, binDir).
func programsIn(f io.Reader, dir string) (map[string]string, error) {
	files, err := unpack(f)
	if err != nil {
		return nil, err
	}
	bin, size := map[string]string{}, 0
	for {
		_, at, err := files.next()
		if err == io.EOF {
			return bin, nil
		}
		if err != nil {
			return nil, err
		}
		at = path.Join("/", at)[1:]
		within, ok := strings.CutPrefix("/"+at, "/"+strings.TrimPrefix(dir, "/"))
		if !ok || strings.Contains("/"+within, "/.") {
			continue
		}
		if size += len(at); size > maxTarballFields {
			return nil, fmt.Errorf("its directory for programs, %.80q, has names of more than %d bytes", dir, maxTarballFields)
		}
		bin[path.Base(at)] = at
	}
}

var errUnknownForm = errors.New("not JSON of the known form")

// withoutMark is a text without a byte order mark.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// newTarball checks a package.json and keeps the fields that npm needs. bin are the programs that programsIn has found.
func newTarball(text []byte, bin map[string]string) (tarball, error) {
	var all map[string]json.RawMessage
	var head struct {
		Name, Version string
		Scripts       map[string]any
		Bin           any
		// The types that npm relies on.
		Dependencies, OptionalDependencies, PeerDependencies map[string]string
	}
	text = withoutMark(text)
	if err := errors.Join(json.Unmarshal(text, &all), json.Unmarshal(text, &head)); err != nil {
		return tarball{}, errUnknownForm
	}
	if len(bin) > 0 {
		all["bin"], _ = json.Marshal(bin) // can't fail
	}
	if err := manifest.CheckNodePackage(head.Name, ""); err != nil {
		return tarball{}, err
	}
	// Canonical writes v1.2 as v1.2.0, and leaves out the build.
	v := "v" + head.Version
	if !semver.IsValid(v) || semver.Canonical(v)+semver.Build(v) != v || manifest.CheckNodePackage(head.Name, head.Version) != nil {
		return tarball{}, fmt.Errorf("%.80q is no version, such as 1.2.3", head.Version)
	}
	file := tarball{name: head.Name, version: head.Version, fields: map[string]json.RawMessage{}}
	for _, field := range tarballFields {
		if value := all[field]; len(value) > 0 && string(value) != "null" {
			file.fields[field] = value
			file.size += len(value)
		}
	}
	if file.size > maxTarballFields {
		return tarball{}, fmt.Errorf("its fields for npm have more than %d bytes", maxTarballFields)
	}
	if program, ok := head.Bin.(string); ok { // a registry stores the mapping
		file.fields["bin"], _ = json.Marshal(map[string]string{path.Base(head.Name): program})
	}
	for _, name := range []string{"preinstall", "install", "postinstall"} {
		if head.Scripts[name] != nil {
			file.fields["hasInstallScript"] = json.RawMessage("true")
		}
	}
	return file, nil
}

// A localRegistry answers the requests of one build from the directory's files. A package that the
// directory has comes from there alone, so that no registry can offer a higher version of a private
// package. It does not change after Tarballs.Load has returned it.
type localRegistry struct {
	dir      string
	packages map[string][]tarball
	files    map[string]bool
	bytes    int
	next     func(context.Context, string) Response // a registry's; nil: none
}

// add adds a file. Files of the same name and version must be equal.
// Two different files of one version are a mistake of the operator: which one a build gets would
// depend on the order of the names.
func (s *localRegistry) add(file tarball) error {
	for _, other := range s.packages[file.name] {
		switch {
		case other.version != file.version:
		case string(other.fields["dist"]) == string(file.fields["dist"]):
			return nil
		default:
			return fmt.Errorf("%.200q has %s %s, too, and differs", other.file, file.name, file.version)
		}
	}
	if s.bytes += file.size; s.bytes > maxAllFields {
		return fmt.Errorf("the files before it have %d bytes of package.json, the maximum", maxAllFields)
	}
	var d dist
	if err := json.Unmarshal(file.fields["dist"], &d); err != nil {
		return err
	}
	s.packages[file.name] = append(s.packages[file.name], file)
	s.files[file.file] = true
	return nil
}

const tarballPath = "/tarball/"

// get answers one request of npm, as registry.get does.
// An unknown version of a package that is in the directory is not looked up in the registry either.
func (s *localRegistry) get(ctx context.Context, at string) Response {
	if name, ok := strings.CutPrefix(at, tarballPath); ok {
		if name, err := url.PathUnescape(name); err == nil && s.files[name] {
			return s.open(name)
		}
		return status(http.StatusNotFound)
	}
	if m := packagePath.FindStringSubmatch(at); m != nil {
		if name, err := url.PathUnescape(m[1]); err == nil && len(s.packages[name]) > 0 {
			return s.document(name)
		}
	}
	if s.next == nil {
		return status(http.StatusNotFound)
	}
	return s.next(ctx, at)
}

// document is the packument of a package. Its tag "latest" is the highest version, if possible one
// that is no prerelease.
func (s *localRegistry) document(name string) Response {
	p := packument{name, map[string]string{}, map[string]map[string]json.RawMessage{}}
	latest := ""
	for _, file := range s.packages[name] {
		fields := maps.Clone(file.fields)
		var d dist
		_ = json.Unmarshal(fields["dist"], &d) // add has tried it
		d.Tarball = fmt.Sprintf("http://127.0.0.1:%d%s%s", RegistryPort, tarballPath, url.PathEscape(file.file))
		fields["dist"], _ = json.Marshal(d) // can't fail
		p.Versions[file.version] = fields
		if latest == "" || laterTag("v"+latest, "v"+file.version) {
			latest = file.version
		}
	}
	p.Tags["latest"] = latest
	return p.response()
}

// laterTag reports whether version b is a better "latest" than a.
func laterTag(a, b string) bool {
	if pre := semver.Prerelease(a) != ""; pre != (semver.Prerelease(b) != "") {
		return pre
	}
	return semver.Compare(a, b) < 0
}

// open answers with a file. npm compares its hash with the document's.
// The file may have changed since load has read it. Then npm refuses it by its hash.
func (s *localRegistry) open(name string) Response {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return status(http.StatusBadGateway)
	}
	defer root.Close()
	f, _, err := openTarball(root, name)
	if err != nil {
		return status(http.StatusBadGateway)
	}
	return Response{http.StatusOK, "application/octet-stream", -1, f}
}
