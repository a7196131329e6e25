package wellknown

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
)

// Bounds of an unpacked skill. The daemon has its own.
const (
	maxUnpackedBytes = 256 << 20
	maxFiles         = 20_000
)

// unpack writes the files of an artifact to dir.
// The digest has been compared before, so the bytes are the ones that the index names. They are
// still a stranger's: os.Root, the bounds and the refusal of links hold for every archive.
func unpack(e Entry, contentType string, data []byte, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := &unpacker{root: root, bytes: maxUnpackedBytes, files: maxFiles}
	if e.Type == TypeSkillMD {
		// A skill of the type skill-md has this one file, whatever its URL is named.
		return w.file("SKILL.md", 0o644, bytes.NewReader(data))
	}
	switch formatOf(contentType, e.URL) {
	case "tar.gz":
		err = w.tar(data)
	case "zip":
		err = w.zip(data)
	default:
		return fmt.Errorf("neither its Content-Type (%q) nor its name says that it is a .tar.gz or a .zip", contentType)
	}
	if err != nil {
		return err
	}
	if _, err := root.Stat("SKILL.md"); err != nil {
		return errors.New("the archive has no SKILL.md at its root")
	}
	return nil
}

// formatOf takes the format from the media type, or from the name if the type is generic.
// Many servers send application/octet-stream for files that they do not know.
func formatOf(contentType, at string) string {
	switch contentType {
	case "application/gzip", "application/x-gzip", "application/x-tar+gzip", "application/x-gtar":
		return "tar.gz"
	case "application/zip", "application/x-zip-compressed":
		return "zip"
	}
	u, err := url.Parse(at)
	switch {
	case err != nil || contentType != "" && contentType != "application/octet-stream":
	case strings.HasSuffix(u.Path, ".tar.gz") || strings.HasSuffix(u.Path, ".tgz"):
		return "tar.gz"
	case strings.HasSuffix(u.Path, ".zip"):
		return "zip"
	}
	return ""
}

// An unpacker writes files until a bound is reached. It believes no size that an archive states.
type unpacker struct {
	root  *os.Root
	bytes int64 // of the files so far
	files int   // so far
}

// A small .tar.gz can unpack to gigabytes of headers without any file, so the reader has a bound as
// well.
func (w *unpacker) tar(data []byte) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	// Headers and gaps of a tar are bytes, too.
	r := tar.NewReader(&bounded{unzipped, 2 * maxUnpackedBytes})
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			continue // a directory is made for its files
		case tar.TypeReg:
		case tar.TypeXGlobalHeader: // git archive writes one
			continue
		default:
			return fmt.Errorf("%q is a link or a special file; only files and directories are unpacked", h.Name)
		}
		if err := w.file(h.Name, h.FileInfo().Mode(), r); err != nil {
			return err
		}
	}
}

// The central directory at the end of a zip lists the files (APPNOTE.TXT, section 4.3.12). Data
// that is not in this list is not read.
func (w *unpacker) zip(data []byte) error {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range r.File {
		switch mode := f.Mode(); {
		case mode.IsDir():
			continue
		case !mode.IsRegular():
			return fmt.Errorf("%q is a link or a special file; only files and directories are unpacked", f.Name)
		}
		content, err := f.Open()
		if err != nil {
			return fmt.Errorf("%q: %w", f.Name, err)
		}
		err = w.file(f.Name, f.Mode(), content)
		content.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// file writes one file. A name that comes twice is an error.
// Only the executable bits of mode are kept. The file may be left half-written after an error: the
// caller removes the directory.
func (w *unpacker) file(name string, mode fs.FileMode, content io.Reader) error {
	// tar of a directory writes such a prefix. Every other form that path.Clean would change is refused, so that no
	// two names mean one file.
	clean := strings.TrimPrefix(name, "./")
	if clean == "" || path.Clean(clean) != clean || !filepath.IsLocal(clean) || strings.Contains(clean, `\`) || strings.ContainsFunc(clean, unicode.IsControl) {
		return fmt.Errorf("%q is not a path inside a skill", name)
	}
	if w.files--; w.files < 0 {
		return fmt.Errorf("the archive has more than %d files", maxFiles)
	}
	if dir := path.Dir(clean); dir != "." {
		err := w.root.MkdirAll(dir, 0o755)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%q is beneath a file of the archive", name)
		}
		if err != nil {
			return err
		}
	}
	// O_EXCL refuses a name that comes twice; without it, the last file of the name would count in silence.
	out, err := w.root.OpenFile(clean, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|mode&0o111)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q is in the archive twice", name)
	}
	if err != nil {
		return err
	}
	// One byte more than the bound shows that the bound is exceeded.
	n, err := io.Copy(out, io.LimitReader(content, w.bytes+1))
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if w.bytes -= n; w.bytes < 0 {
		return fmt.Errorf("the archive has more than %d bytes unpacked", int64(maxUnpackedBytes))
	}
	return nil
}

// bounded ends in an error instead of io.EOF.
// With io.EOF at the bound, a cut archive could look like a complete one.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the archive has more than %d bytes unpacked", int64(maxUnpackedBytes))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
