package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/metrics"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A receiver is a real receiver of OTLP that keeps the spans.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	address string
	answer  chan struct{} // closed: each batch is answered at once
	came    chan struct{} // has an element after the first batch

	mu      sync.Mutex
	spans   []*spans.Span
	headers metadata.MD
}

func (r *receiver) Export(ctx context.Context, m *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	select {
	case r.came <- struct{}{}:
	default:
	}
	select {
	case <-r.answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers, _ = metadata.FromIncomingContext(ctx)
	for _, resource := range m.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// startReceiver starts a receiver. A slow one answers no batch until the test ends.
func startReceiver(t testing.TB, slow bool) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{address: l.Addr().String(), answer: make(chan struct{}), came: make(chan struct{}, 1)}
	if !slow {
		close(r.answer)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return r
}

// of returns the spans of a trace by name. Several spans of a name stand in the order of their ends.
func (r *receiver) of(trace string) map[string][]*spans.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]*spans.Span{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			found[s.Name] = append(found[s.Name], s)
		}
	}
	return found
}

// await returns the spans of a trace when the call and the execution have ended.
func (r *receiver) await(t *testing.T, trace, call string) map[string][]*spans.Span {
	t.Helper()
	var got map[string][]*spans.Span
	if !await(func() bool {
		got = r.of(trace)
		return len(got[call]) == 1 && len(got["execution"]) == 1
	}) {
		t.Fatalf("the trace %s has no %q with an execution: %v", trace, call, slices.Sorted(maps.Keys(got)))
	}
	return got
}

// attributes returns the text values of a span's attributes.
func attributes(s *spans.Span) map[string]string {
	found := map[string]string{}
	for _, a := range s.Attributes {
		found[a.Key] = a.Value.GetStringValue()
	}
	return found
}

// wantTrace checks that the parents of a trace are right: parent, call, execution, stages.
func wantTrace(t *testing.T, got map[string][]*spans.Span, call, parent string) {
	t.Helper()
	c, e := got[call][0], got["execution"][0]
	if p := hex.EncodeToString(c.ParentSpanId); p != parent {
		t.Errorf("the parent of %s is %s, want %s", call, p, parent)
	}
	if !slices.Equal(e.ParentSpanId, c.SpanId) {
		t.Errorf("the parent of execution is %x, want %s, %x", e.ParentSpanId, call, c.SpanId)
	}
	for name, n := range map[string]int{"admission": 1, "assign": 1, "run": 1, "collect": 1, "record": 2} {
		if len(got[name]) != n {
			t.Errorf("%d spans %s, want %d", len(got[name]), name, n)
		}
		for _, s := range got[name] {
			if !slices.Equal(s.ParentSpanId, e.SpanId) {
				t.Errorf("the parent of %s is %x, want execution, %x", name, s.ParentSpanId, e.SpanId)
			}
			if s.StartTimeUnixNano < e.StartTimeUnixNano || s.EndTimeUnixNano > e.EndTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s lasts from %d to %d, outside of execution, %d to %d", name, s.StartTimeUnixNano, s.EndTimeUnixNano, e.StartTimeUnixNano, e.EndTimeUnixNano)
			}
		}
	}
}

// The trace context of the examples in W3C's document.
const (
	givenTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	givenParent = "00f067aa0ba902b7"
	given       = "00-" + givenTrace + "-" + givenParent + "-01"
)

// startTraced starts a daemon that sends its spans to a receiver, with a skill that prints its trace
// context. more is more configuration.
func startTraced(t *testing.T, to, more string) *running {
	t.Helper()
	dir := newDir(t)
	writeSkill(t, dir, "traced", "", map[string]string{
		"scripts/show.py": "import os\nprint(os.environ.get('TRACEPARENT'), os.environ.get('TRACESTATE'))\nopen('file-with-a-name.txt', 'w').write('content')\n",
		"scripts/show.sh": "echo ${TRACEPARENT-None} ${TRACESTATE-None}\n",
	})
	return startDaemonIn(t, dir, fmt.Sprintf("tracing: {endpoint: 'http://%s'}\n%s", to, more))
}

