package audit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// If a tenant makes allowed calls that change nothing, as fast as it can, the log gets a bounded number of entries. A call
// that changes something always has a full entry.
func TestAllowedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t.TempDir())
		l := open(t, c)
		call := func(tenant, method string, failed error) {
			t.Helper()
			end, err := l.Allow(Entry{Event: Call, Tenant: tenant, Method: method, Decision: Allowed})
			if err != nil {
				t.Fatal(err)
			}
			end(failed)
		}
		for range 1000 {
			call("acme", "fails", errors.New("no such session"))
			if err := l.WriteOrCount(Entry{Event: Duplicate, Tenant: "acme", Decision: Allowed}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			call("acme", "changes", nil)
		}
		call("globex", "fails", errors.New("no such session"))
		time.Sleep(flushInterval)
		synctest.Wait()
		closeLog(t, l)
		full, counted := map[string]int{}, map[Event]uint64{}
		for _, e := range entries(t, c.Dir) {
			switch {
			case e.Decision != Allowed:
			case e.Count > 0:
				counted[e.Event] += e.Count
			default:
				full[e.Tenant+" "+string(e.Event)+" "+e.Method]++
			}
		}
		if n := full["acme call fails"] + full["acme duplicate "]; n != fullNotes || counted[Call]+counted[Duplicate] != 2000-fullNotes {
			t.Errorf("%v in full, %v counted; want %d and the rest", full, counted, fullNotes)
		}
		if full["acme call changes"] != 3 || full["globex call fails"] != 1 {
			t.Errorf("in full: %v; want every change, and the other tenant's", full)
		}
	})
}

// Nothing is allowed while entries cannot be written.
func TestAllowFailsClosed(t *testing.T) {
	l := open(t, config(t.TempDir()))
	defer closeLog(t, l)
	l.mu.Lock()
	f := l.f
	l.f = nil // a write fails
	l.mu.Unlock()
	for range 2 * fullNotes {
		if _, err := l.Allow(Entry{Event: Call, Tenant: "acme"}); err == nil {
			t.Fatal("a call is allowed")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f = f
}
