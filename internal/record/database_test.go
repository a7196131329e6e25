package record

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A damaged database is moved aside with its files, and the store begins anew.
func TestDamagedDatabase(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, path string)
	}{
		{"text", func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("not a database", 1000))) }},
		{"page in the middle", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for page := 2; page < 8; page++ {
				copy(b[page*4096:], bytes.Repeat([]byte{0xa5}, 512))
			}
			write(t, path, b)
		}},
		{"cut", func(t *testing.T, path string) {
			if err := os.Truncate(path, 3*4096+17); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var logged bytes.Buffer
			dir := filepath.Join(t.TempDir(), "with ? and # and % in it")
			s := openStore(t, Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&logged, nil))})
			for range 20 {
				l := create(t, s, Execution{Key: NewID(), Labels: map[string]string{"a": "b"}})
				end(t, l, "EXITED", start)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			test.damage(t, filepath.Join(dir, databaseName))
			damaged, err := os.ReadFile(filepath.Join(dir, databaseName))
			if err != nil {
				t.Fatal(err)
			}

			s = openStore(t, s.config)
			if !strings.Contains(logged.String(), "level=ERROR") {
				t.Errorf("logged %q", logged.String())
			}
			if got := listAll(t, s, Filter{Tenant: "a"}); len(got) != 0 || len(files(t, s)) != 0 {
				t.Errorf("got %v and files %v", got, files(t, s))
			}
			l := create(t, s, Execution{})
			end(t, l, "EXITED", start)
			readAll(t, s, "a", l.ID(), 0)

			aside, err := filepath.Glob(escapeGlob(dir) + "/corrupt-*/*")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, path := range aside {
				names = append(names, filepath.Base(path))
			}
			if got := strings.Join(names, " "); !strings.Contains(got, databaseName) || !strings.Contains(got, spoolsName) || !strings.Contains(got, artifactsName) {
				t.Errorf("aside: %s", got)
			}
			kept, err := os.ReadFile(filepath.Join(filepath.Dir(aside[0]), databaseName))
			if err != nil || !bytes.Equal(kept, damaged) {
				t.Errorf("what is aside isn't what was there: %v", err)
			}
		})
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func escapeGlob(s string) string { return strings.ReplaceAll(s, "?", `\?`) }

// A newer version's database is left alone.
func TestNewerDatabase(t *testing.T) {
	s := openStore(t, Config{})
	end(t, createInFile(t, s, Execution{ID: "x"}), "EXITED", start)
	if _, err := s.db.states.Exec(fmt.Sprintf("PRAGMA user_version = %d", len(schema)+1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := Open(s.config)
		newer, ok := errors.AsType[*NewerError](err)
		if !ok || newer.Have != len(schema)+1 || newer.Know != len(schema) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := os.Stat(s.spoolPath("x")); err != nil {
		t.Error(err)
	}
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db := openPool(path, 1, url.Values{})
	defer db.Close()
	one := "CREATE TABLE one (x INTEGER) STRICT; INSERT INTO one VALUES (1)"
	two := "ALTER TABLE one ADD COLUMN y INTEGER; UPDATE one SET y = 2"
	broken := "INSERT INTO one VALUES (7, 7); INSERT INTO nowhere VALUES (1)"
	ctx := context.Background()
	for i, test := range []struct {
		steps   []string
		fails   bool
		version int
		rows    int
	}{
		{[]string{one}, false, 1, 1},
		{[]string{one}, false, 1, 1},
		{[]string{one, two, broken}, true, 2, 1}, // two stays, of broken nothing
		{[]string{one, two}, false, 2, 1},
		{[]string{one}, true, 2, 1},
	} {
		err := migrate(ctx, db, path, test.steps)
		if (err != nil) != test.fails {
			t.Errorf("%d: got %v", i, err)
		}
		var version, rows int
		if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
			t.Fatal(err)
		}
		if err := db.QueryRow("SELECT count(*) FROM one").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if version != test.version || rows != test.rows {
			t.Errorf("%d: version %d with %d rows, want %d with %d", i, version, rows, test.version, test.rows)
		}
	}
}

// The connections are set up as the promises need it.
func TestPragmas(t *testing.T) {
	s := openStore(t, Config{})
	for _, test := range []struct {
		name   string
		db     *sql.DB
		pragma string
		want   string
	}{
		{"claims", s.db.claims, "synchronous", "2"}, // FULL
		{"states", s.db.states, "synchronous", "1"}, // NORMAL
		{"claims", s.db.claims, "journal_mode", "wal"},
		{"claims", s.db.claims, "foreign_keys", "1"},
		{"states", s.db.states, "foreign_keys", "1"},
		{"states", s.db.states, "busy_timeout", "5000"},
		{"states", s.db.states, "wal_autocheckpoint", "2000"},
		{"claims", s.db.claims, "wal_autocheckpoint", "2000"},
		{"queries", s.db.queries, "query_only", "1"},
	} {
		var got string
		if err := test.db.QueryRow("PRAGMA " + test.pragma).Scan(&got); err != nil || got != test.want {
			t.Errorf("%s: %s is %s, %v; want %s", test.name, test.pragma, got, err, test.want)
		}
	}
}

func TestOneProcessAtATime(t *testing.T) {
	s := openStore(t, Config{})
	if _, err := Open(s.config); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	create(t, s, Execution{})
	reopenStore(t, s)
}

// Other users can read no file, with any umask and a directory of any mode.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Config{Dir: dir})
	end(t, create(t, s, Execution{}), "EXITED", start)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	for _, dir := range []string{"", file, "/proc/nowhere"} {
		if s, err := Open(Config{Dir: dir}); err == nil {
			s.Close()
			t.Errorf("%q was opened", dir)
		}
	}
}
