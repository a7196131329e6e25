package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/internal/record/journal"
)

// lockTime bounds waitForLock. During a takeover, only a plain Open of a third process can hold the lock of the
// directory. It does so for microseconds, until it finds a journal in use and fails.
const lockTime = time.Second

// takeLock takes the lock of the directory, which belongs to the process that creates executions.
func (s *Store) takeLock() error {
	return s.locked(filelock.Try(s.lock, filelock.Exclusive))
}

// waitForLock takes the lock of the directory in a takeover, which must not fail because of the Open of a third
// process.
func (s *Store) waitForLock() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	return s.locked(filelock.Await(ctx, s.lock, filelock.Exclusive))
}

// locked adds the path to an error of the lock of the directory.
func (s *Store) locked(err error) error {
	if errors.Is(err, filelock.ErrHeld) {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.lock.Name(), err)
	}
	return nil
}

// dropLock releases the lock of the directory.
func (s *Store) dropLock() error { return filelock.Unlock(s.lock) }

// lockJournals locks a journal for this process: the first of the two that no other process has locked. In a plain
// Open, a journal that another process has locked is an error. Then lockJournals also locks the second journal, if that
// file exists, as s.left: a process that has died may have left changes in it. The lock of the directory is held.
func (s *Store) lockJournals() error {
	for i, name := range journalNames {
		path := filepath.Join(s.config.Dir, name)
		if s.batch.journal != nil {
			if s.config.Takeover {
				break // the other journal is for Adopt
			}
			if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
				break
			}
		}
		j, err := journal.Lock(path)
		switch {
		case errors.Is(err, journal.ErrInUse) && s.config.Takeover && i == 0:
		case errors.Is(err, journal.ErrInUse):
			return fmt.Errorf("%s: %w", path, ErrInUse)
		case err != nil:
			return err
		case s.batch.journal == nil:
			s.batch.journal, s.batch.name, s.index = j, name, i
		default:
			s.left = j
		}
	}
	if !s.config.Takeover {
		return nil
	}
	// A process of another version may write statements that this version can't read.
	path := filepath.Join(s.config.Dir, s.otherJournal())
	err := journal.CheckVersion(path)
	if errors.Is(err, journal.ErrVersion) {
		err = &SchemaError{Path: path}
	}
	return err
}

// otherJournal is the name of the journal that this process does not write.
func (s *Store) otherJournal() string { return journalNames[1-s.index] }

// unlockJournals closes and so unlocks the journals. Changes that the database lacks stay in the files.
func (s *Store) unlockJournals() error {
	var errs []error
	for _, j := range []*journal.Journal{s.batch.journal, s.left} {
		if j != nil {
			errs = append(errs, j.Close())
		}
	}
	s.batch.journal, s.batch.pending, s.left = nil, nil, nil
	return errors.Join(errs...)
}

// openJournals reads the journal of this process, and applies the changes in s.left, the journal of a process that has
// died. first is the number of the oldest change that the database lacks, or 0. It is 0, too, if this process does not
// write the first journal: openRecord looks for change 1 of a record, which only the first journal can have.
func (s *Store) openJournals(ctx context.Context) (first uint64, err error) {
	first, err = s.openJournal(ctx)
	if errors.Is(err, journal.ErrVersion) {
		if s.config.Takeover {
			return 0, &SchemaError{Path: filepath.Join(s.config.Dir, s.batch.name)}
		}
		first, err = s.replaceJournal(ctx, err)
	}
	if s.index != 0 {
		first = 0
	}
	if err != nil || s.left == nil {
		return first, err
	}
	left := s.left
	s.left = nil
	return first, errors.Join(s.applyJournal(ctx, left), left.Close())
}

// replaceJournal moves a damaged journal aside and opens a new one. The changes in the damaged
// journal are lost. An execution whose end was among them is in Unended.
func (s *Store) replaceJournal(ctx context.Context, damage error) (first uint64, err error) {
	err = errors.Join(s.batch.journal.Close(), s.moveJournal(s.batch.name, damage))
	s.batch.journal = nil
	if err != nil {
		return 0, err
	}
	if s.batch.journal, err = journal.Lock(filepath.Join(s.config.Dir, s.batch.name)); err != nil {
		return 0, err
	}
	return s.openJournal(ctx)
}

// moveJournal moves a damaged journal aside.
func (s *Store) moveJournal(name string, damage error) error {
	aside, err := quarantine(s.config.Dir, name)
	if err != nil {
		return errors.Join(damage, err)
	}
	s.log.Error("record: the journal is damaged; it has been renamed and a new one made", "err", damage, "moved_to", aside)
	return nil
}

// applyJournal writes the changes in j to the database, and empties j. j is the locked journal of a process that has
// ended. If the database can't take the changes, for example on a full disk, they stay in j and the error says so.
// applyJournal can't defer them: they must come before changes of the same executions by this process.
func (s *Store) applyJournal(ctx context.Context, j *journal.Journal) error {
	name := s.otherJournal()
	changes, _, err := s.recoverJournal(ctx, name, j)
	if errors.Is(err, journal.ErrVersion) {
		return s.moveJournal(name, err)
	}
	if err != nil {
		return err
	}
	for len(changes) > 0 {
		n := min(len(changes), maxBatch)
		if err := s.apply(ctx, name, changes[:n], j.Last()-uint64(len(changes)-n)); err != nil {
			return fmt.Errorf("changes of another process wait in %s: %w", name, err)
		}
		changes = changes[n:]
	}
	return j.Reset()
}

// removeOtherBallast removes the ballast file, the reserved disk space, of a process that has ended.
func (s *Store) removeOtherBallast() error {
	err := os.Remove(filepath.Join(s.config.Dir, ballastNames[1-s.index]))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
