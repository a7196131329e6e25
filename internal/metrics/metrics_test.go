package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/sandbox"
)

var errFull = errors.New("full")

func newMetrics() *Metrics {
	return New("v1", func(err error) string {
		if errors.Is(err, errFull) {
			return "SATURATED"
		}
		return "INTERNAL"
	}, []string{"INTERNAL", "SATURATED"})
}

// serve serves m and returns the URL of the metrics.
func serve(t *testing.T, m *Metrics) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewServer(func() (bool, string) { return false, "draining\n" }, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop(context.Background())
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + l.Addr().String() + Path
}

// scrape returns the lines that Prometheus gets.
func scrape(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", url, r.Status, err, body)
	}
	return string(body)
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, " ")
			name, _, _ = strings.Cut(name, "{")
			t.Errorf("no line %s; there are:\n%s", line, grep(text, name))
		}
	}
}

func grep(text, name string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// ran is the outcome of a program that ran.
func ran(end executor.End) executor.Outcome {
	return executor.Outcome{
		End:    end,
		Usage:  executor.Usage{UserCPU: time.Second, SystemCPU: time.Second / 2, Wall: 2 * time.Second, Queue: 20 * time.Millisecond, Setup: 3 * time.Millisecond},
		Stdout: executor.Truncation{TotalBytes: 100, DeliveredBytes: 10}, Stderr: executor.Truncation{TotalBytes: 7},
	}
}

func TestEventsAreCounted(t *testing.T) {
	m := newMetrics()
	m.Ended("acme", 5*time.Millisecond, ran(executor.Exited), "")
	m.Ended("acme", 5*time.Millisecond, ran(executor.Exited), "")
	m.Ended("acme", 0, executor.Outcome{End: executor.SetupFailed}, "")
	m.Ended("old", 0, executor.Outcome{End: executor.DaemonLost}, "")
	m.Refused("acme", fmt.Errorf("enter: %w", errFull))
	m.CallRefused("acme")
	m.Failed("SATURATED")
	m.Wrote(record.Ending, 30*time.Microsecond)
	m.Takeover(NotServed)
	want(t, scrape(t, serve(t, m)),
		`skillrun_executions_total{end="EXITED",tenant="acme"} 2`,
		`skillrun_executions_total{end="SETUP_FAILED",tenant="acme"} 1`,
		`skillrun_executions_total{end="OOM_KILLED",tenant="acme"} 0`, // before the first one
		`skillrun_executions_total{end="DAEMON_LOST",tenant="old"} 1`,
		`skillrun_executions_refused_total{reason="SATURATED",tenant="acme"} 1`,
		`skillrun_calls_refused_total{tenant="acme"} 1`,
		`skillrun_calls_refused_total{tenant="old"} 0`,
		`skillrun_call_errors_total{reason="SATURATED"} 1`,
		`skillrun_call_errors_total{reason="INTERNAL"} 0`,
		`skillrun_output_bytes_total{stream="stdout",tenant="acme"} 200`,
		`skillrun_output_bytes_total{stream="stderr",tenant="acme"} 14`,
		`skillrun_cpu_seconds_total{tenant="acme"} 3`,
		`skillrun_execution_queue_seconds_bucket{tenant="acme",le="0.1"} 3`,
		`skillrun_execution_queue_seconds_bucket{tenant="acme",le="0.01"} 1`,
		`skillrun_execution_queue_seconds_count{tenant="old"} 0`, // the last daemon's times are not known
		`skillrun_execution_start_seconds_bucket{le="0.006"} 2`,
		`skillrun_execution_start_seconds_count 2`, // without the executions that did not start
		`skillrun_sandbox_setup_seconds_bucket{le="0.004"} 2`,
		`skillrun_execution_run_seconds_bucket{le="2.5"} 2`,
		`skillrun_record_seconds_bucket{operation="end",le="5e-05"} 1`,
		`skillrun_record_seconds_count{operation="flush"} 0`,
		`skillrun_takeovers_total{result="not_served"} 1`,
		`skillrun_takeovers_total{result="not_started"} 0`,
		`skillrun_build_info{version="v1"} 1`,
	)
}

func TestStateIsReadAtEachScrape(t *testing.T) {
	m := newMetrics()
	state := State{
		Serving: true, Slots: 8, Reserved: 2, Tenants: map[string]Load{"acme": {Running: 2, Queued: 1}},
		Sandboxes: sandbox.Stats{
			FromPool: 5, FromZygote: 4, FromLibcontainer: 3, Prewarmed: 2, Existing: 6, Most: 2047, Deferred: 1, Zygote: true, PythonZygotes: 4,
		},
		RequestBytes: 10, RequestLimit: 100, StateBytes: 20, StateLimit: 200, TenantBytes: map[string]int64{"acme": 15}, Sessions: map[string]Sessions{"acme": {Count: 3, Bytes: 12}}, Dropped: Dropped{QueueFull: 5, NotSent: 4, Rejected: 3}, DiskFree: 30, DiskSize: 300,
		Networks: Networks{Helpers: 2, Open: 3, Deaths: 3, OOMs: 1, Tenants: map[string]Traffic{"acme": {Connections: 7, Sent: 8, Received: 9, Denied: map[string]int64{"private": 4}}}},
	}
	m.Watch(func() State { return state })
	url := serve(t, m)
	want(t, scrape(t, url),
		`skillrun_serving 1`, `skillrun_draining 0`, `skillrun_slots 8`, `skillrun_slots_reserved 2`,
		`skillrun_executions_running{tenant="acme"} 2`, `skillrun_executions_queued{tenant="acme"} 1`,
		`skillrun_sandboxes_started_total{source="prewarmed"} 5`, `skillrun_sandboxes_started_total{source="zygote"} 4`,
		`skillrun_sandboxes_started_total{source="libcontainer"} 3`,
		`skillrun_sandboxes_prewarmed 2`, `skillrun_sandboxes 6`, `skillrun_sandboxes_limit 2047`, `skillrun_teardowns_pending 1`,
		`skillrun_zygotes{kind="zygote"} 1`, `skillrun_zygotes{kind="python"} 4`,
		`skillrun_request_bytes 10`, `skillrun_request_limit_bytes 100`, `skillrun_state_bytes 20`, `skillrun_tenant_state_bytes{tenant="acme"} 15`, `skillrun_sessions{tenant="acme"} 3`, `skillrun_session_bytes{tenant="acme"} 12`, `skillrun_state_limit_bytes 200`,
		`skillrun_network_helpers 2`, `skillrun_networks 3`, `skillrun_network_helper_deaths_total{cause="memory"} 1`, `skillrun_network_helper_deaths_total{cause="other"} 2`, `skillrun_network_connections_total{tenant="acme"} 7`,
		`skillrun_network_bytes_total{direction="sent",tenant="acme"} 8`, `skillrun_network_bytes_total{direction="received",tenant="acme"} 9`,
		`skillrun_network_denied_total{kind="private",tenant="acme"} 4`,
		`skillrun_spans_dropped_total{reason="queue_full"} 5`, `skillrun_spans_dropped_total{reason="not_sent"} 4`, `skillrun_spans_dropped_total{reason="rejected"} 3`,
		`skillrun_disk_available_bytes 30`, `skillrun_disk_size_bytes 300`,
	)
	state = State{Draining: true}
	text := scrape(t, url)
	want(t, text, `skillrun_serving 0`, `skillrun_draining 1`, `skillrun_zygotes{kind="zygote"} 0`,
		// The counters of a configured tenant exist before its first execution.
		`skillrun_executions_total{end="EXITED",tenant="acme"} 0`)
	if left := grep(text, "skillrun_executions_running"); left != "" {
		t.Errorf("a tenant that is gone has %s", left)
	}
}

// A tenant that is no longer configured leaves no series, and the others keep theirs.
func TestForget(t *testing.T) {
	m := newMetrics()
	url := serve(t, m)
	for _, name := range []string{"gone", "acme"} {
		m.Ended(name, time.Second, executor.Outcome{End: executor.Exited}, "")
		m.Refused(name, errors.New("no"))
	}
	m.Forget("gone")
	text := scrape(t, url)
	if left := grep(text, `tenant="gone"`); left != "" {
		t.Errorf("left: %s", left)
	}
	want(t, text, `skillrun_executions_total{end="EXITED",tenant="acme"} 1`)
	m.Ended("gone", time.Second, executor.Outcome{End: executor.Exited}, "") // it is back
	want(t, scrape(t, url), `skillrun_executions_total{end="EXITED",tenant="gone"} 1`)
}

// Probes get an answer without the metrics: the process is live, and whether it is ready is asked each time.
func TestProbes(t *testing.T) {
	base := strings.TrimSuffix(serve(t, newMetrics()), Path)
	for path, want := range map[string]string{LivePath: "200 live\n", ReadyPath: "503 draining\n"} {
		r, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if got := fmt.Sprintf("%d %s", r.StatusCode, body); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
}

// A page whose DNS name was changed to point to this machine can't read the metrics.
func TestMetricsOfAnotherHost(t *testing.T) {
	url := serve(t, newMetrics())
	for host, want := range map[string]int{
		"localhost:7880": http.StatusOK, "127.0.0.2": http.StatusOK, "[::1]": http.StatusOK, "[::1]:7880": http.StatusOK,
		"evil.example:7880": http.StatusForbidden, "192.0.2.1": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want || want != http.StatusOK && strings.Contains(string(body), "skillrun_") {
			t.Errorf("Host %s: got %s, want %d\n%.200s", host, r.Status, want, body)
		}
	}
}

func TestOnlyMetricsAreServed(t *testing.T) {
	url := serve(t, newMetrics())
	for _, c := range []struct {
		method, url string
		want        int
	}{
		{http.MethodGet, strings.TrimSuffix(url, Path) + "/debug/pprof/", http.StatusNotFound},
		{http.MethodPost, url, http.StatusMethodNotAllowed},
		{http.MethodHead, url, http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != c.want {
			t.Errorf("%s %s: got %s, want %d", c.method, c.url, r.Status, c.want)
		}
	}
}

// labels are all labels of the daemon's own metrics, and why each has a bounded number of values.
var labels = map[string]string{
	"tenant": "the configuration", "end": "executor.Ends", "reason": "the list that New gets, or three", "stream": "two",
	"operation": "record.Operations", "result": "takeoverResults", "source": "three", "cause": "two", "kind": "two", "version": "one", "le": "the buckets",
}

// A new label needs a reason in the table above.
func TestLabels(t *testing.T) {
	m := newMetrics()
	m.Watch(func() State { return State{Tenants: map[string]Load{"acme": {}}} })
	m.Ended("acme", time.Millisecond, ran(executor.Exited), "")
	m.Refused("acme", errFull)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"le": true}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "skillrun_") {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				seen[label.GetName()] = true
				if labels[label.GetName()] == "" {
					t.Errorf("%s has the label %s, whose values nothing bounds", family.GetName(), label.GetName())
				}
			}
		}
	}
	for name := range labels {
		if !seen[name] {
			t.Errorf("no metric has the label %s", name)
		}
	}
}

