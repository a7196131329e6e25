package policy

import "time"

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

// TenantLimits bound the sandboxes of one tenant together. Connections and NewPerSecond must be positive.
type TenantLimits struct {
	Connections    int64 `json:"connections"`      // open at the same time
	NewPerSecond   int   `json:"new_per_second"`   // new connections on average; Connections of them may come at once
	BytesPerSecond int64 `json:"bytes_per_second"` // sent and received; beyond it connections wait. 0: no limit
}

// DefaultTenantLimits are the limits of a tenant. The rate of new connections is twice the rate of a sandbox, so that
// one sandbox can't use up the rate of the tenant. On most machines a helper can't carry 1 GiB in a second.
func DefaultTenantLimits() TenantLimits {
	return TenantLimits{Connections: 4096, NewPerSecond: 2000, BytesPerSecond: 1 << 30}
}
