package network

import (
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// Limits are the limits of a Manager that a configuration sets. Only the limits in bytes may be zero.
type Limits struct {
	Connections          int // of an execution
	NewConnections       int // of an execution, in a second
	TenantConnections    int
	TenantNewConnections int   // in a second, on average
	TenantBytesPerSecond int64 // 0: no limit
	Bytes                int64 // sent and received by an execution; 0: no limit
	Idle, IdleUDP        time.Duration
	Names, Questions     int // of an execution, for DNS
}

// MaxConnections is the most connections that a configuration can give a tenant. Each takes up to two
// descriptors of the helper, which may have 16384.
const MaxConnections = 8000

// DefaultLimits are the limits of a Manager without a configuration.
func DefaultLimits() Limits {
	l, t := policy.DefaultLimits(), policy.DefaultTenantLimits()
	return Limits{
		Connections: int(l.Connections), NewConnections: l.NewPerSecond, TenantConnections: int(t.Connections),
		TenantNewConnections: t.NewPerSecond, TenantBytesPerSecond: t.BytesPerSecond, Bytes: l.Bytes,
		Idle: l.Idle, IdleUDP: l.IdleUDP, Names: l.Names, Questions: l.Questions,
	}
}

// Set sets the limits of a Manager's configuration.
func (l Limits) Set(c *Config) {
	c.Tenant = policy.TenantLimits{Connections: int64(l.TenantConnections), NewPerSecond: l.TenantNewConnections, BytesPerSecond: l.TenantBytesPerSecond}
	c.Limits = policy.Limits{
		Connections: int64(l.Connections), NewPerSecond: l.NewConnections, Bytes: l.Bytes,
		Idle: l.Idle, IdleUDP: l.IdleUDP, Names: l.Names, Questions: l.Questions,
	}
}