// grpcurl sends a trace context. The spans of the daemon continue the trace, and the script gets the
// context of its execution. The spans have nothing that the caller sent or the program wrote.
func TestTraceOfGrpcurl(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\n")
	const request = `{"skill": "traced", "script": "scripts/show.py", "args": ["an-argument"], "env": {"A_NAME": "a-value"}, "secret_env": {"KEY": "a-secret"}, "labels": {"label": "a-label"}}`
	out, err := exec.Command(grpcurl(t), "-plaintext", "-unix", "-H", "traceparent: "+given, "-H", "tracestate: vendor=1", "-H", "authorization: Bearer a-token",
		"-d", request, d.dir+"/s.sock", "skillrun.v1.ExecutionService/Execute").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const call = "skillrun.v1.ExecutionService/Execute"
	got := r.await(t, givenTrace, call)
	wantTrace(t, got, call, givenParent)
	e := got["execution"][0]
	id := attributes(e)["skillrun.execution.id"]
	about, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: id})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"skillrun.skill.name": "traced", "skillrun.skill.digest": about.GetSkillDigest(),
		"skillrun.end": "EXITED", "skillrun.tenant": "default",
	} {
		if a := attributes(e)[key]; a != want || a == "" {
			t.Errorf("%s is %q, want %q", key, a, want)
		}
	}
	for key, want := range map[string]string{"rpc.system.name": "grpc", "rpc.method": call, "rpc.response.status_code": "OK"} {
		if a := attributes(got[call][0])[key]; a != want {
			t.Errorf("%s is %q, want %q", key, a, want)
		}
	}
	if want := fmt.Sprintf("00-%s-%x-01 vendor=1\n", givenTrace, e.SpanId); d.output(id) != want {
		t.Errorf("the script has %q, want %q", d.output(id), want)
	}
	wantExemplars(t, d)
	for name, list := range got {
		for _, s := range list {
			if tenant := attributes(s)["skillrun.tenant"]; tenant != "default" {
				t.Errorf("the tenant of %s is %q", name, tenant)
			}
			text := prototext.Format(s)
			for _, private := range []string{"an-argument", "A_NAME", "a-value", "KEY", "a-secret", "a-label", "a-token", "file-with-a-name", "content", "show.py"} {
				if strings.Contains(text, private) {
					t.Errorf("%s has %q: %s", name, private, text)
				}
			}
		}
	}
}

// wantExemplars checks that the histograms of executions name the trace, in OpenMetrics.
func wantExemplars(t *testing.T, d *running) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+loggedAddress(t, d.log, `msg="listening for Prometheus" network=tcp address=`)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	a, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"execution_queue", "execution_start", "sandbox_setup", "execution_run"} {
		if !regexp.MustCompile(`(?m)^skillrun_` + name + `_seconds_bucket\{.*\} 1 # \{trace_id="` + givenTrace + `"\} `).Match(text) {
			t.Errorf("skillrun_%s_seconds has no exemplar:\n%s", name, text)
		}
	}
}

