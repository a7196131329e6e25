package tracing

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A slowReceiver takes no batch until it is open. Then it counts the spans of each tenant.
type slowReceiver struct {
	open chan struct{}
	got  map[string]int
}

func (r *slowReceiver) ExportSpans(_ context.Context, batch []sdktrace.ReadOnlySpan) error {
	<-r.open
	for _, s := range batch {
		r.got[tenantOf(s)]++
	}
	return nil
}

func (*slowReceiver) Shutdown(context.Context) error { return nil }

// While the receiver takes nothing, a tenant ends more spans than the queue holds. The spans of tenants that
// come later are sent all the same, also spans that take their tenant from their parent.
func TestTenantsShareTheQueue(t *testing.T) {
	r := &slowReceiver{make(chan struct{}), map[string]int{}}
	dropped := &drops{}
	provider := newProvider(Config{SampleRatio: 1}, r, dropped)
	tracer := provider.Tracer("test")
	// call ends a span of a tenant, and as many spans beneath it.
	call := func(tenant string, stages int) {
		ctx, span := tracer.Start(t.Context(), "call", trace.WithAttributes(tenantKey.String(tenant)))
		ctx, execution := tracer.Start(ctx, "execution")
		for range stages {
			_, stage := tracer.Start(ctx, "stage")
			stage.End()
		}
		execution.End()
		span.End()
	}
	call("greedy", 2*maxQueued)
	for _, tenant := range []string{"a", "b", "c"} {
		call(tenant, 8)
	}
	call("late and greedy", 2*maxQueued)
	call("d", 8)
	close(r.open)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.got["greedy"]; n != maxQueued/2 {
		t.Errorf("%d spans of the greedy tenant, want half of the queue, %d", n, maxQueued/2)
	}
	if n, left := r.got["late and greedy"], maxQueued/2-30; n != left/2 {
		t.Errorf("%d spans of the late one, want half of what was left, %d", n, left/2)
	}
	for _, tenant := range []string{"a", "b", "c", "d"} {
		if n := r.got[tenant]; n != 10 {
			t.Errorf("%d spans of %s, want 10", n, tenant)
		}
	}
	if len(r.got) != 6 {
		t.Errorf("tenants %v", r.got)
	}
	ended, got := 2*(2*maxQueued+2)+4*10, 0
	for _, n := range r.got {
		got += n
	}
	if n := (&Tracing{dropped: dropped}).Dropped(); n != (Dropped{QueueFull: uint64(ended - got)}) {
		t.Errorf("%+v dropped of %d, and %d received", n, ended, got)
	}
}

// failing is a receiver that refuses each batch.
type failing struct{ sdktrace.SpanExporter }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("refused")
}

// A span leaves the count with its batch, whether that could be sent or not.
func TestSentSpansLeaveTheQueue(t *testing.T) {
	s := &shares{SpanProcessor: sdktrace.NewSimpleSpanProcessor(nil), dropped: &drops{}, spans: map[string]int{}}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s))
	_, span := provider.Tracer("test").Start(t.Context(), "call", trace.WithAttributes(tenantKey.String("a")))
	span.End()
	if s.total != 1 || s.spans["a"] != 1 {
		t.Errorf("got %d, %v", s.total, s.spans)
	}
	(&exporter{SpanExporter: failing{}, log: slog.New(slog.DiscardHandler), dropped: s.dropped, sent: s.leave}).ExportSpans(t.Context(), []sdktrace.ReadOnlySpan{span.(sdktrace.ReadOnlySpan)})
	if s.total != 0 || len(s.spans) != 0 {
		t.Errorf("got %d, %v after the batch", s.total, s.spans)
	}
	if n := s.dropped.notSent.Load(); n != 1 {
		t.Errorf("%d spans counted as not sent, want 1", n)
	}
}
