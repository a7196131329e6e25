package record

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
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
