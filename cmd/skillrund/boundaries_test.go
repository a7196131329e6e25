package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/skillrun/skillrun/internal/server"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// withoutLoopback starts a daemon whose machine lacks one boundary: in a network namespace
// whose lo is down, the probe can't show that a sandbox does not reach the host's loopback.
func withoutLoopback(t *testing.T, extra string) *running {
	t.Helper()
	dir := newDir(t)
	d := launch(t, dir, extra, "/usr/bin/unshare", "--net", "--")
	d.dial("unix://" + dir + "/s.sock")
	return d
}

const absentBoundary = "loopback of the host"

// capabilities returns the daemon's capabilities as soon as the daemon answers.
func (d *running) capabilities() *pb.GetCapabilitiesResponse {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	c, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		d.t.Fatalf("%v\n%s", err, tail(d.log.String(), 4000))
	}
	return c
}

func (d *running) doctor(args ...string) (out string, code int) {
	d.t.Helper()
	cmd := exec.Command(binary(d.t, "skillrun"), append(args, "--address", "unix://"+d.dir+"/s.sock", "doctor")...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// doctor shows the folders whose skills did not load. If an earlier version of a folder's skill stays
// loaded, doctor shows that, too.
func TestDoctorShowsSkillsThatDidNotLoad(t *testing.T) {
	t.Parallel()
	d := startDaemonIn(t, newDir(t), "")
	d.addSkill("kept", "", nil)
	folder := func(name string) string { return filepath.Join(d.dir, "skills", name) }
	if err := errors.Join(os.Mkdir(folder("none"), 0o755), os.WriteFile(folder("kept/SKILL.md"), []byte("---\nname: [\n---\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var got []*pb.SkillProblem
	for begin := time.Now(); len(got) < 2 && time.Since(begin) < patience; { // the daemon watches the folder
		got = d.capabilities().SkillProblems
	}
	if len(got) != 2 || got[0].Folder != folder("kept") || got[0].KeptSkill != "kept" || got[0].Reason == "" || got[1].Folder != folder("none") || got[1].KeptSkill != "" || got[1].Reason != "Missing required file: SKILL.md" {
		t.Errorf("got %v", got)
	}
	out, code := d.doctor()
	if code != 0 || !strings.Contains(out, "NOT LOADED") || !strings.Contains(out, folder("none")+"  Missing required file: SKILL.md") {
		t.Errorf("got %d, %s", code, out)
	}
}

// A daemon without one boundary reports which boundary is missing and why, and executes
// nothing.
func TestMissingBoundaryKeepsItFromServing(t *testing.T) {
	t.Parallel()
	d := withoutLoopback(t, "")
	c := d.capabilities()
	var missing []string
	for _, b := range c.Boundaries {
		if !b.GetFound() {
			missing = append(missing, b.Name)
			if b.GetAllowed() || b.Group != pb.BoundaryGroup_BOUNDARY_GROUP_NETWORK || !strings.Contains(b.Detail, "is lo up?") || !strings.Contains(b.Detail, "needs") {
				t.Errorf("got %v, want what is missing and how to get it", b)
			}
		}
	}
	if !slices.Equal(missing, []string{absentBoundary}) {
		t.Fatalf("missing: %q, want only %q", missing, absentBoundary)
	}
	r, err := healthpb.NewHealthClient(d.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v, %v, want NOT_SERVING", r, err)
	}
	if got, want := d.healthOf(), []string{server.Live, server.NotDraining, server.NotDegraded}; !slices.Equal(got, want) {
		t.Errorf("health: %q, want %q", got, want)
	}
	d.wantState(pb.DaemonState_DAEMON_STATE_NOT_READY, "live, but not ready: boundary "+absentBoundary+" is missing")
	_, err = d.try(code("calculator", "print(1)"))
	wantStatus(t, err, "FailedPrecondition", "BOUNDARY_MISSING")
	if err != nil && !strings.Contains(err.Error(), absentBoundary) {
		t.Errorf("got %v, want it to name what is missing", err)
	}
	if _, err := d.skills.ListSkills(t.Context(), &pb.ListSkillsRequest{}); err != nil {
		t.Errorf("what runs nothing is refused, too: %v", err)
	}
	for _, args := range [][]string{nil, {"--json"}} {
		out, code := d.doctor(args...)
		if code != 1 || !strings.Contains(out, absentBoundary) || !strings.Contains(out, "is lo up?") {
			t.Errorf("doctor %v: exit code %d\n%s", args, code, out)
		}
	}
	for _, want := range []string{"boundary missing", "boundaries: {allow_missing: [" + absentBoundary + "]}", "not serving"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	d.stop()
}

// With boundaries.allow_missing the daemon serves without the boundary, logs a warning and
// still reports it as missing.
func TestAllowedMissingBoundary(t *testing.T) {
	t.Parallel()
	d := withoutLoopback(t, "boundaries: {allow_missing: ["+absentBoundary+", swap]}\n")
	d.waitServing()
	for _, b := range d.capabilities().Boundaries {
		if want := b.Name != absentBoundary; b.GetFound() != want {
			t.Errorf("%s: found %v: %s", b.Name, b.GetFound(), b.Detail)
		}
		if want := b.Name == absentBoundary || b.Name == "swap"; b.GetAllowed() != want {
			t.Errorf("%s: allowed %v", b.Name, b.GetAllowed())
		}
	}
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	if got, want := d.healthOf(), []string{server.Live, server.Ready, server.NotDraining}; !slices.Equal(got, want) {
		t.Errorf("health: %q, want %q", got, want)
	}
	d.wantState(pb.DaemonState_DAEMON_STATE_DEGRADED, "degraded: boundary "+absentBoundary+" is missing")
	if out, code := d.doctor(); code != 1 || !strings.Contains(out, "allowed") {
		t.Errorf("doctor: exit code %d\n%s", code, out)
	}
	if log := d.log.String(); !strings.Contains(log, "boundary missing, as the configuration allows") || !strings.Contains(log, "remove it from boundaries.allow_missing") {
		t.Error("the log says nothing of what is allowed")
	}
	d.stop()
}

// doctorConfig writes a configuration for skillrund --doctor.
func doctorConfig(t *testing.T) string {
	t.Helper()
	config := filepath.Join(newDir(t), "skillrund.yaml")
	if err := os.WriteFile(config, []byte("state_dir: state\nrun_dir: run\nskills: [skills]\nlisten: {unix: s.sock}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// missingIn returns the boundaries that skillrund --doctor printed as missing.
func missingIn(out string) (names []string) {
	for line := range strings.Lines(out) {
		// The columns are mark, group, name and reason.
		if rest, ok := strings.CutPrefix(line, "MISSING"); ok && len(rest) > 47 {
			names = append(names, strings.TrimSpace(rest[14:47]))
		}
	}
	return names
}

// skillrund --doctor needs no running daemon. Here it finds every boundary. Without a
// capability it names this capability.
func TestDoctorWithoutADaemon(t *testing.T) {
	t.Parallel()
	config := doctorConfig(t)
	out, err := exec.Command(binary(t, "skillrund"), "--config", config, "--doctor").CombinedOutput()
	if err != nil || len(missingIn(string(out))) > 0 || !strings.Contains(string(out), absentBoundary) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, tt := range []struct{ capability, want string }{
		{"cap_sys_admin", "without SYS_ADMIN"},
		{"cap_setuid", "without SETUID"},
		{"cap_chown", "without CHOWN"},
	} {
		cmd := exec.Command("/usr/sbin/capsh", "--drop="+tt.capability, "--", "-c", "exec \"$0\" --config \"$1\" --doctor", binary(t, "skillrund"), config)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) || !slices.Contains(missingIn(string(out)), "capabilities") {
			t.Errorf("without %s: %v\n%s", tt.capability, err, out)
		}
	}
}

// In new namespaces, like in a privileged container, --doctor finds every boundary. With
// the capabilities, masks and cgroups of an unprivileged container it names the missing
// boundaries.
func TestDoctorInAContainer(t *testing.T) {
	t.Parallel()
	config := doctorConfig(t)
	count := 0
	container := func(setup string) (string, error) {
		// On cgroup v2 the container gets a cgroup, which is the root of its cgroup namespace
		// and of its cgroup mount, as container runtimes set it up. SKILLRUN_TEST_SLICE names
		// the parent. On v1 the container shares the cgroups of the test.
		group := ""
		if slice := os.Getenv("SKILLRUN_TEST_SLICE"); slice != "" {
			count++
			group = daemonGroup(t, slice, fmt.Sprintf("container-%d.scope", count))
			setup = "umount /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup\n" + setup
		}
		cmd := exec.Command("/usr/bin/unshare", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--net", "--", "/bin/bash", "-ec",
			`if [[ $GROUP ]]; then echo 0 >"$GROUP/cgroup.procs"; fi; exec /usr/bin/unshare --cgroup -- /bin/bash -ec "$SETUP" "$0" "$1"`,
			binary(t, "skillrund"), config)
		cmd.Env = append(os.Environ(), "GROUP="+group, "SETUP="+setup)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := container(`/usr/bin/python3 - <<-END
		import fcntl, socket, struct
		s = socket.socket()  # lo goes up: SIOCSIFFLAGS with IFF_UP
		fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))
		END
		exec "$0" --config "$1" --doctor`)
	if missing := missingIn(out); err != nil || len(missing) > 0 {
		t.Errorf("privileged: %v, missing %q\n%s", err, missing, out)
	}
	// Docker's capabilities and masks without --privileged.
	out, err = container(`mount --bind /dev/null /proc/kallsyms
		mount --bind /proc/sys /proc/sys && mount -o bind,remount,ro /proc/sys
		exec /usr/sbin/capsh --drop=cap_sys_admin,cap_sys_ptrace,cap_sys_resource,cap_net_admin,cap_sys_module,cap_bpf,cap_perfmon -- \
			-c 'exec "$0" --config "$1" --doctor' "$0" "$1"`)
	missing := missingIn(out)
	for _, want := range []string{
		"capabilities", "mount namespace", "pid namespace", "network namespace", "proc", "id-mapped mounts", "overlay workspace",
	} {
		if !slices.Contains(missing, want) {
			t.Errorf("unprivileged: %q is not among what is missing", want)
		}
	}
	for _, want := range []string{"without SYS_ADMIN, SYS_PTRACE; needs", "--privileged", "unmasked paths"} {
		if !strings.Contains(out, want) {
			t.Errorf("unprivileged: it does not say %q", want)
		}
	}
	if err == nil || t.Failed() {
		t.Errorf("unprivileged: %v\n%s", err, out)
	}
}
