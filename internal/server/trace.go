package server

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Each call of an identified caller has a span, so a stranger makes none. Unlike a stats handler of
// gRPC, this costs nothing for a message of a stream.

// trace begins the span of a call, as a child of the caller's span (W3C Trace Context). The returned
// context has the span.
func (s *Server) trace(ctx context.Context, c *call) context.Context {
	if s.tracer == nil {
		return ctx
	}
	name := strings.TrimPrefix(c.method, "/")
	ctx, c.span = s.tracer.Start(propagation.TraceContext{}.Extract(ctx, sentContext(ctx)), name,
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(name),
			attribute.String("skillrun.tenant", c.who.Tenant), attribute.String("skillrun.reference", c.reference)))
	return ctx
}

// sentContext returns the trace context in a call's metadata, or nothing if the call has several.
func sentContext(ctx context.Context) propagation.MapCarrier {
	sent := propagation.MapCarrier{}
	if parent := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(parent) == 1 {
		sent["traceparent"] = parent[0]
		sent["tracestate"] = strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ",")
	}
	return sent
}

// endTrace ends the span of a call with the call's status. The conventions for gRPC say which codes are
// errors of a server.
func (c *call) endTrace(err error) {
	if c.span == nil {
		return
	}
	got := status.Code(err)
	c.span.SetAttributes(semconv.RPCResponseStatusCode(rpccode.Code(got).String()))
	switch got {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		c.span.SetStatus(otelcodes.Error, "")
	}
	c.span.End()
}
