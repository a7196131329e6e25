package environment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A tenant with many builds delays another tenant only by builds that run, not by builds that wait.
func TestBuildsOfTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		var order []string // guarded by synctest.Wait: one goroutine runs at a time
		done := make(chan struct{})
		for i, tenant := range []string{"hog", "hog", "hog", "hog", "hog", "quiet", "quiet", "late"} {
			go func() {
				if err := turns.enter(t.Context(), tenant); err != nil {
					t.Error(err)
				}
				order = append(order, fmt.Sprint(tenant, i))
				<-done
				turns.leave(tenant)
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- turns.enter(ctx, "gone") }()
		synctest.Wait()
		cancel()
		if err := <-gone; err == nil {
			t.Error("a caller that went away has a place")
		}
		for range 8 {
			done <- struct{}{}
			synctest.Wait()
		}
		want := []string{"hog0", "hog1", "quiet5", "late7", "hog2", "quiet6", "hog3", "hog4"}
		if !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
		if turns.free != 2 || len(turns.running)+len(turns.began)+len(turns.waiting) != 0 {
			t.Errorf("in the end: %+v", turns)
		}
	})
}

// However many builds a tenant asks for, there is room for another tenant's.
func TestBuildsLeaveRoomForOtherTenants(t *testing.T) {
	s := newStore(t, nil)
	full := maxBuilds + maxWaiting
	ask := func(tenant string) (n int) {
		for ; n < full && s.mayBuild(tenant) == nil; n++ {
			s.flights[flightKey{tenant, fmt.Sprint(n)}] = &flight{}
		}
		return n
	}
	if n := ask("hog"); n != full/2 {
		t.Errorf("one tenant has %d of %d, want half", n, full)
	}
	for _, tenant := range []string{"b", "c", "d"} {
		if ask(tenant) == 0 {
			t.Errorf("%s has no room", tenant)
		}
	}
}

// Beyond the bound of all environments, the store removes environments of the tenant with the most bytes, although
// another tenant's were used longer ago.
func TestNeighboursKeepTheirEnvironments(t *testing.T) {
	s := newStore(t, func(c *Config) { c.Bytes = 100 })
	for _, name := range []string{"a", "b"} {
		put(t, s, "quiet", name, 15)
	}
	for _, name := range []string{"c", "d", "e", "f"} {
		put(t, s, "hog", name, 30)
	}
	if got, want := keys(s), []string{"hog/e", "hog/f", "quiet/a", "quiet/b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// A tenant keeps environments that it uses, and the other tenants still lose none.
	held := []*kept{s.taken("hog", strings.Repeat("e", 64)), s.taken("hog", strings.Repeat("f", 64))}
	put(t, s, "hog", "d", 30)
	if got, want := keys(s), []string{"hog/d", "hog/e", "hog/f", "quiet/a", "quiet/b"}; !slices.Equal(got, want) {
		t.Errorf("in use: got %v, want %v", got, want)
	}
	for _, k := range held {
		s.release(k)
	}
	if got := keys(s); len(got) != 4 || !slices.Equal(got[2:], []string{"quiet/a", "quiet/b"}) {
		t.Errorf("given back: got %v, want two of each", got)
	}
}
