package session

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/failpoint"
)

// A Committed describes a commit.
type Committed struct {
	Version                 Version // zero: nothing was changed, and no version was made
	Added, Changed, Deleted int     // files
	WrittenBytes            int64   // of added and changed ones
}

// A Kind says how a commit has changed a file.
type Kind string

// The kinds of a Changed.
const (
	Added    Kind = "added"
	Replaced Kind = "changed"
	Deleted  Kind = "deleted"
)

// A Changed is one file that a commit has changed.
type Changed struct {
	File // before its deletion
	Kind Kind
}

// Changes returns the files that Commit has changed, in the order of their paths. It is empty without a commit.
func (w *Writer) Changes() []Changed { return w.changed }

// Commit makes the next version of the session, at once or not at all. The version is durable when
// Commit returns. If the files are as before, nothing happens. Commit may be called once. The error is a
// *QuotaError, a *PathError, or an error of the operating system: then no version was made. After an *UnknownError
// there may be one.
func (w *Writer) Commit(c Change) (Committed, error) {
	if w.next != nil {
		return Committed{}, errors.New("session: a writer commits once")
	}
	if len(c.Files)+len(c.Deleted) == 0 {
		return Committed{}, nil // a list of many files takes time
	}
	number := w.x.head.Number + 1 // only writers change it
	// Everything up to w.commit happens in memory. An error before it leaves nothing to undo.
	p, err := newPlan(number, c)
	if err != nil {
		return Committed{}, err
	}
	files := p.apply(w.base.files)
	if p.done == (Committed{}) {
		return p.done, nil
	}
	adds := p.done.Added+p.done.Changed > 0
	// A change that only deletes passes every quota, so that a tenant can get below a quota again.
	if need, limit := listBytes(files), w.listLimit(); adds && need > limit {
		return Committed{}, &QuotaError{QuotaList, limit, need}
	}
	next, err := newManifest(Version{Number: number, Base: w.base.Number, By: w.by, Created: w.store.config.Now().Round(0).UTC()}, files)
	if err != nil {
		return Committed{}, err
	}
	if adds {
		if err := w.fits(next); err != nil {
			return Committed{}, err
		}
	}
	if err := w.commit(next, p.sources); err != nil {
		return Committed{}, err
	}
	p.done.Version = next.Version
	slices.SortFunc(p.changed, func(a, b Changed) int { return strings.Compare(a.Path, b.Path) })
	w.changed = p.changed
	return p.done, nil
}

// commit writes a version, if the quota of the tenant allows it.
func (w *Writer) commit(next *manifest, sources map[string]string) error {
	// The quota counts what stays after Release, which removes the surplus versions. Until then the disk holds both.
	w.gone = w.surplus(next.Number)
	after := slices.DeleteFunc(slices.Clone(w.x.kept), func(m *manifest) bool { return slices.Contains(w.gone, m.Number) })
	next.Stored = stored(append(after, next))
	if err := w.recount(); err != nil {
		return err
	}
	before, err := w.reserve(next.Stored, len(sources) > 0)
	if err != nil {
		return err
	}
	if err := w.write(next, sources); err != nil {
		w.unreserve(next.Stored - before)
		w.x.loaded = false // the next writer reads the versions from the disk again
		return fmt.Errorf("session %s: commit: %w", w.x.id, w.undo(next, sources, err))
	}
	// The rows are on disk now. Only their size is still needed, by stored.
	next.rows = nil
	w.x.kept, w.next = append(w.x.kept, next), next
	w.store.mu.Lock()
	w.x.head = next.Version
	w.store.mu.Unlock()
	return nil
}

// fits compares a version with the bounds of one version. Directories count as files. A version with fewer
// files than its base is not compared: the operator may have lowered the bounds since.
func (w *Writer) fits(next *manifest) error {
	bytes, files := w.Room()
	if n := next.Files + next.Dirs; files > 0 && n > files {
		return &QuotaError{QuotaFiles, int64(files), int64(n)}
	}
	if bytes > 0 && next.Bytes > bytes {
		return &QuotaError{QuotaBytes, bytes, next.Bytes}
	}
	return nil
}

// listLimit is the most that listBytes may be. Reads of a version have its list in memory.
func (w *Writer) listLimit() int64 {
	return listBytesPerFile * int64(max(leastListed, w.store.config.Rules(w.tenant).Files))
}

// surplus returns the versions that are not kept after another one.
func (w *Writer) surplus(number int) (gone []int) {
	all := []int{number}
	for _, m := range w.x.kept {
		all = append(all, m.Number)
	}
	all = slices.AppendSeq(all, maps.Keys(w.x.damaged))
	slices.Sort(all)
	return all[:max(0, len(all)-w.store.keep(w.tenant))]
}

