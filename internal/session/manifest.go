package session

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// A Version describes one version of a session.
type Version struct {
	Number  int       `json:"number"`
	Base    int       `json:"base"` // the version from which it was made; 0: from none
	By      string    `json:"by"`   // the execution or the call that committed it
	Created time.Time `json:"created"`
	Files   int       `json:"files"`
	Dirs    int       `json:"dirs"` // that the files are in
	Bytes   int64     `json:"bytes"`
	// Stored is the size on disk of all versions that were kept with this one as the newest.
	Stored int64 `json:"stored"`
}

// A File is a file of a version.
type File struct {
	// Path is relative to the workspace. It has the exact bytes of the name, which may be no UTF-8.
	Path       string
	SizeBytes  int64
	SHA256     string // 64 hex digits
	Executable bool

	object string
}

// same reports whether two files have the same content and mode.
func (f File) same(g File) bool {
	return f.SHA256 == g.SHA256 && f.SizeBytes == g.SizeBytes && f.Executable == g.Executable
}

// manifest is a version with its files, in byte order of the paths.
type manifest struct {
	Version
	files []File
	rows  []byte // the encoded files; nil after the version was written
	size  int64  // of rows
}

// A row is the form of a File on disk. JSON would change a path that is not UTF-8, so it is base64.
type row struct {
	Path   []byte `json:"p"`
	Size   int64  `json:"s"`
	SHA256 string `json:"h"`
	Exec   bool   `json:"x,omitempty"`
	Object string `json:"o"`
}

// newManifest makes a version. Stored is still missing.
func newManifest(v Version, files []File) (*manifest, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, f := range files {
		if err := enc.Encode(row{[]byte(f.Path), f.SizeBytes, f.SHA256, f.Executable, f.object}); err != nil {
			return nil, err
		}
		v.Bytes += f.SizeBytes
	}
	v.Files, v.Dirs = len(files), countDirs(files)
	return &manifest{v, files, b.Bytes(), int64(b.Len())}, nil
}

// Bounds of the list of a version. 10,000 paths may have 187 bytes on average, and one path 4,096.
const (
	listBytesPerFile = 400
	leastListed      = 10_000 // files, if the bound of files is lower
	rowBytes         = 150    // of a row without its path, at most
)

// listBytes returns at least the size of the list of files on disk.
func listBytes(files []File) (n int64) {
	for _, f := range files {
		n += rowBytes + int64(base64.StdEncoding.EncodedLen(len(f.Path)))
	}
	return n
}

// share replaces files by equal ones of earlier versions, so that ten versions of a file have its path and hash in
// memory once. It adds the others to known, by their objects.
func (m *manifest) share(known map[string]File) {
	for i, f := range m.files {
		if old, ok := known[f.object]; ok && old == f {
			m.files[i] = old
		} else {
			known[f.object] = f
		}
	}
}

// encode returns the content of versions/N: the SHA-256 of the rest in hex, the version, the files;
// each on a line.
func (m *manifest) encode() ([]byte, error) {
	head, err := json.Marshal(m.Version)
	if err != nil {
		return nil, err
	}
	return durable.WithSum(slices.Concat(head, []byte{'\n'}, m.rows)), nil
}

// countDirs returns the number of directories that sorted files are in.
func countDirs(files []File) int {
	seen := map[string]bool{}
	for _, f := range files {
		for dir := range parents(f.Path) {
			if seen[dir] {
				break
			}
			seen[dir] = true
		}
	}
	return len(seen)
}

// diskBlock is the least that a file or a directory takes on disk.
const diskBlock = 4096

// onDisk is the size on disk of a file, with its inode and its name.
// The division rounds down. The 1 is for a block that is partly filled, or for the inode and the name.
func onDisk(size int64) int64 { return (size/diskBlock + 1) * diskBlock }

// stored returns the size on disk of all versions together, with the tree of the last one.
func stored(kept []*manifest) (total int64) {
	objects := map[string]bool{}
	for _, m := range kept {
		total += onDisk(m.size)
		for _, f := range m.files {
			if !objects[f.object] {
				objects[f.object] = true
				total += onDisk(f.SizeBytes)
			}
		}
	}
	// Links of the tree share the blocks of the objects. Only its directories take space.
	if n := len(kept); n > 0 {
		total += int64(kept[n-1].Dirs) * diskBlock
	}
	return total
}

// maxHead bounds the first two lines of versions/N in bytes: a sum, and a Version, whose By names a principal.
const maxHead = 64 << 10

// readHead reads a version without its files. It checks the sum, but has only a small part of the file in memory.
func readHead(path string) (v Version, err error) {
	file, err := os.Open(path)
	if err != nil {
		return v, err
	}
	defer file.Close()
	hash := sha256.New()
	// ReadSlice fails with bufio.ErrBufferFull if a line is longer than maxHead.
	r := bufio.NewReaderSize(file, maxHead)
	sum, err := r.ReadSlice('\n')
	want := string(bytes.TrimSuffix(sum, []byte{'\n'}))
	if err != nil {
		return v, fmt.Errorf("sum: %w", err)
	}
	head, err := r.ReadSlice('\n')
	if err != nil {
		return v, fmt.Errorf("version: %w", err)
	}
	hash.Write(head)
	if err = json.Unmarshal(head, &v); err == nil {
		_, err = r.WriteTo(hash)
	}
	if err == nil && hex.EncodeToString(hash.Sum(nil)) != want {
		err = errors.New("checksum differs")
	}
	return v, err
}

// splitVersion checks the sum and returns the version, and the lines of its files.
func splitVersion(data []byte) (v Version, rows []byte, err error) {
	if data, err = durable.Checked(data); err != nil {
		return v, nil, err
	}
	head, rows, _ := bytes.Cut(data, []byte{'\n'})
	return v, rows, json.Unmarshal(head, &v)
}

// decode reads the file of a version. It checks what later code relies on, because a sum is no
// proof of who wrote the file.
func decode(data []byte) (*manifest, error) {
	v, rows, err := splitVersion(data)
	if err != nil {
		return nil, err
	}
	m := &manifest{Version: v, size: int64(len(rows))}
	var total int64
	for line := range bytes.Lines(rows) {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		f := File{Path: string(r.Path), SizeBytes: r.Size, SHA256: r.SHA256, Executable: r.Exec, object: r.Object}
		if err := f.check(); err != nil {
			return nil, err
		}
		if n := len(m.files); n > 0 && m.files[n-1].Path >= f.Path {
			return nil, &PathError{f.Path, "is not in order"}
		}
		m.files = append(m.files, f)
		total += f.SizeBytes
	}
	if len(m.files) != v.Files || total != v.Bytes || countDirs(m.files) != v.Dirs {
		return nil, fmt.Errorf("%d files of %d bytes, not %d of %d", len(m.files), total, v.Files, v.Bytes)
	}
	return m, nil
}

// check reports whether the fields of a file can be used.
func (f File) check() error {
	if err := checkPath(f.Path); err != nil {
		return err
	}
	if f.SizeBytes < 0 || len(f.SHA256) != 2*sha256.Size || !isObject(f.object) {
		return &PathError{f.Path, "size, hash or object is not valid"}
	}
	return nil
}

// isObject reports whether a name is one that objectName makes. So a name from a damaged file of a version
// has no slash, and leads to no file elsewhere.
func isObject(name string) bool {
	version, index, ok := strings.Cut(name, "-")
	return ok && isNumber(version) && isNumber(index)
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}
