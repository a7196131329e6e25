package gateway

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Bounds without a configuration. A pin costs about 200 bytes.
const (
	maxPins    = 4000 // pairs of address and name
	maxQueries = 64   // questions of a sandbox that its name server handles at the same time
	maxAsking  = 1024 // questions of a tenant to the resolvers at the same time; each needs a socket
	maxAnswer  = 32   // addresses in one answer
	maxWaiting = 4096 // UDP packets of a sandbox that wait for a session or the name server; each takes about 1 KB
	maxHandled = 1024 // connection attempts at the same time, in addition to the connections of the sandbox

	// Buffers of a connection in the stack, in bytes, for each direction. The sandbox is on this machine, so
	// a small buffer is enough for every speed of the internet. A connection that has carried growAfter
	// bytes gets large ones, which make it about twice as fast, if fewer than maxLarge connections of the
	// tenant have them. growAfter is more than a program's kernel takes while the program does not read. An open connection
	// takes about 20 KiB of memory, and 65 KiB if its program does not read.
	smallSend   = 16 << 10 // to the sandbox
	smallWindow = 32 << 10 // from the sandbox; the stack offers half of it
	largeSend   = 1 << 20  // to the sandbox
	largeWindow = 1 << 20  // from the sandbox; the stack offers half of it
	growAfter   = 512 << 10
	maxLarge    = 32

	sessionBuffer = 64 << 10 // bytes of UDP packets that wait for a session

	// Of a tenant, with credentials. A connection takes up to 0.5 MiB, and a request that is carried about 0.1 MiB, see
	// exchange.go.
	maxExchanges = 1024
	maxRequests  = 1024
)

// A Shared applies TenantLimits to several gateways.
type Shared struct {
	count
	limits policy.TenantLimits
	ports  dial.Ports    // of the helper's sockets
	rate   *rate.Limiter // of new connections
	bytes  *rate.Limiter // nil: no limit
	large  count         // connections with large buffers
	asking chan struct{} // has an element for each question to the resolvers

	exchanges, requests count // with credentials

	translators translators
}

// NewShared returns a Shared without a connection, whose sockets have the given ports.
func NewShared(l policy.TenantLimits, p dial.Ports) *Shared {
	// A burst of Connections new ones lets all sandboxes of a tenant start at once. NewPerSecond then bounds how fast
	// they replace connections.
	s := &Shared{count: count{most: l.Connections}, limits: l, ports: p, large: count{most: maxLarge}, asking: make(chan struct{}, maxAsking),
		exchanges: count{most: maxExchanges}, requests: count{most: maxRequests},
		rate: rate.NewLimiter(rate.Limit(l.NewPerSecond), max(l.NewPerSecond, int(l.Connections)))}
	if l.BytesPerSecond > 0 {
		// A burst has room for the largest piece that a connection carries at once: a buffer, a packet or a TLS record.
		s.bytes = rate.NewLimiter(rate.Limit(l.BytesPerSecond), int(max(l.BytesPerSecond/10, largestRead)))
	}
	return s
}

// carry waits until the tenant may carry n more bytes. It returns an error if life ends before.
func (s *Shared) carry(life context.Context, n int) error {
	if s.bytes == nil {
		return nil
	}
	// WaitN fails for more than a burst at once.
	for ; n > s.bytes.Burst(); n -= s.bytes.Burst() {
		if err := s.bytes.WaitN(life, s.bytes.Burst()); err != nil {
			return err
		}
	}
	return s.bytes.WaitN(life, n)
}

// enter admits one connection of the tenant. It returns "", or the limit that is reached. give ends the connection.
func (s *Shared) enter() (reached string) {
	if !s.take() {
		return fmt.Sprintf("more than %d connections of the tenant (network_limits.tenant_connections)", s.most)
	}
	if !s.rate.Allow() {
		s.give()
		return fmt.Sprintf("more than %d new connections of the tenant in a second (network_limits.tenant_new_connections)", s.limits.NewPerSecond)
	}
	return ""
}

// A count counts up to a bound.
type count struct {
	most int64
	used atomic.Int64
}

func (c *count) take() bool {
	if c.used.Add(1) <= c.most {
		return true
	}
	c.used.Add(-1)
	return false
}

func (c *count) give() { c.used.Add(-1) }

// admission counts the connections of a sandbox.
type admission struct {
	limits policy.Limits
	own    *count
	tenant *Shared
	rate   *rate.Limiter
	bytes  atomic.Int64
}

func newAdmission(l policy.Limits, tenant *Shared) *admission {
	return &admission{limits: l, own: &count{most: l.Connections}, tenant: tenant,
		rate: rate.NewLimiter(rate.Limit(l.NewPerSecond), l.NewPerSecond)}
}

// enter takes one connection in. It returns the limit that is reached, or "". After "", the caller
// calls leave.
func (a *admission) enter() (reached string) {
	if a.exhausted() {
		return a.bytesReason()
	}
	if !a.rate.Allow() {
		return fmt.Sprintf("more than %d new connections in a second (network_limits.new_connections)", a.limits.NewPerSecond)
	}
	if !a.own.take() {
		return fmt.Sprintf("more than %d connections (network_limits.connections)", a.own.most)
	}
	// The tenant comes last: a sandbox beyond its own limits must not use up the tenant's rate.
	if reached = a.tenant.enter(); reached != "" {
		a.own.give()
	}
	return reached
}

func (a *admission) leave() {
	a.own.give()
	a.tenant.give()
}

// count adds n bytes and reports whether the limit allows them.
func (a *admission) count(n int) bool {
	// The bytes beyond the limit are counted, too, so exhausted stays true and later connections are refused at once.
	return a.bytes.Add(int64(n)) <= a.limits.Bytes || a.limits.Bytes == 0
}

func (a *admission) exhausted() bool { return a.limits.Bytes > 0 && a.bytes.Load() > a.limits.Bytes }

func (a *admission) bytesReason() string {
	return fmt.Sprintf("more than %d bytes (network_limits.bytes)", a.limits.Bytes)
}
