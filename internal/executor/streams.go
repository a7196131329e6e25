package executor

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
)

// retryStreams is the time after which a caller without a stream may try again. A random part of the same
// length is added, so that callers don't all come back at once.
const retryStreams = time.Second

// streams counts the open streams of each tenant. The zero value is ready to use.
type streams struct {
	mu     sync.Mutex
	counts map[string]int // by tenant; no zeros
}

// EnterStream counts one more open stream of a tenant, or returns a *QuotaError. leave must be called at the
// stream's end. Streams of all protocols count together.
func (x *Executor) EnterStream(t *Tenant) (leave func(), err error) { return x.streams.enter(t) }

// OpenStreams returns the number of a tenant's open streams.
func (x *Executor) OpenStreams(t *Tenant) int { return x.streams.open(t.Name) }

func (s *streams) enter(t *Tenant) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[t.Name]
	if t.Streams > 0 && n >= t.Streams {
		return nil, &QuotaError{
			Quota: admission.Streams, Limit: int64(t.Streams), Used: int64(n), RetryAfter: retryStreams + rand.N(retryStreams),
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

func (s *streams) open(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[tenant]
}
