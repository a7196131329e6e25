package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// withTokens is the configuration of a daemon whose callers have tokens.
const withTokens = "identity: {tokens: tokens.json}\n"

// asTenant returns a context whose calls are of a tenant.
func (d *running) asTenant(ctx context.Context, tenant, role string) context.Context {
	d.t.Helper()
	return with(ctx, d.token("create", "--tenant", tenant, "--name", role, "--role", role))
}

// begin starts a program that runs until it is cancelled, and returns its ID.
func (d *running) begin(ctx context.Context) string {
	d.t.Helper()
	req := shell("data-analysis", "echo started; sleep 600") // calculator may run for 10 s only
	req.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	stream, err := d.runs.Execute(ctx, req)
	if err != nil {
		d.t.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			d.t.Fatal(err)
		}
		if e.GetOutput() != nil {
			return e.ExecutionId
		}
	}
}

// queue starts a program that finds no slot, and returns its ID when it is queued.
func (d *running) queue(ctx context.Context) string {
	d.t.Helper()
	req := shell("calculator", "echo ran")
	req.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	stream, err := d.runs.Execute(ctx, req)
	if err != nil {
		d.t.Fatal(err)
	}
	e, err := stream.Recv()
	if err != nil {
		d.t.Fatal(err)
	}
	return e.ExecutionId
}

// refusalOf returns the error of an execution that is refused.
func (d *running) refusalOf(ctx context.Context, req *pb.ExecuteRequest) error {
	d.t.Helper()
	stream, err := d.runs.Execute(ctx, req)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// wantQuota checks that a refusal names a quota, its value, its use and a time to come back.
func wantQuota(t *testing.T, err error, quota string, limit int64, used string) {
	t.Helper()
	wantReason(t, err, codes.ResourceExhausted, "SATURATED", "the quota is used up")
	var retry bool
	var got *errdetails.QuotaFailure_Violation
	metadata := map[string]string{}
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.QuotaFailure:
			got = detail.Violations[0]
		case *errdetails.RetryInfo:
			retry = detail.RetryDelay.AsDuration() > 0
		case *errdetails.ErrorInfo:
			metadata = detail.Metadata
		}
	}
	if got.GetQuotaId() != quota || got.GetQuotaValue() != limit || !retry || metadata["quota"] != quota || metadata["used"] != used {
		t.Errorf("got %v, retry %v, %v; want the quota %s of %d with %s used", got, retry, metadata, quota, limit, used)
	}
}

// Three tenants with different policies, limits and quotas, each with its refusals. None sees another's
// execution, and a credential of no tenant opens nothing.
func TestThreeTenants(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+`
shell: true
tenants:
  small:
    limits: {max: {memory: 128MiB}}
    quotas: {running: 1, queued: 1}
  slow:
    quotas: {starts_per_second: 0.001, burst: 1}
  strict:
    policy: {code: false, runtimes: [python], without_allowed_tools: nothing}
    quotas: {cpus: 2}
`)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	small, slow, strict := d.asTenant(ctx, "small", "invoke"), d.asTenant(ctx, "slow", "invoke"), d.asTenant(ctx, "strict", "invoke")

	large := shell("calculator", "true")
	large.Limits = &pb.ExecutionLimits{MemoryBytes: 129 << 20}
	wantReason(t, d.refusalOf(small, large), codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.memory_bytes: 135266304 bytes is above the tenant's maximum, 134217728 bytes")

	first := d.begin(small)
	second := d.queue(small)
	wantQuota(t, d.refusalOf(small, shell("calculator", "true")), "queued", 1, "1")
	for _, id := range []string{first, second} {
		_, err := d.runs.GetExecution(strict, &pb.GetExecutionRequest{ExecutionId: id})
		wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
		_, err = d.runs.CancelExecution(slow, &pb.CancelExecutionRequest{ExecutionId: id})
		wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	}

	// The other tenants do not wait for the full one.
	limited := func(milliCPUs uint32) *pb.ExecuteRequest {
		req := &pb.ExecuteRequest{Skill: "calculator", Source: &pb.ExecuteRequest_Script{Script: "scripts/calc.py"}, Args: []string{"6*7"}}
		req.Limits = &pb.ExecutionLimits{MilliCpus: milliCPUs}
		return req
	}
	wantReason(t, d.refusalOf(strict, limited(2001)), codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.milli_cpus: 2001 is above the tenant's maximum, 2000")
	stream, err := d.runs.Execute(strict, limited(0))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, stream, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "42\n")
	stream, err = d.runs.Execute(slow, shell("calculator", "echo once"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err = collect(t, stream, 0, nil); err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "once\n")
	wantQuota(t, d.refusalOf(slow, shell("calculator", "echo twice")), "starts_per_second", 1, "1")

	// The policy refuses, and CheckCommand says the same in advance.
	wantReason(t, d.refusalOf(strict, shell("calculator", "true")), codes.PermissionDenied, "SOURCE_NOT_ALLOWED", "inline code is switched off")
	line := "python {baseDir}/scripts/calc.py 1+1"
	checked, err := d.skills.CheckCommand(small, &pb.CheckCommandRequest{Skill: "calculator", Command: line})
	if err != nil || !checked.GetAllowed() {
		t.Errorf("got %v, %v", checked, err)
	}
	for _, line := range []string{"bash -c ls", "node x.js"} {
		refused := d.refusalOf(strict, command("calculator", line))
		checked, err := d.skills.CheckCommand(strict, &pb.CheckCommandRequest{Skill: "calculator", Command: line})
		if err != nil || checked.Allowed == nil || checked.GetAllowed() || checked.Reason == "" || !strings.Contains(status.Convert(refused).Message(), checked.Reason) {
			t.Errorf("%s: CheckCommand says %v, %v; Execute says %v", line, checked, err, refused)
		}
	}

	// A credential of a tenant that is not configured.
	other := d.asTenant(ctx, "other", "admin")
	wantReason(t, d.refusalOf(other, shell("calculator", "true")), codes.PermissionDenied, "TENANT_UNKNOWN", "the tenant other of the credential is not configured; add it to tenants")
	_, err = d.system.GetCapabilities(other, &pb.GetCapabilitiesRequest{})
	wantReason(t, err, codes.PermissionDenied, "TENANT_UNKNOWN", "")
	// root has no row: an operator of the tenant default, which is not configured either.
	if _, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{}); err != nil {
		t.Errorf("an operator: %v", err)
	}
	wantReason(t, d.refusalOf(ctx, shell("calculator", "true")), codes.PermissionDenied, "TENANT_UNKNOWN", "the tenant default of the credential is not configured")

	if _, err := d.runs.CancelExecution(small, &pb.CancelExecutionRequest{ExecutionId: first}); err != nil {
		t.Error(err)
	}
	attached, err := d.runs.AttachExecution(small, &pb.AttachExecutionRequest{ExecutionId: second})
	if err != nil {
		t.Fatal(err)
	}
	if r, err = collect(t, attached, 0, nil); err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "ran\n")
}
