// Package metrics measures the daemon for Prometheus.
//
// Theory of operation. The other packages don't import this package, and no other package imports
// the Prometheus client. Events go into counters and histograms when they happen: [Metrics] is the
// observer of package executor, and its methods are hooks of the packages record and server.
// States, such as the length of the queue, are read when Prometheus asks ([State]), so they cost
// nothing in between. [Metrics.Serve] answers Prometheus.
//
// A label has a value of a closed set, or the name of a tenant, which the configuration bounds. A
// skill, a caller or a path is never a label.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
)

// Bounds of the histograms' buckets, in seconds. Each has the values that matter for its quantity: a
// prewarmed sandbox takes a few milliseconds, an event in the record some microseconds.
var (
	queueBuckets  = []float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 600}
	startBuckets  = []float64{.001, .002, .004, .006, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	runBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	recordBuckets = []float64{.00001, .00002, .00005, .0001, .0002, .0005, .001, .005, .01, .05, .1, .5, 1, 5}
)

// Metrics has the counters and histograms of one daemon. Make it with New. Its methods may be called
// concurrently. They count even if no Server serves the Metrics.
type Metrics struct {
	registry *prometheus.Registry
	reason   func(error) string

	executions *prometheus.CounterVec
	refused    *prometheus.CounterVec
	calls      *prometheus.CounterVec
	errors     *prometheus.CounterVec
	output     *prometheus.CounterVec
	cpu        *prometheus.CounterVec
	queue      *prometheus.HistogramVec
	start      prometheus.Histogram
	setup      prometheus.Histogram
	run        prometheus.Histogram
	record     map[record.Operation]prometheus.Observer
	takeovers  map[Takeover]prometheus.Counter

	tenants sync.Map // of *tenant by name
}

// A Takeover says how a takeover has ended.
type Takeover string

const (
	TakenOver  Takeover = "succeeded"   // this daemon has taken over from another one
	NotStarted Takeover = "not_started" // the next daemon was not ready in time, and this one goes on
	NotServed  Takeover = "not_served"  // the next daemon was ready and did not serve; this one goes on
)

var takeoverResults = []Takeover{TakenOver, NotStarted, NotServed}

// A tenant has the series of one tenant, because looking up a series by its labels takes longer than
// counting.
type tenant struct {
	ends           map[executor.End]prometheus.Counter
	stdout, stderr prometheus.Counter
	cpu, calls     prometheus.Counter
	queue          prometheus.Observer
}

// New makes the metrics of a daemon. reason returns the cause of an error, a word of reasons.
func New(version string, reason func(error) string, reasons []string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), reason: reason, record: map[record.Operation]prometheus.Observer{}, takeovers: map[Takeover]prometheus.Counter{}}
	m.executions = counters("executions_total", "Executions that have ended, by tenant and by end.", "tenant", "end")
	m.refused = counters("executions_refused_total", "Requests for an execution that were refused before anything ran, by tenant and by reason.", "tenant", "reason")
	m.calls = counters("calls_refused_total", "Calls of gRPC and MCP that were refused because of quotas.calls_per_second, by tenant.", "tenant")
	m.errors = counters("call_errors_total", "Calls of gRPC and MCP that were answered with an error, by reason.", "reason")
	m.output = counters("output_bytes_total", "Bytes that programs wrote, also beyond their output limit, by tenant and stream.", "tenant", "stream")
	m.cpu = counters("cpu_seconds_total", "Processor time of all processes of ended executions, by tenant.", "tenant")
	m.queue = prometheus.NewHistogramVec(options("execution_queue_seconds", "Time that executions waited for a slot, by tenant.", queueBuckets), []string{"tenant"})
	m.start = prometheus.NewHistogram(options("execution_start_seconds", "Time from the acceptance of an execution to the start of its program, without the wait for a slot.", startBuckets))
	m.setup = prometheus.NewHistogram(options("sandbox_setup_seconds", "Time that the start of an execution's sandbox took.", startBuckets))
	m.run = prometheus.NewHistogram(options("execution_run_seconds", "Time from the start of an execution's program to the end of its last process.", runBuckets))
	recorded := prometheus.NewHistogramVec(options("record_seconds", "Time that a write to the record took, by operation.", recordBuckets), []string{"operation"})
	for _, op := range record.Operations {
		m.record[op] = recorded.WithLabelValues(string(op))
	}
	takeovers := counters("takeovers_total", "Takeovers that have ended, by result: succeeded (this daemon has taken over), not_started and not_served (the next daemon has failed, and this one goes on).", "result")
	for _, result := range takeoverResults {
		m.takeovers[result] = takeovers.WithLabelValues(string(result))
	}
	for _, word := range reasons {
		m.errors.WithLabelValues(word) // the series begins with 0, so that a rate includes the first error
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "skillrun_build_info", Help: "Always 1; the label is the daemon's version."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.executions, m.refused, m.calls, m.errors, m.output, m.cpu, m.queue, m.start, m.setup, m.run, recorded, takeovers, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skillrun_" + name, Help: help}, labels)
}

