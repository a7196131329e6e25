package record

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// removeUnnamed removes the spools and artifacts of executions that have no row. Damage of the database's WAL
// or of the journal leaves them: the record then has forgotten executions, and no removal would ever find their files.
// Only a crash leaves such files, so one call after Open suffices. While an earlier process has the store open, or
// changes wait in the journal, it leaves the task to a later Sweep. s.sweeping is held.
func (s *Store) removeUnnamed(ctx context.Context) error {
	if s.tidied || s.isBeside() {
		return nil
	}
	// The files come first: an execution has its row, or a change in the journal, before it has a file.
	unnamed := map[string]bool{}
	for _, name := range []string{spoolsName, artifactsName} {
		entries, err := os.ReadDir(filepath.Join(s.config.Dir, name))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if validID(e.Name()) {
				unnamed[e.Name()] = true
			}
		}
	}
	if s.flush(ctx) != nil { // flushForQuery has logged why
		return nil
	}
	// The second query reads the rows themselves: a damaged index may lack some.
	for _, query := range []string{"SELECT id FROM executions", "SELECT id FROM executions NOT INDEXED"} {
		if len(unnamed) == 0 {
			break
		}
		if err := s.strikeNamed(ctx, unnamed, query); err != nil {
			return err
		}
	}
	var errs []error
	for id := range unnamed {
		if s.liveLog(id) == nil {
			errs = append(errs, s.removeFiles(id))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(unnamed) > 0 {
		s.log.Warn("record: removed files of executions that the record has forgotten", "executions", len(unnamed))
	}
	s.tidied = true
	return nil
}

// strikeNamed deletes the IDs that the query returns from unnamed.
func (s *Store) strikeNamed(ctx context.Context, unnamed map[string]bool, query string) error {
	rows, err := s.db.queries.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		delete(unnamed, id)
	}
	return rows.Err()
}