// recount counts the versions that the other process of a takeover has committed for the tenant. So the tenant can
// exceed its quota only if both processes commit at the same moment.
func (w *Writer) recount() error {
	s := w.store
	s.refresh(w.tenant)
	if !s.isHanding() || s.config.Rules(w.tenant).TotalBytes == 0 {
		return nil
	}
	return s.readTenant(w.tenant)
}

// reserve counts the size of the session after a commit, so that the commits of a tenant do not exceed
// its quota together. A commit that only deletes is always allowed. reserve returns the size before.
func (w *Writer) reserve(size int64, adds bool) (before int64, err error) {
	s := w.store
	limit := s.config.Rules(w.tenant).TotalBytes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	t := s.tenants[w.tenant]
	before = w.x.head.Stored
	if need := t.bytes + size - before; limit > 0 && adds && need > limit {
		return 0, &QuotaError{QuotaTenantBytes, limit, need}
	}
	t.bytes += size - before
	return before, nil
}

// unreserve gives back the bytes that reserve added, after a commit that failed.
func (w *Writer) unreserve(size int64) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.tenants[w.tenant].bytes -= size
}

// write makes the objects and then the version, in the order of the theory of operation.
func (w *Writer) write(next *manifest, sources map[string]string) error {
	if err := w.writeObjects(next, sources); err != nil {
		return err
	}
	w.store.step("objects")
	failpoint.Reach(failpoint.BeforeVersion)
	data, err := next.encode()
	if err != nil {
		return err
	}
	// durable.WriteFile renames a synced temporary file. Its rename is the commit.
	if err := durable.WriteFile(versionPath(w.x.dir, next.Number), data); err != nil {
		return err
	}
	w.store.step("version")
	failpoint.Reach(failpoint.AfterVersion)
	return nil
}

// manySyncs is the number of files from which one syncfs(2) is used instead of an fsync(2) for each.
// syncfs(2) also writes what other programs have changed on the file system, so it pays only for several files.
const manySyncs = 8

// writeObjects makes new objects, and makes them durable.
func (w *Writer) writeObjects(next *manifest, sources map[string]string) error {
	if len(sources) == 0 {
		return nil
	}
	for _, f := range next.files {
		source, ok := sources[f.object]
		if !ok {
			continue
		}
		if err := w.writeObject(f, source, len(sources) < manySyncs); err != nil {
			return fmt.Errorf("%q: %w", f.Path, err)
		}
	}
	if len(sources) >= manySyncs {
		return w.fs.Sync()
	}
	return durable.SyncDir(filepath.Join(w.x.dir, objectsName))
}

// writeObject makes the object of a file from its source: a hard link, which costs no copy, or a copy if the
// source cannot be linked. link(2) has the reasons: another file system (EXDEV), too many links (EMLINK), or a
// file system without links (EPERM).
//
// O_NOFOLLOW and O_NONBLOCK: a symbolic link or a pipe in the place of the source must neither lead elsewhere
// nor block (open(2), fifo(7)).
func (w *Writer) writeObject(f File, source string, sync bool) error {
	path := filepath.Join(w.x.dir, objectsName, f.object)
	err := os.Link(source, path)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EPERM) {
		err = copyFile(path, source)
	}
	if err != nil {
		return err
	}
	object, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer object.Close()
	fi, err := object.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() || fi.Size() != f.SizeBytes {
		return fmt.Errorf("not a regular file of %d bytes", f.SizeBytes)
	}
	mode := os.FileMode(0o644)
	if f.Executable {
		mode = 0o755
	}
	// Sizes, owner and mode are read and set through one descriptor, so that nothing can take the file's place between
	// two calls.
	owner := w.store.config.Owner
	if err := errors.Join(object.Chown(owner.UID, owner.GID), object.Chmod(mode)); err != nil || !sync {
		return err
	}
	return object.Sync()
}

// copyFile copies a file to a new one. O_EXCL, because an object that exists belongs to a version.
func copyFile(to, from string) error {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// undo removes the files that a commit wrote before it failed with err, and returns err. It removes the version
// first, so that no version on disk lacks an object. If the disk does not let it remove the version, the error is an
// *UnknownError: the rename of the version may have reached the disk, for example with the sync of another session.
func (w *Writer) undo(next *manifest, sources map[string]string, err error) error {
	gone := os.Remove(versionPath(w.x.dir, next.Number))
	if gone == nil {
		// The sync between the two removals: after a power cut a version could otherwise be there without its objects.
		gone = durable.SyncDir(filepath.Join(w.x.dir, versionsName))
	}
	if unlessGone(gone) != nil {
		return &UnknownError{w.x.id, next.Number, errors.Join(err, gone)}
	}
	for object := range sources {
		err = errors.Join(err, unlessGone(os.Remove(filepath.Join(w.x.dir, objectsName, object))))
	}
	return err
}
