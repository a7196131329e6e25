package sandbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// TestIDsStayTakenUntilGone makes the removal of a sandbox fail after its program has
// ended. No other sandbox gets its ids. The ids of a removed sandbox are free again.
func TestIDsStayTakenUntilGone(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Prewarmed = 0 // prewarmed sandboxes would take free ids
	h := openWith(t, c)
	k := startTalk(t, h, Spec{Program: bash("echo ready; read x")}, nil)
	k.line("ready\n")
	stuck := k.p.sandbox.ids
	// A directory can't be removed while it is a mount point.
	dir := k.p.sandbox.group.File("pids", "")
	if err := mount.Tmpfs(dir, "size=4k"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(k.in)
	if exit := k.wait(); exit.End != Exited || exit.Code != 0 {
		t.Errorf("got %+v, want the program's own end", exit)
	}
	<-k.p.sandbox.destroyed // given up
	got := run(t, h, Spec{Program: command("cat", "/proc/self/uid_map"), Env: testEnv}, "")
	if got.exit.Code != 0 || strings.Contains(got.stdout, fmt.Sprint(stuck.script())) {
		t.Errorf("the next one: got %+v, want other ids than %d", got, stuck.script())
	}
	taken := takeAll(h.ids)
	if taken[stuck] {
		t.Errorf("%v was given away, of a sandbox that could not be removed", stuck)
	}
	for s := range taken {
		h.ids.release(s)
	}
	if err := mount.Detach(dir); err != nil {
		t.Fatal(err)
	}
	// Close of the Host, after this test, removes the rest.
}

// takeAll takes all free pairs of ids.
func takeAll(b *idBlock) map[idPair]bool {
	all := map[idPair]bool{}
	for {
		s, err := b.take()
		if err != nil {
			return all
		}
		all[s] = true
	}
}
