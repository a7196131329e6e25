package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/skillrun/skillrun/internal/metrics"
	"github.com/skillrun/skillrun/internal/server"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// healthOf returns which names of gRPC's health service are SERVING. It asks only for names that differ
// between the daemon's states.
func (d *running) healthOf() (serving []string) {
	d.t.Helper()
	for _, name := range []string{server.Live, server.Ready, server.NotDraining, server.NotDegraded} {
		r, err := healthpb.NewHealthClient(d.conn).Check(d.t.Context(), &healthpb.HealthCheckRequest{Service: name}, grpc.WaitForReady(true))
		if err != nil {
			d.t.Fatal(err)
		}
		if r.Status == healthpb.HealthCheckResponse_SERVING {
			serving = append(serving, name)
		}
	}
	return serving
}

// page returns a page of the metrics listener.
func (d *running) page(path string) (code int, text string) {
	d.t.Helper()
	r, err := http.Get("http://" + loggedAddress(d.t, d.log, `msg="listening for Prometheus" network=tcp address=`) + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// wantPages checks /livez, /readyz and the metrics of the state.
func (d *running) wantPages(code int, text string, metric ...string) {
	d.t.Helper()
	if got, body := d.page(metrics.LivePath); got != http.StatusOK || body != "live\n" {
		d.t.Errorf("%s: %d, %q", metrics.LivePath, got, body)
	}
	if got, body := d.page(metrics.ReadyPath); got != code || body != text {
		d.t.Errorf("%s: %d, %q, want %d, %q", metrics.ReadyPath, got, body, code, text)
	}
	_, body := d.page(metrics.Path)
	for _, want := range metric {
		if !strings.Contains(body, "\n"+want+"\n") {
			d.t.Errorf("no metric %q", want)
		}
	}
}

// wantState checks the state that GetCapabilities has, and the line of doctor.
func (d *running) wantState(state pb.DaemonState, line string) {
	d.t.Helper()
	if got := d.capabilities().State; got != state {
		d.t.Errorf("got %s, want %s", got, state)
	}
	out, _ := d.doctor()
	for l := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(l, "state "); ok {
			if got := strings.TrimSpace(rest); got != line {
				d.t.Errorf("doctor says %q, want %q", got, line)
			}
			return
		}
	}
	d.t.Errorf("doctor shows no state:\n%s", out)
}

// A daemon that is ready, degraded by a tenant's file, or draining is told apart over gRPC, over HTTP and by
// doctor. All of them are live.
func TestHealthTellsStatesApart(t *testing.T) {
	t.Parallel()
	dir := newTenantsDir(t)
	d := startDaemonIn(t, dir, withTokens+"listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\ntenants: {default: {}}\ntenants_dir: tenants\n")
	other := d.asTenant(t.Context(), "default", "read")
	all := []string{server.Live, server.Ready, server.NotDraining, server.NotDegraded}
	ready := func() {
		t.Helper()
		until(t, "not ready", func() bool { _, text := d.page(metrics.ReadyPath); return text == "ready\n" })
		if got := d.healthOf(); !slices.Equal(got, all) {
			t.Errorf("ready: got %q", got)
		}
		d.wantPages(http.StatusOK, "ready\n", "skillrun_serving 1", "skillrun_degraded 0", "skillrun_draining 0")
		d.wantState(pb.DaemonState_DAEMON_STATE_READY, "ready")
	}
	ready()

	d.write("tenants/acme.yaml", "quotas: {running: 0}\n")
	until(t, "not degraded", func() bool { _, text := d.page(metrics.ReadyPath); return strings.HasPrefix(text, "degraded\n") })
	// Every caller may ask gRPC's health service, and other tenants must not see the mistake.
	if got := d.healthOf(); !slices.Equal(got, all) {
		t.Errorf("with a mistake of a tenant: got %q", got)
	}
	d.wantPages(http.StatusOK, "degraded\ntenant acme: a mistake in acme.yaml\n", "skillrun_serving 1", "skillrun_degraded 1")
	d.wantState(pb.DaemonState_DAEMON_STATE_DEGRADED, "degraded: mistake in "+filepath.Join(dir, "tenants/acme.yaml"))
	if r, err := d.system.GetCapabilities(other, &pb.GetCapabilitiesRequest{}); err != nil || r.State != pb.DaemonState_DAEMON_STATE_READY {
		t.Errorf("another tenant gets %v, %v", r.GetState(), err)
	}
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.write("tenants/acme.yaml", "")
	ready()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := d.begin(ctx)
	d.cmd.Process.Signal(syscall.SIGTERM)
	until(t, "not draining", func() bool { return slices.Equal(d.healthOf(), []string{server.Live, server.NotDegraded}) })
	d.wantPages(http.StatusServiceUnavailable, "draining\n", "skillrun_serving 0", "skillrun_draining 1")
	// The drain of the executions comes a moment after the drain of health.
	until(t, "GetCapabilities does not drain", func() bool { return d.capabilities().Draining })
	d.wantState(pb.DaemonState_DAEMON_STATE_DRAINING, "draining: it takes no more executions, and stops after its running ones")
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
		t.Error(err)
	}
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v, want 0", err)
	}
}

// The answer to /readyz names the problem.
func TestReadyReport(t *testing.T) {
	bad := []server.TenantProblem{{Tenant: "acme", File: "/t/acme.yaml", Reason: "secret"}, {File: "/t"}}
	for _, tt := range []struct {
		name  string
		r     *readiness
		ready bool
		want  string
	}{
		{"starting", &readiness{}, false, "not ready\n"},
		{"ready", &readiness{started: true}, true, "ready\n"},
		{"draining", &readiness{started: true, draining: true}, false, "draining\n"},
		{"missing boundary", &readiness{started: true, missing: []string{"loopback"}}, false, "not ready\nboundary loopback is missing; nothing is executed\n"},
		{"allowed boundary", &readiness{started: true, allowed: []string{"swap"}}, true, "degraded\nboundary swap is missing, as boundaries.allow_missing allows\n"},
		{"audit log", &readiness{started: true, unaudited: true}, false, "not ready\nthe audit log cannot be written; nothing is executed\n"},
		{"tenants", &readiness{started: true, tenants: bad}, true, "degraded\ntenant acme: a mistake in acme.yaml\ntenants: a mistake in t\n"},
		{"draining and degraded", &readiness{started: true, draining: true, tenants: bad[:1]}, false, "draining\ntenant acme: a mistake in acme.yaml\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if ready, text := tt.r.report(); ready != tt.ready || text != tt.want {
				t.Errorf("got %v, %q, want %v, %q", ready, text, tt.ready, tt.want)
			}
		})
	}
}
