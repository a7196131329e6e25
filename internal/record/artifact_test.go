package record

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// writeArtifacts puts down files, by path, for an open execution.
func writeArtifacts(t testing.TB, s *Store, l *Log, files map[string]string) []Artifact {
	t.Helper()
	if err := os.MkdirAll(s.ArtifactDir(l.ID()), 0o700); err != nil {
		t.Fatal(err)
	}
	var artifacts []Artifact
	for i, path := range slices.Sorted(maps.Keys(files)) {
		data := files[path]
		if err := os.WriteFile(filepath.Join(s.ArtifactDir(l.ID()), strconv.Itoa(i)), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		artifacts = append(artifacts, Artifact{
			Path: path, SizeBytes: int64(len(data)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(data))), Executable: i%2 == 1,
		})
	}
	if err := l.PutArtifacts(t.Context(), artifacts); err != nil {
		t.Fatal(err)
	}
	return artifacts
}

var artifactFiles = map[string]string{
	"out.txt": "result", "a/b.csv": "1,2", "a.txt": "", "bad\xff\nname": "bytes", "ü": "umlaut", "../../up": "never a path here",
}

// Empty files with long names count: they take room in the database and on the disk.
func TestEmptyArtifactsCount(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	before := s.BytesOf("a")
	const files, length = 100, 4000
	var empty []Artifact
	for i := range files {
		empty = append(empty, Artifact{Path: fmt.Sprintf("%0*d", length, i), SHA256: fmt.Sprintf("%x", sha256.Sum256(nil))})
	}
	if err := l.PutArtifacts(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	if used := s.BytesOf("a") - before; used < files*(length+artifactOverhead) {
		t.Errorf("got %d bytes for %d files with names of %d", used, files, length)
	}
}

func TestArtifacts(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	writeArtifacts(t, s, l, map[string]string{"earlier": "gone"})
	want := writeArtifacts(t, s, l, artifactFiles)

	if got, next, err := s.ListArtifacts(t.Context(), "a", l.ID(), 0, ""); len(got) != 0 || next != "" || err != nil {
		t.Errorf("before the end: got %v, %q, %v", got, next, err)
	}
	if _, _, err := s.OpenArtifact(t.Context(), "a", l.ID(), "out.txt"); !errors.Is(err, ErrNotFound) {
		t.Errorf("before the end: got %v", err)
	}
	end(t, l, "EXITED", start)
	if err := l.PutArtifacts(t.Context(), nil); err == nil {
		t.Error("put after the end")
	}
	s = reopenStore(t, s)

	for size := 1; size <= len(want)+1; size++ {
		var got []Artifact
		token := ""
		for {
			page, next, err := s.ListArtifacts(t.Context(), "a", l.ID(), size, token)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > size {
				t.Errorf("got a page of %d, want %d", len(page), size)
			}
			got = append(got, page...)
			if token = next; token == "" {
				break
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("pages of %d: got %v\nwant %v", size, got, want)
		}
	}
	for _, a := range want {
		f, got, err := s.OpenArtifact(t.Context(), "a", l.ID(), a.Path)
		if err != nil {
			t.Errorf("%q: %v", a.Path, err)
			continue
		}
		data, err := io.ReadAll(f)
		f.Close()
		if got != a || string(data) != artifactFiles[a.Path] || err != nil {
			t.Errorf("%q: got %v with %q, %v", a.Path, got, data, err)
		}
	}
	if _, _, err := s.OpenArtifact(t.Context(), "a", l.ID(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestArtifactTokens(t *testing.T) {
	s := openStore(t, Config{})
	var ids [2]string
	for i := range ids {
		l := create(t, s, Execution{})
		writeArtifacts(t, s, l, artifactFiles)
		end(t, l, "EXITED", start)
		ids[i] = l.ID()
	}
	_, token, err := s.ListArtifacts(t.Context(), "a", ids[0], 1, "")
	if err != nil {
		t.Fatal(err)
	}
	_, executions, err := s.List(t.Context(), Filter{Tenant: "a", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ id, token string }{
		{ids[1], token}, {ids[0], executions}, {ids[0], "x"}, {ids[0], token + "="}, {ids[0], "AAAAAAAAAAA" + token[11:]},
	} {
		_, _, err := s.ListArtifacts(t.Context(), "a", test.id, 1, test.token)
		if _, ok := errors.AsType[*TokenError](err); !ok {
			t.Errorf("%q: got %v", test.token, err)
		}
	}
}

// More artifacts than one transaction takes.
func TestManyArtifacts(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	var want []Artifact
	for i := range 2*artifactBatch + 1 {
		want = append(want, Artifact{Path: fmt.Sprintf("%06d", i), SizeBytes: int64(i), SHA256: "00"})
	}
	if err := l.PutArtifacts(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	end(t, l, "EXITED", start)
	got, next, err := s.ListArtifacts(t.Context(), "a", l.ID(), MaxPage+1, "")
	if len(got) != MaxPage || next == "" || err != nil {
		t.Errorf("got %d, %q, %v", len(got), next, err)
	}
	var last int
	err = s.db.queries.QueryRow("SELECT position FROM artifacts ORDER BY path DESC LIMIT 1").Scan(&last)
	if last != len(want)-1 || err != nil {
		t.Errorf("the last is at %d, %v", last, err)
	}
}

// Artifacts of a PutArtifacts that has failed after its first transaction are neither visible nor counted, also if
// their rows stay.
func TestArtifactsHalfRecorded(t *testing.T) {
	for name, stay := range map[string]bool{"rows are removed": false, "rows stay": true} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Config{})
			l := create(t, s, Execution{})
			before := usagesOf(s)
			writeArtifacts(t, s, l, map[string]string{"earlier": "content"})
			refuse := fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT ON artifacts WHEN NEW.position = %d
				BEGIN SELECT RAISE(ABORT, 'refused'); END`, artifactBatch+1)
			if stay {
				refuse += `; CREATE TRIGGER stay BEFORE DELETE ON artifacts WHEN OLD.path = CAST('000000' AS BLOB)
					BEGIN SELECT RAISE(ABORT, 'stays'); END`
			}
			if _, err := s.db.states.Exec(refuse); err != nil {
				t.Fatal(err)
			}
			var artifacts []Artifact
			for i := range 2*artifactBatch + 1 {
				artifacts = append(artifacts, Artifact{Path: fmt.Sprintf("%06d", i), SizeBytes: 1 << 20, SHA256: "00"})
			}
			if err := l.PutArtifacts(t.Context(), artifacts); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Fatalf("got %v", err)
			}
			if n := rowsIn(t, s, "artifacts"); n != 0 && !stay || n != artifactBatch && stay {
				t.Errorf("%d rows", n)
			}
			if got := usagesOf(s); !maps.Equal(got, before) {
				t.Errorf("counted %v, want %v", got, before)
			}
			end(t, l, "EXITED", start)
			want := usagesOf(s)
			if got, _, err := s.ListArtifacts(t.Context(), "a", l.ID(), 0, ""); len(got) != 0 || err != nil {
				t.Errorf("got %d artifacts, %v", len(got), err)
			}
			if _, _, err := s.OpenArtifact(t.Context(), "a", l.ID(), "000000"); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
			if got := usagesOf(reopenStore(t, s)); !maps.Equal(got, want) {
				t.Errorf("after a restart: counted %v, want %v", got, want)
			}
		})
	}
}

func TestDamagedArtifact(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(path string) error
		want   func(error) bool
	}{
		{"cut", func(p string) error { return os.Truncate(p, 1) }, isCorruptError},
		{"longer", func(p string) error { return os.Truncate(p, 100) }, isCorruptError},
		{"gone", os.Remove, isCorruptError},
		{"all gone", func(p string) error { return os.RemoveAll(filepath.Dir(p)) }, isCorruptError},
		{"link", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/etc/passwd", p)) },
			func(err error) bool { return err != nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t, Config{})
			l := create(t, s, Execution{})
			writeArtifacts(t, s, l, map[string]string{"x": "content"})
			end(t, l, "EXITED", start)
			if err := test.damage(filepath.Join(s.ArtifactDir(l.ID()), "0")); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.OpenArtifact(t.Context(), "a", l.ID(), "x"); !test.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func isCorruptError(err error) bool {
	_, ok := errors.AsType[*CorruptError](err)
	return ok
}
