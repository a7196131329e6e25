package server

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Only an administrator's request may learn.
func TestLearnNeedsAdmin(t *testing.T) {
	method := pb.ExecutionService_GetExecution_FullMethodName
	for role := identity.Invoke; role <= identity.Operator; role++ {
		s := &Server{log: slog.New(slog.DiscardHandler), identify: as(role), x: executorOf(tenant.Single(&tenant.Tenant{})), bidirectional: map[string]bool{method: false}}
		for _, learn := range []bool{false, true} {
			err := s.guard(callContext(t), method, func(ctx context.Context) error {
				return checkLearn(ctx, &pb.ExecuteRequest{NetworkRules: &pb.NetworkRules{Learn: learn}})
			})
			if !learn || role >= identity.Admin {
				if err != nil {
					t.Errorf("%s, learn %v: %v", role, learn, err)
				}
				continue
			}
			wantRefusal(t, err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
		}
	}
}
