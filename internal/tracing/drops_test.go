package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// A picky receiver takes each batch without some of its spans.
type picky struct {
	collector.UnimplementedTraceServiceServer
	rejects atomic.Int64
}

func (p *picky) Export(context.Context, *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	return &collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: p.rejects.Load(), ErrorMessage: "too old"}}, nil
}

// If a receiver takes a batch without some spans, only these are counted, and never more than the batch has.
func TestRejectedSpansAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, s := &picky{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, p)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	var log bytes.Buffer
	c, err := newClient(Config{Endpoint: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	e := &exporter{to: otlptrace.NewUnstarted(c), log: slog.New(slog.NewTextHandler(&log, nil)), dropped: &drops{}}
	_, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "call")
	span.End()
	batch := slices.Repeat([]sdktrace.ReadOnlySpan{span.(sdktrace.ReadOnlySpan)}, 3)
	var want uint64
	for _, c := range []struct {
		rejects int64
		counted uint64
	}{{2, 2}, {0, 0}, {1 << 62, 3}, {-1, 0}} {
		p.rejects.Store(c.rejects)
		e.send(t.Context(), batch)
		want += c.counted
		if got := (&Tracing{dropped: e.dropped}).Dropped(); got != (Dropped{Rejected: want}) {
			t.Errorf("after %d: got %+v, want %d rejected", c.rejects, got, want)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "spans=2 ") || !strings.Contains(text, "rejected 2 spans: too old") {
		t.Errorf("the log has %s", text)
	}
}
