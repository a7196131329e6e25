package record

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A database without executions is moved aside together with files of executions.
func TestBlankDatabase(t *testing.T) {
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		lose func(t *testing.T, path string)
	}{
		{"deleted", remove},
		{"emptied", cutFile},
		{"without tables", func(t *testing.T, path string) {
			remove(t, path)
			execIn(t, path, "CREATE TABLE t (x); DROP TABLE t")
		}},
		{"new", func(t *testing.T, path string) {
			remove(t, path)
			s := openStore(t, Config{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(s.config.Dir, databaseName))
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, b)
		}},
		{"without rows", func(t *testing.T, path string) { execIn(t, path, "DELETE FROM executions") }},
	} {
		for _, kind := range []string{spoolsName, artifactsName} {
			t.Run(test.name+" beside "+kind, func(t *testing.T) {
				var logged bytes.Buffer
				s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
				l := createInFile(t, s, Execution{ID: "x"})
				writeArtifacts(t, s, l, map[string]string{"x": "content"})
				end(t, l, "EXITED", start)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				other := map[string]string{spoolsName: artifactsName, artifactsName: spoolsName}[kind]
				if err := os.RemoveAll(filepath.Join(s.config.Dir, other)); err != nil {
					t.Fatal(err)
				}
				test.lose(t, filepath.Join(s.config.Dir, databaseName))

				s = openStore(t, s.config)
				if got := logged.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "corrupt-") {
					t.Errorf("logged %q", got)
				}
				if len(files(t, s)) != 0 || rowsIn(t, s, "executions") != 0 {
					t.Errorf("left %v", files(t, s))
				}
				aside, err := filepath.Glob(filepath.Join(s.config.Dir, "corrupt-*", kind, "x"))
				if len(aside) != 1 || err != nil {
					t.Errorf("aside: %v, %v", aside, err)
				}
				end(t, create(t, s, Execution{ID: "x"}), "EXITED", start)
				logged.Reset()
				s = reopenStore(t, s) // and all is well again
				if got := len(readAll(t, s, "a", "x", 0)); got != 2 || logged.Len() != 0 {
					t.Errorf("got %d events, logged %q", got, logged.String())
				}
			})
		}
	}
}

// The log of an emptied database is kept: there may be something in it.
func TestBlankDatabaseKeepsItsLog(t *testing.T) {
	s := openStore(t, Config{})
	end(t, create(t, s, Execution{}), "EXITED", start)
	path := filepath.Join(s.config.Dir, databaseName)
	wal, err := os.ReadFile(path + "-wal")
	if err != nil || len(wal) == 0 {
		t.Fatal(len(wal), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cutFile(t, path)
	write(t, path+"-wal", wal)
	s = openStore(t, s.config)
	kept, err := filepath.Glob(filepath.Join(s.config.Dir, "corrupt-*", databaseName+"-wal"))
	if len(kept) != 1 || err != nil {
		t.Fatal(kept, err)
	}
	if got, err := os.ReadFile(kept[0]); !bytes.Equal(got, wal) || err != nil {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(wal))
	}
}

// Where there are no files, nothing was lost.
func TestEmptyStoreIsNotBlank(t *testing.T) {
	var logged bytes.Buffer
	s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	s = reopenStore(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cutFile(t, filepath.Join(s.config.Dir, databaseName))
	openStore(t, s.config)
	if logged.Len() != 0 {
		t.Errorf("logged %q", logged.String())
	}
}

// A damaged journal is moved aside, and the executions in the database stay.
func TestDamagedJournal(t *testing.T) {
	var logged bytes.Buffer
	s := openStore(t, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	end(t, create(t, s, Execution{ID: "x"}), "EXITED", start)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.config.Dir, journalNames[0])
	flip(0)(t, path, 0)
	damaged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.config)
	if !strings.Contains(logged.String(), "level=ERROR") {
		t.Errorf("logged %q", logged.String())
	}
	aside, err := filepath.Glob(filepath.Join(s.config.Dir, "corrupt-*", journalNames[0]))
	if len(aside) != 1 || err != nil {
		t.Fatalf("aside: %v, %v", aside, err)
	}
	if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
		t.Errorf("the file that was moved aside has %q, %v", kept, err)
	}
	end(t, create(t, s, Execution{ID: "y"}), "EXITED", start)
	for range 2 {
		if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 2 {
			t.Errorf("listed %v", got)
		}
		s = reopenStore(t, s)
	}
}

func cutFile(t *testing.T, path string) {
	t.Helper()
	cut(0)(t, path, 0)
}

// execIn runs statements on the closed database at path.
func execIn(t *testing.T, path, statements string) {
	t.Helper()
	db := openPool(path, 1, map[string][]string{})
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
}