// One execution: its end, and four writes to the record.
func BenchmarkExecution(b *testing.B) {
	m := newMetrics()
	out := ran(executor.Exited)
	b.ReportAllocs()
	for b.Loop() {
		m.Wrote(record.Creating, time.Microsecond)
		m.Wrote(record.Appending, time.Microsecond)
		m.Wrote(record.Ending, time.Microsecond)
		m.Wrote(record.Flushing, time.Microsecond)
		m.Ended("acme", time.Millisecond, out, "")
	}
}

// A time of an execution in a trace has the trace's id as its exemplar. Only OpenMetrics has exemplars.
func TestExemplars(t *testing.T) {
	m := newMetrics()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	m.Ended("acme", 5*time.Millisecond, ran(executor.Exited), id)
	url := serve(t, m)
	if text := scrape(t, url); strings.Contains(text, id) {
		t.Errorf("an exemplar in Prometheus' text format:\n%s", grep(text, "skillrun_execution"))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{
		`skillrun_execution_queue_seconds_bucket{tenant="acme",le="0.1"} 1 # {trace_id="` + id + `"} 0.02`,
		`skillrun_execution_start_seconds_bucket{le="0.006"} 1 # {trace_id="` + id + `"} 0.005`,
		`skillrun_sandbox_setup_seconds_bucket{le="0.004"} 1 # {trace_id="` + id + `"} 0.003`,
		`skillrun_execution_run_seconds_bucket{le="2.5"} 1 # {trace_id="` + id + `"} 2.0`,
	} {
		if !strings.Contains(string(body), "\n"+bucket) {
			t.Errorf("no %s; there are:\n%s", bucket, grep(string(body), strings.SplitN(bucket, "{", 2)[0]))
		}
	}
}
