package sandbox

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// noLeftovers fails if processes, cgroups, mounts or directories of an ended sandbox of h
// still exist.
func noLeftovers(t *testing.T, h *Host) {
	t.Helper()
	h.pool.close() // also discards prewarmed sandboxes and waits for deferred teardowns
	freeGroups(h)
	for _, child := range h.cgroups.Group(h.groupName()).Children() {
		t.Errorf("cgroup %s is left", child.Path)
	}
	points, err := mount.Points(h.instance.run)
	if err != nil {
		t.Error(err)
	}
	for _, p := range points {
		if !strings.HasPrefix(p, h.rootfs()) && p != h.sandboxes() {
			t.Errorf("mount %s is left", p)
		}
	}
	for _, pattern := range []string{h.sandboxes() + "/*", h.containers() + "/*"} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			t.Errorf("%s is left", f)
		}
	}
	busy, err := idsInUse(h.ids.first, blockIDs)
	if err != nil || busy {
		t.Errorf("processes with ids of sandboxes are left (%v)", err)
	}
}

func TestNothingLeaks(t *testing.T) { eachMaker(t, testNothingLeaks) }

func testNothingLeaks(t *testing.T, h *Host) {
	snapshot := newSnapshot(t, map[string]string{"a": "a"})
	once := func() {
		run(t, h, Spec{
			Program:   bash("echo x >a; sleep 1000 & true"),
			Env:       testEnv,
			Workspace: Workspace{Lower: []string{snapshot}},
			Mounts:    []Mount{{Source: snapshot, Target: "/skills/s", Owned: true}},
		}, "in")
	}
	for range 5 { // makes everything that is made once
		once()
	}
	files, goroutines := sockettest.OpenFiles(t), runtime.NumGoroutine()
	for range 50 {
		once()
	}
	noLeftovers(t, h)
	runtime.GC() // runs finalizers, which would hide a leak later
	if got := sockettest.OpenFiles(t); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
	if got := runtime.NumGoroutine(); got > goroutines+3 {
		b := make([]byte, 1<<16)
		t.Errorf("goroutines: got %d, want %d\n%s", got, goroutines, b[:runtime.Stack(b, true)])
	}
}

// A program that runs out of memory leaves no goroutine and no file of its OOM notifier,
// however often it happens.
func TestOutOfMemoryLeaksNothing(t *testing.T) {
	t.Run("direct", func(t *testing.T) { testOutOfMemoryLeaksNothing(t, openHost) })
	t.Run("zygote", func(t *testing.T) { testOutOfMemoryLeaksNothing(t, openPrewarmed) })
}

// Files are counted while no Host is open: a pool's sandboxes that wait have files, too.
func testOutOfMemoryLeaksNothing(t *testing.T, open func(testing.TB) *Host) {
	once := func(t *testing.T, h *Host, id string) {
		p, err := h.Start(t.Context(), Spec{
			ID: id, Env: testEnv, Program: command("python3", "-c", "x = bytearray(64 << 20)"),
			Limits: Limits{MemoryBytes: 32 << 20},
		}, IO{})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit.End != OOMKilled {
			t.Fatalf("got %+v, %v, want it to run out of memory", exit, err)
		}
		select {
		case <-p.sandbox.oom.Ended:
		case <-time.After(time.Minute):
			t.Fatal("somebody still listens for its memory")
		}
	}
	times := func(n int) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := open(t)
			for i := range n {
				once(t, h, fmt.Sprintf("run%d", i))
			}
			noLeftovers(t, h)
		})
	}
	times(1) // opens the files that are opened once
	files := keptFiles(t, 0)
	times(10)
	if got := keptFiles(t, files); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
}
