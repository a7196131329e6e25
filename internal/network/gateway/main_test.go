package gateway

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

func TestMain(m *testing.M) { networktest.Main(m) }

// A log is a Sink that keeps the events.
type log struct {
	mu      sync.Mutex
	changed chan struct{}
	denials []policy.Denial
	closed  []policy.Connection
	dropped policy.Dropped
}

func newLog() *log { return &log{changed: make(chan struct{}, 1)} }

func (l *log) Denied(d policy.Denial)     { l.note(func() { l.denials = append(l.denials, d) }) }
func (l *log) Closed(c policy.Connection) { l.note(func() { l.closed = append(l.closed, c) }) }
func (l *log) Dropped(d policy.Dropped)   { l.note(func() { l.dropped.Add(d) }) }

func (l *log) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits until f finds its event in the log.
func await[T any](t *testing.T, l *log, f func() (T, bool)) T {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		v, ok := f()
		l.mu.Unlock()
		if ok {
			return v
		}
		select {
		case <-l.changed:
		case <-late:
			t.Fatalf("it never came; refusals: %v, connections: %v", l.denials, l.closed)
		}
	}
}

func (l *log) awaitDenial(t *testing.T, match func(policy.Denial) bool) policy.Denial {
	t.Helper()
	return await(t, l, func() (policy.Denial, bool) {
		for _, d := range l.denials {
			if match(d) {
				return d, true
			}
		}
		return policy.Denial{}, false
	})
}

func (l *log) awaitClosed(t *testing.T) policy.Connection {
	t.Helper()
	return await(t, l, func() (policy.Connection, bool) {
		if len(l.closed) == 0 {
			return policy.Connection{}, false
		}
		return l.closed[0], true
	})
}

// A box is a sandbox and its Gateway.
type box struct {
	*networktest.Sandbox
	*log
	gateway *Gateway
}

// newBox attaches a sandbox with rules. Changes of the configuration are made by change.
func newBox(t testing.TB, allow, deny []string, change ...func(*Config)) *box {
	t.Helper()
	rules, err := policy.Parse(policy.Config{Allow: allow, Deny: deny})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Sandbox: networktest.NewSandbox(t), log: newLog()}
	c := Config{TUN: b.TUN, Rules: rules, Limits: policy.DefaultLimits(), Shared: NewShared(policy.DefaultTenantLimits(), dial.Ports{}), Sink: b.log,
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort(networktest.Resolver + ":53")}}
	for _, f := range change {
		f(&c)
	}
	if b.gateway, err = New(c); err != nil {
		t.Fatal(err)
	}
	b.gateway.closeTime = 30 * time.Second // tests look at the events of the end
	t.Cleanup(b.gateway.Close)
	return b
}
