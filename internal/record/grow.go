package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// growBatch is how many copies one transaction adds.
	growBatch = 50_000
	// growLinks is how many names one file of output gets: ext4 takes 65,000.
	growLinks = 30_000
	// growSpan is the time before its own over which the copies of an execution are
	// spread.
	growSpan = 12 * time.Hour
)

// Grow adds n copies of the newest ended execution, as if it had run as often in the
// twelve hours before: for measuring what the length of a record costs. A copy has
// output of its own name, which on the disk is that of others, and neither labels,
// artifacts nor an idempotency key. It is not made to survive a crash.
func (s *Store) Grow(ctx context.Context, n int) error {
	s.settle(ctx)
	var number int64
	var id string
	err := s.db.queries.QueryRowContext(ctx, "SELECT n, id FROM executions WHERE state = ? ORDER BY n DESC LIMIT 1", Ended).Scan(&number, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("record: grow: there is no ended execution to copy")
	}
	var insert string
	if err == nil {
		insert, err = growRows(ctx, s.db.queries)
	}
	if err != nil {
		return fmt.Errorf("record: grow: %w", err)
	}
	step := max(int64(growSpan)/int64(max(n, 1)), 1)
	for from := 0; from < n; from += growBatch {
		to := min(from+growBatch, n)
		if err := s.linkSpools(id, from, to); err != nil {
			return fmt.Errorf("record: grow: %w", err)
		}
		err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insert, from, to-1, number, int64(n), step); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, growSpools, from, to-1, number, int64(n), step)
			return err
		})
		if err != nil {
			return fmt.Errorf("record: grow: %w", err)
		}
	}
	return nil
}

// growRows is SQL that copies the row ?3 for the numbers from ?1 to ?2 of ?4, which are
// ?5 nanoseconds apart. Columns that are not its own to set are copied, whatever they
// are.
func growRows(ctx context.Context, db *sql.DB) (string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info('executions')")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var names, values []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
		value, ok := map[string]string{
			"n": "n - back", "id": "printf('" + growID + "', i)", "key": "NULL", "labels": "'{}'",
			"created": "created - back", "started": "started - back", "ended": "ended - back", "artifact_bytes": "0",
		}[name]
		if !ok {
			value = name
		}
		names, values = append(names, name), append(values, value)
	}
	return `
		WITH RECURSIVE copies(i, back) AS (
			SELECT ?1, (?4 - ?1) * ?5
			UNION ALL
			SELECT i + 1, (?4 - i - 1) * ?5 FROM copies WHERE i < ?2
		)
		INSERT INTO executions (` + strings.Join(names, ", ") + `)
		SELECT ` + strings.Join(values, ", ") + ` FROM copies, executions WHERE n = ?3`, rows.Err()
}

// growSpools is growRows for output that is in the database.
const growSpools = `
	WITH RECURSIVE copies(i, back) AS (
		SELECT ?1, (?4 - ?1) * ?5
		UNION ALL
		SELECT i + 1, (?4 - i - 1) * ?5 FROM copies WHERE i < ?2
	)
	INSERT INTO spools (execution, data) SELECT execution - back, data FROM copies, spools WHERE execution = ?3`

// growID makes a copy's name of its number. In their order it comes before what NewID
// makes.
const growID = "0-copy-%09d"

// linkSpools gives the copies from one number to below another a file of output, if
// the one that they are copies of has one.
func (s *Store) linkSpools(model string, from, to int) error {
	data, err := os.ReadFile(s.spoolPath(model))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	source := ""
	for i := from; i < to; i++ {
		path := s.spoolPath(fmt.Sprintf(growID, i))
		if i%growLinks == 0 || source == "" {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return err
			}
			source = path
			continue
		}
		if err := os.Link(source, path); err != nil {
			return err
		}
	}
	return nil
}
