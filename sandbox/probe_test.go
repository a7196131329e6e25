package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProbe finds every boundary in unchanged sandboxes. Probe leaves nothing on the host.
func TestProbe(t *testing.T) { eachMaker(t, testProbe) }

func testProbe(t *testing.T, h *Host) {
	sockets := openSockets(t)
	all, err := h.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Lowerable has two boundaries of the machine, and all of a sandbox but one.
	want := len(h.Boundaries()) + len(Lowerable()) - 1
	if len(all) != want || want < 60 {
		t.Errorf("got %d boundaries, want %d, and that is at least 60", len(all), want)
	}
	for _, b := range all {
		if !b.Found || b.Group == "" || b.Why == "" || b.Detail == "" {
			t.Errorf("got %+v, want it found, with a group, a reason and a detail", b)
		}
	}
	noLeftovers(t, h)
	if got := openSockets(t); got > sockets {
		t.Errorf("open sockets: got %d, want %d", got, sockets)
	}
}

func openSockets(t *testing.T) (count int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(link, "socket:") {
			count++
		}
	}
	return count
}

// Two probes at once do not disturb each other.
func TestProbeTwiceAtOnce(t *testing.T) {
	h := openHost(t)
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			all, err := h.Probe(context.Background())
			for _, b := range all {
				if !b.Found && err == nil {
					err = fmt.Errorf("%s: %s", b.Name, b.Detail)
				}
			}
			failed <- err
		}()
	}
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// The path of a run directory may be longer than the path of a socket can be.
func TestProbeWithALongRunDir(t *testing.T) {
	c := testConfig(t)
	dir, err := os.MkdirTemp("/run", "skillrun-test-") // every user may search /run
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	c.RunDir = filepath.Join(dir, strings.Repeat("long", 30))
	h, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	all, err := h.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if !b.Found {
			t.Errorf("%s: %s", b.Name, b.Detail)
		}
	}
}

// Without sandboxes Probe returns only the machine's boundaries.
func TestProbeOfAClosedHost(t *testing.T) {
	h, err := Open(t.Context(), testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := h.Probe(t.Context())
	if err == nil || len(all) != len(h.Boundaries()) {
		t.Errorf("got %d boundaries and %v, want those of the machine and an error", len(all), err)
	}
}

// The cgroup of a later sandbox may have the name of the probe's cgroup. It is no remains of the
// probe.
func TestLeftIsOfOneSandbox(t *testing.T) {
	h := openHost(t)
	p, err := h.Start(t.Context(), Spec{ID: "first", Program: command("true"), Env: testEnv}, IO{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	<-p.sandbox.destroyed
	next := hold(t, h, Spec{})
	if next.p.sandbox.ids != p.sandbox.ids {
		t.Fatalf("the next sandbox has the ids %v, want %v", next.p.sandbox.ids, p.sandbox.ids)
	}
	if p.sandbox.unremoved != "" {
		t.Errorf("got %q, want nothing left", p.sandbox.unremoved)
	}
	next.end(t)
	noLeftovers(t, h)
}
