package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// wantNothingLeft waits until no sandbox of the daemon is left: no process, no cgroup and no
// mount. The daemon destroys sandboxes after its answer.
func (d *running) wantNothingLeft() {
	d.t.Helper()
	untilNone(d.t, "left behind", d.leftovers)
}

// leftovers lists the cgroups, mounts and directories of executions. Sandboxes that wait for
// an execution do not count.
func (d *running) leftovers() []string {
	var left []string
	for _, b := range usedBoxes(d.instance()) {
		left = append(left, b.String())
	}
	mounts := d.mountLines()
	dirs, err := os.ReadDir(filepath.Join(fmt.Sprintf("/proc/%d/root", d.cmd.Process.Pid), d.dir, "run", d.instance(), "sandboxes"))
	if err != nil {
		left = append(left, "sandboxes that can't be looked at: "+err.Error())
	}
	waiting := d.waitingBoxes() // read last, so that it includes sandboxes made since then
	for _, line := range mounts {
		overlay := strings.Contains(line, "overlay") && strings.Contains(line, d.dir)
		if name := d.sandboxOf(line); overlay && name == "" || name != "" && !waiting[name] {
			left = append(left, "mount "+line)
		}
	}
	for _, e := range dirs {
		if name := d.sandboxOf("/run/" + d.instance() + "/sandboxes/" + e.Name()); name != "" && !waiting[name] {
			left = append(left, "directory "+e.Name())
		}
	}
	return left
}

// instance returns the name of the daemon's instance, which is the only directory in
// state/sandbox/instances. It returns "" before that exists.
func (d *running) instance() string {
	entries, _ := os.ReadDir(filepath.Join(d.dir, "state/sandbox/instances"))
	for _, e := range entries {
		if e.IsDir() {
			return e.Name()
		}
	}
	return ""
}

// cgroupsOf lists the cgroups of an instance in all hierarchies.
func cgroupsOf(instance string) (found []string) {
	for _, b := range boxesOf(instance) {
		found = append(found, b.paths...)
	}
	return found
}

// reload waits until the daemon has found a skill that the test wrote.
func (d *running) reload(name string) {
	d.t.Helper()
	until(d.t, "skill "+name+" was not found", func() bool {
		_, err := d.skills.GetSkill(d.t.Context(), &pb.GetSkillRequest{Skill: name})
		return err == nil
	})
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
