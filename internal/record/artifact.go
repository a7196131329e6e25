package record

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// artifactBatch bounds the rows that one transaction adds, because other writers wait
// for it.
const artifactBatch = 1000

// Artifact is a file that an execution left.
type Artifact struct {
	// Path is the file's exact name in the workspace, not always UTF-8.
	Path      string
	SizeBytes int64
	// SHA256 is 64 hex digits.
	SHA256     string
	Executable bool
}

// artifactOverhead is what an artifact takes besides its bytes and its path: an inode, the rest of a block of the
// disk, and a row. Without it, a tenant could fill the disk with empty files within its quota.
const artifactOverhead = 4 << 10

// stored is what the artifact counts towards quotas and retention, in bytes.
func (a Artifact) stored() int64 { return a.SizeBytes + int64(len(a.Path)) + artifactOverhead }

// ArtifactDir returns the directory for the contents of an execution's artifacts. The
// artifact at position i in PutArtifacts is the file named i, in decimal. The caller
// makes the directory. For an invalid ID the path is empty.
func (s *Store) ArtifactDir(id string) string {
	if !validID(id) {
		return ""
	}
	return filepath.Join(s.config.Dir, artifactsName, id)
}

// PutArtifacts records the artifacts of the execution, whose contents are in
// ArtifactDir. They replace earlier ones. Call it before End: artifacts are visible
// after the end. If the disk is full the error is a *SpoolFullError. After an error none of the artifacts is visible or
// counted, and the caller removes the files.
// The order is: files into ArtifactDir, PutArtifacts, End. A crash in between leaves an
// unended execution, and Reopen drops its artifacts.
func (l *Log) PutArtifacts(ctx context.Context, artifacts []Artifact) error {
	l.mu.Lock()
	err := l.writable()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.store.flushRecorded(ctx); err != nil { // the row must be there
		return l.failure(fmt.Errorf("artifacts: %w", err))
	}
	drop := func(ctx context.Context, tx *sql.Tx) error { return deleteArtifacts(ctx, tx, l.row) }
	if err := l.store.writeWithoutBallast(ctx, drop); err != nil {
		return l.failure(fmt.Errorf("artifacts: %w", err))
	}
	l.countArtifacts(0)
	bytes, err := l.addArtifacts(ctx, artifacts)
	if err != nil {
		// If the rows stay, they are not visible, and go with the execution.
		err = errors.Join(err, l.store.write(context.WithoutCancel(ctx), drop))
		return l.failure(fmt.Errorf("artifacts: %w", err))
	}
	l.countArtifacts(bytes)
	return nil
}

// addArtifacts adds the rows of artifacts, and returns what they count together, in bytes. The last transaction sets
// artifact_bytes. Until then the rows are not visible, because artifact_bytes is 0.
func (l *Log) addArtifacts(ctx context.Context, artifacts []Artifact) (bytes int64, err error) {
	for _, a := range artifacts {
		bytes += a.stored()
	}
	position := 0
	for batch := range slices.Chunk(artifacts, artifactBatch) {
		err := l.store.writeWithoutBallast(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := insertArtifacts(ctx, tx, l.row, position, batch); err != nil {
				return err
			}
			if position+len(batch) < len(artifacts) {
				return nil
			}
			_, err := tx.ExecContext(ctx, "UPDATE executions SET artifact_bytes = ? WHERE n = ?", bytes, l.row)
			return err
		})
		if err != nil {
			return 0, err
		}
		position += len(batch)
	}
	return bytes, nil
}

// countArtifacts sets what the artifacts of l's execution count, in bytes.
func (l *Log) countArtifacts(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counted(0, bytes-l.artifactBytes)
}

