package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/record/journal"
)

// Names in a store's directory.
const (
	lockName      = "lock"
	databaseName  = "record.db"
	spoolsName    = "spool"
	artifactsName = "artifacts"
)

// journalNames are the journals of the two processes of a takeover, ballastNames their ballasts: disk space that is
// reserved for the ends of executions. Each process needs its own. If one process released a shared ballast, the other
// would not know that the space for ends is gone, and would give the rest of the disk to output.
var (
	journalNames = [2]string{"journal", "journal-2"}
	ballastNames = [2]string{"ballast", "ballast-2"}
)

const warnFull = "record: the disk is full; nothing new is taken until there is room"

// Config is the configuration of a Store.
type Config struct {
	// Dir is the store's own directory. Open makes it with mode 0700 if it is missing.
	// Only one process may have it open, except in a takeover.
	Dir string
	// Takeover says that an earlier process has the store open, has called HandOver, and only finishes
	// its executions.
	Takeover bool
	// Earlier has the IDs of the executions that the earlier process finishes. It is ignored without Takeover.
	Earlier []string
	// MaxAge is the time from the end of an execution to its removal. Zero: for ever.
	MaxAge time.Duration
	// MaxBytes bounds the bytes of spools, artifacts and row contents together: past
	// it Sweep removes the oldest ended executions. Zero: no bound.
	MaxBytes int64
	// Wrote is called after each write with the time that it took. Nil: no call.
	Wrote func(op Operation, took time.Duration)
	// Log receives repairs and failures. Nil: they are not logged.
	Log *slog.Logger
}

// An Operation is a kind of write to the record.
type Operation string

const (
	Creating  Operation = "create" // of an execution, with its header
	Appending Operation = "output" // one piece of output
	Ending    Operation = "end"    // of an execution, with its outcome
	Flushing  Operation = "flush"  // a transaction of the database with waiting changes
)

// Operations lists every Operation.
var Operations = []Operation{Creating, Appending, Ending, Flushing}

// Store is the record of all executions. Its methods can be called from any
// number of goroutines.
// In the daemon only the executor adds executions. cmd/skillrund calls Sweep.
type Store struct {
	config  Config
	log     *slog.Logger
	lock    *os.File
	db      *database
	ballast *ballast
	batch   batch

	mu sync.Mutex
	// mu guards live, lastRow and lastID.
	live    map[string]*Log // by execution; nil once closed
	lastRow int64           // the newest row's number
	lastID  string          // the last ID, in the order of strings, that an execution has or had
	// For the takeover, guarded by mu: see takeover.go. handedOver can be read without mu.
	unadopted  bool                // Adopt has not been called
	earlier    map[string]*foreign // by execution
	handedOver atomic.Bool
	underWay   int           // calls that HandOver waits for
	idle       chan struct{} // closed when underWay is 0; nil: HandOver does not wait

	index int              // of this process's names in journalNames and ballastNames
	left  *journal.Journal // of a process that has died, for openJournals; nil: there was no such journal

	usages sync.Map // by tenant: a *usage

	closing chan struct{} // closed by Close
	keeping sync.WaitGroup

	sweeping sync.Mutex // held by the one Sweep or Remove
	tidied   bool       // removeUnnamed was called; sweeping guards it
}

// Open opens the store in c.Dir, or makes one, and repairs the damage of a crash. If
// the database is damaged, or is empty although spools, artifacts or a used journal
// exist, Open moves everything aside within the directory, logs that as an error, and makes a
// new store. If a newer version wrote the database the error is a *NewerError. If
// another process has the store open it is ErrInUse.
//
// With c.Takeover, Open moves nothing aside and migrates nothing: a damaged database is a *DamagedError, and another
// schema is a *SchemaError. Open does not touch the journal and the executions of the earlier process. If that
// process has not called HandOver, the error is ErrInUse. See takeover.go.
//
// Unended then returns the executions that had not ended. They can be listed; they
// can be read after Reopen.
func Open(c Config) (*Store, error) {
	s, err := openIdle(c)
	if err != nil {
		return nil, err
	}
	s.keeping.Go(s.flushInTime)
	return s, nil
}

// openIdle is Open without the goroutine that applies changes in time.
func openIdle(c Config) (*Store, error) {
	s := &Store{config: c, log: c.Log, live: map[string]*Log{}, unadopted: c.Takeover, earlier: map[string]*foreign{}, closing: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.open(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("open record: %w", err), s.release())
	}
	return s, nil
}

// open takes the locks before it touches any other file of the record. After an error the caller
// must call release.
func (s *Store) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.config.Dir, 0o700); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(filepath.Join(s.config.Dir, lockName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if s.config.Takeover {
		err = s.waitForLock()
	} else {
		err = s.takeLock()
	}
	if err != nil {
		return err
	}
	if err := s.lockJournals(); err != nil {
		return err
	}
	if !s.config.Takeover {
		if err := s.removeOtherBallast(); err != nil {
			return err
		}
	}
	// Not filled yet, so that a full disk doesn't stop the start: what there is can still be read and removed.
	if s.ballast, err = openBallast(filepath.Join(s.config.Dir, ballastNames[s.index])); err != nil {
		return err
	}
	return s.openOrReplace(ctx)
}

// mkdirSynced makes a directory whose name survives the loss of power.
func mkdirSynced(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// Close closes the store. Executions that have not ended stay so, as after the death
// of the process. Readers get ErrClosed.
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
	return errors.Join(s.flush(context.Background()), s.release())
}

// release closes the files that Open opened.
func (s *Store) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.close())
	}
	errs = append(errs, s.unlockJournals())
	if s.ballast != nil {
		errs = append(errs, s.ballast.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// register makes l the log of its execution, or returns ErrInUse if another log is.
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

// unregister frees the ID of l. It does nothing if another Log has it.
func (s *Store) unregister(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[l.id] == l {
		delete(s.live, l.id)
	}
}

// liveLog returns the open log of an execution, or nil.
func (s *Store) liveLog(id string) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

// wrote tells Config.Wrote of a write, whether it succeeded or not.
func (s *Store) wrote(op Operation, began time.Time) {
	if s.config.Wrote != nil {
		s.config.Wrote(op, time.Since(began))
	}
}

func (s *Store) spoolPath(id string) string {
	return filepath.Join(s.config.Dir, spoolsName, id)
}

// write runs f in a transaction. On a full disk it uses the ballast.
// Flushes of the journal and removals come here; a new end goes to the journal.
func (s *Store) write(ctx context.Context, f updateFunc) error {
	return s.ballast.use(func() error { return s.writeWithoutBallast(ctx, f) })
}

// writeWithoutBallast is write for artifacts. The rows of one execution may need more room than the ballast has, and
// the ballast is for the ends of all executions.
func (s *Store) writeWithoutBallast(ctx context.Context, f updateFunc) error {
	return s.db.update(ctx, s.db.states, f)
}
