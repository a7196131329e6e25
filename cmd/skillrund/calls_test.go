package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/audit"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Beyond quotas.calls_per_second, every call of a tenant is refused, over gRPC and MCP. Other tenants and
// operators go on. The audit log has the refusals in bounded form, and the metrics count all of them.
func TestCallsPerSecond(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, withTokens+`listen: {unix: s.sock, mcp_unix: m.sock, skills_index: true, metrics_tcp: '127.0.0.1:0'}
shell: true
tenants:
  hasty: {quotas: {calls_per_second: 0.001}}
  calm: {}
`)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	hasty, calm, operator := d.asTenant(ctx, "hasty", "invoke"), d.asTenant(ctx, "calm", "invoke"), d.asTenant(ctx, "hasty", "operator")

	mine, err := d.system.GetBudget(hasty, &pb.GetBudgetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(mine.Tenant.Quotas, func(q *pb.Quota) bool { return q.Key == "calls_per_second" })
	if at < 0 || mine.Tenant.Quotas[at].Limit != 1 || mine.Tenant.Quotas[at].Used != 1 {
		t.Errorf("got the quotas %v", mine.Tenant.Quotas)
	}
	const rounds = 8
	for range rounds {
		wantQuota(t, d.refusalOf(hasty, shell("calculator", "true")), "calls_per_second", 1, "1")
		_, err = d.runs.CancelExecution(hasty, &pb.CancelExecutionRequest{ExecutionId: "none"})
		wantQuota(t, err, "calls_per_second", 1, "1")
		_, err = d.runs.ListExecutions(hasty, &pb.ListExecutionsRequest{})
		wantQuota(t, err, "calls_per_second", 1, "1")
		if _, err := d.runs.ListExecutions(calm, &pb.ListExecutionsRequest{}); err != nil {
			t.Fatalf("another tenant: %v", err)
		}
		if _, err := d.runs.CancelExecution(operator, &pb.CancelExecutionRequest{ExecutionId: "none"}); status.Code(err) != codes.NotFound {
			t.Fatalf("an operator of the tenant: %v", err)
		}
	}

	// The same over MCP, with another credential of the tenant.
	overSocket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.dir, "m.sock"))
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+d.token("create", "--tenant", "hasty", "--name", "agent", "--role", "invoke"))
	if got := bodyOf(t, overSocket, req); !strings.Contains(got, "-32000") || !strings.Contains(got, "1 of 1 calls at once") {
		t.Errorf("over MCP: got %s", got)
	}

	published, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/.well-known/agent-skills/index.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	published.Header = req.Header
	if got := bodyOf(t, overSocket, published); !strings.Contains(got, "1 of 1 calls at once") {
		t.Errorf("the published index: got %s", got)
	}

	req, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+loggedAddress(t, d.log, `msg="listening for Prometheus" network=tcp address=`)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	text := bodyOf(t, http.DefaultClient, req)
	if want := `skillrun_calls_refused_total{tenant="hasty"} 26`; !strings.Contains(text, want+"\n") {
		t.Errorf("the metrics don't have %s", want)
	}

	d.stop()
	var written, refused uint64
	for _, e := range auditEntries(t, d.dir) {
		if e.Event == audit.Call && e.Tenant == "hasty" && e.Reason == "SATURATED" {
			written, refused = written+1, refused+max(e.Count, 1)
		}
	}
	// Not the refused lists: reads are not in the log.
	if refused != 2*rounds+2 || written > refused {
		t.Errorf("the audit log has %d refusals in %d entries, want %d", refused, written, 2*rounds+2)
	}
	wantVerified(t, d.dir)
}

// bodyOf sends a request and returns the body of the answer.
func bodyOf(t *testing.T, c *http.Client, req *http.Request) string {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
