package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound one sandbox. Connections are TCP connections and UDP sessions that exist at the same
// time. A zero Bytes has no limit; the other fields must be positive.
type Limits struct {
	Connections  int64         `json:"connections"`
	NewPerSecond int           `json:"new_per_second"` // the same number may come at once
	Bytes        int64         `json:"bytes"`          // sent and received, of all connections together
	Idle         time.Duration `json:"idle"`           // a TCP connection without a byte ends
	IdleUDP      time.Duration `json:"idle_udp"`
	// Different names that a sandbox may ask for: DNS is no channel for data. A name costs about 200 bytes
	// of memory.
	Names int `json:"names"`
	// Questions that the cache does not answer. It answers none with a TTL of 0, and the order of the
	// questions would be a channel without a bound.
	Questions int           `json:"questions"`
	Dial      time.Duration `json:"dial"`  // until the destination has answered
	Hello     time.Duration `json:"hello"` // until the client has sent the name that is checked
}

// DefaultLimits are the limits of a sandbox.
func DefaultLimits() Limits {
	return Limits{
		Connections: 256, NewPerSecond: 1000, Bytes: 100 << 30, Names: 1000, Questions: 10_000,
		Idle: 5 * time.Minute, IdleUDP: time.Minute, Dial: 10 * time.Second, Hello: 10 * time.Second,
	}
}

// Bounds without a configuration. A pin costs about 200 bytes.
const (
	maxPins    = 4000 // pairs of address and name
	maxQueries = 64   // questions of a sandbox that its name server handles at the same time
	maxAsking  = 1024 // questions of a tenant to the resolvers at the same time; each needs a socket
	maxAnswer  = 32   // addresses in one answer
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

	// Buffers of the socket to the destination, in bytes. The kernel doubles these sizes for its own data (socket(7)).
	// A new socket can receive as much with the usual net.ipv4.tcp_rmem. For a connection with large buffers the kernel
	// chooses the sizes, because transfers over long distances need them: by default up to 6 MiB to receive and 4 MiB to
	// send. So maxLarge such connections hold at most 320 MiB.
	socketReceive = 64 << 10
	socketSend    = 32 << 10
)

// TenantLimits bound the sandboxes of one tenant together. Connections and NewPerSecond must be positive.
type TenantLimits struct {
	Connections    int64 `json:"connections"`      // open at the same time
	NewPerSecond   int   `json:"new_per_second"`   // new connections on average; Connections of them may come at once
	BytesPerSecond int64 `json:"bytes_per_second"` // sent and received; beyond it connections wait. 0: no limit
	Ports          Ports `json:"ports"`
}

// DefaultTenantLimits are the limits of a tenant. The rate of new connections is twice the rate of a sandbox, so that
// one sandbox can't use up the rate of the tenant. On most machines a helper can't carry 1 GiB in a second.
func DefaultTenantLimits() TenantLimits {
	return TenantLimits{Connections: 4096, NewPerSecond: 2000, BytesPerSecond: 1 << 30}
}

// A Shared applies TenantLimits to several gateways.
type Shared struct {
	count
	limits TenantLimits
	rate   *rate.Limiter // of new connections
	bytes  *rate.Limiter // nil: no limit
	large  count         // connections with large buffers
	asking chan struct{} // has an element for each question to the resolvers

	translators translators
}

// NewShared returns a Shared without a connection.
func NewShared(l TenantLimits) *Shared {
	// A burst of Connections new ones lets all sandboxes of a tenant start at once. NewPerSecond then bounds how fast
	// they replace connections.
	s := &Shared{count: count{most: l.Connections}, limits: l, large: count{most: maxLarge}, asking: make(chan struct{}, maxAsking),
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
	limits Limits
	own    *count
	tenant *Shared
	rate   *rate.Limiter
	bytes  atomic.Int64
}

func newAdmission(l Limits, tenant *Shared) *admission {
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
