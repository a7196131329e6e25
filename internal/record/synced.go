package record

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
)

// A syncCheck says whether successful syncs of the database can be believed.
//
// A failed write to the disk makes one sync fail. Linux then takes the lost pages for written, and the next sync
// succeeds without them (wiki.postgresql.org/wiki/Fsync_Errors). SQLite does not know that: it appends
// further transactions to the WAL. After a loss of power it finds only those before the lost pages. So a claim
// could be acknowledged and then be gone. Also a checkpoint would then not be safe.
//
// So after the first lost page the database takes no transaction more, and its keys are not looked up. The next start
// makes a synced copy of the WAL and uses that (renewLog).
type syncCheck struct {
	database *os.File
	log      *os.File // the WAL
	lost     atomic.Pointer[LostWriteError]
}

// LostWriteError says that the disk has lost a write to the database. All later writes have this error, and lookups of
// idempotency keys, too. The next Open repairs the database if the disk works.
type LostWriteError struct {
	Path string
	Err  error
}

func (e *LostWriteError) Error() string {
	return fmt.Sprintf("%s: the disk has lost a write: %v; nothing new is recorded until the daemon starts again", e.Path, e.Err)
}
func (e *LostWriteError) Unwrap() error { return e.Err }

// open begins the check. SQLite has the database at path open, and so its WAL exists. close comes after
// SQLite has closed it: if a process closes any descriptor of a file, it loses its POSIX locks of the file (fcntl(2)).
func (c *syncCheck) open(path string) (err error) {
	if c.database, err = os.Open(path); err != nil {
		return err
	}
	c.log, err = os.Open(path + "-wal")
	return err
}

func (c *syncCheck) close() error {
	var errs []error
	for _, f := range []*os.File{c.database, c.log} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// failed notes the error of a transaction, if it is one of a sync.
func (c *syncCheck) failed(err error) {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.ExtendedCode == sqlite3.ErrIoErrFsync || e.ExtendedCode == sqlite3.ErrIoErrDirFsync) {
		c.lose(c.log, err)
	}
}

func (c *syncCheck) lose(f *os.File, err error) *LostWriteError {
	c.lost.CompareAndSwap(nil, &LostWriteError{Path: f.Name(), Err: err})
	return c.lost.Load()
}

// noneLost returns a *LostWriteError if a write to the files was lost. SQLite does not report the errors of
// checkpoints that it makes by itself, so the kernel is asked: it tells each open file once of an error of earlier
// writes. There are no pages at the asked offset, so the call waits for none.
func (c *syncCheck) noneLost() error {
	if lost := c.lost.Load(); lost != nil {
		return lost
	}
	for _, f := range []*os.File{c.log, c.database} {
		if err := unix.SyncFileRange(int(f.Fd()), 1<<50, 1, unix.SYNC_FILE_RANGE_WAIT_BEFORE); err != nil {
			return c.lose(f, err)
		}
	}
	return nil
}

// believed returns nil if the last sync can be believed: no write was lost, and the file system still has its journal.
func (c *syncCheck) believed() error {
	if err := c.noneLost(); err != nil {
		return err
	}
	return durable.Believed(c.log)
}
