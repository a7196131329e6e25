package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// theNeighbours fill the row of each.
func (r *run) theNeighbours(d *daemon) ([]neighbour, error) {
	last, err := r.token(d, churnTenant(churnTenants-1), "invoke")
	if err != nil {
		return nil, err
	}
	return []neighbour{
		{"neighbour-crowd-p99", "neighbour", 50, func(ctx context.Context, _ *daemon, c *skillrun.Client, _ int) error {
			return trueProgram.request(ctx, c)
		}},
		{"neighbour-attacks-p99", "neighbour", 24, attack},
		{"neighbour-calls-p99", "neighbour", 16, pester},
		{"neighbour-state-p99", "hoarder", 8, hoard},
		{"neighbour-churn-p99", "neighbour", 1, churn(last)},
		{"neighbour-handshakes-p99", "neighbour", 64, stallHandshake},
	}, nil
}

// neighbourConfig gives the neighbour the bounds of a group of sandboxes, and all slots. hoarder has a quota that a
// few executions of hoard fill. The other quotas have their defaults.
const neighbourConfig = `identity: {tokens: tokens.json}
tenants_dir: tenants
tenants: {quiet: {}, default: {}, neighbour: {cgroup: {memory: 1GiB, processes: 400}}, hoarder: {quotas: {state_bytes: 64MiB}}}
`

// neighbours measures a tenant with one client, alone and with each neighbour, in turns. A row compares
// the p99 with its neighbour with the p99 of the slices alone.
func neighbours(r *run, rows rowSet) error {
	dir, err := r.prepare("neighbours", neighbourConfig)
	if err != nil {
		return err
	}
	if err := errors.Join(listenWithTLS(dir), os.Mkdir(filepath.Join(dir, "tenants"), 0o700)); err != nil {
		return err
	}
	d, err := r.start(dir)
	if err != nil {
		return err
	}
	return errors.Join(besideNeighbours(r, d, rows), d.stop())
}

// besideNeighbours takes short slices alone and with a neighbour in turns, because a machine slows down and
// speeds up for seconds at a time. A neighbour moves in for its slice only, so it cannot slow the slice alone.
func besideNeighbours(r *run, d *daemon, rows rowSet) error {
	quiet, err := r.as(d, "quiet")
	if err != nil {
		return err
	}
	all, err := r.theNeighbours(d)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(n neighbour) bool { return !slices.Contains(r.chosen, n.row) })
	if len(chosen) == 0 { // only the row without a neighbour
		chosen = all
	}
	// The clients of both tenants share the processors with the daemon, so a row also has their cost.
	request := func(context.Context, int) error { return trueProgram.request(quiet, d.client) }
	if err := r.each(r.scale.warmUp, 1, request); err != nil {
		return err
	}
	var everAlone []float64
	for _, n := range chosen {
		r.Say("%s", n.row)
		noisy, err := r.as(d, n.tenant)
		if err != nil {
			return err
		}
		var alone, beside []float64
		for range r.scale.slices {
			l, err := r.load(1, r.scale.beside, request)
			if err != nil {
				return err
			}
			alone = append(alone, l.times...)
			end, err := r.moveIn(noisy, d, n)
			if err != nil {
				return err
			}
			l, err = r.load(1, r.scale.beside, request)
			if err := errors.Join(err, end()); err != nil {
				return fault(n.row, err)
			}
			beside = append(beside, l.times...)
		}
		r.report.keep(n.row, "ms", []*subject{{name: "skillrun"}, {name: "alone"}}, [][]float64{beside, alone})
		rows[n.row].setRatio(quantile(beside, 0.99), quantile(alone, 0.99), len(beside))
		everAlone = append(everAlone, alone...)
	}
	rows["neighbour-alone-p99"].set(quantile(everAlone, 0.99), len(everAlone))
	return nil
}

// as returns a context for calls of a tenant.
func (r *run) as(d *daemon, tenant string) (context.Context, error) {
	token, err := r.token(d, tenant, "invoke")
	return metadata.AppendToOutgoingContext(r.ctx, "authorization", "Bearer "+token), err
}

// moveIn starts a neighbour's clients. end stops them and waits. Its error is the first unexpected error of
// a client, or says that the clients did nothing.
func (r *run) moveIn(ctx context.Context, d *daemon, n neighbour) (end func() error, err error) {
	clients, closeAll, err := d.dial(n.clients)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var acts atomic.Int64
	var loops sync.WaitGroup
	for i, c := range clients {
		loops.Go(func() {
			for at := i; ctx.Err() == nil; at++ {
				// After the slice's end every error is expected: the calls were cancelled.
				if err := n.act(ctx, d, c, at); !expected(err) && ctx.Err() == nil {
					cancel(err)
				}
				acts.Add(1)
			}
		})
	}
	end = func() error {
		cancel(nil)
		loops.Wait()
		closeAll()
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		if acts.Load() == 0 {
			return errors.New("the neighbour did nothing")
		}
		return nil
	}
	// The daemon refills its pool of prewarmed sandboxes, and the neighbour's load reaches its usual height.
	if err := r.pause(r.scale.refill); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
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
