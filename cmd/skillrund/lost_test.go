package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
)

// An execution of the last daemon that could not be closed at the start is closed later, without a restart.
func TestLostExecutionIsClosedLater(t *testing.T) {
	w := newWeek(t)
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.newAuthority()
		w.start()
		x := record.Execution{ID: record.NewID(), Tenant: "steady", Skill: "demo", SourceKind: "script", Detail: []byte("{}")}
		_, err := w.daemon.record.Create(t.Context(), x, []byte("{}"))
		w.must(err)
		unmount := disktest.MountBusy(t, w.daemon.record.ArtifactDir(x.ID)) // Reopen can't remove it
		w.stop()
		w.start()
		defer func() { w.stop() }()
		check := func(want record.State, end executor.End) {
			t.Helper()
			time.Sleep(sweepInterval + time.Second)
			got, err := w.daemon.record.Get(t.Context(), x.Tenant, x.ID)
			if err != nil || got.State != want || got.End != string(end) {
				t.Errorf("got state %d, end %q, %v; want %d, %q", got.State, got.End, err, want, end)
			}
		}
		check(record.Queued, "")
		unmount()
		check(record.Ended, executor.DaemonLost)
	})
}
