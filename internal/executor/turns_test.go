package executor

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	goruntime "runtime"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/sandbox"
)

// A tenant has a bounded number of starts under way, in the order in which they came, and delays no other tenant.
func TestStartsOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurns[string](3)
		var under []func()
		for range 3 {
			under = append(under, s.enter(t.Context(), "crowd"))
		}
		began := make(chan int, 3)
		ctx, cancel := context.WithCancel(t.Context())
		contexts := []context.Context{t.Context(), ctx, t.Context()}
		leave := make([]func(), len(contexts))
		for i, ctx := range contexts {
			go func() { leave[i] = s.enter(ctx, "crowd"); began <- i }()
			synctest.Wait() // it waits before the next one comes
		}
		if len(began) != 0 {
			t.Fatal("a start began beyond the bound")
		}
		s.enter(t.Context(), "other")()

		cancel()
		if got := <-began; got != 1 {
			t.Fatalf("start %d began, want the cancelled one to return", got)
		}
		leave[1]()
		synctest.Wait()
		if len(began) != 0 {
			t.Fatal("a start began in the place of a cancelled one, which had none")
		}
		var order []int
		for _, end := range under[:2] {
			end()
			order = append(order, <-began)
		}
		if !slices.Equal(order, []int{0, 2}) {
			t.Errorf("the starts began in the order %v", order)
		}
		for _, end := range slices.Concat(under[2:], []func(){leave[0], leave[2]}) {
			end()
		}
		if len(s.lines) != 0 {
			t.Errorf("%d tenants are not forgotten", len(s.lines))
		}
	})
}

// An execution whose start waits for other starts of its tenant is cancelled at once, and its place stays free.
func TestCancelBeforeTheStart(t *testing.T) {
	f := newFake()
	var started atomic.Int32
	x := newExecutor(t, t.TempDir(), func(ctx context.Context, _ sandbox.Spec, _ sandbox.IO) (process, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		started.Add(1)
		return f, nil
	})
	var others []func()
	for range startsPerProcessor * goruntime.GOMAXPROCS(0) {
		others = append(others, x.starts.enter(t.Context(), who.Tenant))
	}
	id := execute(t, x, scriptRequest())
	e, err := x.Cancel(t.Context(), who, id, "me", "", 0)
	if err != nil || e.Outcome.End != Cancelled || started.Load() != 0 {
		t.Errorf("got %+v, %v, and %d starts", e.Outcome, err, started.Load())
	}
	second := execute(t, x, scriptRequest())
	for _, end := range others {
		end()
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, second)
	x.calls.Wait()
	if started.Load() != 1 || len(x.starts.lines) != 0 {
		t.Errorf("%d starts, and %d tenants are not forgotten", started.Load(), len(x.starts.lines))
	}
}

// While a list of a tenant is read, a second one of the same tenant waits, until its caller has gone. Another tenant
// lists.
func TestListsOfATenant(t *testing.T) {
	x := withTenants(t, newFake())
	ofATenant(t, x.lists, func(ctx context.Context, who permission.Principal) error {
		_, _, err := x.List(ctx, who, Filter{})
		return err
	})
}

// TestOutputsOfATenant has a tenant read a part of an output while another read is under way. Each read passes all
// output before the part.
func TestOutputsOfATenant(t *testing.T) {
	x := withTenants(t, newFake())
	ofATenant(t, x.outputs, func(ctx context.Context, who permission.Principal) error {
		_, _, err := x.ReadOutput(ctx, who, record.NewID(), Stdout, 0, 1)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// ofATenant does a piece of work while another piece of the tenant is under way.
func ofATenant(t *testing.T, turns *turns[string], work func(context.Context, permission.Principal) error) {
	leave := turns.enter(t.Context(), "acme")
	if err := work(t.Context(), of("globex")); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { waits <- work(ctx, of("acme")) }()
	users := func() int {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		return turns.lines["acme"].users
	}
	for users() < 2 {
		select {
		case err := <-waits:
			t.Fatalf("the second piece of work of the tenant did not wait: %v", err)
		default:
			goruntime.Gosched()
		}
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of its context", err)
	}
	leave()
	if err := work(t.Context(), of("acme")); err != nil {
		t.Errorf("after the first piece of work: %v", err)
	}
}
