package main

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// An operator sees, follows and cancels the executions of all tenants, and the audit log has an entry for
// each time. Callers with other roles see their own tenant only.
func TestOperatorSeesAllTenants(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+"keepalive: 1s\ntenants: {acme: {}, globex: {}}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "admin")
	ids := map[string]string{"acme": d.begin(acme), "globex": d.begin(globex)}
	list := func(ctx context.Context, tenant string) (tenants []string) {
		t.Helper()
		r, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Executions {
			tenants = append(tenants, e.Tenant)
		}
		slices.Sort(tenants)
		return tenants
	}
	// root is an operator of the tenant default, which is not configured.
	for tenant, want := range map[string][]string{"": nil, "*": {"acme", "globex"}, "acme": {"acme"}, "globex": {"globex"}, "none": nil} {
		if got := list(ctx, tenant); !slices.Equal(got, want) {
			t.Errorf("tenant %q: got %q, want %q", tenant, got, want)
		}
	}
	if got := list(acme, ""); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("acme lists %q", got)
	}
	for _, tenant := range []string{"*", "acme", "globex"} {
		_, err := d.runs.ListExecutions(globex, &pb.ListExecutionsRequest{Tenant: tenant})
		wantReason(t, err, codes.PermissionDenied, "ROLE_REQUIRED", "")
	}
	for tenant, id := range ids {
		if e, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id}); err != nil || e.Tenant != tenant {
			t.Errorf("got %v, %v", e, err)
		}
	}
	_, err := d.runs.GetExecution(globex, &pb.GetExecutionRequest{ExecutionId: ids["acme"]})
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	_, err = d.runs.CancelExecution(globex, &pb.CancelExecutionRequest{ExecutionId: ids["acme"]})
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	_, err = d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: strings.Repeat("a", len(ids["acme"]))})
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")

	out, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+d.dir+"/s.sock", "ps", "--tenant", "*").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 3 || !strings.Contains(string(out), "TENANT") || !strings.Contains(string(out), "globex") {
		t.Errorf("ps: %v\n%s", err, out)
	}
	attached, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: ids["acme"]})
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: ids["acme"]})
	if err != nil {
		t.Fatal(err)
	}
	for e := (*pb.ExecutionEvent)(nil); e.GetKeepalive() == nil; { // silence does not end the stream
		if e, err = quiet.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: ids["acme"], Reason: "maintenance"}); err != nil || e.Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
		t.Errorf("got %v, %v", e, err)
	}
	if r, err := collect(t, attached, 0, nil); err != nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
		t.Errorf("attached: %v", err)
	}
	if e, err := d.runs.GetExecution(globex, &pb.GetExecutionRequest{ExecutionId: ids["globex"]}); err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_RUNNING {
		t.Errorf("the other tenant's: %v, %v", e, err)
	}

	details := map[string]int{}
	for _, e := range auditEntries(t, d.dir) {
		if e.Rule == "role operator" && e.Principal == "uid:0" && e.Address != "" && e.Method != "" {
			details[e.Detail]++
		}
	}
	for detail, least := range map[string]int{"executions of all tenants": 2, "executions of the tenant acme": 1, "an execution of the tenant acme": 3, "an execution of the tenant globex": 1} {
		if details[detail] < least {
			t.Errorf("the audit log has %d entries %q, want %d: %v", details[detail], detail, least, details)
		}
	}
}

