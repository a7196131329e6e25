package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestUnifiedVerify(t *testing.T) {
	page := strconv.Itoa(os.Getpagesize())
	right := map[string]string{"pids.max": "9\n", "memory.max": page + "\n", "memory.oom.group": "1\n", "memory.swap.max": "0\n"}
	for _, tt := range []struct{ file, text, want string }{
		{"", "", ""},
		{"memory.swap.max", "-", ""}, // a kernel without swap has no such file
		{"pids.max", "8", "pids.max is 8, want 9"},
		{"memory.max", "1", "memory.max is 1, want " + page},
		{"memory.oom.group", "0", "memory.oom.group is 0, want 1"},
		{"memory.swap.max", "5", "memory.swap.max is 5, want 0"},
		{"memory.max", "max", "invalid syntax"},
		{"memory.oom.group", "-", "no such file"},
	} {
		h, dir := fakeGroup(t, right)
		if tt.text == "-" {
			os.Remove(filepath.Join(dir, tt.file))
		} else if tt.file != "" {
			if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		// The kernel rounds a limit down to pages.
		err := h.Group().Verify(int64(os.Getpagesize())+1, 9)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s is %q: got %v, want %q", tt.file, tt.text, err, tt.want)
		}
	}
}

// Memory and swap together may be no more than memory, on either version.
func TestResourcesLeaveNoSwap(t *testing.T) {
	for _, g := range []Group{{Unified: true}, {swap: true}} {
		r := g.Resources(1<<20, 1001)
		if r.Memory != 1<<20 || r.MemorySwap != 1<<20 || *r.PidsLimit != 1001 || (r.Unified["memory.oom.group"] == "1") != g.Unified {
			t.Errorf("%+v: got %+v", g, r)
		}
	}
	if r := (Group{}).Resources(1<<20, 1001); r.MemorySwap != 0 {
		t.Errorf("without accounting of swap: got %d", r.MemorySwap)
	}
}

func TestUnifiedLimitsAreWritten(t *testing.T) {
	h, dir := fakeGroup(t, map[string]string{"memory.max": "", "cgroup.procs": ""})
	if err := h.Group().LimitMemory(4096); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "memory.max")); string(got) != "4096" {
		t.Errorf("got %q", got)
	}
	procsFiles, err := h.Group().ProcsFiles()
	if err != nil || len(procsFiles) != 1 {
		t.Errorf("got %v, %v, want one cgroup.procs file", procsFiles, err)
	}
	for _, f := range procsFiles {
		f.Close()
	}
	none, _ := fakeGroup(t, nil)
	if _, err := none.Group().ProcsFiles(); err == nil {
		t.Error("a group without processes has a cgroup.procs file")
	}
	if err := none.Group().LimitMemory(4096); err == nil {
		t.Error("a group without a limit is limited")
	}
	// An empty directory is no cgroup: the kernel puts files into each.
	if err := none.Group("made").Create(); err == nil {
		t.Error("a directory was taken for a cgroup")
	}
	if err := none.Group("not/there").Create(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}
