package session

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/skillrun/skillrun/internal/durable"
)

// load reads the versions and removes the remains of an interrupted commit or release. If a version is
// damaged, it removes no object, because the objects may be needed for a repair. The caller is the writer,
// so no commit adds objects or versions between the reads of the two directories.
func (s *Store) load(tenant string, x *session) error {
	if x.loaded {
		return nil
	}
	sizes, err := objectSizes(x.dir)
	if err != nil {
		return err
	}
	numbers, err := x.committed()
	if err != nil {
		return err
	}
	if err := s.cleanTop(x); err != nil {
		return err
	}
	// From here to the end lists of files are in memory twice, as bytes and decoded.
	defer s.beginReading(tenant)()
	x.kept, x.damaged = nil, map[int]error{}
	known := map[string]File{} // of earlier versions, by object
	for _, n := range numbers {
		m, err := readManifest(x.dir, n, sizes)
		if durable.MayPass(err) {
			return err
		}
		if err != nil {
			s.config.Log.Error("a version of a session is damaged; earlier ones are not", "session", x.id, "version", n, "err", err)
			x.damaged[n] = err
			continue
		}
		m.share(known)
		x.kept = append(x.kept, m)
	}
	keep := s.keep(tenant)
	var gone []int
	if len(numbers) > keep {
		gone = numbers[:len(numbers)-keep]
	}
	if err := x.clean(gone, slices.Collect(maps.Keys(sizes))); err != nil {
		return err
	}
	s.resize(tenant, x, stored(x.kept))
	x.loaded = true
	return nil
}

// committed returns the numbers of the versions on disk. It removes versions that are newer than the head: their
// commits have ended with an UnknownError. After a restart such a version counts as committed, because the head is
// then the newest version on disk.
func (x *session) committed() ([]int, error) {
	numbers, err := versionNumbers(x.dir)
	if err != nil {
		return nil, err
	}
	known := len(numbers)
	for ; known > 0 && numbers[known-1] > x.head.Number; known-- {
		if err := os.Remove(versionPath(x.dir, numbers[known-1])); err != nil {
			return nil, err
		}
	}
	if known < len(numbers) { // before load removes their objects, as in undo
		err = durable.SyncDir(filepath.Join(x.dir, versionsName))
	}
	return numbers[:known], err
}

// objectSizes returns the sizes of the objects of a session, by their names.
func objectSizes(dir string) (map[string]int64, error) {
	list, err := os.ReadDir(filepath.Join(dir, objectsName))
	sizes := make(map[string]int64, len(list))
	for _, d := range list {
		fi, err := d.Info()
		if err != nil {
			return nil, err
		}
		sizes[d.Name()] = fi.Size()
	}
	return sizes, err
}

// cleanTop removes files that are no part of a session, such as a file of an interrupted update. After
// HandOver it does nothing: the next process may be updating the session.
func (s *Store) cleanTop(x *session) error {
	if s.enter() != nil {
		return nil
	}
	defer s.leave()
	x.updating.Lock()
	defer x.updating.Unlock()
	list, err := names(x.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range list {
		if !slices.Contains([]string{metaName, versionsName, objectsName, treeName}, name) {
			errs = append(errs, os.RemoveAll(filepath.Join(x.dir, name)))
		}
	}
	return errors.Join(errs...)
}

// keep returns the number of versions to keep of a tenant's sessions.
func (s *Store) keep(tenant string) int {
	if n := s.config.Rules(tenant).Versions; n > 0 {
		return n
	}
	return defaultVersions
}

// resize sets the size on disk of a session. With damaged versions it is only a lower bound, so a
// larger size stays.
func (s *Store) resize(tenant string, x *session, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(x.damaged) > 0 {
		size = max(size, x.head.Stored)
	}
	s.tenants[tenant].bytes += size - x.head.Stored
	x.head.Stored = size
}

// readManifest reads the manifest of a version. It is an error if an object of the version is missing or has another
// size. It does not read the objects, so it does not notice changed bytes.
func readManifest(dir string, number int, sizes map[string]int64) (*manifest, error) {
	data, err := os.ReadFile(versionPath(dir, number))
	if err != nil {
		return nil, err
	}
	m, err := decode(data)
	if err != nil {
		return nil, err
	}
	if m.Number != number {
		return nil, fmt.Errorf("it is version %d", m.Number)
	}
	for _, f := range m.files {
		switch size, ok := sizes[f.object]; {
		case !ok:
			return nil, fmt.Errorf("object %s is missing", f.object)
		case size != f.SizeBytes:
			return nil, fmt.Errorf("object %s has %d bytes, not %d", f.object, size, f.SizeBytes)
		}
	}
	return m, nil
}

// clean removes versions, and then objects that no version has. objects are the names on disk. A name among
// the versions that is no number is a temporary file of durable.WriteFile.
func (x *session) clean(gone []int, objects []string) error {
	list, err := names(filepath.Join(x.dir, versionsName))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range list {
		n, err := strconv.Atoi(name)
		if err != nil || slices.Contains(gone, n) {
			errs = append(errs, os.Remove(filepath.Join(x.dir, versionsName, name)))
			delete(x.damaged, n)
		}
	}
	x.kept = slices.DeleteFunc(x.kept, func(m *manifest) bool { return slices.Contains(gone, m.Number) })
	// The versions are removed before the objects, so that a crash in between leaves no version without its objects. A
	// damaged version may name any object, so no object is removed while a damaged version is kept.
	if err := errors.Join(errs...); err != nil || len(x.damaged) > 0 {
		return err
	}
	used := map[string]bool{}
	for _, m := range x.kept {
		for _, f := range m.files {
			used[f.object] = true
		}
	}
	for _, name := range objects {
		if !used[name] {
			errs = append(errs, unlessGone(os.Remove(filepath.Join(x.dir, objectsName, name))))
		}
	}
	return errors.Join(errs...)
}

// names returns the names in a directory.
func names(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	for _, d := range list {
		names = append(names, d.Name())
	}
	return names, err
}
