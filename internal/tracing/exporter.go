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

// An exporter sends batches through the SDK's exporter, and counts and logs its errors.
type exporter struct {
	to      sdktrace.SpanExporter
	log     *slog.Logger
	dropped *drops

	mu   sync.Mutex // guards the fields below
	last time.Time  // of the last line
	lost int        // spans since then
}

// send sends a batch.
func (e *exporter) send(ctx context.Context, batch []sdktrace.ReadOnlySpan) {
	if err := e.to.ExportSpans(ctx, batch); err != nil {
		e.failed(err, e.count(err, len(batch)), time.Now())
	}
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
