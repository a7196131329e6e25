package admission

import (
	"maps"
	"testing"
)

func TestUsages(t *testing.T) {
	a := newOne(1, 1, 0)
	a.SetTenant("idle", Quota{Running: 1})
	running, waiting := enter(t, a), enter(t, a)
	want := map[string]Usage{tenant1: {Running: 1, Queued: 1}, "idle": {}}
	if got := a.Usages(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	running.Release()
	waiting.Release()
	if got := a.Usages()[tenant1]; got != (Usage{}) {
		t.Errorf("left %v", got)
	}
}

func TestStartsInUse(t *testing.T) {
	c := newClock()
	a := New(Config{Slots: 5, Now: c.time})
	a.SetTenant("free", Quota{Running: 5})
	a.SetTenant("bound", Quota{Running: 5, StartsPerSecond: 2, Burst: 3})
	for _, tt := range []struct {
		tenant      string
		burst, used int
	}{{"free", 0, 0}, {"bound", 3, 2}, {"unknown", 0, 0}} {
		for range tt.used {
			if _, err := a.Enter(tt.tenant, "c"); err != nil {
				t.Fatal(err)
			}
		}
		if burst, used := a.Starts(tt.tenant); burst != tt.burst || used != tt.used {
			t.Errorf("%s: got %d of %d, want %d of %d", tt.tenant, used, burst, tt.used, tt.burst)
		}
	}
}
