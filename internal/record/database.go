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

// SQLite runs in WAL mode (sqlite.org/wal.html): queries see the last commit and don't wait
// for the writer.
const (
	// busyTimeout is how long SQLite waits for a lock. Writers of this process wait for
	// each other in update. So SQLite waits only for another process that has the file
	// open. Transactions are bounded (maxBatch, artifactBatch, sweepBatch), so this is far longer than one takes.
	busyTimeout = 5 * time.Second
	// checkpointPages bounds the WAL, in pages. A commit beyond it copies
	// the pages into the database.
	checkpointPages = 2000
	// readConnections bounds the queries at one time.
	readConnections = 4
	// cachedStatements bounds the prepared statements that a connection keeps. Only
	// listings by unusual filters exceed it.
	cachedStatements = 32
	// maxCheckedBytes bounds the databases that are checked at the start, because the
	// check reads every page. In a larger one damage shows in the query that meets it.
	maxCheckedBytes = 64 << 20
)

// database is the SQLite file. Two connections write, one at a time. A commit of claims
// is on the disk when it returns (synchronous=FULL). A commit of states is with the
// kernel (synchronous=NORMAL), and survives the process only.
// writing serializes the writers. SQLite would make a second one poll (busy_timeout), which
// is slower and unfair.
type database struct {
	path    string
	claims  *sql.DB
	states  *sql.DB
	queries *sql.DB
	writing sync.Mutex
	synced  syncCheck
	// reindexed is the damage of the indexes that check has repaired. Empty: no damage.
	reindexed string
}

// openDatabase opens or makes the database at path, readable by its owner only,
// and brings it to the newest schema. If takeover is set, the earlier process has the database open. Then it
// changes nothing, and another schema is a *SchemaError. It does not check every page either, because requests wait.
func openDatabase(ctx context.Context, path string, takeover bool) (*database, error) {
	// SQLite gives its other files the mode of this one.
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
	err = d.check(ctx, takeover)
	if err == nil && takeover {
		err = d.checkSchema(ctx)
	}
	if err == nil && !takeover {
		err = migrate(ctx, d.claims, path, schema)
	}
	if err == nil {
		err = d.synced.open(path)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openPool returns at most n connections to the database at path.
// Every option is set on each new connection by the driver, from the query of the URI.
// _txlock=immediate takes the write lock at BEGIN: a transaction that reads first and then
// writes could fail with SQLITE_BUSY otherwise (sqlite.org/lang_transaction.html).
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

// connector opens connections without a global name for the driver.
type connector struct {
	dsn    string
	driver *sqlite3.SQLiteDriver
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// check checks every page of the database and compares the indexes with the tables, unless the database has more than
// maxCheckedBytes or quickly is set. Damaged indexes are made again from the tables. All other damage is an error.
func (d *database) check(ctx context.Context, quickly bool) error {
	fi, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if quickly || fi.Size() > maxCheckedBytes {
		return d.checkBy(ctx, "SELECT 'ok' FROM sqlite_schema LIMIT 1")
	}
	damage := d.checkBy(ctx, "PRAGMA integrity_check(1)")
	if damage == nil {
		return nil
	}
	// quick_check is the same without the indexes.
	if err := d.checkBy(ctx, "PRAGMA quick_check(1)"); err != nil {
		return err
	}
	if _, err := d.claims.ExecContext(ctx, "REINDEX"); err != nil { // two rows have one id, for example
		return errors.Join(damage, err)
	}
	d.reindexed = damage.Error()
	return nil
}

// checkBy runs a query whose result is 'ok', or else the damage.
func (d *database) checkBy(ctx context.Context, query string) error {
	var found string
	if err := d.claims.QueryRowContext(ctx, query).Scan(&found); err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if found != "ok" {
		return fmt.Errorf("%s: %s: %w", d.path, found, sqlite3.Error{Code: sqlite3.ErrCorrupt})
	}
	return nil
}

// checkSchema returns a *SchemaError if the database has another version.
func (d *database) checkSchema(ctx context.Context) error {
	var have int
	if err := d.queries.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	if have != len(schema) {
		return &SchemaError{Path: d.path, Have: have, Know: len(schema)}
	}
	return nil
}

// snapshot runs queries that see one state of the database.
func (d *database) snapshot(ctx context.Context, f updateFunc) error {
	tx, err := d.queries.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return f(ctx, tx)
}

// updateFunc is what one transaction does.
type updateFunc = func(context.Context, *sql.Tx) error

// update runs f in one transaction of db, which is d.claims or d.states. ctx can stop it
// only before it begins: a caller of a write that began learns its result. If the disk has lost a write, the error is
// a *LostWriteError.
func (d *database) update(ctx context.Context, db *sql.DB, f updateFunc) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.synced.noneLost(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		d.synced.failed(err)
		return err
	}
	return d.synced.noneLost()
}

// rewrite makes the database anew from its rows, so that it has no bytes of removed rows
// (sqlite.org/lang_vacuum.html), and empties the WAL, which has old pages. Writers wait. If ctx
// ends, the database stays as it was.
func (d *database) rewrite(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.synced.noneLost(); err != nil {
		return err
	}
	_, err := d.states.ExecContext(ctx, "VACUUM")
	// Also after an error: the log keeps the room that a failed rewrite has taken.
	return errors.Join(err, d.emptyLog(context.WithoutCancel(ctx)))
}

// emptyLog copies the WAL into the database, and truncates it.
func (d *database) emptyLog(ctx context.Context) error {
	var busy bool
	var pages, copied int
	if err := d.states.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &copied); err != nil {
		return err
	}
	if busy {
		return errors.New("a query was under way for too long, so the write-ahead log is not empty; repeat the purge")
	}
	return nil
}

// close does not close a database that has lost a write: the last connection would copy the WAL and remove
// it. The end of the process closes the files.
func (d *database) close() error {
	if d.synced.lost.Load() != nil {
		return nil
	}
	return errors.Join(d.queries.Close(), d.states.Close(), d.claims.Close(), d.synced.close())
}
