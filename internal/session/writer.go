package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/failpoint"
)

// maxWaiting bounds the writers that wait for one session. Each is an accepted call with its request in
// memory, and callers beyond the bound learn at once that the session is busy.
const maxWaiting = 64

// Use says how an execution uses a session.
type Use struct {
	By   string // the execution, for the callers who find the session busy
	Wait bool   // for other writers, in the order of the calls; false: be refused with a *BusyError
}

// A Writer may commit to a session. There is only one at a time. The caller must open it before
// anything else, and must release it.
type Writer struct {
	store  *Store
	x      *session
	tenant string
	by     string
	base   *manifest
	next   *manifest   // the commit; nil: none
	gone   []int       // versions that are no longer kept after the commit
	fs     *durable.FS // open since before the first file that the commit may have was written; nil before Open

	changed []Changed // by the commit
}

// Acquire makes the caller the writer of a session. ctx bounds the wait. The
// error is ErrNotFound, a *BusyError, ErrHandedOver or the error of ctx.
func (s *Store) Acquire(ctx context.Context, tenant, id string, u Use) (*Writer, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave() // HandOver ends the wait for a turn, and waits for leave, so it then knows all writers
	x, err := s.find(tenant, id)
	if err != nil {
		return nil, err
	}
	if u.Wait {
		err = s.await(ctx, x, u.By)
	} else {
		err = s.begin(x, u.By)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	// While this call waited for its turn, the session can have expired or been deleted.
	gone := x.gone || s.overdue(x)
	s.mu.Unlock()
	if gone {
		s.end(x)
		return nil, fmt.Errorf("session %q: %w", id, ErrNotFound)
	}
	return &Writer{store: s, x: x, tenant: tenant, by: u.By, base: &manifest{}}, nil
}

// begin starts a writer with the name by, if the session has no writer.
func (s *Store) begin(x *session, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case x.turn <- struct{}{}:
		x.by = by
		return nil
	default:
		return &BusyError{ID: x.id, Writer: x.by}
	}
}

// await waits until by is the writer. A channel wakes its senders in their order.
func (s *Store) await(ctx context.Context, x *session, by string) error {
	s.mu.Lock()
	if x.waiting >= maxWaiting {
		defer s.mu.Unlock()
		return &BusyError{ID: x.id, Writer: x.by, Queued: x.waiting}
	}
	x.waiting++
	handing := s.handing
	s.mu.Unlock()
	var err error
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	case <-handing:
		err = ErrHandedOver
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.waiting--
	if err == nil {
		x.by = by
	}
	return err
}

// end lets the next writer in. The receive never blocks, because the caller is the writer.
func (s *Store) end(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The last look is in the same critical section as the end. A HandOver in between would return a writer whose
	// release nobody reports.
	for {
		tenant, handed := s.writing[x]
		if !handed {
			break
		}
		s.mu.Unlock()
		s.giveBack(tenant, x)
		s.mu.Lock()
	}
	x.by = ""
	<-x.turn
}

// Open gets the files of a version; 0 is the newest. It counts as a use of the session. The error is
// ErrNotFound, a *DamagedError, or one of the operating system. Until Release, Open may be called again
// after an error.
func (w *Writer) Open(version int) error {
	x, s := w.x, w.store
	// load also removes the remains of a commit that failed, because that commit has reset x.loaded.
	if err := s.load(w.tenant, x); err != nil {
		return fmt.Errorf("session %s: %w", x.id, err)
	}
	base, err := x.version(version)
	if err != nil {
		return err
	}
	if err := s.setTree(x, base); err != nil {
		return fmt.Errorf("session %s: tree: %w", x.id, err)
	}
	if w.fs == nil {
		if w.fs, err = durable.OpenFS(x.dir); err != nil {
			return fmt.Errorf("session %s: %w", x.id, err)
		}
	}
	w.base = base
	return s.use(x)
}

// version returns a version; 0 is the newest. A session without one has an empty version 0.
func (x *session) version(number int) (*manifest, error) {
	if number == 0 {
		number = x.head.Number
	}
	if number == 0 {
		return &manifest{}, nil
	}
	for _, m := range x.kept {
		if m.Number == number {
			return m, nil
		}
	}
	if err := x.damaged[number]; err != nil {
		return nil, &DamagedError{x.id, number, err}
	}
	return nil, fmt.Errorf("session %s: version %d: %w", x.id, number, ErrNotFound)
}

// Base returns the number of the version that the writer has; 0 is empty.
func (w *Writer) Base() int { return w.base.Number }

// Lower returns a directory with the files of the version, which belong to Config.Owner. Nothing may
// write there. It stays until Release. It is empty if the version has no files.
func (w *Writer) Lower() string {
	if len(w.base.files) == 0 {
		return ""
	}
	return filepath.Join(w.x.dir, treeName)
}

// Paths yields the paths of the files of the version.
func (w *Writer) Paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range w.base.files {
			if !yield(f.Path) {
				return
			}
		}
	}
}

// Files returns the number of files and directories of the version.
func (w *Writer) Files() int { return w.base.Files + w.base.Dirs }

// Room returns the most bytes and files, with directories, that a version may have. Zero: no bound. The
// executor bounds the workspace of the program with it, so that the kernel refuses a write that no version
// could have.
func (w *Writer) Room() (bytes int64, files int) {
	w.store.mu.Lock()
	set := w.x.set
	w.store.mu.Unlock()
	// Both are asked each time: the owner can change the settings, and the operator the rules, while the program runs.
	r := w.store.config.Rules(w.tenant)
	return least(set.Bytes, r.Bytes), least(set.Files, r.Files)
}

// least returns the smaller one of two bounds. Zero: no bound.
func least[T int | int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Release ends the writer. After a commit it first updates the tree for the next writer and removes
// surplus versions. If that fails, the next writer does it.
func (w *Writer) Release() {
	x, s := w.x, w.store
	// The turn ends last, and after an error too: a session without a turn could never be used again.
	defer s.end(x)
	err := s.use(x)
	if w.fs != nil {
		err = errors.Join(err, w.fs.Close())
	}
	if w.next != nil {
		err = errors.Join(err, s.setTree(x, w.next))
		s.step("tree")
		failpoint.Reach(failpoint.BeforeTidy)
		err = errors.Join(err, w.tidy())
	}
	if err != nil {
		x.loaded = false
		s.config.Log.Warn("old versions of a session remain until its next use", "session", x.id, "err", err)
	}
}

// tidy removes the versions that are no longer kept, and their objects.
func (w *Writer) tidy() error {
	if len(w.gone) == 0 {
		return nil
	}
	objects, err := names(filepath.Join(w.x.dir, objectsName))
	if err != nil {
		return err
	}
	return w.x.clean(w.gone, objects)
}

// objectName names the object of the file at an index of the files that a version adds.
func objectName(version, index int) string { return fmt.Sprintf("%d-%d", version, index) }
