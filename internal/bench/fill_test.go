package bench

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/record"
)

// openRecord opens the record of a daemon's directory.
func openRecord(t *testing.T, dir string) *record.Store {
	t.Helper()
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "state", "record")})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestFillRecord(t *testing.T) {
	dir := t.TempDir()
	if err := fillRecord(t.Context(), dir, 3); err == nil {
		t.Error("an empty record: got nil, want an error")
	}
	now := time.Now()
	store := openRecord(t, dir)
	model := record.Execution{ID: record.NewID(), Tenant: defaultTenant, Skill: "hello", Key: "k", Labels: map[string]string{"team": "x"}, Detail: []byte("{}")}
	log, err := store.Create(t.Context(), model, []byte("header"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Started(t.Context(), now, []byte("started")); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(record.Event{Kind: record.KindOutput, Stream: 1, Data: []byte("output")}); err != nil {
		t.Fatal(err)
	}
	if err := log.End(t.Context(), "EXITED", []byte("outcome"), now); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	const n = 300
	if err := fillRecord(t.Context(), dir, n); err != nil {
		t.Fatal(err)
	}
	store = openRecord(t, dir)
	defer store.Close()
	all, _, err := store.List(t.Context(), record.Filter{Tenant: defaultTenant, PageSize: record.MaxPage})
	if err != nil || len(all) != n+1 {
		t.Fatalf("got %d executions, %v; want %d", len(all), err, n+1)
	}
	for _, x := range all[:n] { // the newest first; the last is the model
		if x.State != record.Ended || x.End != "EXITED" || x.Skill != "hello" || x.Key != "" || len(x.Labels) != 0 ||
			string(x.Outcome) != "outcome" || x.Created.Before(now.Add(-fillSpan)) || x.Created.After(time.Now()) {
			t.Fatalf("got %+v, want a copy", x)
		}
	}
	for _, x := range []record.Execution{all[0], all[n/2], all[n]} {
		events, err := eventsOf(t.Context(), store, x)
		if err != nil || len(events) != 4 || string(events[0].Data) != "header" || string(events[1].Data) != "started" ||
			string(events[2].Data) != "output" || string(events[3].Data) != "outcome" || events[3].End != "EXITED" {
			t.Errorf("%s: got %+v, %v", x.ID, events, err)
		}
	}
}
