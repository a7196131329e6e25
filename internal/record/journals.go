package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/record/journal"
)

const (
	// lockTime is how long waitForLock waits. Only an Open that is about to fail, because it finds a journal in use,
	// holds the lock of the directory meanwhile, for microseconds.
	lockTime = time.Second
	// lockEvery is how often waitForLock tries.
	lockEvery = 10 * time.Millisecond
)

// takeLock takes the lock of the directory, which belongs to the process that creates executions.
// flock(2) goes with the open file, so the kernel drops it when the process dies.
func (s *Store) takeLock() error {
	err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.lock.Name(), err)
	}
	return nil
}

// waitForLock is takeLock for a takeover, which must not fail because of the Open of a third process.
func (s *Store) waitForLock() error {
	for end := time.Now().Add(lockTime); ; time.Sleep(lockEvery) {
		if err := s.takeLock(); !errors.Is(err, ErrInUse) || time.Now().After(end) {
			return err
		}
	}
}

// dropLock gives the lock of the directory up.
func (s *Store) dropLock() error { return unix.Flock(int(s.lock.Fd()), unix.LOCK_UN) }

// lockJournals locks the journal of this process: the first one that no other process has. Without Beside no other
// process may have one. Then s.left is the second journal, if that file exists. The lock of the directory is held.
func (s *Store) lockJournals() error {
	for i, name := range journalNames {
		path := filepath.Join(s.config.Dir, name)
		if s.batch.journal != nil {
			if s.config.Beside {
				break // for Adopt
			}
			if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
				break
			}
		}
		j, err := journal.Lock(path)
		switch {
		case errors.Is(err, journal.ErrInUse) && s.config.Beside && i == 0:
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
	if !s.config.Beside {
		return nil
	}
	// The earlier process may be of a version with other statements.
	path := filepath.Join(s.config.Dir, s.otherJournal())
	err := journal.CheckVersion(path)
	if errors.Is(err, journal.ErrVersion) {
		err = &SchemaError{Path: path}
	}
	return err
}

// otherJournal is the name of the journal that this process does not write.
func (s *Store) otherJournal() string { return journalNames[1-s.index] }

// unlockJournals closes the journals, whose changes stay in them.
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

// openJournals reads the journal of this process, and applies the changes of a second process that has died. first is
// the number of the oldest change that the database lacks of all changes of the record, or 0.
// The first process of a record writes the first journal, so only a change in that one can be the oldest.
func (s *Store) openJournals(ctx context.Context) (first uint64, err error) {
	first, err = s.openJournal(ctx)
	if errors.Is(err, journal.ErrVersion) {
		if s.config.Beside {
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

// replaceJournal moves a damaged journal aside and opens a new one. The changes in it
// are lost; executions that they would have ended are Unended.
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

// applyJournal applies the changes in the journal of a process that has ended, and empties it. j is the other journal,
// locked. If the database can't take the changes, on a full disk for example, they stay in j, and the error says so:
// this process could not keep them in order with its own changes of the same executions.
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

// removeOtherBallast gives back the room of a process that has ended.
func (s *Store) removeOtherBallast() error {
	err := os.Remove(filepath.Join(s.config.Dir, ballastNames[1-s.index]))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
