package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// wantNothingLeft checks that no sandbox of the daemon is left: no process with
// one of its ids, no cgroup, no mount. What is freed behind the answer gets a
// moment.
func (d *running) wantNothingLeft() {
	d.t.Helper()
	var left []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = d.leftovers(); len(left) == 0 {
			return
		}
	}
	d.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}

// leftovers lists the cgroups of executions beneath the daemon's and the mounts
// of executions in its namespace.
func (d *running) leftovers() []string {
	var left []string
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.cmd.Process.Pid))
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "overlay") && strings.Contains(line, d.dir) {
			left = append(left, "mount "+line)
		}
	}
	return append(left, cgroupsOf(d.instance())...)
}

// instance is the name of the daemon's instance: the one directory beneath the
// sandbox state.
func (d *running) instance() string {
	entries, _ := os.ReadDir(filepath.Join(d.dir, "state/sandbox/instances"))
	for _, e := range entries {
		if e.IsDir() {
			return e.Name()
		}
	}
	return ""
}

// cgroupsOf lists the cgroups of executions of an instance, in any hierarchy.
func cgroupsOf(instance string) []string {
	var found []string
	if instance == "" {
		return nil
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(path, instance+"/") {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	return found
}

// reload waits until the daemon has found a skill that the test wrote.
func (d *running) reload(name string) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := d.skills.GetSkill(d.t.Context(), &pb.GetSkillRequest{Skill: name}); err == nil {
			return
		}
	}
	d.t.Fatalf("skill %s was not found", name)
}

// wantStatus checks the code of an error and the stable reason in its details.
func wantStatus(t testing.TB, err error, code, reason string) {
	t.Helper()
	s := status.Convert(err)
	got := ""
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			got = info.Reason
			if info.Domain != "skillrun" {
				t.Errorf("domain %q, want skillrun", info.Domain)
			}
		}
	}
	if s.Code().String() != code || got != reason {
		t.Errorf("got %v %s: %s\nwant %s %s", s.Code(), got, s.Message(), code, reason)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
