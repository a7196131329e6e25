package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A neighbour is a tenant that acts while another one is measured. Its clients call act without a pause. Refusals are
// expected, and so is every end of an execution.
type neighbour struct {
	row     string
	tenant  string
	clients int
	act     func(ctx context.Context, d *daemon, c *skillrun.Client, n int) error
}

// theNeighbours has one for each row. last is a token of the last tenant that churn adds.
func theNeighbours(last string) []neighbour {
	return []neighbour{
		{"neighbour-crowd-p99", "neighbour", 50, func(ctx context.Context, _ *daemon, c *skillrun.Client, _ int) error {
			return trueProgram.request(ctx, c)
		}},
		{"neighbour-attacks-p99", "neighbour", 24, attack},
		{"neighbour-calls-p99", "neighbour", 16, pester},
		{"neighbour-state-p99", "hoarder", 8, hoard},
		{"neighbour-churn-p99", "neighbour", 1, churn(last)},
		{"neighbour-handshakes-p99", "neighbour", 64, stallHandshake},
	}
}

// expected reports whether a neighbour may get this error.
func expected(err error) bool {
	if exit := (*skillrun.ExitError)(nil); err == nil || errors.As(err, &exit) {
		return true
	}
	// The tenant's group of sandboxes can be so full that no new one starts.
	if daemon := (*skillrun.DaemonError)(nil); errors.As(err, &daemon) && daemon.Outcome.GetEvidence().GetSetupStep() == "sandbox group" {
		return true
	}
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.Unavailable, codes.Canceled:
		return true
	}
	return false
}

// attacks fork, fill memory, print, spin, and start short processes, each up to the limits.
var attacks = [][2]string{
	{"bash", "bomb() { bomb | bomb & }\nbomb\nwhile :; do sleep 1; done\n"},
	{"python", "b = []\nwhile True: b.append(bytearray(b'x' * (4 << 20)))\n"},
	{"bash", "exec yes 0123456789012345678901234567890123456789\n"},
	{"python", "import os\nfor _ in range(24):\n    if os.fork() == 0: break\nwhile True: pass\n"},
	{"bash", "while :; do /bin/true & /bin/true & wait; done\n"},
}

// attack runs one of the attacks for at most two seconds.
func attack(ctx context.Context, _ *daemon, c *skillrun.Client, n int) error {
	cmd := c.Code(benchSkill, attacks[n%len(attacks)][0], attacks[n%len(attacks)][1])
	cmd.Limits.WallTime = 2 * time.Second
	cmd.Stdout = io.Discard
	return cmd.Run(ctx)
}

// pester makes one of the calls that cost the caller least: it starts and cancels, attaches, lists, or
// retries a request.
func pester(ctx context.Context, _ *daemon, c *skillrun.Client, n int) error {
	switch n % 4 {
	case 0:
		cmd := c.Command(benchSkill, "sleep 5")
		if err := cmd.Start(ctx); err != nil {
			return err
		}
		return errors.Join(cmd.Cancel(ctx), cmd.Wait())
	case 1:
		list, err := c.Executions().ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1})
		if err != nil || len(list.Executions) == 0 {
			return err
		}
		return c.Attach(ctx, list.Executions[0].ExecutionId, skillrun.AttachOptions{}).Wait()
	case 2:
		_, err := c.Executions().ListExecutions(ctx, &pb.ListExecutionsRequest{PageSize: 1000})
		return err
	}
	cmd := c.Command(benchSkill, "true")
	cmd.IdempotencyKey = "again"
	return cmd.Run(ctx)
}

// hoard runs a program whose output is a sixteenth of the quota of state, so that the daemon removes older executions.
func hoard(ctx context.Context, _ *daemon, c *skillrun.Client, _ int) error {
	cmd := c.Code(benchSkill, "bash", "head -c 4194304 /dev/zero")
	cmd.Stdout = io.Discard
	return cmd.Run(ctx)
}

// churnTenants is the number of tenants that churn adds and removes.
const churnTenants = 1000

func churnTenant(n int) string { return fmt.Sprintf("churn-%d", n) }

// churn adds the tenants, by a file for each as an operator does, and waits until they are in force. The next call
// removes them. last is a token of the last one.
func churn(last string) func(context.Context, *daemon, *skillrun.Client, int) error {
	return func(ctx context.Context, d *daemon, c *skillrun.Client, n int) error {
		add, change := n%2 == 0, os.Remove
		if add {
			change = func(path string) error { return os.WriteFile(path, nil, 0o600) }
		}
		for i := range churnTenants {
			if err := change(filepath.Join(d.dir, "tenants", churnTenant(i)+".yaml")); err != nil {
				return err
			}
		}
		ask := metadata.NewOutgoingContext(ctx, metadata.Pairs("authorization", "Bearer "+last))
		for {
			_, err := c.System().GetBudget(ask, &pb.GetBudgetRequest{})
			switch unknown := status.Code(err) == codes.PermissionDenied; {
			case unknown && !add:
				return nil
			case !unknown && add:
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// stallHandshake begins a TLS handshake, and sends no more than the beginning until the daemon closes the
// connection. A connection that the daemon refuses is closed at once, and the next one follows.
func stallHandshake(ctx context.Context, d *daemon, _ *skillrun.Client, _ int) error {
	address, err := d.tcp()
	if err != nil {
		return err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil // the daemon takes no more connections
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	// The header of a record of 512 bytes, and the type of a ClientHello (RFC 8446, sections 4 and 5.1).
	if _, err := c.Write([]byte{22, 3, 1, 2, 0, 1}); err == nil {
		io.Copy(io.Discard, c)
	}
	return nil
}

// tcp returns the address of the daemon's TCP listener, whose port the kernel chose.
func (d *daemon) tcp() (string, error) {
	data, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(data), "msg=listening network=tcp address=")
	if !ok {
		return "", fmt.Errorf("skillrund listens on no TCP address:\n%s", data)
	}
	address, _, _ := strings.Cut(rest, "\n")
	return address, nil
}
