package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
)

// errBlank says that the database has no execution, although files of executions exist:
// it was deleted, emptied or exchanged.
var errBlank = errors.New("it has no executions, but there are spools or artifacts")

// openOrReplace opens the database and the journal, and repairs the damage of a crash.
// If the database is damaged or blank, it moves all files aside and makes new ones.
func (s *Store) openOrReplace(ctx context.Context) error {
	err := s.openRecord(ctx)
	if !isCorrupt(err) && !errors.Is(err, errBlank) {
		return err
	}
	if s.config.Takeover {
		return &DamagedError{Path: filepath.Join(s.config.Dir, databaseName), Err: err}
	}
	if s.db != nil {
		err = errors.Join(err, s.db.close())
		s.db = nil
	}
	// The lock of the directory keeps other processes out until the new store is open.
	err = errors.Join(err, s.unlockJournals())
	aside, qerr := quarantine(s.config.Dir, databaseName, databaseName+"-wal", databaseName+"-shm", journalNames[0], journalNames[1], spoolsName, artifactsName)
	if qerr != nil {
		return errors.Join(err, qerr)
	}
	s.log.Error("record: the database is damaged or missing; its files have been renamed and a new one made",
		"err", err, "moved_to", aside)
	if err := s.lockJournals(); err != nil {
		return err
	}
	return s.openRecord(ctx)
}

// The order matters: blank check, database, journals, waiting changes, garbage, ends in
// files, counts. Each step relies on the ones before it.
func (s *Store) openRecord(ctx context.Context) error {
	path := filepath.Join(s.config.Dir, databaseName)
	left, err := s.beforeOpen(path)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, path, s.config.Takeover)
	if err != nil {
		return err
	}
	s.db = db
	if db.reindexed != "" {
		s.log.Error("record: an index of the database was damaged and has been made again; an execution whose row was damaged, too, may be missing or unended", "err", db.reindexed)
	}
	first, err := s.openJournals(ctx)
	if err != nil {
		return err
	}
	// The database may be empty because its first changes are still in the journal.
	if left && first != 1 {
		if err := s.db.checkBlank(ctx); err != nil {
			return err
		}
	}
	if err := s.applyLeft(ctx); err != nil {
		return err
	}
	if err := s.readLast(ctx); err != nil {
		return err
	}
	if err := s.collectGarbage(ctx); err != nil {
		return err
	}
	earlier := slices.Clone(s.config.Earlier)
	slices.Sort(earlier)
	elsewhere := func(id string) bool {
		_, found := slices.BinarySearch(earlier, id)
		return s.config.Takeover && found
	}
	if err := s.closeEnded(ctx, elsewhere); err != nil {
		return err
	}
	return s.countRows(ctx)
}

// beforeOpen does what must come before SQLite opens the database at path. left reports whether there are files of
// executions. The error is errBlank if the database is missing or empty although there are traces of executions.
func (s *Store) beforeOpen(path string) (left bool, err error) {
	for _, name := range []string{spoolsName, artifactsName} {
		dir := filepath.Join(s.config.Dir, name)
		if err := mkdirSynced(dir); err != nil {
			return false, err
		}
		some, err := hasEntries(dir)
		if err != nil {
			return false, err
		}
		left = left || some
	}
	// This comes before SQLite, which would remove the WAL of an empty database.
	used := left || s.config.Takeover || hasBytes(path+"-wal")
	for _, name := range journalNames {
		used = used || hasBytes(filepath.Join(s.config.Dir, name))
	}
	if used && !hasBytes(path) {
		return false, fmt.Errorf("%s: %w", path, errBlank)
	}
	if !s.config.Takeover { // else the earlier process is writing it
		frames, err := forgottenFrames(path + "-wal")
		if err != nil {
			return false, err
		}
		if frames > 0 {
			s.log.Error("record: the write-ahead log of the database is damaged; its last changes are lost", "pages", frames)
		}
		if err := s.renewLog(path); err != nil {
			return false, err
		}
	}
	return left, nil
}

// renewLog makes the changes in the WAL of the database at path durable. The last process may have ended before
// a sync, or after one that failed (see syncCheck), and from now on these changes are answered. SQLite then copies
// the whole log into the database. No process has the database open.
func (s *Store) renewLog(path string) error {
	if !hasBytes(path + "-wal") {
		return nil
	}
	if err := s.ballast.use(func() error { return durable.Renew(path + "-wal") }); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = f.Sync() // its error is in the log
	// ext4 would write lost pages in full only if it read them from the disk again: see durable.Renew.
	return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
}

// readLast reads the last row number and the last ID from the database.
// Two queries in one, so that each uses an index.
func (s *Store) readLast(ctx context.Context) error {
	var row int64
	var id string
	err := s.db.queries.QueryRowContext(ctx, `
		SELECT coalesce((SELECT max(n) FROM executions), 0), coalesce((SELECT max(id) FROM executions), '')`).Scan(&row, &id)
	if err != nil {
		return fmt.Errorf("%s: %w", s.db.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRow, s.lastID = max(s.lastRow, row), max(s.lastID, id)
	return nil
}

// hasBytes reports whether the file exists and is not empty.
func hasBytes(path string) bool {
	fi, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) // another error shows when it is opened
	}
	return fi.Size() > 0
}

// hasEntries reports whether a directory has at least one entry.
func hasEntries(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// checkBlank returns errBlank if the database lists neither executions nor garbage.
func (d *database) checkBlank(ctx context.Context) error {
	var known bool
	err := d.queries.QueryRowContext(ctx,
		"SELECT EXISTS (SELECT 1 FROM executions) OR EXISTS (SELECT 1 FROM garbage)").Scan(&known)
	if err == nil && !known {
		err = errBlank
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	return nil
}

// quarantine moves files of dir into a new directory in it, and returns that. With a
// damaged database all files must go, because it can't tell whose they are.
// Nothing is deleted: an operator may still rescue something with sqlite3. The time in the
// name keeps two quarantines apart.
func quarantine(dir string, names ...string) (string, error) {
	aside := filepath.Join(dir, "corrupt-"+time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", err
	}
	for _, name := range names {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}
