package network

import (
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// Each limit of the configuration reaches the helper.
func TestLimitsAreSet(t *testing.T) {
	var c Config
	Limits{
		Connections: 1, NewConnections: 2, TenantConnections: 3, TenantNewConnections: 4, TenantBytesPerSecond: 5,
		Bytes: 6, Idle: 7, IdleUDP: 8, Names: 9, Questions: 10,
	}.Set(&c)
	if want := (policy.Limits{Connections: 1, NewPerSecond: 2, Bytes: 6, Idle: 7, IdleUDP: 8, Names: 9, Questions: 10}); c.Limits != want {
		t.Errorf("of an execution: %+v, want %+v", c.Limits, want)
	}
	if want := (policy.TenantLimits{Connections: 3, NewPerSecond: 4, BytesPerSecond: 5}); c.Tenant != want {
		t.Errorf("of a tenant: %+v, want %+v", c.Tenant, want)
	}
	DefaultLimits().Set(&c)
	if want := policy.DefaultTenantLimits(); c.Tenant != want {
		t.Errorf("defaults of a tenant: %+v, want %+v", c.Tenant, want)
	}
	want := policy.DefaultLimits()
	want.Dial, want.Hello = 0, 0 // NewManager sets them
	if c.Limits != want {
		t.Errorf("defaults of an execution: %+v, want %+v", c.Limits, want)
	}
}
