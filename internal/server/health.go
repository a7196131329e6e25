package server

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Health has the daemon's state in three answers. That it is live needs none: a process that is not live
// does not answer.
type Health struct {
	// Ready: the daemon takes executions. Say true only when a sandbox can really be made.
	Ready bool
	// Draining: it waits for its executions in order to stop.
	Draining bool
	// Degraded says that the daemon serves, but something needs the operator. Every caller may ask for it, so mistakes
	// of tenants do not count: one tenant must not learn of another's.
	Degraded bool
}

// Names of the health service, in addition to the names of the contract's services. Each is SERVING if the name is true.
const (
	Live        = "live"
	Ready       = "ready"
	NotDraining = "not-draining"
	NotDegraded = "not-degraded"
)

// SetHealth sets the answers of gRPC's health service. The server as a whole (the empty name) and each
// service of the contract have the same answer as Ready.
func (s *Server) SetHealth(h Health) {
	set := func(yes bool, names ...string) {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if yes {
			status = healthpb.HealthCheckResponse_SERVING
		}
		for _, name := range names {
			s.health.SetServingStatus(name, status)
		}
	}
	set(true, Live)
	set(!h.Draining, NotDraining)
	set(!h.Degraded, NotDegraded)
	set(h.Ready, Ready, "",
		pb.ExecutionService_ServiceDesc.ServiceName,
		pb.SkillService_ServiceDesc.ServiceName,
		pb.SessionService_ServiceDesc.ServiceName,
		pb.ToolService_ServiceDesc.ServiceName,
		pb.SystemService_ServiceDesc.ServiceName)
}

// probes answers the calls of gRPC's health service.
type probes struct{ *health.Server }

// maxWatchBytes bounds the message of a Watch, which stays in memory until its caller goes. Nobody has identified the
// caller, who could otherwise fill the memory for requests with it, and keep it full.
const maxWatchBytes = 1 << 10

func (p probes) Watch(m *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if n := proto.Size(m); n > maxWatchBytes {
		return invalid("service", "the message has %d bytes; at most %d", n, maxWatchBytes)
	}
	return p.Server.Watch(m, stream)
}

// state says how the daemon is, as far as a caller may know: problems of tenants are for operators.
func (c *Capabilities) state(draining, operator bool) pb.DaemonState {
	degraded := operator && len(c.TenantProblems) > 0
	for _, b := range c.Boundaries {
		if b.Found {
			continue
		}
		if !b.Allowed {
			return pb.DaemonState_DAEMON_STATE_NOT_READY
		}
		degraded = true
	}
	switch {
	case draining:
		return pb.DaemonState_DAEMON_STATE_DRAINING
	case c.AuditProblem != "":
		return pb.DaemonState_DAEMON_STATE_NOT_READY
	case degraded:
		return pb.DaemonState_DAEMON_STATE_DEGRADED
	}
	return pb.DaemonState_DAEMON_STATE_READY
}
