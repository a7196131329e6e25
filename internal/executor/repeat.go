package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/tenant"
)

// Requests with an idempotency key. A client repeats a request if the answer did not come, perhaps while
// the first request still waits for its session. So requests with the same key are accepted one after the other, and
// each first looks for an execution that an earlier request with this key has started.

// repeated orders requests with one key. The zero value is ready to use.
type repeated struct {
	mu   sync.Mutex
	keys map[tenantKeyOf]*keyTurn // keys of requests that are not in the record yet
}

type tenantKeyOf struct{ tenant, key string }

// A keyTurn is a lock. The request that has put a value into turn holds it.
type keyTurn struct {
	turn  chan struct{}
	users int // the number of requests that hold it or wait for it; repeated.mu protects it
}

// use returns the turn of a key. The caller must call drop.
func (r *repeated) use(of tenantKeyOf) *keyTurn {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[of]
	if k == nil {
		if r.keys == nil {
			r.keys = map[tenantKeyOf]*keyTurn{}
		}
		k = &keyTurn{turn: make(chan struct{}, 1)}
		r.keys[of] = k
	}
	k.users++
	return k
}

func (r *repeated) drop(of tenantKeyOf, k *keyTurn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(r.keys, of)
	}
}

// enterKey waits for other requests with the same key, and returns the ID of the execution that has the key. If no
// execution has the key, earlier is "", and later requests with the key wait until leave is called. leave is nil after
// an error.
func (x *Executor) enterKey(ctx context.Context, t *tenant.Tenant, req Request) (leave func(), earlier string, err error) {
	if err := checkForm(req, req.Source.Kind); err != nil {
		return nil, "", err
	}
	of := tenantKeyOf{req.Principal.Tenant, req.Key}
	k := x.repeated.use(of)
	leave = func() {
		<-k.turn
		x.repeated.drop(of, k)
	}
	if err := x.awaitKey(ctx, t, req.Principal, k); err != nil {
		x.repeated.drop(of, k)
		return nil, "", err
	}
	if earlier, err = x.byKey(ctx, req); err != nil {
		leave()
		return nil, "", err
	}
	return leave, earlier, nil
}

// awaitKey waits for the turn of a key. A request that must wait counts in the tenant's queue.
func (x *Executor) awaitKey(ctx context.Context, t *tenant.Tenant, who permission.Principal, k *keyTurn) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	default:
	}
	place, err := x.takePlace(t, who)
	if err != nil {
		return err
	}
	defer place.Leave()
	select {
	case k.turn <- struct{}{}:
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
