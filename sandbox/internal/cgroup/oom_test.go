package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUnifiedOOMNotifier(t *testing.T) {
	h, dir := fakeGroup(t, map[string]string{"memory.events": "oom 0\n"})
	oom, err := h.Group().NotifyOOM()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		<-oom.Fired
	}
	oom.Stop()
	<-oom.Ended
	none, _ := fakeGroup(t, nil)
	if _, err := none.Group().NotifyOOM(); err == nil {
		t.Error("a group without events has an OOM notifier")
	}
	(*OOMNotifier)(nil).Stop()
}
