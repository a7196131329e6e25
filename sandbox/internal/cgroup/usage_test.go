package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUnifiedUsage(t *testing.T) {
	h, _ := fakeGroup(t, map[string]string{
		"cpu.stat":      "usage_usec 30\nuser_usec 10\nsystem_usec 20\n",
		"memory.peak":   "4096\n",
		"memory.events": "low 0\noom 5\noom_kill 3\n",
		"pids.events":   "max 7\n",
	})
	g := h.Group()
	want := Usage{UserCPU: 10 * time.Microsecond, SystemCPU: 20 * time.Microsecond, MemoryPeakBytes: 4096}
	if got := g.Usage(); got != want {
		t.Errorf("usage: got %+v, want %+v", got, want)
	}
	if n, err := g.OOMKills(); n != 3 || err != nil {
		t.Errorf("oom kills: got %d, %v, want 3", n, err)
	}
	if n := g.RefusedForks(); n != 7 {
		t.Errorf("refused forks: got %d, want 7", n)
	}

	h, dir := fakeGroup(t, map[string]string{"memory.events": "low 0\n"})
	if got := h.Group().Usage(); got != (Usage{}) {
		t.Errorf("usage of nothing: got %+v", got)
	}
	if _, err := h.Group().OOMKills(); err == nil || !strings.Contains(err.Error(), dir+"/memory.events: no oom_kill") {
		t.Errorf("oom kills that are not told: got %v", err)
	}
	if _, err := h.Group("none").OOMKills(); !os.IsNotExist(err) {
		t.Errorf("oom kills of no group: got %v", err)
	}
}

// On v1 the kernel samples user and system time in ticks. Only their sum is exact.
func TestUsageIsExact(t *testing.T) {
	for _, tt := range []struct {
		name, exact, ticks string
		want               Usage
	}{
		{"too much in ticks", "1000\n", "cpu user system\n0 600 200\n1 600 200\n", Usage{UserCPU: 750, SystemCPU: 250}},
		{"too little", "4000000\n", "cpu user system\n0 0 1000000\n1 1000000 0\n", Usage{UserCPU: 2000000, SystemCPU: 2000000}},
		{"less than a tick", "700\n", "cpu user system\n0 0 0\n", Usage{UserCPU: 700}},
		{"all of the system", "700\n", "cpu user system\n0 0 9\n", Usage{SystemCPU: 700}},
		{"none", "0\n", "cpu user system\n0 0 0\n", Usage{}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"cpuacct.usage": tt.exact, "cpuacct.usage_all": tt.ticks} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := (Group{Dirs: map[string]string{"cpuacct": dir}}).CPUUsage(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct{ after, before, want Usage }{
		{Usage{UserCPU: 9, SystemCPU: 9}, Usage{UserCPU: 2, SystemCPU: 3}, Usage{UserCPU: 7, SystemCPU: 6}},
		{Usage{UserCPU: 9, SystemCPU: 1}, Usage{UserCPU: 2, SystemCPU: 3}, Usage{UserCPU: 5}},
		{Usage{UserCPU: 1, SystemCPU: 9}, Usage{UserCPU: 3, SystemCPU: 2}, Usage{SystemCPU: 5}},
		{Usage{UserCPU: 1, SystemCPU: 2}, Usage{UserCPU: 1, SystemCPU: 2}, Usage{}},
	} {
		if got := tt.after.Since(tt.before); got != tt.want {
			t.Errorf("%+v since %+v: got %+v, want %+v", tt.after, tt.before, got, tt.want)
		}
	}
}
