package record

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A changed bit of the database costs the executions that it damages, and these are said to be damaged: to their
// readers, or in the log. No reader gets the output of another execution.
func TestChangedBits(t *testing.T) {
	s := openStore(t, Config{})
	outputs := map[string]string{}
	for n := range 12 {
		x := Execution{ID: NewID(), Tenant: "a", Key: fmt.Sprint("key", n), Labels: map[string]string{"n": fmt.Sprint(n)}}
		l := create(t, s, x)
		outputs[x.ID] = strings.Repeat(x.ID, 20)
		appendOutput(t, l, outputs[x.ID])
		if err := l.End(t.Context(), "EXITED", []byte("outcome"), start); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.config.Dir, databaseName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(18, 1))
	said := 0
	for range 150 {
		at, bit := random.IntN(len(whole)), random.IntN(8)
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << bit
		c := Config{Dir: filepath.Join(t.TempDir(), "record")}
		copyStore(t, c.Dir, s)
		if err := os.WriteFile(filepath.Join(c.Dir, databaseName), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		s, err := openIdle(c)
		if err != nil {
			t.Errorf("bit %d of byte %d: open: %v", bit, at, err)
			continue
		}
		for id, want := range outputs {
			got, err := readOutput(t, s, id)
			corrupt, isCorrupt := errors.AsType[*CorruptError](err)
			switch {
			case isCorrupt && corrupt.ID == id:
				said++
			case (errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotOpen)) && strings.Contains(log.String(), "level=ERROR msg=\"record: "):
				said++
			case err != nil || got != want:
				t.Errorf("bit %d of byte %d: execution %s: got %q, %v\n%s", bit, at, id, got, err, log.String())
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("bit %d of byte %d: close: %v", bit, at, err)
		}
	}
	if said == 0 {
		t.Error("no execution was damaged")
	}
}

// readOutput returns the output of an execution of tenant a.
func readOutput(t *testing.T, s *Store, id string) (output string, err error) {
	t.Helper()
	if _, err := s.Get(t.Context(), "a", id); err != nil {
		return "", err
	}
	r, err := s.Read(t.Context(), "a", id, 0)
	if err != nil {
		return "", err
	}
	defer r.Close()
	for {
		e, err := r.Next(t.Context())
		if err != nil {
			return "", err
		}
		switch e.Kind {
		case KindOutput:
			output += string(e.Data)
		case KindEnd:
			return output, nil
		}
	}
}