// output returns the standard output of an execution.
func (d *running) output(id string) string {
	d.t.Helper()
	s, err := d.runs.AttachExecution(d.t.Context(), &pb.AttachExecutionRequest{ExecutionId: id})
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := collect(d.t, s, 0, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return r.stdout.String()
}

// The command sends the trace context of its environment.
func TestTraceOfCommand(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	cmd := exec.Command(binary(t, "skillrun"), "--address", d.dir+"/s.sock", "run", "traced", "scripts/show.sh")
	cmd.Env = append(cmd.Environ(), "TRACEPARENT="+given)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const call = "skillrun.v1.ExecutionService/Execute"
	got := r.await(t, givenTrace, call)
	wantTrace(t, got, call, givenParent)
	if want := fmt.Sprintf("00-%s-%x-01 None\n", givenTrace, got["execution"][0].SpanId); string(out) != want {
		t.Errorf("the script has %q, want %q", out, want)
	}
}

// A program in Go whose client makes spans has them between its own span and the daemon's.
func TestTraceOfGoClient(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	// Of the whole process. Spans of other tests have other traces.
	otel.SetTracerProvider(provider)
	c, err := skillrun.Dial(d.dir + "/s.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, own := provider.Tracer("test").Start(t.Context(), "agent")
	out, err := c.Script("traced", "scripts/show.sh").Output(ctx)
	own.End()
	if err != nil {
		t.Fatal(err)
	}
	trace := own.SpanContext().TraceID()
	const call = "skillrun.v1.ExecutionService/Execute"
	var sent sdktrace.ReadOnlySpan
	until(t, "no span of the client", func() bool {
		for _, s := range recorder.Ended() {
			if s.SpanContext().TraceID() == trace && s.Name() == call {
				sent = s
			}
		}
		return sent != nil
	})
	if sent.Parent().SpanID() != own.SpanContext().SpanID() {
		t.Errorf("the parent of the client's span is %s, want %s", sent.Parent().SpanID(), own.SpanContext().SpanID())
	}
	got := r.await(t, trace.String(), call)
	wantTrace(t, got, call, sent.SpanContext().SpanID().String())
	if want := fmt.Sprintf("00-%s-%x-01 None\n", trace, got["execution"][0].SpanId); string(out) != want {
		t.Errorf("the script has %q, want %q", out, want)
	}
}

// The Python clients send the trace context that their caller's function returns. A function that returns
// None sends nothing.
func TestTraceOfPythonClient(t *testing.T) {
	t.Parallel()
	const other = "0af7651916cd43dd8448eb211c80319c"
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	cmd := exec.Command(debianPython, "-c", `
import asyncio, skillrun, skillrun.aio, sys
for parent in sys.argv[2], None:
    with skillrun.connect(sys.argv[1], traceparent=lambda: parent) as client:
        sys.stdout.write(b"".join(c.data for c in client.run("traced", script="scripts/show.sh")).decode())
async def run():
    async with skillrun.aio.connect(sys.argv[1], traceparent=lambda: sys.argv[3]) as client:
        sys.stdout.write((await (await client.run("traced", script="scripts/show.sh")).result()).stdout.decode())
asyncio.run(run())
`, d.dir+"/s.sock", given, "00-"+other+"-"+givenParent+"-01")
	path, err := filepath.Abs(pythonPackage)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const call = "skillrun.v1.ExecutionService/Execute"
	got := r.await(t, givenTrace, call)
	wantTrace(t, got, call, givenParent)
	async := r.await(t, other, call)
	wantTrace(t, async, call, givenParent)
	if want := fmt.Sprintf("00-%s-%x-01 None\nNone None\n00-%s-%x-01 None\n", givenTrace, got["execution"][0].SpanId, other, async["execution"][0].SpanId); string(out) != want {
		t.Errorf("the scripts have %q, want %q", out, want)
	}
}

// An agent sends the trace context with a call of a tool, in _meta or in a header of HTTP. The first
// counts.
func TestTraceOfMCP(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.dir, "mcp.sock"))
	}}}
	defer client.CloseIdleConnections()
	const other = "11111111111111111111111111111111"
	call := func(trace, header, meta string) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_skill_script", "arguments": {"skill": "traced", "script_path": "scripts/show.sh"},
			"_meta": {%s "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}}}`, meta)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/call", "Mcp-Name": "run_skill_script", "Traceparent": header} {
			req.Header.Set(name, value)
		}
		a, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || !strings.Contains(string(text), trace) {
			t.Fatalf("%s, %v: %s", a.Status, err, text)
		}
		const name = "tools/call run_skill_script"
		got := r.await(t, trace, name)
		wantTrace(t, got, name, givenParent)
		if tool := attributes(got[name][0])["gen_ai.tool.name"]; tool != "run_skill_script" {
			t.Errorf("the tool is %q", tool)
		}
	}
	call(givenTrace, given, "")
	call(other, given, `"traceparent": "00-`+other+`-`+givenParent+`-01",`)
}

