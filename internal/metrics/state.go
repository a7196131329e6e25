package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skillrun/skillrun/sandbox"
)

// A State has the daemon's executions, sandboxes, memory and disk space at one moment.
type State struct {
	// Serving: the daemon takes executions. Draining: it waits for its executions in order to stop.
	// Degraded: something is wrong that does not stop it.
	Serving, Draining, Degraded bool
	// Tenants has the executions of each tenant.
	Tenants map[string]Load
	// Slots is the number of executions that may run at once.
	Slots int
	// Reserved are those of Slots that only callers without a running execution get.
	Reserved  int
	Sandboxes sandbox.Stats
	// Networks are of the sandboxes that have one.
	Networks Networks
	// RequestBytes is the memory of all requests together. RequestLimit is its bound.
	RequestBytes, RequestLimit int64
	// StateBytes is the size of the record with all output and artifacts. StateLimit is its bound; 0
	// means no bound.
	StateBytes, StateLimit int64
	// TenantBytes is the part of StateBytes of each tenant.
	TenantBytes map[string]int64
	// Sessions has the sessions of each tenant. They are not part of StateBytes.
	Sessions map[string]Sessions
	// Dropped counts the spans that the receiver of traces does not have.
	Dropped Dropped
	// AuditEntries counts entries of the audit log, AuditFailures entries that could not be written.
	AuditEntries, AuditFailures uint64
	// Bytes of the file system with the state directory. DiskFree is the space that users other than
	// root may use.
	DiskFree, DiskSize uint64
}

// A Load has the numbers of a tenant's executions.
type Load struct{ Running, Queued int }

// Sessions has the number of a tenant's sessions, and the bytes of all their versions on disk.
type Sessions struct {
	Count int
	Bytes int64
}

// Dropped has spans by the reason why they were dropped.
type Dropped struct{ QueueFull, NotSent, Rejected uint64 }

// Networks has figures of the networks of sandboxes. Denied of a Traffic is by kind, of which there is a
// fixed number.
type Networks struct {
	Helpers, Open int   // helpers that run, and networks of executions that are open
	Deaths, OOMs  int64 // of helpers; OOMs are the deaths because memory ran out
	Tenants       map[string]Traffic
}

// A Traffic has the sums over the networks of one tenant.
type Traffic struct {
	Connections, Sent, Received int64
	Denied                      map[string]int64
}

// Watch makes each request of Prometheus call read, which returns the daemon's state. Call Watch once,
// before Serve. Calls of read may be concurrent.
func (m *Metrics) Watch(read func() State) { m.registry.MustRegister(states{m, read}) }

// states reads a State when Prometheus asks.
type states struct {
	*Metrics
	read func() State
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("skillrun_"+name, help, labels, nil)
}

var (
	serving       = describe("serving", "1 if the daemon takes executions, else 0.")
	draining      = describe("draining", "1 if the daemon waits for its executions in order to stop, else 0.")
	degraded      = describe("degraded", "1 if a boundary is missing that the configuration allows to be missing, or the last change of a tenant has a mistake, else 0.")
	slots         = describe("slots", "Executions that may run at once, of all tenants together.")
	reserved      = describe("slots_reserved", "Slots that only callers without a running execution get.")
	running       = describe("executions_running", "Executions that hold a slot, by tenant.", "tenant")
	queued        = describe("executions_queued", "Executions that wait for a slot, by tenant.", "tenant")
	started       = describe("sandboxes_started_total", "Sandboxes that programs were started in, by the source of the sandbox: prewarmed (waited in the pool), zygote (made on request by the zygote), libcontainer (made on request without it).", "source")
	prewarmed     = describe("sandboxes_prewarmed", "Prewarmed sandboxes that wait in the pool.")
	existing      = describe("sandboxes", "Sandboxes that exist: those that run, that wait in the pool, and that have ended and are not torn down yet.")
	most          = describe("sandboxes_limit", "Sandboxes that may exist at once; the ids of the configuration bound them.")
	deferred      = describe("teardowns_pending", "Ended sandboxes that wait for their teardown.")
	zygotes       = describe("zygotes", "Zygotes that run: zygote makes sandboxes, python forks Python scripts.", "kind")
	requestBytes  = describe("request_bytes", "Memory that running and waiting requests hold.")
	requestLimit  = describe("request_limit_bytes", "Memory that requests may hold together.")
	stateBytes    = describe("state_bytes", "Bytes of all executions in the record, with output and artifacts.")
	tenantBytes   = describe("tenant_state_bytes", "Bytes of all executions of a tenant in the record, with output and artifacts.", "tenant")
	sessions      = describe("sessions", "Sessions that a tenant keeps.", "tenant")
	sessionBytes  = describe("session_bytes", "Bytes of all versions of a tenant's sessions on disk.", "tenant")
	stateLimit    = describe("state_limit_bytes", "Bytes that executions may have in the record (retention.bytes); 0 means no limit.")
	auditEntries  = describe("audit_entries_total", "Entries that were written to the audit log.")
	auditFailures = describe("audit_failures_total", "Entries and checkpoints that could not be written to the audit log.")
	spansDropped  = describe("spans_dropped_total", "Spans of traces that the receiver does not have, by reason: queue_full (ended while the queue had no room for their tenant), not_sent (their batch failed), rejected (by the receiver).", "reason")
	diskAvailable = describe("disk_available_bytes", "Free bytes of the file system with state_dir.")
	diskSize      = describe("disk_size_bytes", "Bytes of the file system with state_dir.")

	networkHelpers     = describe("network_helpers", "Helper processes that run and carry networks of sandboxes.")
	networksOpen       = describe("networks", "Networks of sandboxes that are open.")
	networkDeaths      = describe("network_helper_deaths_total", "Helper processes of networks that died or were killed because they did not answer, by cause: memory (it ran out), other.", "cause")
	networkConnections = describe("network_connections_total", "Connections of sandboxes that have ended, by tenant.", "tenant")
	networkBytes       = describe("network_bytes_total", "Bytes of ended connections of sandboxes, by tenant and direction.", "tenant", "direction")
	networkDenied      = describe("network_denied_total", "Connections, packets and names that were refused to sandboxes, by tenant and kind.", "tenant", "kind")
)

