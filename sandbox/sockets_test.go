package sandbox

import (
	"context"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// The limit of sockets follows the memory limit, in the sandboxes of both makers, and when a
// prewarmed sandbox gets another memory limit.
func TestSocketLimit(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed = max(c.Prewarmed, 1)
	h := openWith(t, c)
	if h.cgroups.Unified {
		t.Skip("on cgroup v2 the memory limit is that of sockets, too")
	}
	for maker, start := range map[string]func(context.Context, Spec, IO) (*Process, error){"direct": h.startDirect, "zygote": h.Start} {
		for _, memory := range []int64{64 << 20, 100 << 20, 96<<20 + 4096} {
			p, err := start(t.Context(), Spec{ID: "limited", Program: command("sleep", "1000"), Env: testEnv, Limits: Limits{MemoryBytes: memory}}, IO{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.sandbox.group.Number("memory", cgroup.SocketLimit)
			if want := memory / 8 / 4096 * 4096; got != want || err != nil {
				t.Errorf("%s, %d bytes of memory: got %d, %v, want %d", maker, memory, got, err, want)
			}
			p.Stop(0)
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}