// A caller without a trace context gets a new trace, and its script no context. A caller that says that
// its trace is not recorded gets no spans.
func TestTraceWithoutContext(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	show := script("traced", "scripts/show.py")
	s, err := d.runs.Execute(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+givenTrace+"-"+givenParent+"-00"), show)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := collect(t, s, 0, nil); err != nil || got.stdout.String() != "None None\n" {
		t.Errorf("not recorded: %q, %v", got.stdout.String(), err)
	}
	two := metadata.AppendToOutgoingContext(t.Context(), "traceparent", given, "traceparent", given)
	for _, ctx := range []context.Context{t.Context(), two, metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-x")} {
		s, err := d.runs.Execute(ctx, show)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := collect(t, s, 0, nil); err != nil || got.stdout.String() != "None None\n" {
			t.Errorf("%q, %v", got.stdout.String(), err)
		}
	}
	executions := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.spans {
			if s.Name == "execution" {
				n++
			}
		}
		return n
	}
	d.stop() // sends the rest
	if n := executions(); n != 3 {
		t.Errorf("%d executions have spans, want 3", n)
	}
	if got := r.of(givenTrace); len(got) > 0 {
		t.Errorf("a trace that is not recorded has %v", got)
	}
}

// Without a receiver in the configuration, a trace context has no effect.
func TestTracingOff(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	d := startTraced(t, r.address, "")
	d.stop()
	d = startDaemonIn(t, d.dir, "")
	s, err := d.runs.Execute(metadata.AppendToOutgoingContext(t.Context(), "traceparent", given), script("traced", "scripts/show.py"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := collect(t, s, 0, nil); err != nil || got.stdout.String() != "None None\n" {
		t.Errorf("the script has %q, %v", got.stdout.String(), err)
	}
	d.stop()
	if got := r.of(givenTrace); len(got) > 0 {
		t.Errorf("spans: %v", got)
	}
}

// A dead or a slow receiver holds up no execution and no end of the daemon, and the log says so.
func TestReceiverDeadOrSlow(t *testing.T) {
	needsDaemon(t)
	t.Parallel()
	for name, slow := range map[string]bool{"dead": false, "slow": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := "127.0.0.1:1" // no program listens on tcpmux
			var came <-chan struct{}
			if slow {
				r := startReceiver(t, true)
				to, came = r.address, r.came
			}
			d := startTraced(t, to, "")
			began := time.Now()
			for range 30 {
				d.run(script("traced", "scripts/show.sh")).wantStdout(t, "None None\n")
			}
			d.stop()
			// One when the daemon ends, one before, and one for each minute.
			if n := strings.Count(d.log.String(), "spans not sent"); n < 1 || n > 2+int(time.Since(began)/time.Minute) {
				t.Errorf("%d lines about spans that were not sent", n)
			}
			if slow {
				select {
				case <-came:
				case <-time.After(patience):
					t.Error("the daemon has sent nothing")
				}
			}
		})
	}
}

// The metrics count spans that a receiver refuses. Without a receiver of traces nothing is dropped.
func TestDroppedSpansAreCounted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, collector.UnimplementedTraceServiceServer{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	const none = `skillrun_spans_dropped_total{reason="not_sent"} 0`
	for more, dropped := range map[string]bool{"": false, fmt.Sprintf("tracing: {endpoint: 'http://%s'}\n", l.Addr()): true} {
		d := startDaemon(t, "listen: {unix: s.sock, metrics_tcp: '127.0.0.1:0'}\n"+more)
		d.run(script("calculator", "scripts/calc.py", "6 * 7")).wantStdout(t, "42\n")
		until(t, "the metrics have no right count of dropped spans", func() bool {
			_, text := d.page(metrics.Path)
			return strings.Contains(text, `skillrun_spans_dropped_total{reason="queue_full"} 0`) && strings.Contains(text, none) != dropped
		})
	}
}

// The receiver gets the headers of the file.
func TestTraceHeaders(t *testing.T) {
	t.Parallel()
	r := startReceiver(t, false)
	dir := newDir(t)
	if err := os.WriteFile(filepath.Join(dir, "headers"), []byte("# for the receiver\n\nAuthorization: Bearer of-the-receiver\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, fmt.Sprintf("tracing: {endpoint: 'http://%s', headers_file: headers}\n", r.address))
	d.run(script("calculator", "scripts/calc.py", "6 * 7")).wantStdout(t, "42\n")
	d.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.headers.Get("authorization"); !slices.Equal(got, []string{"Bearer of-the-receiver"}) {
		t.Errorf("headers %v", got)
	}
}
