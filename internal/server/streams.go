package server

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// streaming has the methods that a tenant's quota of streams counts: each can stay open for long. The calls
// that look at executions and cancel them are not among them, so they work while the quota is used up.
var streaming = map[string]bool{
	pb.ExecutionService_Execute_FullMethodName:            true,
	pb.ExecutionService_ExecuteInteractive_FullMethodName: true,
	pb.ExecutionService_AttachExecution_FullMethodName:    true,
	pb.ExecutionService_GetArtifact_FullMethodName:        true,
	pb.SkillService_ReadSkillFile_FullMethodName:          true,
}

// retryStreams is the time after which a caller without a stream may try again. A random part of the same
// length is added, so that callers don't all come back at once.
const retryStreams = time.Second

// streams counts the open streams of each tenant. The zero value is ready to use.
type streams struct {
	mu     sync.Mutex
	counts map[string]int
}

// enter counts one more stream, or returns a *executor.QuotaError. leave must be called at the stream's
// end.
func (s *streams) enter(t *executor.Tenant) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[t.Name]
	if t.Streams > 0 && n >= t.Streams {
		return nil, &executor.QuotaError{
			Quota: executor.QuotaStreams, Limit: int64(t.Streams), Used: int64(n), RetryAfter: retryStreams + rand.N(retryStreams),
		}
	}
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[t.Name]++
	return func() { s.leave(t.Name) }, nil
}

func (s *streams) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[tenant]--; s.counts[tenant] == 0 {
		delete(s.counts, tenant)
	}
}

// open returns the number of a tenant's open streams.
func (s *streams) open(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[tenant]
}
