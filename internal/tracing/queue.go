package tracing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// tenantKey is the attribute of a span with the name of the tenant whose call or execution it is.
const tenantKey attribute.Key = "skillrun.tenant"

// A queue holds ended spans until a goroutine has sent them. It implements sdktrace.SpanProcessor. The SDK's own
// BatchSpanProcessor wakes its goroutine for each span, eight times for an execution. A queue wakes its goroutine only
// for a full batch, and after each batchInterval.
//
// The queue bounds the spans of each tenant. A caller decides whether its trace is recorded, so one tenant could fill
// the queue, and the spans of others would be dropped. A tenant may have as many spans in the queue as the queue has
// room left. So one tenant alone has at most half of the queue, n tenants that fill it have at most 1/(n+1) each, and
// there is always room for one more tenant.
type queue struct {
	exporter *exporter
	dropped  *drops
	full     chan struct{} // has an element if a batch is full
	stop     chan struct{} // closed by Shutdown
	sender   sync.WaitGroup
	sending  context.Context // of all batches
	cancel   context.CancelFunc

	mu      sync.Mutex // guards the fields below
	stopped bool
	waiting []sdktrace.ReadOnlySpan
	// The spans that wait or are being sent, by tenant and together. No entry is zero.
	tenants map[string]int
	total   int
}

// newQueue starts the goroutine that sends. Shutdown ends it.
func newQueue(to *exporter, dropped *drops) *queue {
	q := &queue{exporter: to, dropped: dropped, full: make(chan struct{}, 1), stop: make(chan struct{}), tenants: map[string]int{}}
	q.sending, q.cancel = context.WithCancel(context.Background())
	q.sender.Go(q.run)
	return q
}

// OnStart gives a span the tenant of its parent. The spans of an execution's stages have no tenant themselves.
func (q *queue) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	if above, ok := trace.SpanFromContext(parent).(sdktrace.ReadOnlySpan); ok && tenantOf(span) == "" {
		if tenant := tenantOf(above); tenant != "" {
			span.SetAttributes(tenantKey.String(tenant))
		}
	}
}

// OnEnd puts a span into the queue, or drops it if its tenant may have no more.
func (q *queue) OnEnd(span sdktrace.ReadOnlySpan) {
	tenant := tenantOf(span)
	q.mu.Lock()
	fits := !q.stopped && q.tenants[tenant] < maxQueued-q.total
	if fits {
		q.tenants[tenant]++
		q.total++
		q.waiting = append(q.waiting, span)
	}
	full := len(q.waiting) == maxBatch
	q.mu.Unlock()
	switch {
	case !fits:
		q.dropped.queueFull.Add(1)
	case full:
		select {
		case q.full <- struct{}{}:
		default: // the goroutine has not yet looked
		}
	}
}

// run sends batches until Shutdown, and then the rest.
func (q *queue) run() {
	tick := time.NewTicker(batchInterval)
	defer tick.Stop()
	for stopping := false; !stopping; {
		select {
		case <-tick.C:
		case <-q.full:
		case <-q.stop:
			stopping = true
		}
		for spans := q.take(); len(spans) > 0; spans = q.take() {
			for batch := range slices.Chunk(spans, maxBatch) {
				q.send(batch)
			}
		}
	}
}

// take returns the spans that wait. They count until send.
func (q *queue) take() []sdktrace.ReadOnlySpan {
	q.mu.Lock()
	defer q.mu.Unlock()
	spans := q.waiting
	if len(spans) > 0 {
		q.waiting = make([]sdktrace.ReadOnlySpan, 0, maxBatch)
	}
	return spans
}

// send sends a batch. Its spans don't count any longer, whether they could be sent or not.
func (q *queue) send(batch []sdktrace.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(q.sending, exportTimeout)
	defer cancel()
	q.exporter.send(ctx, batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, span := range batch {
		tenant := tenantOf(span)
		if q.tenants[tenant]--; q.tenants[tenant] == 0 {
			delete(q.tenants, tenant)
		}
		q.total--
	}
}

// Shutdown sends the spans in the queue. When ctx ends, it drops the spans that are not sent yet. Spans that end later
// are dropped.
func (q *queue) Shutdown(ctx context.Context) error {
	q.mu.Lock()
	was := q.stopped
	q.stopped = true
	q.mu.Unlock()
	if was {
		return nil
	}
	defer q.cancel()
	close(q.stop)
	sent := make(chan struct{})
	go func() {
		q.sender.Wait()
		close(sent)
	}()
	select {
	case <-sent:
		return q.exporter.to.Shutdown(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ForceFlush is a part of sdktrace.SpanProcessor that the daemon does not use.
func (*queue) ForceFlush(context.Context) error { return errors.ErrUnsupported }

// tenantOf returns the attribute, or "".
func tenantOf(span sdktrace.ReadOnlySpan) string {
	for _, a := range span.Attributes() {
		if a.Key == tenantKey {
			return a.Value.AsString()
		}
	}
	return ""
}
