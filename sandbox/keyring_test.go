package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A user may have 200 keys by default (kernel.keys.maxkeys). So each forked script pays for its session keyring
// itself: the root of the zygote, which all scripts of a group share, would run out of keys.
func TestForkedScriptOwnsItsKeyring(t *testing.T) {
	if _, err := os.Stat("/proc/key-users"); err != nil {
		t.Skipf("this kernel has no keyrings: %v", err)
	}
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", "import sys; print('runs', flush=True); sys.stdin.read(1)")
	run(t, h, s, "x") // asks for a Python zygote
	waitForReady(t, h, s)
	k := startTalkBy(t, func(ctx context.Context, talk Spec, io IO) (*Process, error) {
		talk.Env = s.Env // with another environment it would be executed
		return h.Start(ctx, talk, io)
	}, s, nil)
	k.line("runs\n")
	if k.p.sandbox.forked == nil {
		t.Error("it was not forked")
	}
	if got := keysOf(t, k.p.sandbox.ids.script()); got == 0 {
		t.Error("the script's id has no key, so another user pays for its keyring")
	}
	if _, err := k.in.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if exit := k.wait(); exit.End != Exited {
		t.Errorf("got %+v", exit)
	}
}

// keysOf returns the number of keys that count for a user's quota (proc(5)).
func keysOf(t *testing.T, id uint32) int {
	t.Helper()
	text, err := os.ReadFile("/proc/key-users")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var user uint32
		var uses, keys, full, counted int
		if _, err := fmt.Sscanf(line, "%d: %d %d/%d %d/", &user, &uses, &keys, &full, &counted); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if user == id {
			return counted
		}
	}
	return 0
}
