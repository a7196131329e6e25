package session

import (
	"context"
	"fmt"
)

// CheckPut returns an error of Put that can be known before the content has come.
func (s *Store) CheckPut(tenant, id, path string, size int64) error {
	if err := checkPath(path); err != nil {
		return err
	}
	x, err := s.find(tenant, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	most := x.set.Bytes
	s.mu.Unlock()
	if most = least(most, s.config.Rules(tenant).Bytes); most > 0 && size > most {
		return &QuotaError{QuotaBytes, most, size}
	}
	return nil
}

// Put makes a version with one more file, or with other content in one, and returns it. If the newest
// version has the same file, Put returns that version. Unlike the commit of a program, Put never
// replaces a directory by a file or a file by a directory. The error is
// ErrNotFound, a *BusyError, a *PathError, a *QuotaError, a *DamagedError or one of the operating system.
// If u waits for other writers, ctx bounds the wait.
func (s *Store) Put(ctx context.Context, tenant, id string, u Use, f NewFile) (Version, error) {
	w, err := s.Acquire(ctx, tenant, id, u)
	if err != nil {
		return Version{}, err
	}
	defer w.Release()
	if err := w.Open(0); err != nil {
		return Version{}, err
	}
	if err := w.canHave(f.Path); err != nil {
		return Version{}, err
	}
	done, err := w.Commit(Change{Files: []NewFile{f}})
	if err != nil {
		return Version{}, err
	}
	if done.Version.Number == 0 {
		return w.base.Version, nil
	}
	return done.Version, nil
}

// canHave returns a *PathError if a path is a directory of the version, or lies in a file.
func (w *Writer) canHave(path string) error {
	above := map[string]bool{}
	for dir := range parents(path) {
		above[dir] = true
	}
	self := map[string]bool{path: true}
	for _, f := range w.base.files {
		if above[f.Path] {
			return &PathError{path, fmt.Sprintf("%q is a file of the session, not a directory", f.Path)}
		}
		if isBeneath(f.Path, self) {
			return &PathError{path, "is a directory of the session"}
		}
	}
	return nil
}
