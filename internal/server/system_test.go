package server

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestGetCapabilities(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	bounds := executor.StandardBounds()
	d := startIdle(t, func(_ *executor.Config, c *Config) {
		c.MaxMessageBytes = 1 << 20
		c.Capabilities = func() Capabilities {
			return Capabilities{
				Version: "1.2.3", Started: began, Default: bounds.Default, Max: bounds.Max, MaxRunning: 4, MaxQueued: 5,
				Boundaries: []Boundary{{Name: "seccomp", Group: "kernel", Why: "calls", Detail: "not \xff found", Allowed: true}, {Name: "pids", Found: true}},
				Runtimes:   []Runtime{{Language: "python", Path: "/usr/bin/python3", Version: "3.11"}, {Language: "sh", Path: "/bin/sh", Image: "tools"}},
				Images:     []Image{{Name: "tools", Source: "/srv/tools", Runtimes: []string{"default", "sh"}}},
				Network:    true, Cgroup: "hybrid", Kernel: "6.18", Retention: time.Hour,
			}
		}
	})
	got, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.GetCapabilitiesResponse{
		Version: "1.2.3", StartTime: timestamppb.New(began), MaxMessageBytes: 1 << 20, MaxRunning: 4, MaxQueued: 5,
		DefaultLimits: fromLimits(bounds.Default), MaxLimits: fromLimits(bounds.Max),
		Boundaries: []*pb.Boundary{{Name: "seccomp", Group: pb.BoundaryGroup_BOUNDARY_GROUP_KERNEL, Why: "calls", Detail: "not \uFFFD found", Found: proto.Bool(false), Allowed: proto.Bool(true)}, {Name: "pids", Found: proto.Bool(true), Allowed: proto.Bool(false)}},
		Runtimes:   []*pb.Runtime{{Language: "python", Path: "/usr/bin/python3", Version: "3.11"}, {Language: "sh", Path: "/bin/sh", Image: "tools"}},
		Images:     []*pb.Image{{Name: "tools", Source: "/srv/tools", Runtimes: []string{"default", "sh"}}},
		Network:    pb.NetworkMode_NETWORK_MODE_RULES, CgroupVersion: pb.CgroupVersion_CGROUP_VERSION_HYBRID,
		Kernel: "6.18", Retention: durationpb.New(time.Hour), State: pb.DaemonState_DAEMON_STATE_DEGRADED,
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Boundaries, and the cause of an audit log that can't be written, can name directories of the machine. Only operators
// see these texts.
func TestCapabilitiesNameNoDirectories(t *testing.T) {
	for role, want := range map[identity.Role][2]string{
		identity.Admin:    {"", "operators see the cause"},
		identity.Operator: {"works on /srv/state", "open /srv/state/audit: no space left on device"},
	} {
		d := startIdle(t, func(_ *executor.Config, c *Config) {
			c.Identify = as(role)
			c.Capabilities = func() Capabilities {
				return Capabilities{Boundaries: []Boundary{{Name: "id-mapped mounts", Group: "machine", Detail: "works on /srv/state", Found: true}},
					AuditProblem: "open /srv/state/audit: no space left on device"}
			}
		})
		got, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
		if err != nil || got.Boundaries[0].Detail != want[0] || got.AuditProblem != want[1] {
			t.Errorf("%v: got %v, %v, want %q", role, got, err, want)
		}
	}
}

// A page begins after the entry of its token. A token that the list did not make is refused.
func TestListTenantsPages(t *testing.T) {
	d := startIdle(t, func(x *executor.Config, c *Config) {
		c.Identify = as(identity.Operator)
		x.Tenants = tenant.New(&tenant.Tenant{Name: "a"}, &tenant.Tenant{Name: "b"})
	})
	first, err := d.system.ListTenants(t.Context(), &pb.ListTenantsRequest{PageSize: 1})
	if err != nil || len(first.Tenants) != 1 || first.Tenants[0].Name != "a" {
		t.Fatalf("got %v, %v", first, err)
	}
	second, err := d.system.ListTenants(t.Context(), &pb.ListTenantsRequest{PageToken: first.NextPageToken})
	if err != nil || len(second.Tenants) != 1 || second.Tenants[0].Name != "b" || second.NextPageToken != "" {
		t.Errorf("got %v, %v", second, err)
	}
	_, err = d.system.ListTenants(t.Context(), &pb.ListTenantsRequest{PageToken: "a"})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
}

func TestDaemonState(t *testing.T) {
	found, allowed, missing := Boundary{Found: true}, Boundary{Allowed: true}, Boundary{}
	bad := []TenantProblem{{Tenant: "acme"}}
	for _, tt := range []struct {
		c                  Capabilities
		draining, operator bool
		want               pb.DaemonState
	}{
		{Capabilities{Boundaries: []Boundary{found}}, false, true, pb.DaemonState_DAEMON_STATE_READY},
		{Capabilities{Boundaries: []Boundary{found, allowed}}, false, false, pb.DaemonState_DAEMON_STATE_DEGRADED},
		{Capabilities{TenantProblems: bad}, false, true, pb.DaemonState_DAEMON_STATE_DEGRADED},
		{Capabilities{TenantProblems: bad}, false, false, pb.DaemonState_DAEMON_STATE_READY},
		{Capabilities{Boundaries: []Boundary{allowed, missing}}, true, true, pb.DaemonState_DAEMON_STATE_NOT_READY},
		{Capabilities{AuditProblem: "full"}, false, true, pb.DaemonState_DAEMON_STATE_NOT_READY},
		{Capabilities{AuditProblem: "full", TenantProblems: bad}, true, true, pb.DaemonState_DAEMON_STATE_DRAINING},
	} {
		if got := tt.c.state(tt.draining, tt.operator); got != tt.want {
			t.Errorf("%+v, draining %v, operator %v: got %s, want %s", tt.c, tt.draining, tt.operator, got, tt.want)
		}
	}
}

// Only operators see where the directory of an image is.
func TestImageSource(t *testing.T) {
	const reference = "registry.example.org/tools@sha256:0"
	for _, tt := range []struct {
		source   string
		operator bool
		want     string
	}{
		{"/srv/images/tools", true, "/srv/images/tools"},
		{"/srv/images/tools", false, "tools"},
		{reference, true, reference},
		{reference, false, reference},
	} {
		if got := (Image{Source: tt.source}).seenBy(tt.operator); got != tt.want {
			t.Errorf("%s, operator %v: got %q", tt.source, tt.operator, got)
		}
	}
}
