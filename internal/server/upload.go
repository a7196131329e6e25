package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Bounds on streamed input files. maxUploadTime is the time from the start message to the last
// chunk.
const (
	maxUploadBytes = 1 << 30 // of one request
	maxUploadFiles = 1000    // of one request
	maxUploadTime  = 10 * time.Minute
	// maxStagedBytes bounds the announced bytes of all requests together, and
	// maxCallerStagedBytes the announced bytes of one caller. take has the bound of a tenant.
	maxStagedBytes       = 6 << 30
	maxCallerStagedBytes = 2 << 30
)

const uploadPrefix = "upload-"

// uploads is the room for streamed input files. Room is reserved for announced sizes, before
// the first byte comes, so that other uploads can't take it from an accepted one.
type uploads struct {
	dir string
	// prefix begins the names of this server's directories, so that sweep can tell them from directories of other processes.
	prefix string

	mu      sync.Mutex                     // guards the fields below
	free    int64                          // bytes, of maxStagedBytes
	callers map[permission.Principal]int64 // what each has announced; no zeros
	tenants map[string]int64               // the sum of the tenant's callers; no zeros
	pushes  map[string]int                 // pushes of skills that are under way, by tenant; no zeros
	puts    map[putKey]*put                // uploads to sessions
}

// newUploads makes the directory if it is missing.
func newUploads(dir string) (*uploads, error) {
	return &uploads{
		dir: dir, prefix: uploadPrefix + rand.Text()[:8] + "-", free: maxStagedBytes,
		callers: map[permission.Principal]int64{}, tenants: map[string]int64{}, pushes: map[string]int{}, puts: map[putKey]*put{},
	}, os.MkdirAll(dir, 0o700)
}

// sweep removes the files of earlier servers. Their processes must have ended.
func (u *uploads) sweep() error {
	all, err := fs.Glob(os.DirFS(u.dir), uploadPrefix+"*")
	for _, name := range all {
		if !strings.HasPrefix(name, u.prefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(u.dir, name)))
		}
	}
	return err
}

// An upload has the streamed files of one request. The caller of open must remove it. While
// chunks come, only the goroutine that receives them changes it.
type upload struct {
	dir    string // "" if nothing is streamed
	files  map[string]*uploadFile
	open   int // files that are not complete
	remove func() error
}

// An uploadFile is one announced file. It is complete when received is size and the sums are
// equal.
type uploadFile struct {
	index int // in the message
	// The path on this machine.
	host string
	// Announced, in bytes.
	size     int64
	received int64 // bytes
	// want is the announced SHA-256 in lower-case hex; sum is the sum of the received bytes.
	want string
	sum  hash.Hash
}

// open checks the announced files and reserves room for them.
func (u *uploads) open(who permission.Principal, files []*pb.InputFile) (*upload, error) {
	up := &upload{files: map[string]*uploadFile{}, remove: func() error { return nil }}
	total := int64(0)
	for i, f := range files {
		announced := f.GetStreamed()
		if announced == nil {
			continue
		}
		one, err := newUploadFile(i, announced)
		if err != nil {
			return nil, err
		}
		if _, twice := up.files[f.GetPath()]; twice {
			return nil, invalid(fmt.Sprintf("files[%d].path", i), "%q comes twice", clip(f.GetPath(), maxStatusField))
		}
		up.files[f.GetPath()] = one
		if total += one.size; total > maxUploadBytes {
			return nil, invalid("files", "more than %d bytes streamed", int64(maxUploadBytes))
		}
	}
	if len(up.files) > maxUploadFiles {
		return nil, invalid("files", "%d streamed; at most %d", len(up.files), maxUploadFiles)
	}
	if len(up.files) == 0 {
		return up, nil
	}
	if err := u.take(who, total); err != nil {
		return nil, err
	}
	return up, u.stage(up, func() { u.give(who, total) })
}

// take reserves room for n bytes. A tenant may never reserve more than remains free after it. So even if
// many tenants reserve as much as they may, there is room for one more. maxCallerStagedBytes leaves room for
// the other callers of a tenant.
func (u *uploads) take(who permission.Principal, n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	// The tenant's sum after the call must not exceed the free room after the call: used+n <= free-n.
	if free := max(0, min((u.free-u.tenants[who.Tenant])/2, maxCallerStagedBytes-u.callers[who])); n > free {
		return &uploadsFullError{asked: n, free: free}
	}
	u.free -= n
	u.callers[who] += n
	u.tenants[who.Tenant] += n
	return nil
}

