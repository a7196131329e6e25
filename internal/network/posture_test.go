package network

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A helper that serves has no privileges: the kernel says so.
func TestPosture(t *testing.T) {
	m := newManager(t)
	newBox(t, m, "a")
	helper := m.process(t, "a")
	pid := strconv.Itoa(helper.command.Process.Pid)
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	id := strings.TrimSuffix(strings.Repeat(strconv.Itoa(helper.group.ID())+"\t", 4), "\t")
	for key, want := range map[string]string{"Uid": id, "Gid": id, "Groups": "", "CapEff": strings.Repeat("0", 16),
		"CapPrm": strings.Repeat("0", 16), "CapInh": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2"} {
		if status[key] != want {
			t.Errorf("%s: %q, not %q", key, status[key], want)
		}
	}
	if root, err := os.Readlink("/proc/" + pid + "/root"); err != nil || root != m.config.Dir {
		t.Errorf("root: %s, %v", root, err)
	}
	if list, err := os.ReadDir("/proc/" + pid + "/root"); err != nil || len(list) != 0 {
		t.Errorf("files: %v, %v", list, err)
	}
	// The daemon may be one of the last processes that the kernel kills; its helpers are not.
	if score, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(score)) != "900" {
		t.Errorf("oom_score_adj: %s, %v", score, err)
	}
	for _, ns := range []string{"pid", "ipc", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink("/proc/" + pid + "/ns/" + ns); err != nil || theirs == own {
			t.Errorf("namespace %s: %s, %v", ns, theirs, err)
		}
	}
	links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
	for _, l := range links {
		file, _ := os.Readlink(l)
		file = strings.TrimSuffix(file, " (deleted)") // of a /dev/null that was replaced since
		kind, _, _ := strings.Cut(file, ":")
		if kind != "socket" && kind != "anon_inode" && kind != "pipe" && file != "/dev/null" && file != "/dev/net/tun" {
			t.Errorf("it has %s open", file)
		}
	}
}
