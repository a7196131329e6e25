package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is in a store's directory.
const (
	lockName      = "lock"
	databaseName  = "record.db"
	spoolsName    = "spool"
	artifactsName = "artifacts"
	youngName     = "young"
	ballastName   = "ballast"
)

const warnFull = "record: the disk is full; nothing new is taken until there is room"

// Config says where a Store is and what it keeps.
type Config struct {
	// Dir is the store's own directory, made with mode 0700 if it isn't there. At
	// most one process at a time has it open.
	Dir string
	// MaxAge is how long an execution is kept after its end. Zero: for ever.
	MaxAge time.Duration
	// MaxBytes is how much spools, artifacts and the contents of rows may take
	// together before the oldest ended executions go. Zero: no bound.
	MaxBytes int64
	// Log is told of what was repaired. Nil: nobody is.
	Log *slog.Logger

	// Of tests: every execution has its row and its file from the beginning; none gets
	// its row by the passing of time.
	grown, still bool
}

// Store is the record of all executions. Its methods can be called from any
// number of goroutines.
type Store struct {
	config  Config
	log     *slog.Logger
	lock    *os.File
	db      *database
	ballast *ballast
	arena   *arena

	mu       sync.Mutex
	live     map[string]*Log // by execution; nil once closed
	young    map[*Log]bool   // those that have no row
	gathered int             // how many of them have ended
	aging    bool            // keep looks how old they get
	lastRow  int64           // the newest row's number
	lastID   string          // the last name in their order that an execution has or had

	born, died chan struct{} // hold one: there are young executions, or ends of some
	closing    chan struct{}
	keeping    sync.WaitGroup

	sweeping sync.Mutex // held by the one Sweep
}

// Open opens the store in c.Dir, or makes one, and repairs what a crash left. If
// the database is damaged, or knows of nothing although there are spools or
// artifacts, everything is moved aside within the directory, that is logged as
// an error, and a new store is made; if a newer version wrote it, the error is a
// *NewerError; if another process has it open, ErrInUse.
//
// Executions that had not ended are then in Unended; until they are reopened
// they can be listed but not read.
func Open(c Config) (*Store, error) {
	s := &Store{
		config: c, log: c.Log, live: map[string]*Log{}, young: map[*Log]bool{},
		born: make(chan struct{}, 1), died: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.open(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open record: %w", err), s.release())
	}
	if !c.still {
		s.keeping.Go(s.keep)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.config.Dir, 0o700); err != nil {
		return err
	}
	if s.lock, err = lockDir(filepath.Join(s.config.Dir, lockName)); err != nil {
		return err
	}
	if s.ballast, err = openBallast(filepath.Join(s.config.Dir, ballastName)); err != nil {
		return err
	}
	if err := s.ballast.fill(); err != nil {
		s.log.Warn(warnFull, "err", err)
	}
	return s.openOrReplace(ctx)
}

// lockDir takes the lock that goes with the process.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

// mkdirSynced makes a directory whose name survives the loss of power.
func mkdirSynced(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// Close ends the use of the store. What has not ended stays so, as if the
// process had died; readers get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.live == nil {
		s.mu.Unlock()
		return ErrClosed
	}
	live := maps.Clone(s.live)
	s.live = nil
	s.mu.Unlock()
	close(s.closing)
	s.keeping.Wait()
	for _, l := range live {
		l.abandon()
	}
	s.settle(context.Background())
	return s.release()
}

// release frees what Open took.
func (s *Store) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.close())
	}
	if s.arena != nil {
		errs = append(errs, s.arena.close())
	}
	if s.ballast != nil {
		errs = append(errs, s.ballast.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// register makes l the log of its execution. ErrInUse if there is one.
func (s *Store) register(l *Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return ErrClosed
	}
	if s.live[l.id] != nil {
		return fmt.Errorf("record %s: %w", l.id, ErrInUse)
	}
	s.live[l.id] = l
	return nil
}

func (s *Store) unregister(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[l.id] == l {
		delete(s.live, l.id)
	}
}

// liveLog returns the open log of an execution; nil if there is none.
func (s *Store) liveLog(id string) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

// liveLogs returns the open logs. A log's lock comes before the store's, so that
// nobody may ask them anything while holding that.
func (s *Store) liveLogs() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.live))
}

func (s *Store) spoolPath(id string) string {
	return filepath.Join(s.config.Dir, spoolsName, id)
}

// write does what f says to the database's states. If the disk is full the
// ballast is spent on it.
func (s *Store) write(ctx context.Context, f updateFunc) error {
	err := s.db.update(ctx, s.db.states, f)
	if isFull(err) {
		if serr := s.ballast.spend(); serr != nil {
			return errors.Join(err, serr)
		}
		return s.db.update(ctx, s.db.states, f)
	}
	return err
}
