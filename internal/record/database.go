package record

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/mattn/go-sqlite3"
)

const (
	// busyTimeout is how long SQLite waits for a lock. Writers of this process
	// wait for each other before they come to SQLite, so only a tool that has
	// the file open makes it wait.
	busyTimeout = 5 * time.Second
	// checkpointPages bounds the write-ahead log: past it a commit carries it
	// over into the database.
	checkpointPages = 2000
	// readConnections bounds how many queries run at once.
	readConnections = 4
	// cachedStatements bounds the prepared statements that a connection keeps:
	// all that it is given, but for listings by unusual filters.
	cachedStatements = 32
	// maxCheckedBytes bounds the databases that are read through at the start, so
	// that a large one doesn't hold it up; the damage of a larger one shows when
	// it is met.
	maxCheckedBytes = 64 << 20
)

// database is the SQLite file. It has two connections that write, one at a time:
// a commit of claims is on the disk when it returns, one of states survives only
// the process.
type database struct {
	path    string
	claims  *sql.DB
	states  *sql.DB
	queries *sql.DB
	writing sync.Mutex
}

// openDatabase opens or makes the database at path, readable by its owner only,
// and brings it to the newest schema.
func openDatabase(ctx context.Context, path string) (*database, error) {
	// SQLite gives the files beside it the mode of this one.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	d := &database{
		path:    path,
		claims:  openPool(path, 1, url.Values{"_synchronous": {"FULL"}, "_txlock": {"immediate"}}),
		states:  openPool(path, 1, url.Values{"_synchronous": {"NORMAL"}, "_txlock": {"immediate"}}),
		queries: openPool(path, readConnections, url.Values{"_query_only": {"1"}}),
	}
	if err := d.check(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := migrate(ctx, d.claims, path, schema); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openPool returns at most n connections to the database at path.
func openPool(path string, n int, options url.Values) *sql.DB {
	options.Set("_journal_mode", "WAL")
	options.Set("_foreign_keys", "1")
	options.Set("_stmt_cache_size", strconv.Itoa(cachedStatements))
	options.Set("_busy_timeout", strconv.FormatInt(busyTimeout.Milliseconds(), 10))
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: options.Encode()}
	db := sql.OpenDB(connector{dsn: dsn.String(), driver: &sqlite3.SQLiteDriver{
		ConnectHook: func(c *sqlite3.SQLiteConn) error {
			_, err := c.Exec(fmt.Sprintf("PRAGMA wal_autocheckpoint = %d", checkpointPages), nil)
			return err
		},
	}})
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// connector opens connections through a driver that is not registered under a
// name for the whole process.
type connector struct {
	dsn    string
	driver *sqlite3.SQLiteDriver
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// check reads the database through, if it is not too large for that.
func (d *database) check(ctx context.Context) error {
	fi, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	query := "PRAGMA quick_check(1)"
	if fi.Size() > maxCheckedBytes {
		query = "SELECT 'ok' FROM sqlite_schema LIMIT 1"
	}
	var found string
	if err := d.claims.QueryRowContext(ctx, query).Scan(&found); err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if found != "ok" {
		return fmt.Errorf("%s: %s: %w", d.path, found, sqlite3.Error{Code: sqlite3.ErrCorrupt})
	}
	return nil
}

// updateFunc is what one transaction does.
type updateFunc = func(context.Context, *sql.Tx) error

// update does what f says in one transaction of db, d.claims or d.states. ctx is
// looked at before it begins: a write that began is finished, so that its caller
// knows what became of it.
func (d *database) update(ctx context.Context, db *sql.DB, f updateFunc) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	d.writing.Lock()
	defer d.writing.Unlock()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *database) close() error {
	return errors.Join(d.queries.Close(), d.states.Close(), d.claims.Close())
}
