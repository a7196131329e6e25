// Package tracing sends spans to a receiver of OTLP, such as an OpenTelemetry Collector.
//
// Theory of operation. The packages that make spans get a trace.Tracer and know nothing of this
// package. An ended span goes into a queue. A goroutine sends the queue in batches, over one gRPC
// connection. If the receiver is slow or dead, the queue fills and further spans are dropped and
// counted ([Dropped]), so an execution never waits for the receiver. Each tenant has a share of the
// [queue].
//
// Whether a span is recorded is decided once for a trace: by the caller, if its request has a trace
// context, else by Config.SampleRatio.
package tracing

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Bounds. An execution has up to ten spans of about 500 bytes.
const (
	maxQueued     = 4096
	maxBatch      = 512
	batchInterval = 2 * time.Second
	// exportTimeout bounds sending one batch, with all tries.
	exportTimeout = 10 * time.Second
	// flushTimeout bounds sending the rest of the queue at the end of the daemon.
	flushTimeout = 3 * time.Second
	// maxAttributeBytes bounds the value of an attribute.
	maxAttributeBytes = 512
)

// Config configures Open. All fields but CA and Headers must be set.
type Config struct {
	// Endpoint is the receiver: http://host:port without TLS, or https://host:port.
	Endpoint string
	// CA is a PEM file with the authorities of the receiver's certificate. Empty: the system's.
	CA string
	// Headers is a file with a header "name: value" on each line. It is read for each batch.
	Headers string
	// SampleRatio is the part of the traces that are recorded, from 0 to 1, for requests without a
	// trace context.
	SampleRatio float64
	// Version is the daemon's version.
	Version string
	// Log gets one line a minute at most about spans that were not sent.
	Log *slog.Logger
}

// A Tracing sends spans. A nil Tracing is valid, and has no spans.
type Tracing struct {
	provider *sdktrace.TracerProvider
	dropped  *drops
	log      *slog.Logger
}

// Open makes a Tracing. It does not connect: a receiver that starts later gets the later spans.
func Open(c Config) (*Tracing, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	dropped := &drops{}
	return &Tracing{newProvider(c, otlptrace.NewUnstarted(client), dropped), dropped, c.Log}, nil
}

// newProvider returns a provider whose spans go to an exporter. dropped counts the spans that get lost.
func newProvider(c Config, to sdktrace.SpanExporter, dropped *drops) *sdktrace.TracerProvider {
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttributeBytes
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(newQueue(&exporter{to: to, log: c.Log, dropped: dropped}, dropped)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SampleRatio))),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL,
			semconv.ServiceName("skillrund"), semconv.ServiceVersion(c.Version))),
	)
}

// Check returns an error if the endpoint or one of the files can't be used.
func (c Config) Check() error {
	if c.Headers != "" {
		if _, err := readHeaders(c.Headers); err != nil {
			return err
		}
	}
	client, err := newClient(c)
	if err != nil {
		return err
	}
	return client.conn.Close()
}

// CheckEndpoint returns the host of an endpoint, and whether its connections are encrypted.
func CheckEndpoint(endpoint string) (host string, encrypted bool, err error) {
	u, err := parse(endpoint)
	if err != nil {
		return "", false, err
	}
	return u.Hostname(), u.Scheme == "https", nil
}

// Tracer makes spans. It is nil for a nil Tracing.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("github.com/skillrun/skillrun")
}

// Close sends the spans in the queue, for some seconds at most. Tracers make no spans afterwards.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil { // errors of batches are not among these
		t.log.Warn("the last spans not sent; see tracing.endpoint", "err", err)
	}
}