// Describe implements prometheus.Collector.
func (s states) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		serving, draining, degraded, slots, reserved, running, queued, started, prewarmed, existing, most, deferred, zygotes,
		requestBytes, requestLimit, stateBytes, tenantBytes, sessions, sessionBytes, stateLimit, auditEntries, auditFailures, spansDropped, diskAvailable, diskSize,
		networkHelpers, networksOpen, networkDeaths, networkConnections, networkBytes, networkDenied,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s states) Collect(to chan<- prometheus.Metric) {
	now := s.read()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(serving, number(now.Serving))
	gauge(draining, number(now.Draining))
	gauge(degraded, number(now.Degraded))
	gauge(slots, float64(now.Slots))
	gauge(reserved, float64(now.Reserved))
	for name, load := range now.Tenants {
		s.of(name) // makes the tenant's counters, so that Prometheus has them before their first event
		gauge(running, float64(load.Running), name)
		gauge(queued, float64(load.Queued), name)
	}
	b := now.Sandboxes
	for source, n := range map[string]uint64{"prewarmed": b.FromPool, "zygote": b.FromZygote, "libcontainer": b.FromLibcontainer} {
		to <- prometheus.MustNewConstMetric(started, prometheus.CounterValue, float64(n), source)
	}
	gauge(prewarmed, float64(b.Prewarmed))
	gauge(existing, float64(b.Existing))
	gauge(most, float64(b.Most))
	gauge(deferred, float64(b.Deferred))
	gauge(zygotes, number(b.Zygote), "zygote")
	gauge(zygotes, float64(b.PythonZygotes), "python")
	gauge(requestBytes, float64(now.RequestBytes))
	gauge(requestLimit, float64(now.RequestLimit))
	gauge(stateBytes, float64(now.StateBytes))
	for name, bytes := range now.TenantBytes {
		gauge(tenantBytes, float64(bytes), name)
	}
	for name, kept := range now.Sessions {
		gauge(sessions, float64(kept.Count), name)
		gauge(sessionBytes, float64(kept.Bytes), name)
	}
	gauge(stateLimit, float64(now.StateLimit))
	to <- prometheus.MustNewConstMetric(auditEntries, prometheus.CounterValue, float64(now.AuditEntries))
	to <- prometheus.MustNewConstMetric(auditFailures, prometheus.CounterValue, float64(now.AuditFailures))
	for reason, n := range map[string]uint64{"queue_full": now.Dropped.QueueFull, "not_sent": now.Dropped.NotSent, "rejected": now.Dropped.Rejected} {
		to <- prometheus.MustNewConstMetric(spansDropped, prometheus.CounterValue, float64(n), reason)
	}
	gauge(diskAvailable, float64(now.DiskFree))
	gauge(diskSize, float64(now.DiskSize))
	gauge(networkHelpers, float64(now.Networks.Helpers))
	gauge(networksOpen, float64(now.Networks.Open))
	now.Networks.collect(to)
}

// collect sends the counters.
func (n Networks) collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	counter(networkDeaths, n.OOMs, "memory")
	counter(networkDeaths, n.Deaths-n.OOMs, "other")
	for name, t := range n.Tenants {
		counter(networkConnections, t.Connections, name)
		counter(networkBytes, t.Sent, name, "sent")
		counter(networkBytes, t.Received, name, "received")
		for kind, count := range t.Denied {
			counter(networkDenied, count, name, kind)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
