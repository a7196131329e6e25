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
