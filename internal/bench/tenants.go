package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// tenantCounts are the numbers of tenants of the rows, in the order in which one daemon gets them.
var tenantCounts = []int{1, 10, 100}

// tenantRounds is how often each tenant comes back, at least; with fewer tenants more often.
const tenantRounds = 3

// tenants measures a daemon with more and more configured tenants, which take turns. So between two requests of a
// tenant come requests of all others. Then all are idle, and the daemon has given up what idle tenants
// don't keep. It keeps the configuration, the quotas, the series of metrics and the server for agents of each.
func tenants(r *run, rows rowSet) error {
	dir, err := r.prepare("tenants", "identity: {tokens: tokens.json}\ntenants_dir: tenants\ntenants: {default: {}}\n")
	if err != nil {
		return err
	}
	err = errors.Join(
		addToListen(dir, `mcp_unix: ""`, `mcp_unix: mcp.sock, metrics_tcp: "127.0.0.1:0"`),
		os.Mkdir(filepath.Join(dir, "tenants"), 0o700))
	if err != nil {
		return err
	}
	d, err := r.start(dir)
	if err != nil {
		return err
	}
	return errors.Join(tenantsBeneath(r, d, rows), d.stop())
}

// heldBytes of the daemon grows with its tenants only, because its pools and caches were filled
// before. The memory of zygotes and sandboxes is another row: it is bounded by the configuration,
// not by the number of tenants.
func tenantsBeneath(r *run, d *daemon, rows rowSet) error {
	// The default tenant fills pools and caches first.
	err := r.each(50, 1, func(ctx context.Context, _ int) error { return trueProgram.request(ctx, d.client) })
	if err != nil {
		return err
	}
	if err := r.pause(r.scale.tenantIdle); err != nil {
		return err
	}
	before, err := heldBytes(d.pid())
	if err != nil {
		return err
	}
	var all []context.Context
	for _, count := range tenantCounts {
		added, err := r.addTenants(d, len(all), count)
		if err != nil {
			return err
		}
		all = append(all, added...)
		var times []float64
		// About 100 samples for each count, at least three of each tenant.
		rounds := max(tenantRounds, r.samples(100)/count)
		for round := range rounds + 1 {
			for _, ctx := range all {
				took, err := timed(func() error { return trueProgram.request(ctx, d.client) })
				if err != nil {
					return err
				}
				if round > 0 { // before, each tenant came for the first time
					times = append(times, took)
				}
			}
		}
		name := fmt.Sprintf("tenants-back-%d", count)
		r.report.keep(name, "ms", []*subject{{name: "skillrun"}}, [][]float64{times})
		rows[name].set(median(times), len(times))
		if err := r.pause(r.scale.tenantIdle); err != nil {
			return err
		}
		held, err := heldBytes(d.pid())
		if err != nil {
			return err
		}
		rows[fmt.Sprintf("tenants-memory-%d", count)].set(float64(held-before)/1024/float64(count), count)
	}
	waiting, err := descendantBytes(d.pid())
	if err != nil {
		return err
	}
	rows["tenants-waiting"].set(float64(waiting)/(1<<20), 1)
	return nil
}

// addTenants configures tenants from one number to another, and waits until the daemon serves them. An agent of each
// connects once. The results are for calls of the tenants.
func (r *run) addTenants(d *daemon, from, to int) (added []context.Context, err error) {
	var tokens []string
	for i := from; i < to; i++ {
		name := fmt.Sprintf("t%d", i)
		token, err := r.token(d, name, "invoke")
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(d.dir, "tenants", name+".yaml"), nil, 0o600); err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
		added = append(added, metadata.AppendToOutgoingContext(r.ctx, "authorization", "Bearer "+token))
	}
	for i, ctx := range added {
		if err := errors.Join(r.served(ctx, d), d.greet(ctx, tokens[i])); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// served waits until the daemon knows the tenant of a caller.
func (r *run) served(ctx context.Context, d *daemon) error {
	for {
		_, err := d.client.System().GetBudget(ctx, &pb.GetBudgetRequest{})
		if status.Code(err) != codes.PermissionDenied { // TENANT_UNKNOWN
			return err
		}
		if err := r.pause(20 * time.Millisecond); err != nil {
			return err
		}
	}
}

// greet opens and ends a session of MCP, as an agent with a token does.
func (d *daemon) greet(ctx context.Context, token string) error {
	overSocket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.dir, "mcp.sock"))
	}}}
	send := func(method, body, session string, want int) (http.Header, error) {
		req, err := http.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		answer, err := overSocket.Do(req)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != want {
			err = fmt.Errorf("MCP: %s: %s", answer.Status, text)
		}
		return answer.Header, err
	}
	header, err := send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`, "", http.StatusOK)
	if err != nil {
		return err
	}
	_, err = send(http.MethodDelete, "", header.Get("Mcp-Session-Id"), http.StatusNoContent)
	return err
}

// token makes a token of a tenant, as an operator does.
func (r *run) token(d *daemon, tenant, role string) (string, error) {
	cmd := exec.CommandContext(r.ctx, r.Daemon, "--config", filepath.Join(d.dir, "skillrund.yaml"), "token", "create",
		"--tenant", tenant, "--name", "bench", "--role", role)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", tenant, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// descendantBytes is the memory of all processes that a daemon has started: zygotes and prewarmed sandboxes. A
// page that several processes share counts in part for each.
func descendantBytes(daemon int) (sum int64, err error) {
	parents, err := parentsOf()
	if err != nil {
		return 0, err
	}
	for _, pid := range descendants(daemon, parents) {
		n, err := proportionalBytes(pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// fullTenantIdle is longer than the daemon needs to free the ids and the cgroup of an idle tenant.
const fullTenantIdle = 12 * time.Second
