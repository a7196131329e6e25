package executor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// An execution has one span, from Execute to its recorded outcome, and beneath it a span for each
// stage that takes time: admission, assign, run, collect, and record (twice). The call that starts it
// is the parent. A span says which execution of which skill it is and how it ended. It has no
// arguments, no names or values of variables, and no content.

// An executionSpan is the span of an execution. The zero value records nothing and costs nothing.
type executionSpan struct {
	tracer trace.Tracer // nil: the span is not recorded
	ctx    context.Context
	span   trace.Span
	called bool // the caller has sent a trace context
}

type spanKey struct{} // key of a context; the value is an executionSpan

// spanOf returns the span that trace has put into a context.
func spanOf(ctx context.Context) executionSpan {
	s, _ := ctx.Value(spanKey{}).(executionSpan)
	return s
}

// trace begins the span of an execution as a child of the span in ctx. The returned context is for
// spanOf.
func (x *Executor) trace(ctx context.Context) (context.Context, executionSpan) {
	if x.Tracer == nil {
		return ctx, executionSpan{}
	}
	// The SDK's spans have this method; the interface trace.Span does not.
	call, ok := trace.SpanFromContext(ctx).(interface{ Parent() trace.SpanContext })
	// The span does not end with the call, so it takes nothing else from ctx.
	own, span := x.Tracer.Start(trace.ContextWithSpan(context.Background(), trace.SpanFromContext(ctx)), "execution")
	if !span.IsRecording() {
		return ctx, executionSpan{}
	}
	s := executionSpan{x.Tracer, own, span, ok && call.Parent().IsRemote()}
	return context.WithValue(ctx, spanKey{}, s), s
}

// stage begins the span of a stage. The returned function ends it; an error marks it.
func (t executionSpan) stage(name string, options ...trace.SpanStartOption) (end func(error, ...trace.SpanEndOption)) {
	if t.tracer == nil {
		return func(error, ...trace.SpanEndOption) {}
	}
	_, span := t.tracer.Start(t.ctx, name, options...)
	return func(err error, options ...trace.SpanEndOption) {
		if err != nil {
			span.SetStatus(codes.Error, "") // the text of an error may have content
		}
		span.End(options...)
	}
}

// accepted says which execution it is.
func (t executionSpan) accepted(e *execution) {
	if t.tracer == nil {
		return
	}
	who, sk, source := e.grant.Principal(), e.grant.Skill(), e.grant.Source()
	t.span.SetAttributes(
		attribute.String("skillrun.execution.id", e.id), attribute.String("skillrun.tenant", who.Tenant),
		attribute.String("skillrun.skill.name", sk.Name), attribute.String("skillrun.skill.digest", sk.Digest),
		attribute.String("skillrun.source.kind", source.Kind.String()),
	)
}

// refused ends the span of a request that started nothing. id is the earlier execution with the same
// idempotency key; empty: none.
func (t executionSpan) refused(id string) {
	if t.tracer == nil {
		return
	}
	if id != "" {
		t.span.SetAttributes(attribute.String("skillrun.execution.id", id), attribute.Bool("skillrun.duplicate", true))
	} else {
		t.span.SetStatus(codes.Error, "refused")
	}
	t.span.End()
}

// ran makes the span of the time in which the program ran, after its end.
func (t executionSpan) ran(r *run, out Outcome) {
	if t.tracer == nil {
		return
	}
	begin := r.created.Add(r.queued + r.startup)
	end := begin.Add(out.Usage.Wall)
	if c := r.collected.begun; !c.IsZero() && c.Before(end) {
		end = c // the sandbox counts from a moment before begin
	}
	t.stage("run", trace.WithTimestamp(begin))(nil, trace.WithTimestamp(end))
}

// ended ends the span of an execution with its outcome.
func (t executionSpan) ended(out Outcome) {
	if t.tracer == nil {
		return
	}
	t.span.SetAttributes(attribute.String("skillrun.end", string(out.End)))
	if out.ExitCode != nil {
		t.span.SetAttributes(attribute.Int("process.exit.code", *out.ExitCode))
	}
	if out.End != Exited || out.ExitCode != nil && *out.ExitCode != 0 {
		t.span.SetStatus(codes.Error, string(out.End))
	}
	t.span.End()
}

// id returns the trace's id in hexadecimal digits, or "".
func (t executionSpan) id() string {
	if t.tracer == nil {
		return ""
	}
	return t.span.SpanContext().TraceID().String()
}

// environment returns the variables TRACEPARENT and TRACESTATE for the program, if the caller has sent a
// trace context. Programs of other callers have the same environment with and without tracing. Nil:
// no variables.
func (t executionSpan) environment() map[string]string {
	if !t.called {
		return nil
	}
	sent := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(t.ctx, sent)
	env := map[string]string{"TRACEPARENT": sent["traceparent"]}
	if state := sent["tracestate"]; state != "" {
		env["TRACESTATE"] = state
	}
	return env
}
