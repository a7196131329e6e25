package tracing

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tenantKey is the attribute of a span with the name of the tenant whose call or execution it is.
const tenantKey attribute.Key = "skillrun.tenant"

// shares bounds the ended spans of each tenant that wait to be sent. A caller decides whether its trace is
// recorded, so one tenant could fill the queue, and the spans of others would be dropped.
//
// A tenant may have as many spans in the queue as the queue has room left. So one tenant alone has at most half
// of the queue, n tenants that fill it have at most 1/(n+1) each, and there is always room for one more tenant.
type shares struct {
	sdktrace.SpanProcessor // has the queue
	dropped                *drops

	mu    sync.Mutex
	spans map[string]int // by tenant; no entry is zero
	total int
}

// OnStart gives a span the tenant of its parent. The spans of an execution's stages have no tenant themselves.
func (s *shares) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	if above, ok := trace.SpanFromContext(parent).(sdktrace.ReadOnlySpan); ok && tenantOf(span) == "" {
		if tenant := tenantOf(above); tenant != "" {
			span.SetAttributes(tenantKey.String(tenant))
		}
	}
	s.SpanProcessor.OnStart(parent, span)
}

// OnEnd puts a span into the queue, or drops it. The queue itself never drops one: its length is maxQueued.
func (s *shares) OnEnd(span sdktrace.ReadOnlySpan) {
	if !s.enter(tenantOf(span)) {
		s.dropped.queueFull.Add(1)
		return
	}
	s.SpanProcessor.OnEnd(span)
}

// enter counts a span of a tenant. It returns false if the tenant may have no more.
func (s *shares) enter(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spans[tenant] >= maxQueued-s.total {
		return false
	}
	s.spans[tenant]++
	s.total++
	return true
}

// leave takes spans that the queue does not hold any longer from the counts.
func (s *shares) leave(sent []sdktrace.ReadOnlySpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range sent {
		tenant := tenantOf(span)
		if s.spans[tenant]--; s.spans[tenant] == 0 {
			delete(s.spans, tenant)
		}
		s.total--
	}
}

// tenantOf returns the attribute, or "".
func tenantOf(span sdktrace.ReadOnlySpan) string {
	for _, a := range span.Attributes() {
		if a.Key == tenantKey {
			return a.Value.AsString()
		}
	}
	return ""
}
