package server

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Capabilities describes the daemon and its machine.
type Capabilities struct {
	Version    string
	Started    time.Time
	Boundaries []Boundary
	Runtimes   []Runtime
	Images     []Image
	// Default and Max are the daemon's bounds on executions.
	Default, Max executor.Limits
	// MaxRunning includes the reserved slots.
	MaxRunning, MaxQueued int
	Network               bool   // whether some execution can get one
	Cgroup                string // "v2", "v1" or "hybrid"
	Kernel                string
	// How long ended executions are kept.
	Retention time.Duration
	// AuditProblem is why the audit log cannot be written now. Empty: it can be.
	AuditProblem string
	// TenantProblems and Warnings are for operators only. Warnings may read files. Nil: no warnings.
	TenantProblems []TenantProblem
	Warnings       func() []Warning
}

// A Warning is about a part of the configuration that has no effect. Tenant is empty for the daemon's keys.
type Warning struct{ Tenant, File, Reason string }

func (c Capabilities) warnings() (list []*pb.ConfigurationWarning) {
	if c.Warnings == nil {
		return nil
	}
	all := c.Warnings()
	for _, w := range all[:min(len(all), maxWarnings)] {
		list = append(list, &pb.ConfigurationWarning{Tenant: text(w.Tenant), File: text(w.File), Reason: clip(w.Reason, maxStatusText)})
	}
	return list
}

// A TenantProblem is why a tenant's configuration is not in force. Tenant is empty if it concerns all
// tenants of File. Kept: the former configuration is in force.
type TenantProblem struct {
	Tenant, File, Reason string
	Kept                 bool
}

// A Boundary is something that a sandbox relies on. Group is one of groupNumbers. Why is a text for
// operators. The daemon's configuration knows a boundary by its Name.
type Boundary struct {
	Name, Group, Why, Detail string
	Found                    bool
	Allowed                  bool // by the configuration, to be missing
}

// A Runtime is an interpreter that a sandbox sees. Image is the name of its root file system;
// empty: the host's.
type Runtime struct{ Language, Path, Version, Image string }

// An Image is a root file system for sandboxes. Source is its reference, or its directory on the
// host.
type Image struct {
	Name, Source string
	Runtimes     []string // "default", and languages as in Runtime
}

// seenBy returns the source for a caller. Only operators see where a directory is on the daemon's machine.
func (i Image) seenBy(operator bool) string {
	if !operator && filepath.IsAbs(i.Source) {
		return filepath.Base(i.Source)
	}
	return i.Source
}

// Bounds on the answer: a root of the wrong kind can have thousands of folders.
const (
	maxSkillProblems  = 100
	maxTenantProblems = 100
	maxWarnings       = 100
)

// systemCalls answers the calls of SystemService.
type systemCalls struct {
	pb.UnsafeSystemServiceServer // every method is here
	*Server
}

// GetCapabilities answers also while the daemon refuses executions or drains: operators ask it
// why.
func (c systemCalls) GetCapabilities(ctx context.Context, _ *pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
	can := c.capabilities()
	running, queued, draining := c.x.Counts()
	operator := roleOf(ctx) == identity.Operator
	if !operator && can.AuditProblem != "" {
		can.AuditProblem = "operators see the cause" // it names a directory of the machine
	}
	if !operator && !c.x.Tenants.IsSingle() {
		// A tenant must not learn how busy the others are.
		t, err := c.x.Tenant(caller(ctx))
		if err != nil {
			return nil, err
		}
		use := c.x.Use(t)
		can.Default, can.Max, can.MaxRunning, can.MaxQueued = t.Bounds.Default, t.Bounds.Max, t.Quota.Running, t.Quota.Queued
		running, queued = use.Running, use.Queued
		can.Network = !t.Policy.Network.None()
	}
	m := &pb.GetCapabilitiesResponse{
		Version:         text(can.Version),
		StartTime:       fromTime(can.Started),
		DefaultLimits:   fromLimits(can.Default),
		MaxLimits:       fromLimits(can.Max),
		MaxMessageBytes: uint64(c.maxMessage),
		MaxRunning:      uint32(can.MaxRunning),
		MaxQueued:       uint32(can.MaxQueued),
		Network:         networkMode(can.Network),
		CgroupVersion:   cgroupNumbers[can.Cgroup],
		Kernel:          text(can.Kernel),
		Retention:       durationpb.New(can.Retention),
		AuditProblem:    clip(can.AuditProblem, maxStatusText),
	}
	m.Running, m.Queued, m.Draining = uint32(running), uint32(queued), draining
	m.State = can.state(draining, operator)
	for _, b := range can.Boundaries {
		if !operator {
			b.Detail = "" // it can name directories of the machine
		}
		m.Boundaries = append(m.Boundaries, &pb.Boundary{
			Name: text(b.Name), Group: groupNumbers[b.Group], Found: proto.Bool(b.Found), Allowed: proto.Bool(b.Allowed), Why: text(b.Why), Detail: text(b.Detail),
		})
	}
	for _, r := range can.Runtimes {
		m.Runtimes = append(m.Runtimes, &pb.Runtime{Language: text(r.Language), Path: text(r.Path), Version: text(r.Version), Image: text(r.Image)})
	}
	for _, i := range can.Images {
		m.Images = append(m.Images, &pb.Image{Name: text(i.Name), Source: text(i.seenBy(operator)), Runtimes: i.Runtimes})
	}
	if operator {
		for _, p := range can.TenantProblems[:min(len(can.TenantProblems), maxTenantProblems)] {
			m.TenantProblems = append(m.TenantProblems, &pb.TenantProblem{Tenant: text(p.Tenant), File: text(p.File), Reason: clip(p.Reason, maxStatusText), Kept: p.Kept})
		}
		m.ConfigurationWarnings = can.warnings()
	}
	m.SkillProblems = c.skillProblems(ctx, operator)
	return m, nil
}
