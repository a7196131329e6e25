package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
)

// tenantCounts are the numbers of tenants of the rows, in the order in which one daemon gets them.
var tenantCounts = []int{1, 10, 100}

// tenantRounds is how often each tenant comes back, at least; with fewer tenants more often.
const tenantRounds = 3

// tenants measures a daemon with more and more tenants, which take turns. So between two requests of a
// tenant come requests of all others. Then all are idle, and the daemon has given up what idle tenants
// don't keep.
func tenants(r *run, rows rowSet) error {
	d, err := r.startNew("tenants", "identity: {tokens: tokens.json}\n")
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
		for len(all) < count {
			token, err := r.token(d, fmt.Sprintf("t%d", len(all)), "invoke")
			if err != nil {
				return err
			}
			all = append(all, metadata.AppendToOutgoingContext(r.ctx, "authorization", "Bearer "+token))
		}
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
