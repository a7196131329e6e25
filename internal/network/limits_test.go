package network

import (
	"testing"

	"github.com/skillrun/skillrun/internal/network/gateway"
)

// Each limit of the configuration reaches the helper.
func TestLimitsAreSet(t *testing.T) {
	var c Config
	Limits{
		Connections: 1, NewConnections: 2, TenantConnections: 3, TenantNewConnections: 4, TenantBytesPerSecond: 5,
		Bytes: 6, Idle: 7, IdleUDP: 8, Names: 9, Questions: 10,
	}.Set(&c)
	if want := (gateway.Limits{Connections: 1, NewPerSecond: 2, Bytes: 6, Idle: 7, IdleUDP: 8, Names: 9, Questions: 10}); c.Limits != want {
		t.Errorf("of an execution: %+v, want %+v", c.Limits, want)
	}
	if want := (gateway.TenantLimits{Connections: 3, NewPerSecond: 4, BytesPerSecond: 5}); c.Tenant != want {
		t.Errorf("of a tenant: %+v, want %+v", c.Tenant, want)
	}
	DefaultLimits().Set(&c)
	if want := gateway.DefaultTenantLimits(); c.Tenant != want {
		t.Errorf("defaults of a tenant: %+v, want %+v", c.Tenant, want)
	}
	want := gateway.DefaultLimits()
	want.Dial, want.Hello = 0, 0 // NewManager sets them
	if c.Limits != want {
		t.Errorf("defaults of an execution: %+v, want %+v", c.Limits, want)
	}
}
