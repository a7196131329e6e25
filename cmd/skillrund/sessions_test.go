package main

import (
	"testing"

	"github.com/skillrun/skillrun/internal/tenant"
)

// A tenant that was removed keeps bounds: its running executions may still commit.
func TestSessionRules(t *testing.T) {
	c, err := loadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	rules := c.sessionRules(tenant.New(&tenant.Tenant{Name: "a", Sessions: 3, SessionBytes: 5}))
	known, gone := rules("a"), rules("b")
	if known.Sessions != 3 || known.TotalBytes != 5 || known.Removed {
		t.Errorf("a tenant: %+v", known)
	}
	want := known
	want.Sessions, want.TotalBytes, want.Removed = c.Sessions.Count, int64(c.Sessions.TotalBytes), true
	if gone != want || gone.TotalBytes == 0 || gone.Sessions == 0 {
		t.Errorf("a removed tenant: %+v, want %+v", gone, want)
	}
}
