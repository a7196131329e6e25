package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A View is one version for readers, who need no turn. Its files stay readable until the version is no
// longer kept.
type View struct {
	Version Version
	Files   []File // in byte order of the paths
	id, dir string
}

// Read returns a version; 0 is the newest. It counts as a use of the session. The error is ErrNotFound, a
// *DamagedError, or one of the operating system.
func (s *Store) Read(tenant, id string, version int) (*View, error) {
	x, err := s.find(tenant, id)
	if err != nil {
		return nil, err
	}
	// use first: a Sweep at this moment then finds the session used, and does not remove it under the reader.
	if err := s.use(x); err != nil {
		return nil, gone(id, err)
	}
	number := s.newest(x)
	if version > number {
		return nil, fmt.Errorf("session %q: version %d: %w", id, version, ErrNotFound) // see session.committed
	}
	if version != 0 {
		number = version
	}
	if number == 0 {
		return &View{id: id, dir: x.dir}, nil
	}
	defer s.beginReading(tenant)()
	data, err := os.ReadFile(versionPath(x.dir, number))
	// The newest version may be removed before it is read, if commits have made newer ones meanwhile.
	for version == 0 && errors.Is(err, os.ErrNotExist) && number != s.newest(x) {
		number = s.newest(x)
		data, err = os.ReadFile(versionPath(x.dir, number))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("session %q: version %d: %w", id, number, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	m, err := decode(data)
	if err == nil && m.Number != number {
		err = fmt.Errorf("it is version %d", m.Number)
	}
	if err != nil {
		return nil, &DamagedError{id, number, err}
	}
	return &View{m.Version, m.files, id, x.dir}, nil
}

// newest returns the number of the newest version; 0 without one.
func (s *Store) newest(x *session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.head.Number
}

// Bounds of the lists of files that are read at the same time. Reading and decoding one takes about four times
// its size in memory.
const (
	maxReading       = 8
	maxTenantReading = 2
)

// beginReading waits until a list of files may be read. The caller must call end. The wait ends, because reads need
// only the disk and a processor, and no answer of a client.
func (s *Store) beginReading(tenant string) (end func()) {
	s.mu.Lock()
	share := s.of(tenant).reading
	s.mu.Unlock()
	// The tenant's share comes first: a reader that waits for it must not hold a place of the other tenants.
	share <- struct{}{}
	s.reading <- struct{}{}
	return func() { <-s.reading; <-share }
}

// gone returns ErrNotFound for a missing file: the session was removed during the read.
func gone(id string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("session %q: %w", id, ErrNotFound)
	}
	return err
}

// Find returns the file at a path.
func (v *View) Find(path string) (File, error) {
	i, ok := slices.BinarySearchFunc(v.Files, path, func(f File, p string) int { return strings.Compare(f.Path, p) })
	if !ok {
		return File{}, fmt.Errorf("path %q: %w", path, ErrNotFound)
	}
	return v.Files[i], nil
}

// Open opens a file of Files. The caller closes it, and compares the content with the hash if it must be
// sure of the disk. The error is ErrNotFound if the version is no longer kept, or a *DamagedError if the file
// has another size.
func (v *View) Open(f File) (*os.File, error) {
	// An open file stays readable after its removal (unlink(2)), so a writer that removes the version does not end a
	// download.
	file, err := os.OpenFile(filepath.Join(v.dir, objectsName, f.object), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("path %q: %w", f.Path, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	fi, err := file.Stat()
	if err == nil && fi.Size() != f.SizeBytes {
		err = &DamagedError{v.id, v.Version.Number, fmt.Errorf("%q has %d bytes, not %d", f.Path, fi.Size(), f.SizeBytes)}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Versions describes the kept versions of a session, oldest first, without damaged ones.
func (s *Store) Versions(tenant, id string) ([]Version, error) {
	x, err := s.find(tenant, id)
	if err != nil {
		return nil, err
	}
	head := s.newest(x)
	numbers, err := versionNumbers(x.dir)
	if err != nil {
		return nil, gone(id, err)
	}
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return n > head }) // see session.committed
	defer s.beginReading(tenant)()
	var list []Version
	for _, n := range numbers {
		v, err := readHead(versionPath(x.dir, n))
		// A version that is gone was removed by a writer, and a damaged one is left out.
		if _, io := errors.AsType[*os.PathError](err); io && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err == nil && v.Number == n {
			list = append(list, v)
		}
	}
	return list, nil
}
