package record

import (
	"context"
	"database/sql"
	"fmt"
)

// schema has one step for each version of the database. PRAGMA user_version says how
// many steps were taken. A released step never changes.
//
// In table executions state is a State, labels a JSON object, and created, started and ended are
// nanoseconds since 1970, 0 for a time that has not come (nanos). last_seq, spool_bytes and
// spool_index are set with the end; before it the open Log knows them. row_bytes is the sum of
// the lengths of detail, header, outcome and spool_index. If artifact_bytes is 0, rows in artifacts are remains of a
// PutArtifacts that failed.
// executions_id has the tenant, so that a query for another tenant's execution ends in the index, as one for
// an execution that does not exist: the time must not tell them apart. isNew sees to it that no two tenants
// have one id. executions_key lets a tenant use a key once. executions_live holds the few rows that have not
// ended. Sweep follows executions_ended. executions_usage has every column of the sum that Open reads
// for each tenant, so the sum reads no row; MakeRoom follows it.
var schema = []string{`
-- n orders executions by creation: the time of creation in nanoseconds, or one more
-- than the newest row's n if that is later. So n >= created, always.
-- in_file says where the spool is: 0 in frames, 1 in a file.
CREATE TABLE executions (
	n              INTEGER PRIMARY KEY,
	id             TEXT    NOT NULL,
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
	in_file        INTEGER NOT NULL DEFAULT 0,
	spool_bytes    INTEGER NOT NULL DEFAULT 0,
	artifact_bytes INTEGER NOT NULL DEFAULT 0,
	row_bytes      INTEGER NOT NULL,
	labels         TEXT    NOT NULL,
	detail         BLOB    NOT NULL,
	outcome        BLOB    NOT NULL DEFAULT x'',
	spool_index    BLOB    NOT NULL DEFAULT x'',
	header         BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX executions_id  ON executions (id, tenant);
CREATE UNIQUE INDEX executions_key ON executions (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX executions_tenant ON executions (tenant, n);
CREATE INDEX executions_skill  ON executions (tenant, skill, n);
CREATE INDEX executions_live   ON executions (tenant, n) WHERE state < 3;
CREATE INDEX executions_ended  ON executions (ended) WHERE state = 3;
CREATE INDEX executions_usage  ON executions (tenant, ended, spool_bytes, artifact_bytes, row_bytes) WHERE state = 3;

-- The frames of spools that are in no file, without the first event and the end,
-- which are in the row.
CREATE TABLE frames (
	execution INTEGER NOT NULL REFERENCES executions (n) ON DELETE CASCADE,
	seq       INTEGER NOT NULL,
	data      BLOB    NOT NULL,
	PRIMARY KEY (execution, seq)
) STRICT, WITHOUT ROWID;

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

-- The sequence number of the last journal entry whose change the database has.
CREATE TABLE journal (applied INTEGER NOT NULL) STRICT;
INSERT INTO journal (applied) VALUES (0);

-- Executions whose rows are gone, and whose files may still be there.
CREATE TABLE garbage (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
`, `
-- For each journal file the sequence number of its last entry whose change the database has.
CREATE TABLE journals (name TEXT PRIMARY KEY, applied INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO journals (name, applied) SELECT 'journal', applied FROM journal;
INSERT INTO journals (name, applied) VALUES ('journal-2', 0);
DROP TABLE journal;
ALTER TABLE journals RENAME TO journal;
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

// PRAGMA user_version is part of the transaction, so step and version change together.
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
