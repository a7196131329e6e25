package executor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
)

// retryState is the time after which a tenant may try again whose running executions alone use its quota of
// stored bytes. A random part of the same length is added.
const retryState = 5 * time.Second

// CheckState removes the oldest ended executions of a tenant until its stored bytes are within its quota.
// It returns a *QuotaError if the executions that still run have used up the quota. New executions and
// pushes of skills need CheckState.
func (x *Executor) CheckState(ctx context.Context, t *Tenant) error {
	if t.StateBytes <= 0 {
		return nil
	}
	used, err := x.MakeRoom(ctx, t)
	if err != nil || used < t.StateBytes {
		return err
	}
	return &QuotaError{Quota: admission.State, Limit: t.StateBytes, Used: used, RetryAfter: retryState + rand.N(retryState)}
}

// MakeRoom removes the oldest ended executions of a tenant that has used up its quota of stored bytes. It
// returns the bytes that the tenant has then.
func (x *Executor) MakeRoom(ctx context.Context, t *Tenant) (used int64, err error) {
	removed, used, err := x.Record.MakeRoom(ctx, t.Name, t.StateBytes)
	if removed > 0 {
		x.Log.Info("executions removed to stay within state_bytes", "tenant", t.Name, "removed", removed, "bytes_left", used)
	}
	return used, err
}

// StateBytes returns the bytes of the output, artifacts and records of a tenant's executions, running ones
// too. Callers of a Set with a single tenant share them, as they share its quotas.
func (x *Executor) StateBytes(t *Tenant) int64 {
	if x.Tenants.IsSingle() {
		return x.Record.Bytes()
	}
	return x.Record.BytesOf(t.Name)
}
