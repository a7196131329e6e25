package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		name, self string
		files      map[string]string
		want       int64
	}{
		{name: "no cgroup", want: physicalMemory()},
		{name: "v1", self: "9:memory:/a/b\n0::/c\n", files: map[string]string{"memory/a/b/memory.stat": "cache 1\nhierarchical_memory_limit 1000\n"}, want: 1000},
		{name: "v1, no limit", self: "9:memory:/a\n", files: map[string]string{"memory/a/memory.stat": "hierarchical_memory_limit 9223372036854771712\n"}, want: physicalMemory()},
		{name: "v1, in a container", self: "9:memory:/docker/x\n", files: map[string]string{"memory/memory.stat": "hierarchical_memory_limit 3000\n"}, want: 3000},
		{name: "v2", self: "0::/a/b\n", files: map[string]string{"a/b/memory.max": "2000\n"}, want: 2000},
		{name: "v2, above", self: "0::/a/b/c\n", files: map[string]string{"a/b/c/memory.max": "max\n", "a/memory.max": "1500\n", "a/b/memory.max": "1600\n"}, want: 1500},
		{name: "v2, no limit", self: "0::/a\n", files: map[string]string{"a/memory.max": "max\n"}, want: physicalMemory()},
		{name: "nonsense", self: "x\n0::\n1:memory:\n", files: map[string]string{"memory.max": "-5\n"}, want: physicalMemory()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc, cgroups := t.TempDir(), t.TempDir()
			write := func(path, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.self != "" {
				write(filepath.Join(proc, "self/cgroup"), tt.self)
			}
			for path, text := range tt.files {
				write(filepath.Join(cgroups, path), text)
			}
			if got := memoryLimit(proc, cgroups); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestRequestBytes(t *testing.T) {
	c := defaultConfig()
	if got, least, most := c.requestBytes(), int64(c.MessageBytes), int64(maxRequestBytes); got < least || got > most {
		t.Errorf("by default %d, want %d to %d", got, least, most)
	}
	c.RequestBytes = 20 << 20
	if got := c.requestBytes(); got != 20<<20 {
		t.Errorf("got %d, want what is configured", got)
	}
}
