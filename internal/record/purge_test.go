package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
)

// Purge removes every execution of one tenant, more than one batch has. The other tenants lose nothing.
func TestPurge(t *testing.T) {
	s := openStore(t, Config{})
	const text = "some words"
	for i := range sweepBatch + 5 {
		l := create(t, s, Execution{ID: fmt.Sprint("small-", i), Tenant: "acme", Labels: map[string]string{"a": "b"}, Detail: []byte(text)})
		if _, err := l.Append(Event{Kind: KindOutput, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		end(t, l, "EXITED", start)
	}
	for _, x := range []Execution{{ID: "large", Tenant: "acme", Key: "key"}, {ID: "kept", Tenant: "globex", Key: "key"}} {
		l := createInFile(t, s, x)
		writeArtifacts(t, s, l, map[string]string{"x": text})
		end(t, l, "EXITED", start)
	}
	if rows := rowsIn(t, s, "executions"); rows != sweepBatch+7 {
		t.Fatalf("%d rows", rows)
	}
	runs := create(t, s, Execution{ID: "runs", Tenant: "acme"})
	if removed, _, err := s.Purge(t.Context(), "acme"); removed != 0 || !errors.Is(err, ErrNotEnded) {
		t.Errorf("with an open execution: got %d, %v", removed, err)
	}
	end(t, runs, "EXITED", start.Add(time.Minute))
	removed, freed, err := s.Purge(t.Context(), "acme")
	if err != nil || removed != sweepBatch+7 || freed < int64((sweepBatch+5)*2*len(text)) {
		t.Errorf("got %d, %d bytes, %v", removed, freed, err)
	}
	if got, want := files(t, s), []string{"spool/kept", "artifacts/kept"}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	for table, want := range map[string]int{"executions": 1, "labels": 0, "frames": 0, "artifacts": 1, "garbage": 0} {
		if n := rowsIn(t, s, table); n != want {
			t.Errorf("table %s: %d rows, want %d", table, n, want)
		}
	}
	create(t, s, Execution{ID: "again", Tenant: "acme", Key: "key"})
	if removed, _, err := s.Purge(t.Context(), "nobody"); err != nil || removed != 0 {
		t.Errorf("got %d, %v", removed, err)
	}
	if _, _, err := s.Purge(t.Context(), ""); err == nil {
		t.Error("the tenant without a name: no error")
	}
	if n := rowsIn(t, s, "executions"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// A purge is not done before the files are gone, and a sweep that finds nothing else to remove tries again, too.
func TestPurgeOfFilesThatStay(t *testing.T) {
	s := openStore(t, Config{})
	sweep(t, s, start) // the first one also removes files without a row
	for _, id := range []string{"busy", "other"} {
		end(t, createInFile(t, s, Execution{ID: id, Tenant: "acme"}), "EXITED", start)
	}
	unmount := disktest.MountBusy(t, s.ArtifactDir("busy"))
	for i := range 2 {
		removed, _, err := s.Purge(t.Context(), "acme")
		if !errors.Is(err, errFilesRemain) || i == 0 && removed != 2 {
			t.Errorf("purge %d: got %d, %v", i, removed, err)
		}
	}
	if got := files(t, s); !slices.Equal(got, []string{"artifacts/busy"}) {
		t.Errorf("left %v", got)
	}
	unmount()
	if removed, _ := sweep(t, s, start); removed != 0 {
		t.Errorf("the sweep removed %d", removed)
	}
	if got := files(t, s); len(got) != 0 || rowsIn(t, s, "garbage") != 0 {
		t.Errorf("left %v and %d rows", got, rowsIn(t, s, "garbage"))
	}
	if _, _, err := s.Purge(t.Context(), "acme"); err != nil {
		t.Error(err)
	}
}

// After a purge no file has a byte of the tenant, although rows of two tenants shared pages, some were moved
// between pages, and Sweep had removed a part before.
func TestPurgeErases(t *testing.T) {
	s := openStore(t, Config{})
	found := func(text string) (n int) {
		t.Helper()
		err := filepath.WalkDir(s.config.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			n += bytes.Count(data, []byte(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	random := rand.New(rand.NewPCG(3, 3))
	var open []*Log
	for i := range 1000 {
		tenant := []string{"acme", "globex"}[i%2]
		text := tenant + "-secret"
		x := Execution{Tenant: tenant, Labels: map[string]string{"for": text}, Detail: []byte(text), Created: start}
		if i%3 == 0 {
			x.Key = text + fmt.Sprint(i)
		}
		open = append(open, create(t, s, x))
		for range 3 { // of any execution, so that frames are added between others
			l := open[random.IntN(len(open))]
			appendOutput(t, l, l.tenant+"-secret"+strings.Repeat("x", random.IntN(400)))
		}
		if len(open) > 30 {
			if i%50 == 0 {
				writeArtifacts(t, s, open[0], map[string]string{open[0].tenant + "-secret": open[0].tenant + "-secret"})
			}
			end(t, open[0], "EXITED", start.Add(time.Duration(i)))
			open = open[1:]
		}
	}
	for _, l := range open {
		end(t, l, "EXITED", start.Add(time.Hour))
	}
	if removed, _, err := s.MakeRoom(t.Context(), "acme", s.BytesOf("acme")); removed == 0 || err != nil {
		t.Fatalf("got %d, %v", removed, err)
	}
	if found("acme-secret") == 0 {
		t.Fatal("the files have nothing to remove")
	}
	runs := create(t, s, Execution{Tenant: "globex"})
	if _, _, err := s.Purge(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if n := found("acme"); n != 0 {
		t.Errorf("the files have %d words of the purged tenant", n)
	}
	if found("globex-secret") == 0 {
		t.Error("the other tenant lost its data")
	}
	end(t, runs, "EXITED", start)
	s = reopenStore(t, s)
	if n := rowsIn(t, s, "executions"); n != 501 || s.BytesOf("acme") != 0 {
		t.Errorf("%d rows, want 501; %d bytes", n, s.BytesOf("acme"))
	}
}