// position is the number of the first of the batch.
func insertArtifacts(ctx context.Context, tx *sql.Tx, row int64, position int, batch []Artifact) error {
	insert, err := tx.PrepareContext(ctx, `
		INSERT INTO artifacts (execution, path, position, size, sha256, executable) VALUES (?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	for i, a := range batch {
		// Paths are BLOBs: SQLite text must be UTF-8, and a name on Linux need not be.
		_, err := insert.ExecContext(ctx, row, []byte(a.Path), position+i, a.SizeBytes, a.SHA256, a.Executable)
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteArtifacts removes the rows of an execution's artifacts.
func deleteArtifacts(ctx context.Context, tx *sql.Tx, row int64) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM artifacts WHERE execution = ?", row); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE executions SET artifact_bytes = 0 WHERE n = ?", row)
	return err
}

// dropArtifacts removes the artifacts of l's execution. l.mu is held.
// The rows go first. A crash in between leaves files, which the next Reopen or the removal
// of the execution removes.
func (s *Store) dropArtifacts(ctx context.Context, l *Log) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return deleteArtifacts(ctx, tx, l.row) })
	if err == nil {
		l.counted(0, -l.artifactBytes)
	}
	return errors.Join(err, os.RemoveAll(s.ArtifactDir(l.id)))
}

// ListArtifacts returns artifacts of the tenant's execution, ordered by the bytes of
// their paths, and the token of the next page, which is empty on the last one. Before
// the end of the execution the list is empty. Sizes and tokens are as in List.
func (s *Store) ListArtifacts(ctx context.Context, tenant, id string, size int, pageToken string) (page []Artifact, next string, err error) {
	s.flushForQuery(ctx)
	x, err := findRow(ctx, s.db.queries, tenant, id)
	if err != nil {
		return nil, "", of(id, err)
	}
	tokens := tokenFor("artifacts", tenant, id)
	after := []byte{}
	if pageToken != "" {
		if after, err = tokens.decodeBytes(pageToken); err != nil {
			return nil, "", err
		}
	}
	if x.State != Ended || x.artifactBytes == 0 { // 0: also if PutArtifacts has failed
		return nil, "", nil
	}
	size = pageSize(size)
	rows, err := s.db.queries.QueryContext(ctx, `
		SELECT path, size, sha256, executable FROM artifacts
		WHERE execution = ? AND path > ? ORDER BY path LIMIT ?`, x.n, after, size+1)
	if err != nil {
		return nil, "", of(id, fmt.Errorf("artifacts: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var a Artifact
		if err := rows.Scan(&a.Path, &a.SizeBytes, &a.SHA256, &a.Executable); err != nil {
			return nil, "", of(id, fmt.Errorf("artifacts: %w", err))
		}
		page = append(page, a)
	}
	if err := rows.Err(); err != nil {
		return nil, "", of(id, fmt.Errorf("artifacts: %w", err))
	}
	if len(page) > size {
		page = page[:size]
		next = tokens.encodeBytes([]byte(page[size-1].Path))
	}
	return page, next, nil
}

// OpenArtifact opens the content of one artifact of the tenant's ended execution, by
// its exact name. Without such an artifact the error is ErrNotFound. If the file is missing or has
// another length than it had, it is a *CorruptError. The caller closes the file, which
// stays readable after the removal of the execution.
func (s *Store) OpenArtifact(ctx context.Context, tenant, id, path string) (*os.File, Artifact, error) {
	s.flushForQuery(ctx)
	a, position, err := s.findArtifact(ctx, tenant, id, path)
	if err != nil {
		return nil, Artifact{}, err
	}
	name := filepath.Join(s.ArtifactDir(id), strconv.FormatInt(position, 10))
	// The file's name is its position, so no path of a script is used on the host.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		// remove removes the row before the file.
		if _, _, err = s.findArtifact(ctx, tenant, id, path); err == nil {
			err = &CorruptError{ID: id, Reason: fmt.Sprintf("artifact %q has no file", path)}
		}
		return nil, Artifact{}, err
	}
	if err != nil {
		return nil, Artifact{}, of(id, fmt.Errorf("artifact %q: %w", path, err))
	}
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() != a.SizeBytes) {
		err = &CorruptError{ID: id, Reason: fmt.Sprintf("artifact %q is not %d bytes", path, a.SizeBytes)}
	}
	if err != nil {
		return nil, Artifact{}, errors.Join(err, f.Close())
	}
	return f, a, nil
}

// findArtifact returns an artifact, and the position that names its file. The error is of the form of OpenArtifact.
func (s *Store) findArtifact(ctx context.Context, tenant, id, path string) (a Artifact, position int64, err error) {
	a.Path = path
	err = s.db.queries.QueryRowContext(ctx, `
		SELECT a.position, a.size, a.sha256, a.executable
		FROM executions AS e JOIN artifacts AS a ON a.execution = e.n
		WHERE e.id = ? AND e.tenant = ? AND e.state = ? AND e.artifact_bytes > 0 AND a.path = ?`,
		id, tenant, Ended, []byte(path)).
		Scan(&position, &a.SizeBytes, &a.SHA256, &a.Executable)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Artifact{}, 0, of(id, fmt.Errorf("artifact %q: %w", path, err))
	}
	return a, position, nil
}
