package tracing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
type failing struct{}

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("refused")
}

func (failing) Shutdown(context.Context) error { return nil }

// A span leaves the count with its batch, whether that could be sent or not.
func TestSentSpansLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(&exporter{to: failing{}, log: slog.New(slog.DiscardHandler), dropped: &drops{}}, &drops{})
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
		_, span := provider.Tracer("test").Start(t.Context(), "call", trace.WithAttributes(tenantKey.String("a")))
		span.End()
		if q.total != 1 || q.tenants["a"] != 1 {
			t.Errorf("got %d, %v", q.total, q.tenants)
		}
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q.total != 0 || len(q.tenants) != 0 {
			t.Errorf("got %d, %v after the batch", q.total, q.tenants)
		}
		if n := q.exporter.dropped.notSent.Load(); n != 1 {
			t.Errorf("%d spans counted as not sent, want 1", n)
		}
	})
}

// A full batch is sent at once, other spans after batchInterval. The clock is fake.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &counting{}
		provider := newProvider(Config{SampleRatio: 1}, r, &drops{})
		end := func(n int) {
			for range n {
				_, span := provider.Tracer("test").Start(t.Context(), "call")
				span.End()
			}
			synctest.Wait()
		}
		want := func(batches ...int) {
			t.Helper()
			if got := r.batches; !slices.Equal(got, batches) {
				t.Errorf("got batches of %v spans, want %v", got, batches)
			}
		}
		end(maxBatch - 1)
		want()
		end(1)
		want(maxBatch)
		end(3)
		want(maxBatch)
		time.Sleep(batchInterval)
		synctest.Wait()
		want(maxBatch, 3)
		end(2)
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(maxBatch, 3, 2)
	})
}

// A receiver that answers no batch does not hold up Shutdown beyond its context. The batch then counts as not sent.
func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := &drops{}
		provider := newProvider(Config{SampleRatio: 1, Log: slog.New(slog.DiscardHandler)}, stuck{}, dropped)
		_, span := provider.Tracer("test").Start(t.Context(), "call")
		span.End()
		ctx, cancel := context.WithTimeout(t.Context(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if n := dropped.notSent.Load(); n != 1 {
			t.Errorf("%d spans counted as not sent, want 1", n)
		}
	})
}

// counting is a receiver that has the sizes of its batches.
type counting struct{ batches []int }

func (r *counting) ExportSpans(_ context.Context, batch []sdktrace.ReadOnlySpan) error {
	r.batches = append(r.batches, len(batch))
	return nil
}

func (*counting) Shutdown(context.Context) error { return nil }

// stuck is a receiver that answers nothing.
type stuck struct{}

func (stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) Shutdown(context.Context) error { return nil }