// `skillrund token` makes a token for a tenant that is not configured, and says so. With a mistake in a
// tenant's file, tokens can still be made and revoked.
func TestTokenOfUnknownTenant(t *testing.T) {
	path := writeTenants(t, "tenants_dir: t\nidentity: {tokens: tokens.json}\n", map[string]string{"acme.yaml": "quotas: {running: 0}\n"})
	create := func(path, tenant, role string) (notes string) {
		t.Helper()
		var token, errs strings.Builder
		c, found, err := readConfig(path)
		if err != nil || found.ofDaemon() != nil {
			t.Fatal(err, found.ofDaemon())
		}
		if err := tokenCommand(c, []string{"create", "--tenant", tenant, "--name", "ci", "--role", role}, &token, &errs); err != nil || !strings.HasPrefix(token.String(), "skillrun_") {
			t.Errorf("%v, %q", err, token.String())
		}
		return errs.String()
	}
	if got := create(path, "acme", "invoke"); strings.Contains(got, "note: ") {
		t.Errorf("got %q", got)
	}
	if got := create(path, "acmee", "invoke"); !strings.Contains(got, "note: the tenant acmee is not configured; the token opens nothing until tenants or tenants_dir has it\n") {
		t.Errorf("got %q", got)
	}
	if got := create(path, "other", "operator"); strings.Contains(got, "note: ") {
		t.Errorf("an operator: %q", got)
	}
	gone := writeTenants(t, "tenants_dir: gone\nidentity: {tokens: tokens.json}\n", nil)
	if got := create(gone, "acme", "invoke"); !strings.Contains(got, "note: could not check that the tenant acme is configured: open ") {
		t.Errorf("got %q", got)
	}
}

// An operator signals and deletes the executions of all tenants, and reads their artifacts. The audit log has the
// operator's name in each entry. For callers of other tenants these executions do not exist.
func TestOperatorActsForAllTenants(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+"tenants: {acme: {}, globex: {}}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "admin")
	running := d.begin(acme)
	stream, err := d.runs.Execute(acme, shell("calculator", "echo 42 >answer"))
	if err != nil {
		t.Fatal(err)
	}
	done, err := collect(t, stream, 0, nil)
	if err != nil || done.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
		t.Fatalf("got %v, %v", done, err)
	}
	ended := done.id

	calls := func(ctx context.Context) (errs [4]error) {
		_, errs[0] = d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: running, Signal: "SIGTERM"})
		_, errs[1] = d.runs.ListArtifacts(ctx, &pb.ListArtifactsRequest{ExecutionId: ended})
		artifact, err := d.runs.GetArtifact(ctx, &pb.GetArtifactRequest{ExecutionId: ended, Path: "answer"})
		if err != nil {
			t.Fatal(err)
		}
		chunk, err := artifact.Recv()
		if errs[2] = err; err == nil && string(chunk.Data) != "42\n" {
			t.Errorf("the artifact has %q", chunk.Data)
		}
		_, errs[3] = d.runs.DeleteExecution(ctx, &pb.DeleteExecutionRequest{ExecutionId: ended})
		return errs
	}
	for _, err := range calls(globex) {
		wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	}
	if errs := calls(ctx); errs != [4]error{} { // root, whose tenant default is not configured
		t.Errorf("got %v", errs)
	}
	_, err = d.runs.GetExecution(acme, &pb.GetExecutionRequest{ExecutionId: ended})
	wantReason(t, err, codes.NotFound, "EXECUTION_NOT_FOUND", "")
	attached, err := d.runs.AttachExecution(acme, &pb.AttachExecutionRequest{ExecutionId: running})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := collect(t, attached, 0, nil); err != nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_SIGNALED {
		t.Errorf("attached: %v, %v", r.outcome, err)
	}

	looks, acts := map[string]int{}, map[string]int{}
	for _, e := range auditEntries(t, d.dir) {
		if e.Principal != "uid:0" {
			continue
		}
		if e.Rule == "role operator" {
			looks[e.Method[strings.LastIndex(e.Method, "/")+1:]]++
		} else if e.Tenant == "acme" {
			acts[string(e.Event)]++
		}
	}
	for _, method := range []string{"SignalExecution", "ListArtifacts", "GetArtifact", "DeleteExecution"} {
		if looks[method] != 1 {
			t.Errorf("the audit log has %d entries about the operator's %s: %v", looks[method], method, looks)
		}
	}
	if acts["signal"] != 1 || acts["delete"] != 1 {
		t.Errorf("the audit log has the entries %v of the operator for acme", acts)
	}
}
