package sandbox

import "testing"

// Each start counts by the source of its sandbox, and a sandbox counts as long as it exists.
func TestStats(t *testing.T) {
	h := openPrewarmed(t)
	until(t, "the zygote does not run", func() bool { return h.Stats().Zygote })
	idle := h.Stats()
	if idle.FromPool+idle.FromZygote+idle.FromLibcontainer != 0 || idle.Existing != 0 || idle.Most != len(h.ids.used)-1 {
		t.Errorf("before a start: %+v", idle)
	}
	p := Spec{Program: command("/usr/bin/true")}
	run(t, h, p, "")
	until(t, "no sandbox waits", func() bool { return h.Stats().Prewarmed > 0 })
	run(t, h, p, "")
	if got := h.Stats(); got.FromZygote != 1 || got.FromPool != 1 || got.FromLibcontainer != 0 {
		t.Errorf("after a miss and a hit of the pool: %+v", got)
	}
	until(t, "the sandboxes are not torn down", func() bool {
		s := h.Stats()
		return s.Deferred == 0 && s.Existing == s.Prewarmed && s.Prewarmed > 0
	})
}

func TestStatsWithoutAPool(t *testing.T) {
	h := openHost(t)
	run(t, h, Spec{Program: command("/usr/bin/true")}, "")
	if got := h.Stats(); got.FromLibcontainer != 1 || got.FromZygote+got.FromPool != 0 || got.Zygote || got.Existing != 0 || got.Most != len(h.ids.used) {
		t.Errorf("got %+v", got)
	}
}
