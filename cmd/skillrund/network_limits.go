package main

import (
	"errors"
	"net/netip"
	"time"

	"github.com/skillrun/skillrun/internal/network"
)

// networkLimits bound the network of each execution. The keys with tenant_ bound all executions of a tenant
// together.
type networkLimits struct {
	Connections       int `yaml:"connections"`     // at a time
	NewConnections    int `yaml:"new_connections"` // in a second
	TenantConnections int `yaml:"tenant_connections"`
	// In a second, on average; TenantConnections may come at once.
	TenantNewConnections int      `yaml:"tenant_new_connections"`
	TenantBytesPerSecond size     `yaml:"tenant_bytes_per_second"` // sent and received
	Bytes                size     `yaml:"bytes"`                   // sent and received by an execution
	Idle                 duration `yaml:"idle"`                    // of a TCP connection without a byte
	IdleUDP              duration `yaml:"idle_udp"`                // of an exchange of UDP packets
	Names                int      `yaml:"names"`                   // different names that an execution looks up
	Questions            int      `yaml:"questions"`               // that the helper passes on to name servers
}

// defaultNetworkLimits has the values in deploy/skillrund.yaml; a test compares the two.
func defaultNetworkLimits() networkLimits {
	l := network.DefaultLimits()
	return networkLimits{
		Connections: l.Connections, NewConnections: l.NewConnections, TenantConnections: l.TenantConnections,
		TenantNewConnections: l.TenantNewConnections, TenantBytesPerSecond: size(l.TenantBytesPerSecond), Bytes: size(l.Bytes),
		Idle: duration(l.Idle), IdleUDP: duration(l.IdleUDP), Names: l.Names, Questions: l.Questions,
	}
}

// limits converts the limits, after checkNetworkLimits has accepted them.
func (l networkLimits) limits() network.Limits {
	return network.Limits{
		Connections: l.Connections, NewConnections: l.NewConnections, TenantConnections: l.TenantConnections,
		TenantNewConnections: l.TenantNewConnections, TenantBytesPerSecond: int64(l.TenantBytesPerSecond), Bytes: int64(l.Bytes),
		Idle: time.Duration(l.Idle), IdleUDP: time.Duration(l.IdleUDP), Names: l.Names, Questions: l.Questions,
	}
}

// Upper bounds. Names and questions carry data to the name servers of a domain, and an idle connection
// takes memory of the helper.
const (
	maxNewConnections = 100_000
	maxNetworkNames   = 100_000
	maxQuestions      = 1_000_000
	maxNetworkIdle    = duration(time.Hour)
	leastRate         = size(64 << 10) // bytes in a second; at a lower rate, waiting connections would end as idle
)

// checkNetworkLimits reports each limit out of its range. Only the limits in bytes can be 0 for "none". Without one of
// the others, one sandbox could use up the network helper, which all sandboxes of its tenant share.
func (c *config) checkNetworkLimits(bad badFunc) {
	l := c.NetworkLimits
	for _, f := range []struct {
		key     string
		n, most int
		why     string
	}{
		{"tenant_connections", l.TenantConnections, network.MaxConnections, ""},
		// max(1, ...), so that a mistake in tenant_connections is reported once and not again here.
		{"connections", l.Connections, min(max(1, l.TenantConnections), network.MaxConnections), ", the value of network_limits.tenant_connections"},
		{"new_connections", l.NewConnections, maxNewConnections, ""},
		{"tenant_new_connections", l.TenantNewConnections, maxNewConnections, ""},
		{"names", l.Names, maxNetworkNames, ""},
		{"questions", l.Questions, maxQuestions, ""},
	} {
		if f.n < 1 || f.n > f.most {
			bad(join("network_limits", f.key), "%d; must be 1 to %d%s", f.n, f.most, f.why)
		}
	}
	for _, f := range []struct {
		key   string
		value duration
	}{{"idle", l.Idle}, {"idle_udp", l.IdleUDP}} {
		if f.value <= 0 || f.value > maxNetworkIdle {
			bad(join("network_limits", f.key), "%s; must be more than 0s and at most %s", f.value, maxNetworkIdle)
		}
	}
	if rate := l.TenantBytesPerSecond; rate > 0 && rate < leastRate {
		bad("network_limits.tenant_bytes_per_second", "%s; must be at least %s, or 0 for no limit", rate, leastRate)
	}
	for i, text := range c.NetworkOwnAddresses {
		if _, err := netip.ParseAddr(text); err != nil {
			bad(index("network_own_addresses", i), "%q is not an address; write 192.0.2.7 or 2001:db8::7", text)
		}
	}
	for i, text := range c.NetworkResolvers {
		if _, err := parseResolver(text); err != nil {
			bad(index("network_resolvers", i), "%q is not an address; write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53", text)
		}
	}
}

// ownAddresses converts network_own_addresses, after checkNetworkLimits has accepted them.
func (c *config) ownAddresses() (all []netip.Addr) {
	for _, text := range c.NetworkOwnAddresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// parseResolver parses an address, with port 53 unless it has one.
func parseResolver(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, 53), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err == nil && a.Port() == 0 {
		err = errNoPort
	}
	return a, err
}

var errNoPort = errors.New("port 0")

// resolvers returns nil for the machine's.
func (c *config) resolvers() (all []netip.AddrPort) {
	for _, text := range c.NetworkResolvers {
		if a, err := parseResolver(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}
