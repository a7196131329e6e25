package network

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/helper"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/sandbox"
)

// The helpers have the users and groups after helperID.
const helperID = 64011

func TestMain(m *testing.M) {
	if os.Args[0] == Program {
		if how := os.Getenv(liarVar); how != "" {
			os.Exit(lie(how))
		}
		os.Exit(helper.Run(testVersion))
	}
	networktest.Main(m)
}

const testVersion = "of the test"

// testProgram is this test binary.
func testProgram(t testing.TB) *ProgramFile {
	t.Helper()
	f, err := OpenProgram("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// newManager makes a Manager whose helpers are this test binary. Detach waits long: tests count the last events.
func newManager(t testing.TB, change ...func(*Config)) *Manager {
	t.Helper()
	c := Config{Program: testProgram(t), Version: testVersion, Dir: t.TempDir(), Group: newTestGroup, DetachTime: 30 * time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range change {
		f(&c)
	}
	m, err := NewManager(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// A testGroup is an id without a cgroup: package sandbox tests the cgroups.
type testGroup int

var testGroups atomic.Int64

func newTestGroup(string) (Group, error) { return testGroup(helperID + testGroups.Add(1)), nil }

func (g testGroup) ID() int         { return int(g) }
func (testGroup) Enter(int) error   { return nil }
func (testGroup) OutOfMemory() bool { return false }
func (testGroup) Close() error      { return nil }

// events is a policy.DaemonSink.
type events struct {
	mu      sync.Mutex
	denials []policy.Denial
	closed  []policy.Connection
	dropped policy.Dropped
	lost    int
}

func (e *events) Denied(d policy.Denial) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.denials = append(e.denials, d)
}
func (e *events) Closed(c policy.Connection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = append(e.closed, c)
}
func (e *events) Dropped(d policy.Dropped) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropped.Add(d)
}
func (e *events) Lost() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost++
}

// A box is a sandbox whose network a Manager carries.
type box struct {
	*networktest.Sandbox
	*events
	network *Network
	cut     chan struct{} // has an element after each Cut
}

// link is a network that is not attached yet.
func link(t testing.TB, m *Manager, tenant string, allow ...string) (*box, sandbox.Link) {
	t.Helper()
	rules, err := policy.Parse(policy.Config{Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Sandbox: networktest.NewSandbox(t), events: &events{}, cut: make(chan struct{}, 10)}
	b.network = m.Open(tenant, "execution", rules, nil, b.events).(*Network)
	return b, sandbox.Link{TUN: b.TUN, Cut: func() error { b.cut <- struct{}{}; return nil }}
}

// attachBox attaches a sandbox that may reach the echo server. It has sent nothing, so no helper carries it.
func attachBox(t testing.TB, m *Manager, tenant string) *box {
	t.Helper()
	b, l := link(t, m, tenant, "20.1.0.1:*")
	if err := b.network.Attach(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.network.Detach)
	return b
}

// newBox is attachBox, and a helper carries the network as after a first packet.
func newBox(t testing.TB, m *Manager, tenant string) *box {
	t.Helper()
	b := attachBox(t, m, tenant)
	if b.network.manager.watcher.remove(b.network) {
		b.network.begin()
	}
	return b
}

const echoAddress = networktest.Public + ":7000"

// serveEcho sends back the bytes that it receives, until the test ends.
func serveEcho(t testing.TB) {
	t.Helper()
	networktest.Serve(t, echoAddress, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// echo sends a byte to the echo server and gets it back. The connection stays open.
func (b *box) echo(t testing.TB) net.Conn {
	t.Helper()
	c, err := b.Dial("tcp", echoAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// startedFor returns the helper of a tenant, which it starts if none runs.
func (m *Manager) startedFor(tenant string) (*process, error) {
	m.mu.Lock()
	of := m.tenant(tenant)
	m.mu.Unlock()
	return of.helper()
}

// process returns the helper of a tenant that runs.
func (m *Manager) process(t testing.TB, tenant string) *process {
	t.Helper()
	p, err := m.startedFor(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
