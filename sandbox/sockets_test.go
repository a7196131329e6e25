package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The limit of sockets follows the memory limit, in the sandboxes of both makers, and when a
// prewarmed sandbox gets another memory limit.
func TestSocketLimit(t *testing.T) {
	c := testConfig(t)
	c.Prepared = max(c.Prepared, 1)
	h := openWith(t, c)
	if h.cgroups.unified {
		t.Skip("on cgroup v2 the memory limit is that of sockets, too")
	}
	for maker, start := range map[string]func(context.Context, Spec, IO) (*Process, error){"direct": h.startDirect, "zygote": h.Start} {
		for _, memory := range []int64{64 << 20, 100 << 20, 96<<20 + 4096} {
			p, err := start(t.Context(), Spec{ID: "limited", Program: command("sleep", "1000"), Env: testEnv, Limits: Limits{MemoryBytes: memory}}, IO{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.sandbox.group.number("memory", socketLimit)
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

func TestSocketLimitIsReadBack(t *testing.T) {
	dir := t.TempDir()
	g := group{dirs: map[string]string{"memory": dir, "pids": dir}}
	for name, text := range map[string]string{"memory.limit_in_bytes": "65536", "pids.max": "9", socketLimit: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.limitSockets(65536); err != nil {
		t.Error(err)
	}
	if err := g.verify(65536, 9); err != nil {
		t.Error(err)
	}
	if err := g.limitSockets(1 << 20); err != nil {
		t.Error(err)
	}
	if err := g.verify(65536, 9); err == nil || !strings.Contains(err.Error(), socketLimit+" is 131072, want 8192") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, socketLimit)); err != nil {
		t.Fatal(err)
	}
	if err := g.limitSockets(65536); err == nil {
		t.Error("a kernel without such a limit has it set")
	}
}