// give frees room that take reserved.
func (u *uploads) give(who permission.Principal, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.free += n
	if u.callers[who] -= n; u.callers[who] == 0 {
		delete(u.callers, who)
	}
	if u.tenants[who.Tenant] -= n; u.tenants[who.Tenant] == 0 {
		delete(u.tenants, who.Tenant)
	}
}

// stage makes the files, empty. If it fails, and when the upload is removed, the room is free
// again.
func (u *uploads) stage(up *upload, give func()) error {
	dir, err := os.MkdirTemp(u.dir, u.prefix)
	if err != nil {
		give()
		return err
	}
	up.dir = dir
	up.remove = sync.OnceValue(func() error {
		defer give()
		var files []string
		for _, f := range up.files {
			files = append(files, f.host)
		}
		return removeStaged(dir, files...)
	})
	for path, f := range up.files {
		// Named by the index: a caller's path never becomes a path on the host here.
		f.host = filepath.Join(dir, strconv.Itoa(f.index))
		if err := os.WriteFile(f.host, nil, 0o600); err != nil {
			up.remove()
			return err
		}
		if f.size > 0 {
			up.open++
		} else if err := f.complete(path); err != nil {
			up.remove()
			return err
		}
	}
	return nil
}

// removeStaged removes a directory and the files in it. os.RemoveAll opens a directory that has entries, which fails
// while the daemon has no descriptors left; to remove the files first needs none.
func removeStaged(dir string, files ...string) error {
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// newUploadFile checks an announcement. The daemon trusts neither size nor sum: add and complete
// compare them with the bytes.
func newUploadFile(index int, m *pb.StreamedFile) (*uploadFile, error) {
	want, err := announced(fmt.Sprintf("files[%d].streamed", index), m)
	if err != nil {
		return nil, err
	}
	return &uploadFile{index: index, size: int64(m.GetSizeBytes()), want: want, sum: sha256.New()}, nil
}

// announced checks the size and the SHA-256 that the message in a field announces. It returns the SHA-256 in
// lower case.
func announced(field string, m interface {
	GetSizeBytes() uint64
	GetSha256() string
}) (string, error) {
	if m.GetSizeBytes() > maxUploadBytes {
		return "", invalid(field+".size_bytes", "%d; at most %d", m.GetSizeBytes(), int64(maxUploadBytes))
	}
	want := strings.ToLower(m.GetSha256())
	if sum, err := hex.DecodeString(want); err != nil || len(sum) != sha256.Size {
		return "", invalid(field+".sha256", "must be 64 hex digits")
	}
	return want, nil
}

// errNoData refuses a message without data. The announced bytes bound the other messages of an upload, but not this
// one.
func errNoData(field string) error {
	return invalid(field, "is empty; an empty file needs no data")
}

// add takes one chunk. The chunks of a file come in order and without a gap.
func (up *upload) add(m *pb.FileChunk) error {
	f, ok := up.files[m.GetPath()]
	size := int64(len(m.GetData()))
	switch {
	case !ok:
		return invalid("file_chunk.path", "%q was not announced", clip(m.GetPath(), maxStatusField))
	case m.GetOffsetBytes() > math.MaxInt64 || int64(m.GetOffsetBytes()) != f.received:
		return invalid("file_chunk.offset_bytes", "%d; the next byte of the file is %d", m.GetOffsetBytes(), f.received)
	case size > f.size-f.received:
		return invalid("file_chunk.data", "ends at %d, but %d bytes were announced", f.received+size, f.size)
	case size == 0:
		return errNoData("file_chunk.data")
	}
	// Opened for each chunk: a thousand files may take turns.
	file, err := os.OpenFile(f.host, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(m.GetData())
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	f.sum.Write(m.GetData())
	if f.received += size; f.received < f.size {
		return nil
	}
	up.open--
	return f.complete(m.GetPath())
}

// complete compares the received bytes with the announced digest. A mismatch fails the call
// before anything is executed.
func (f *uploadFile) complete(path string) error {
	if have := hex.EncodeToString(f.sum.Sum(nil)); have != f.want {
		return &digestError{path: path, want: f.want, have: have}
	}
	return nil
}

// fill puts the files into the request that announced them. r.Files has no entry for a file with a URI, so the index in
// the message is not the one in r.Files.
func (up *upload) fill(r *executor.Request) {
	for i := range r.Files {
		if f := up.files[r.Files[i].Path]; f != nil {
			r.Files[i].Source = f.host
		}
	}
}
