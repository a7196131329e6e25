package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// logInterval is the shortest time between two lines about spans that were not sent.
const logInterval = time.Minute

// An exporter counts and logs the errors of another one. The SDK would print each of them.
type exporter struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	dropped *drops
	sent    func([]sdktrace.ReadOnlySpan) // is called with each batch, whether it could be sent or not

	mu   sync.Mutex // guards the fields below
	last time.Time  // of the last line
	lost int        // spans since then
}

// ExportSpans sends a batch. It returns no error: the SDK can do nothing about one.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.sent(spans)
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed(err, e.count(err, len(spans)), time.Now())
	}
	return nil
}

// count adds the lost spans of a batch to the counters, and returns their number.
func (e *exporter) count(err error, batch int) int {
	if r, ok := errors.AsType[*rejectedError](err); ok {
		lost := int(min(r.spans, int64(batch))) // the receiver's number is not trusted
		e.dropped.rejected.Add(uint64(lost))
		return lost
	}
	e.dropped.notSent.Add(uint64(batch))
	return batch
}

// failed logs lost spans, at most once in a logInterval.
func (e *exporter) failed(err error, spans int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if !e.last.IsZero() && now.Sub(e.last) < logInterval {
		return
	}
	e.log.Warn("spans not sent; see tracing.endpoint", "spans", e.lost, "err", err)
	e.last, e.lost = now, 0
}
