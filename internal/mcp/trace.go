package mcp

import (
	"context"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillrun/skillrun/internal/toolview"
)

// trace begins the span of a request, as a child of the caller's span. Notifications have no span.
// The returned function ends the span with the answer.
func (s *Server) trace(ctx context.Context, method string, req sdk.Request) (context.Context, func(sdk.Result, error)) {
	if s.tracer == nil || strings.HasPrefix(method, "notifications/") {
		return ctx, func(sdk.Result, error) {}
	}
	name, attributes := method, []attribute.KeyValue{
		attribute.String("mcp.method.name", method),
		attribute.String("skillrun.tenant", callerOf(ctx, req.GetExtra()).Tenant),
	}
	// A name that no tool has could be any text.
	if call, ok := req.(*sdk.CallToolRequest); ok && s.hasTool(call.Params.Name) {
		name += " " + call.Params.Name
		attributes = append(attributes, attribute.String("gen_ai.tool.name", call.Params.Name))
	}
	ctx, span := s.tracer.Start(propagation.TraceContext{}.Extract(ctx, sentContext(req)), name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return ctx, func(res sdk.Result, err error) {
		if r, ok := res.(*sdk.CallToolResult); err != nil || ok && r.IsError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// hasTool reports whether a tool has this name.
func (s *Server) hasTool(name string) bool {
	return slices.ContainsFunc(s.tools.Tools(), func(t toolview.Tool) bool { return t.Name == name })
}

// sentContext returns the trace context of a request. A call of a tool can have it in _meta (SEP-414).
// Otherwise the headers of the HTTP request count.
func sentContext(req sdk.Request) propagation.TextMapCarrier {
	if call, ok := req.(*sdk.CallToolRequest); ok {
		sent := propagation.MapCarrier{}
		for _, key := range (propagation.TraceContext{}).Fields() {
			if text, ok := call.Params.GetMeta()[key].(string); ok {
				sent[key] = text
			}
		}
		if sent["traceparent"] != "" {
			return sent
		}
	}
	if extra := req.GetExtra(); extra != nil {
		return propagation.HeaderCarrier(extra.Header)
	}
	return propagation.MapCarrier{}
}
