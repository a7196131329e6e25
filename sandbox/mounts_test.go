package sandbox

import (
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

// A waiting sandbox serves any skill, with the files that are on disk when the request
// comes.
func TestMountsOfAWaitingSandbox(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed = 1
	h := openWith(t, c)
	a, b := newSnapshot(t, map[string]string{"name": "a\n"}), newSnapshot(t, map[string]string{"name": "b\n"})
	serves := func(dir, name string) {
		t.Helper()
		waits := waitForBucket(t, h, withSnapshot(dir), 1)[0]
		got := run(t, h, withSnapshot(dir), "")
		if want := name + name + "/skills:\ns\n\n/workspace:\nname\n"; got.stdout != want || got.exit.Code != 0 {
			t.Errorf("got %+v, want %q", got, want)
		}
		if waits.spec.Mounts[0].Source != dir {
			t.Error("it was not the sandbox that waited")
		}
	}
	run(t, h, withSnapshot(a), "")
	serves(a, "a\n")
	serves(a, "a\n")
	serves(b, "b\n")

	// Another directory at the same path.
	if err := os.Rename(b, b+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(newSnapshot(t, map[string]string{"name": "c\n"}), b); err != nil {
		t.Fatal(err)
	}
	serves(b, "c\n")
	noLeftovers(t, h)
}

// A removed skill hinders neither the pool nor the next request.
func TestMountsOfARemovedSkill(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed = 1
	h := openWith(t, c)
	gone, stays := newSnapshot(t, map[string]string{"name": "gone\n"}), newSnapshot(t, map[string]string{"name": "stays\n"})
	run(t, h, withSnapshot(gone), "")
	waitForBucket(t, h, withSnapshot(gone), 1)
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
	if got := run(t, h, withSnapshot(stays), ""); got.exit.Code != 0 || got.stdout == "" {
		t.Errorf("after it: got %+v", got)
	}
	noLeftovers(t, h)
}
