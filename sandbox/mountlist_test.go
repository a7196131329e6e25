package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// withSnapshot returns a Spec with dir as a skill and as the lower layer of the workspace.
// The program prints the files that it sees, and writes there.
func withSnapshot(dir string) Spec {
	return Spec{
		Program:   bash("cat /skills/s/name /workspace/name; ls -A /skills /workspace; echo changed >/workspace/name; echo new >/workspace/new"),
		Env:       testEnv,
		Mounts:    []Mount{{Source: dir, Target: "/skills/s", Owned: true}},
		Workspace: Workspace{Lower: []string{dir}},
	}
}

// seen is the output of that program if it is the first one to write.
func seen(name string) string {
	return name + name + "/skills:\ns\n\n/workspace:\nname\n"
}

// runSteadily runs s until a sandbox waits that is pre-mounted for s.
func runSteadily(t *testing.T, h *Host, s Spec, want string) *sandbox {
	t.Helper()
	var waits *sandbox
	err := eventually(func() error {
		if got := run(t, h, s, ""); got.stdout != want || got.exit.Code != 0 {
			t.Fatalf("got %+v, want %q", got, want)
		}
		if waits = waitForBucket(t, h, s, 1)[0]; waits.premounts == nil {
			return fmt.Errorf("no sandbox is pre-mounted for it")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return waits
}

// A Spec that is asked for several times in a row gets a pre-mounted sandbox, which shows the
// files on disk at that time. Another Spec gets its own mounts.
func TestMountsAhead(t *testing.T) {
	c := testConfig(t)
	c.Prepared = 1
	h := openWith(t, c)
	a, b := newSnapshot(t, map[string]string{"name": "a\n"}), newSnapshot(t, map[string]string{"name": "b\n"})
	runSteadily(t, h, withSnapshot(a), seen("a\n"))
	used := runSteadily(t, h, withSnapshot(a), seen("a\n"))
	if got := run(t, h, withSnapshot(b), ""); got.stdout != seen("b\n") || got.exit.Code != 0 {
		t.Errorf("another skill: got %+v", got)
	}
	if used.spec.Mounts[0].Source != b {
		t.Error("another skill: it was not the sandbox that waited")
	}
	runSteadily(t, h, withSnapshot(b), seen("b\n"))

	// Another directory at the same path.
	if err := os.Rename(b, b+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(newSnapshot(t, map[string]string{"name": "c\n"}), b); err != nil {
		t.Fatal(err)
	}
	if got := run(t, h, withSnapshot(b), ""); got.stdout != seen("c\n") || got.exit.Code != 0 {
		t.Errorf("another directory in its place: got %+v", got)
	}
	noLeftovers(t, h)
}

// Of several waiting sandboxes the pool takes one that is pre-mounted for the Spec, else one
// that is not pre-mounted.
func TestMountsAheadAreFound(t *testing.T) {
	mine, other := Spec{Mounts: []Mount{{Source: "/a", Target: "/skills/a"}}}, Spec{}
	has := func(s Spec) *sandbox { return &sandbox{premounts: &premounts{spec: s}} }
	none := &sandbox{}
	for _, tt := range []struct {
		name  string
		ready []*sandbox
		want  int
	}{
		{"of others only", []*sandbox{has(other), has(other)}, 0},
		{"none", []*sandbox{has(other), none, has(other)}, 1},
		{"its own", []*sandbox{none, has(other), has(mine), none}, 2},
	} {
		if got := (&bucket{waiting: tt.ready}).best(mine); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A removed skill hinders neither the pool nor the next request.
func TestMountsOfNothingAhead(t *testing.T) {
	c := testConfig(t)
	c.Prepared = 1
	h := openWith(t, c)
	gone, stays := newSnapshot(t, map[string]string{"name": "gone\n"}), newSnapshot(t, map[string]string{"name": "stays\n"})
	runSteadily(t, h, withSnapshot(gone), seen("gone\n"))
	if err := os.Rename(gone, gone+".old"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the waiting sandbox, and the next one
		s := withSnapshot(gone).withDefaults()
		s.ID = filepath.Base(gone)
		if _, err := h.Start(t.Context(), s, IO{}); err == nil {
			t.Fatal("a skill that is gone was run")
		}
		waitForBucket(t, h, s, 1)
	}
	if got := run(t, h, withSnapshot(stays), ""); got.stdout != seen("stays\n") || got.exit.Code != 0 {
		t.Errorf("after it: got %+v", got)
	}
	noLeftovers(t, h)
}
