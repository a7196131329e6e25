package cgroup

import "testing"

// The instances of inotify are few, and the machine's services need them too.
func TestUnifiedOOMNotifierWatchesNothing(t *testing.T) {
	h, _ := fakeGroup(t, map[string]string{"memory.events": "oom 0\n"})
	oom, err := h.Group().NotifyOOM()
	if err != nil {
		t.Fatal(err)
	}
	if oom.Fired != nil || oom.events != nil {
		t.Fatalf("got %+v, want a notifier without a descriptor", oom)
	}
	<-oom.Ended
	oom.Stop()
	(*OOMNotifier)(nil).Stop()
}
