package main

import (
	"context"
	"os"

	"go.opentelemetry.io/otel/propagation"
)

// traceOf returns ctx with the trace context in the environment, which the client sends with each call.
// So a program that has begun a trace can call the command, and finds the execution in its trace.
func traceOf(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
}