func options(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: "skillrun_" + name, Help: help, Buckets: buckets}
}

// of returns the series of a tenant. The first call makes them all with the value 0, so that a rate
// includes the first event of each kind.
func (m *Metrics) of(name string) *tenant {
	if t, ok := m.tenants.Load(name); ok {
		return t.(*tenant)
	}
	t := &tenant{
		ends:   map[executor.End]prometheus.Counter{},
		stdout: m.output.WithLabelValues(name, "stdout"), stderr: m.output.WithLabelValues(name, "stderr"),
		cpu: m.cpu.WithLabelValues(name), calls: m.calls.WithLabelValues(name), queue: m.queue.WithLabelValues(name),
	}
	for _, end := range executor.Ends {
		t.ends[end] = m.executions.WithLabelValues(name, string(end))
	}
	m.tenants.Store(name, t)
	return t
}

// Ended counts an execution. The times get the trace as their exemplar. It implements
// [executor.Observer].
func (m *Metrics) Ended(tenant string, started time.Duration, out executor.Outcome, trace string) {
	t := m.of(tenant)
	t.ends[out.End].Inc()
	if out.End == executor.DaemonLost {
		return // the times and the output are not known
	}
	observe(t.queue, out.Usage.Queue, trace)
	t.stdout.Add(float64(out.Stdout.TotalBytes))
	t.stderr.Add(float64(out.Stderr.TotalBytes))
	if started == 0 {
		return
	}
	t.cpu.Add((out.Usage.UserCPU + out.Usage.SystemCPU).Seconds())
	observe(m.start, started, trace)
	observe(m.setup, out.Usage.Setup, trace)
	observe(m.run, out.Usage.Wall, trace)
}

// observe counts a time. Prometheus gets the id of the last trace in each bucket, as an exemplar.
func observe(h prometheus.Observer, took time.Duration, trace string) {
	if trace == "" {
		h.Observe(took.Seconds())
		return
	}
	// Every histogram is an ExemplarObserver. The label is the one that Grafana looks for.
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
}

// Forget removes the series of a tenant that is no longer configured.
func (m *Metrics) Forget(name string) {
	m.tenants.Delete(name)
	for _, series := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.executions, m.refused, m.calls, m.output, m.cpu, m.queue} {
		series.DeletePartialMatch(prometheus.Labels{"tenant": name})
	}
}

// Refused counts a refused request. It implements [executor.Observer].
func (m *Metrics) Refused(tenant string, err error) {
	m.refused.WithLabelValues(tenant, m.reason(err)).Inc()
}

// CallRefused counts a call beyond the tenant's quota. It implements [executor.Observer].
func (m *Metrics) CallRefused(tenant string) { m.of(tenant).calls.Inc() }

// Failed counts a call that was answered with an error, by one of the reasons.
func (m *Metrics) Failed(reason string) { m.errors.WithLabelValues(reason).Inc() }

// Wrote counts a write to the record.
func (m *Metrics) Wrote(op record.Operation, took time.Duration) {
	m.record[op].Observe(took.Seconds())
}

// Takeover counts a takeover that has ended.
func (m *Metrics) Takeover(result Takeover) { m.takeovers[result].Inc() }
