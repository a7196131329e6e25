package main

import (
	"syscall"

	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/metrics"
	"github.com/skillrun/skillrun/internal/network"
)

// state returns the daemon's state for the metrics. Each request of Prometheus calls it.
func (d *daemon) state(requests *budget.Budget) metrics.State {
	health, audited := d.readiness.current(), d.audit.Stats()
	s := metrics.State{
		Serving: health.Ready, Draining: health.Draining, Degraded: health.Degraded,
		Dropped:      metrics.Dropped(d.tracing.Dropped()),
		AuditEntries: audited.Entries, AuditFailures: audited.Failures,
		Tenants: map[string]metrics.Load{}, Slots: d.config.Concurrency.Running + d.config.Concurrency.Reserved,
		Reserved: d.config.Concurrency.Reserved, Sandboxes: d.host.Stats(),
		RequestBytes: requests.Used(), RequestLimit: d.config.requestBytes(),
		StateBytes: d.record.Bytes(), StateLimit: int64(d.config.Retention.Bytes), TenantBytes: map[string]int64{}, Sessions: map[string]metrics.Sessions{},
	}
	for _, t := range d.executor.Tenants.All() {
		s.TenantBytes[t.Name] = d.executor.StateBytes(t)
		count, bytes := d.executor.SessionUse(t.Name)
		s.Sessions[t.Name] = metrics.Sessions{Count: count, Bytes: bytes}
	}
	for name, use := range d.executor.Usages() {
		if _, ok := d.executor.Tenants.Get(name); !ok {
			name = "" // its series were forgotten
		}
		load := s.Tenants[name]
		s.Tenants[name] = metrics.Load{Running: load.Running + use.Running, Queued: load.Queued + use.Queued}
	}
	if d.networks != nil {
		s.Networks = d.traffic(d.networks.Stats())
	}
	var disk syscall.Statfs_t
	// statfs(2) fails only if the directory is gone. Then both sizes are 0.
	if err := syscall.Statfs(d.config.StateDir, &disk); err == nil {
		s.DiskFree, s.DiskSize = disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)
	}
	return s
}

// traffic leaves out tenants that are no longer configured: their series were forgotten.
func (d *daemon) traffic(now network.Stats) metrics.Networks {
	n := metrics.Networks{Helpers: now.Helpers, Open: int(now.Networks), Deaths: now.Deaths, OOMs: now.OOMs, Tenants: map[string]metrics.Traffic{}}
	for name, t := range now.Tenants {
		if _, ok := d.executor.Tenants.Get(name); ok {
			t.Denied["repeated"] = t.Repeated
			n.Tenants[name] = metrics.Traffic{Connections: t.Connections, Sent: t.Sent, Received: t.Received, Denied: t.Denied}
		}
	}
	return n
}
