package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// networkHelpers returns the pids of the daemon's network helpers.
func (d *running) networkHelpers() (pids []string) {
	d.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, thread := range threads {
		children, _ := os.ReadFile(thread) // a thread may be gone
		for pid := range strings.FieldsSeq(string(children)) {
			if command, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(command), network.Program) {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}

// The helper process of a removed tenant ends with the tenant's last network. Another tenant's helper
// stays.
// The other helper has been idle for longer, so idleness does not explain the end.
func TestRemovedTenantHasNoNetworkHelper(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	for _, name := range []string{"acme", "globex"} {
		if err := os.WriteFile(filepath.Join(dir, "tenants", name+".yaml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := startDaemonIn(t, dir, withTokens+"tenants_dir: tenants\nnetwork: {'skills': {calculator: {allow: [public]}, data-analysis: {allow: [public]}}}\n")
	acme, globex := d.asTenant(t.Context(), "acme", "admin"), d.asTenant(t.Context(), "globex", "invoke")
	runs := d.begin(acme)
	acmes := d.networkHelpers()
	stream, err := d.runs.Execute(globex, shell("calculator", "echo done"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, stream, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "done\n")
	both := d.networkHelpers()
	if len(acmes) != 1 || len(both) != 2 {
		t.Fatalf("helpers: %v, then %v", acmes, both)
	}
	if err := os.Remove(filepath.Join(dir, "tenants/acme.yaml")); err != nil {
		t.Fatal(err)
	}
	d.untilLogged("removed=acme")
	if got := d.networkHelpers(); !slices.Equal(got, both) {
		t.Errorf("helpers while the removed tenant's program runs: %v, want %v", got, both)
	}
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: runs}); err != nil {
		t.Fatal(err)
	}
	globexes := slices.DeleteFunc(both, func(pid string) bool { return pid == acmes[0] })
	until(t, "the helper of the removed tenant runs", func() bool { return slices.Equal(d.networkHelpers(), globexes) })
}
