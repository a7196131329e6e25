package wellknown

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxIndexBytes is the maximum size of an index. Indexes have no pages.
const MaxIndexBytes = 4 << 20

// EncodeIndex returns an index of skills. It returns an error if the index exceeds MaxIndexBytes.
func EncodeIndex(skills []Entry) ([]byte, error) {
	data, err := json.Marshal(struct {
		Schema string  `json:"$schema"`
		Skills []Entry `json:"skills"`
	}{Schema, append([]Entry{}, skills...)}) // a list without entries is [], not null
	if err == nil && len(data) > MaxIndexBytes {
		err = fmt.Errorf("an index of these %d skills has %d bytes, and the maximum is %d", len(skills), len(data), MaxIndexBytes)
	}
	return data, err
}

// A File is a file of an archive.
type File struct {
	Path       string // relative, with slashes
	Size       int64  // in bytes
	Executable bool
	// Open opens the content, which must have Size bytes. WriteArchive closes it.
	Open func() (io.ReadCloser, error)
}

// WriteArchive writes a .tar.gz with files in their order. Equal files give equal bytes, because the
// archive has no times, owners or other data of a machine. Another version of Go may compress
// differently.
func WriteArchive(w io.Writer, files []File) error {
	// BestSpeed: the daemon makes the archive while a client waits, and skills are mostly small texts.
	zipped, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		if err := f.write(archive); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// write adds the file to an archive. The header comes first and has the size, so a content of another size is an error.
func (f File) write(to *tar.Writer) error {
	content, err := f.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	mode := int64(0o644)
	if f.Executable {
		mode = 0o755
	}
	if err := to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size, Mode: mode}); err != nil {
		return err
	}
	if n, err := io.Copy(to, content); err != nil || n != f.Size {
		return errors.Join(err, fmt.Errorf("has %d bytes, want %d", n, f.Size))
	}
	return nil
}
