package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// errBlank says that the database knows of no execution, but there are files of
// some: it was deleted, emptied or exchanged.
var errBlank = errors.New("it has no executions, but there are spools or artifacts")

// openOrReplace opens the database and repairs what a crash left. If the database
// is damaged or blank, all is moved aside and it begins anew.
func (s *Store) openOrReplace(ctx context.Context) error {
	err := s.openRecord(ctx)
	if !isCorrupt(err) && !errors.Is(err, errBlank) {
		return err
	}
	if s.db != nil {
		err = errors.Join(err, s.db.close())
		s.db = nil
	}
	if s.arena != nil {
		err = errors.Join(err, s.arena.close())
		s.arena = nil
	}
	aside, qerr := quarantine(s.config.Dir, time.Now())
	if qerr != nil {
		return errors.Join(err, qerr)
	}
	s.log.Error("record: the database is damaged or was lost; what there was has been moved aside and a new one made",
		"err", err, "moved_to", aside)
	return s.openRecord(ctx)
}

func (s *Store) openRecord(ctx context.Context) error {
	left := false
	for _, name := range []string{spoolsName, artifactsName} {
		dir := filepath.Join(s.config.Dir, name)
		if err := mkdirSynced(dir); err != nil {
			return err
		}
		some, err := hasEntries(dir)
		if err != nil {
			return err
		}
		left = left || some
	}
	path := filepath.Join(s.config.Dir, databaseName)
	// Asked before SQLite sees it: it would remove the log of an empty one.
	if (left || hasBytes(filepath.Join(s.config.Dir, youngName))) && !hasBytes(path) {
		return fmt.Errorf("%s: %w", path, errBlank)
	}
	var err error
	if s.db, err = openDatabase(ctx, path); err != nil {
		return err
	}
	if left {
		if err := s.db.checkBlank(ctx); err != nil {
			return err
		}
	}
	// Each of the two by itself, so that an index has it.
	err = s.db.queries.QueryRowContext(ctx, `
		SELECT coalesce((SELECT max(n) FROM executions), 0), coalesce((SELECT max(id) FROM executions), '')`).Scan(&s.lastRow, &s.lastID)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := s.openYoung(ctx); err != nil {
		return err
	}
	if err := s.collectGarbage(ctx); err != nil {
		return err
	}
	return s.closeEnded(ctx)
}

// hasBytes reports whether there is a file with something in it.
func hasBytes(path string) bool {
	fi, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) // what else is wrong shows later
	}
	return fi.Size() > 0
}

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

// checkBlank returns errBlank if no file can be known to the database.
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

// quarantine moves what is in dir, except the lock, into a directory of its own
// beside it and returns that: a damaged database can't say what belongs to whom.
func quarantine(dir string, now time.Time) (string, error) {
	aside := filepath.Join(dir, "corrupt-"+now.UTC().Format("20060102T150405.000000000Z"))
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{databaseName, databaseName + "-wal", databaseName + "-shm", youngName, spoolsName, artifactsName} {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}
