package record

import (
	"context"
	"database/sql"
	"fmt"
)

// schema is one step for each version of the database; PRAGMA user_version says
// how many have been taken. A step that was released is never changed.
var schema = []string{`
-- n orders executions by creation: its time in nanoseconds, or one more than the
-- newest row's if that is later. So n >= created, always.
CREATE TABLE executions (
	n              INTEGER PRIMARY KEY,
	id             TEXT    NOT NULL UNIQUE,
	tenant         TEXT    NOT NULL,
	principal      TEXT    NOT NULL,
	skill          TEXT    NOT NULL,
	digest         TEXT    NOT NULL,
	source_kind    TEXT    NOT NULL,
	script         TEXT    NOT NULL,
	key            TEXT,
	request_hash   BLOB    NOT NULL,
	state          INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3),
	created        INTEGER NOT NULL,
	started        INTEGER NOT NULL DEFAULT 0,
	ended          INTEGER NOT NULL DEFAULT 0,
	ending         TEXT    NOT NULL DEFAULT '',
	last_seq       INTEGER NOT NULL DEFAULT 1,
	spool_bytes    INTEGER NOT NULL DEFAULT 0,
	artifact_bytes INTEGER NOT NULL DEFAULT 0,
	labels         TEXT    NOT NULL,
	detail         BLOB    NOT NULL,
	outcome        BLOB    NOT NULL DEFAULT x'',
	marks          BLOB    NOT NULL DEFAULT x'',
	header         BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX executions_key ON executions (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX executions_tenant ON executions (tenant, n);
CREATE INDEX executions_skill  ON executions (tenant, skill, n);
CREATE INDEX executions_live   ON executions (tenant, n) WHERE state < 3;
CREATE INDEX executions_ended  ON executions (ended, spool_bytes, artifact_bytes) WHERE state = 3;

CREATE TABLE labels (
	tenant    TEXT    NOT NULL,
	key       TEXT    NOT NULL,
	value     TEXT    NOT NULL,
	execution INTEGER NOT NULL REFERENCES executions (n) ON DELETE CASCADE,
	PRIMARY KEY (tenant, key, value, execution)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_execution ON labels (execution);

-- position names the file that has the content.
CREATE TABLE artifacts (
	execution  INTEGER NOT NULL REFERENCES executions (n) ON DELETE CASCADE,
	path       BLOB    NOT NULL,
	position   INTEGER NOT NULL,
	size       INTEGER NOT NULL,
	sha256     TEXT    NOT NULL,
	executable INTEGER NOT NULL,
	PRIMARY KEY (execution, path)
) STRICT, WITHOUT ROWID;

-- Executions whose rows are gone and whose files may not be.
CREATE TABLE garbage (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
`, `
-- What retention counts of a row: its blobs.
ALTER TABLE executions ADD COLUMN row_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE executions SET row_bytes = length(detail) + length(outcome) + length(header) + length(marks);
DROP INDEX executions_ended;
CREATE INDEX executions_ended ON executions (ended, spool_bytes, artifact_bytes, row_bytes) WHERE state = 3;
`, `
-- Spools that are in no file: those of executions that ended young.
CREATE TABLE spools (
	execution INTEGER PRIMARY KEY REFERENCES executions (n) ON DELETE CASCADE,
	data      BLOB NOT NULL
) STRICT;
`}

// migrate takes the steps that the database at path has not taken, each at once
// or not at all.
func migrate(ctx context.Context, db *sql.DB, path string, steps []string) error {
	var have int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if have > len(steps) {
		return &NewerError{Path: path, Have: have, Know: len(steps)}
	}
	for v := have; v < len(steps); v++ {
		if err := migrateOne(ctx, db, steps[v], v+1); err != nil {
			return fmt.Errorf("%s: schema %d: %w", path, v+1, err)
		}
	}
	return nil
}

func migrateOne(ctx context.Context, db *sql.DB, step string, version int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, step); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return tx.Commit()
}
