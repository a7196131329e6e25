package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/tenant"
)

// Requests with an idempotency key. A client repeats a request if the answer did not come, perhaps while
// the first request still waits for its session. So requests with the same key are accepted one after the other, and
// each first looks for an execution that an earlier request with this key has started.

// tenantKeyOf is a tenant's idempotency key. Each has one place in Executor.repeated, which a request holds until the
// record has the key.
type tenantKeyOf struct{ tenant, key string }

// enterKey waits for other requests with the same key, and returns the ID of the execution that has the key. If no
// execution has the key, earlier is "", and later requests with the key wait until leave is called. leave is nil after
// an error.
func (x *Executor) enterKey(ctx context.Context, t *tenant.Tenant, req Request) (leave func(), earlier string, err error) {
	if err := checkForm(req, req.Source.Kind); err != nil {
		return nil, "", err
	}
	of := tenantKeyOf{req.Principal.Tenant, req.Key}
	place, drop := x.repeated.use(of)
	leave = func() { <-place; drop() }
	if err := x.awaitKey(ctx, t, req.Principal, place); err != nil {
		drop()
		return nil, "", err
	}
	if earlier, err = x.byKey(ctx, req); err != nil {
		leave()
		return nil, "", err
	}
	return leave, earlier, nil
}

// awaitKey takes the place of a key. A request that must wait counts in the tenant's queue.
func (x *Executor) awaitKey(ctx context.Context, t *tenant.Tenant, who permission.Principal, place chan<- struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	default:
	}
	queued, err := x.takePlace(t, who)
	if err != nil {
		return err
	}
	defer queued.Leave()
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takePlace counts a request that waits, but not for a slot, in the queue of its tenant.
func (x *Executor) takePlace(t *tenant.Tenant, who permission.Principal) (*admission.Place, error) {
	place, err := x.admission.Wait(t.Name, who.Name)
	if errors.Is(err, admission.ErrNoTenant) { // the tenant was removed a moment ago
		err = &UnknownTenantError{who.Tenant}
	}
	return place, err
}

// byKey returns the execution of an equal request with the same idempotency key, or "".
func (x *Executor) byKey(ctx context.Context, req Request) (id string, err error) {
	id, existing, err := x.Record.Holder(ctx, req.Principal.Tenant, req.Key)
	if errors.Is(err, record.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	hash, err := req.hash(tenantKey(x.hashKey, req.Principal.Tenant))
	if err != nil {
		return "", fmt.Errorf("request hash: %w", err)
	}
	return sameRequest(id, existing, hash)
}
