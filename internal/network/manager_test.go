package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/network/gateway"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
	"github.com/skillrun/skillrun/sandbox"
)

// A network carries what its rules allow, and its events reach the sink before Detach returns.
func TestNetwork(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	b := newBox(t, m, "a")
	b.echo(t).Close()
	if _, err := b.Dial("tcp", networktest.Private+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a private address: %v", err)
	}
	if s := m.Stats(); s.Helpers != 1 || s.Networks != 1 || s.Deaths != 0 {
		t.Errorf("stats: %+v", s)
	}
	b.network.Detach()
	if len(b.closed) != 1 || b.closed[0].Sent != 1 || b.closed[0].To.String() != echoAddress {
		t.Errorf("connections: %+v", b.closed)
	}
	if len(b.denials) != 1 || b.denials[0].Missing != "10.5.0.1:80" || b.denials[0].Time.IsZero() {
		t.Errorf("refusals: %+v", b.denials)
	}
	s := m.Stats()
	if s.Networks != 0 {
		t.Errorf("stats afterwards: %+v", s)
	}
	if c := s.Tenants["a"]; c.Connections != 1 || c.Sent != 1 || c.Received != 1 || c.Denied["own"] != 1 || len(c.Denied) != len(policy.Kinds) {
		t.Errorf("counted: %+v", c)
	}
	b.network.Detach() // does nothing
}

// The machine's own addresses are refused, although they are public, unless a rule has the address.
func TestOwnAddresses(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	b, l := link(t, m, "a", "public:*")
	if err := b.network.Attach(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	defer b.network.Detach()
	if _, err := b.Dial("tcp", echoAddress); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	newBox(t, m, "a").echo(t)
}

// Many networks of a tenant are in one helper, and each tenant has its own.
func TestTenants(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			b, l := link(t, m, []string{"a", "b"}[i%2], "20.1.0.1:*")
			if err := b.network.Attach(context.Background(), l); err != nil {
				t.Error(err)
				return
			}
			b.echo(t).Close()
			b.network.Detach()
			if len(b.closed) != 1 {
				t.Errorf("connections: %+v", b.closed)
			}
		})
	}
	all.Wait()
	if s := m.Stats(); s.Helpers != 2 || s.Networks != 0 {
		t.Errorf("stats: %+v", s)
	}
	m.Remove("a")
	m.Remove("nobody")
	if s := m.Stats(); s.Helpers != 1 {
		t.Errorf("after a tenant's removal: %+v", s)
	}
}

// Two daemons with one directory have a helper each for the same tenant. The end of one does not touch the other's
// connections.
func TestTwoManagers(t *testing.T) {
	serveEcho(t)
	earlier := newManager(t)
	next := newManager(t, func(c *Config) { c.Dir = earlier.config.Dir })
	a, b := newBox(t, earlier, "a"), newBox(t, next, "a")
	a.echo(t).Close()
	kept := b.echo(t)
	a.network.Detach()
	earlier.Close()
	if _, err := kept.Write([]byte("y")); err != nil {
		t.Error(err)
	}
	if n, err := kept.Read(make([]byte, 1)); n != 1 {
		t.Error(err)
	}
	kept.Close()
	b.network.Detach()
	if s := next.Stats(); s.Deaths != 0 || len(b.closed) != 1 {
		t.Errorf("stats: %+v, connections %v", s, b.closed)
	}
}

// A helper that is killed is replaced. The connections of its sandboxes are cut, new ones work, and
// another tenant does not notice.
func TestHelperDies(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	b, other := newBox(t, m, "a"), newBox(t, m, "b")
	kept := other.echo(t)
	b.echo(t)
	old := m.process(t, "a")
	old.kill()
	<-b.cut
	c := b.echo(t)
	if _, err := kept.Write([]byte("y")); err != nil {
		t.Error(err)
	}
	if n, err := kept.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the other tenant: %v", err)
	}
	c.Close()
	b.network.Detach()
	if s := m.Stats(); s.Deaths != 1 || s.Helpers != 2 || len(b.closed) != 1 {
		t.Errorf("stats: %+v, connections %v", s, b.closed)
	}
	// The connection that was open then is in no event.
	if b.lost != 1 || other.lost != 0 {
		t.Errorf("lost events: %d times, and of the other tenant %d times", b.lost, other.lost)
	}
	select {
	case <-other.cut:
		t.Error("the other tenant's connections were cut")
	default:
	}
}

// A fakeGroup says that the kernel killed the helper because its memory ran out.
type fakeGroup struct{ entered, closed chan int }

func (g *fakeGroup) ID() int             { return helperID }
func (g *fakeGroup) Enter(pid int) error { g.entered <- pid; return nil }
func (g *fakeGroup) OutOfMemory() bool   { return true }
func (g *fakeGroup) Close() error        { g.closed <- 1; return errors.New("it is busy") }

// Each helper enters a cgroup, which is removed after its end. A helper without a cgroup does not run.
func TestGroups(t *testing.T) {
	g := &fakeGroup{make(chan int, 10), make(chan int, 10)}
	var refuses atomic.Bool
	m := newManager(t, func(c *Config) {
		c.Group = func(string) (Group, error) {
			if refuses.Load() {
				return nil, errors.New("no cgroup")
			}
			return g, nil
		}
	})
	b := newBox(t, m, "a")
	p := m.process(t, "a")
	if pid := <-g.entered; pid != p.command.Process.Pid {
		t.Errorf("%d has entered", pid)
	}
	refuses.Store(true)
	p.kill()
	<-b.cut
	<-g.closed
	if s := m.Stats(); s.OOMs != 1 || s.Deaths < 1 {
		t.Errorf("stats: %+v", s)
	}
	if words := p.lastWords().Error(); !strings.Contains(words, "memory ran out") {
		t.Errorf("reason: %s", words)
	}
	late, l := link(t, m, "b")
	if err := late.network.Attach(context.Background(), l); !errors.Is(err, ErrHelper) || !strings.Contains(err.Error(), "no cgroup") {
		t.Errorf("got %v", err)
	}
}

// A helper that is stopped is killed and replaced, as it carries nothing.
func TestHelperHangs(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	b := newBox(t, m, "a")
	p := m.process(t, "a")
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-b.cut
	b.echo(t)
	<-p.dead
	if got, want := p.lastWords().Error(), fmt.Sprintf("signal: killed: it did not answer in %v", p.answer); got != want {
		t.Errorf("the reason for the log is %q, want %q", got, want)
	}
}

// boxOfStopped returns a box whose helper is stopped and not waited for.
func boxOfStopped(t *testing.T, attach func(testing.TB, *Manager, string) *box) (*Manager, *box) {
	t.Helper()
	m := newManager(t, func(c *Config) { c.AnswerTime, c.DetachTime = time.Hour, time.Millisecond })
	b := attach(t, m, "a")
	p := m.process(t, "a")
	t.Cleanup(p.kill) // Close would wait for it
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return m, b
}

// The end of a sandbox does not wait for the events of a helper that is stopped.
func TestDetachFromStoppedHelper(t *testing.T) {
	m, b := boxOfStopped(t, newBox)
	b.network.Detach()
	if s := m.Stats(); s.Networks != 0 || s.Deaths != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// A doomedGroup sends a signal to its helper before the helper's first request.
type doomedGroup struct {
	Group
	signal syscall.Signal
}

func (g doomedGroup) Enter(pid int) error { return syscall.Kill(pid, g.signal) }

// A helper that dies or hangs during its start is replaced.
func TestHelperDiesDuringItsStart(t *testing.T) {
	serveEcho(t)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		var starts atomic.Int64
		m := newManager(t, func(c *Config) {
			c.Group = func(tenant string) (Group, error) {
				g, err := newTestGroup(tenant)
				if starts.Add(1) == 1 {
					g = doomedGroup{g, signal}
				}
				return g, err
			}
		})
		newBox(t, m, "a").echo(t)
		if s := m.Stats(); s.Deaths != 1 || starts.Load() != 2 {
			t.Errorf("%v: %d starts, %+v", signal, starts.Load(), s)
		}
	}
}

// A program of another version than the daemon's carries nothing, and the error says what to do.
func TestHelperOfAnotherVersion(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Version = "new" })
	_, err := m.startedFor("a")
	const want = "skillrun-network is version " + testVersion + ", but the daemon is version new; install both from the same release"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// An attachment survives the helper's death, and a helper that can't start is a typed error.
func TestAttachFails(t *testing.T) {
	m := newManager(t)
	p := m.process(t, "a")
	p.kill()
	<-p.dead
	newBox(t, m, "a")

	broken := newManager(t)
	if err := os.Remove(broken.config.Dir); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first ones can't start, then there is a pause
		b, l := link(t, broken, "a")
		err := b.network.Attach(context.Background(), l)
		if !errors.Is(err, ErrHelper) {
			t.Errorf("got %v", err)
		}
		b.network.Detach()
	}
	if broken.Stats().Deaths == 0 {
		t.Error("no death is counted")
	}
}

// Rules that a packet has no room for are refused.
func TestRulesTooLong(t *testing.T) {
	m := newManager(t)
	b, l := link(t, m, "a", strings.Fields(strings.Repeat("a-name-with-many-letters.example.com ", 10000))...)
	if err := b.network.Attach(context.Background(), l); err == nil || !strings.Contains(err.Error(), "fewer rules") {
		t.Errorf("got %v", err)
	}
	newBox(t, m, "a")
}

// A caller that goes away ends its attachment; the device is closed either way.
func TestAttachCancelled(t *testing.T) {
	m := newManager(t)
	m.process(t, "a")
	b, l := link(t, m, "a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.network.Attach(ctx, l)
	b.network.Detach()
	if b.network.device != nil {
		t.Error("the device is open")
	}
}

// A helper without a network ends after a while.
func TestIdleHelperEnds(t *testing.T) {
	m := newManager(t, func(c *Config) { c.IdleTime = time.Millisecond })
	b := newBox(t, m, "a")
	p := m.process(t, "a")
	b.network.Detach()
	<-p.dead
	if s := m.Stats(); s.Helpers != 0 || s.Deaths != 0 {
		t.Errorf("stats: %+v", s)
	}
	newBox(t, m, "a")
}

// The helper of a removed tenant ends at once without a network, else with the last one. A tenant that
// comes back has a helper again.
func TestRemove(t *testing.T) {
	serveEcho(t)
	m := newManager(t, func(c *Config) { c.IdleTime = time.Hour })
	idle := newBox(t, m, "idle")
	p := m.process(t, "idle")
	idle.network.Detach()
	m.Remove("idle")
	<-p.dead

	first, second := newBox(t, m, "busy"), newBox(t, m, "busy")
	p = m.process(t, "busy")
	late, l := link(t, m, "busy", "20.1.0.1:*")
	m.Remove("busy")
	first.network.Detach()
	second.echo(t).Close()
	if err := late.network.Attach(context.Background(), l); err != nil { // an execution that was accepted before
		t.Fatal(err)
	}
	second.network.Detach()
	late.echo(t).Close()
	select {
	case <-p.dead:
		t.Error("the helper ended before its last network")
	default:
	}
	late.network.Detach()
	<-p.dead
	if s := m.Stats(); s.Helpers != 0 || s.Networks != 0 || s.Deaths != 0 {
		t.Errorf("stats: %+v", s)
	}

	refused, l := link(t, m, "busy", "20.1.0.1:*")
	if err := refused.network.Attach(context.Background(), l); !errors.Is(err, ErrRemoved) {
		t.Errorf("opened after the removal: %v", err)
	}
	refused.network.Detach()
	if s := m.Stats(); s.Helpers != 0 || len(s.Tenants) != 0 {
		t.Errorf("after a late execution: %+v", s)
	}

	m.Add("busy")
	back := newBox(t, m, "busy")
	m.Remove("busy")
	m.Add("busy")
	newBox(t, m, "busy")
	back.network.Detach()
	back = newBox(t, m, "busy")
	back.echo(t).Close()
}

// An address that leads to the machine from outside is refused like one of the machine.
func TestConfiguredOwnAddresses(t *testing.T) {
	m := newManager(t, func(c *Config) { c.Own = []netip.Addr{netip.MustParseAddr("20.7.7.8")} })
	b, l := link(t, m, "a", "public")
	if err := b.network.Attach(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Dial("tcp", "20.7.7.8:443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	b.network.Detach()
	if len(b.denials) != 1 || b.denials[0].Rule != policy.KindOwn || b.denials[0].Missing != "20.7.7.8:443" {
		t.Errorf("refusals: %+v", b.denials)
	}
}

// An address that the machine gets later is refused, too, and is no longer when the machine has lost it.
func TestNewOwnAddresses(t *testing.T) {
	m := newManager(t)
	b, l := link(t, m, "a", "public:*")
	if err := b.network.Attach(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	defer b.network.Detach()
	p := m.process(t, "a")
	own := func() bool {
		b.events.mu.Lock()
		seen := len(b.denials)
		b.events.mu.Unlock()
		for port := 1; ; port++ { // each refusal is new: it has another port
			if c, err := b.Dial("tcp", fmt.Sprintf("20.7.7.7:%d", port)); err == nil {
				c.Close()
			}
			if _, err := p.call(context.Background(), wire.Request{Kind: wire.Ping}, -1); err != nil { // its events come first
				t.Fatal(err)
			}
			b.events.mu.Lock()
			now := len(b.denials)
			b.events.mu.Unlock()
			if now > seen || port == 3 {
				return now > seen
			}
		}
	}
	if own() {
		t.Error("refused before the machine has it")
	}
	remove := networktest.AddAddress(t, "20.7.7.7/32")
	untilIs(t, own, true)
	remove()
	untilIs(t, own, false)
}

// The daemon closes a device last: the last close takes long, and a helper has packets of others to carry.
func TestHelperClosesDevicesFirst(t *testing.T) {
	m := newManager(t)
	box := newBox(t, m, "a")
	files := fmt.Sprintf("/proc/%d/fd/*", m.process(t, "a").command.Process.Pid)
	devices := func() (n int) {
		links, _ := filepath.Glob(files)
		for _, link := range links {
			if file, _ := os.Readlink(link); file == "/dev/net/tun" {
				n++
			}
		}
		return n
	}
	if n := devices(); n != 1 {
		t.Fatalf("an attached network: %d devices in the helper", n)
	}
	box.network.Detach()
	if n := devices(); n != 0 {
		t.Errorf("after Detach: %d devices in the helper", n)
	}
}

// untilIs waits until f returns want.
func untilIs(t *testing.T, f func() bool, want bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); f() != want; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still %t", !want)
		}
	}
}

// After Close, nothing is attached, and no helper is left.
func TestClose(t *testing.T) {
	m := newManager(t)
	b := newBox(t, m, "a")
	p := m.process(t, "a")
	m.Close()
	<-p.dead
	if state := p.command.ProcessState; !state.Success() {
		t.Errorf("the helper: %v: %s", state, p.stderr)
	}
	b.network.Detach()
	late, l := link(t, m, "a")
	if err := late.network.Attach(context.Background(), l); !errors.Is(err, ErrHelper) {
		t.Errorf("after Close: %v", err)
	}
}

// A Manager refuses a directory that can't be.
func TestNewManager(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewManager(Config{Dir: file + "/x"}); err == nil {
		t.Error("no directory")
	}
}

// The Manager finds the machine's addresses and DNS servers.
func TestMachine(t *testing.T) {
	own, err := Config{}.ownAddresses()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, a := range own {
		found[a.String()] = true
	}
	if !found[networktest.Private] || !found[networktest.Public6] {
		t.Errorf("addresses: %v", own)
	}
	if _, err := (Config{}).resolvers(); err != nil {
		t.Error(err)
	}
}

// The gateway answers at the addresses that package sandbox gives to sandboxes.
func TestAddresses(t *testing.T) {
	ours := []netip.Addr{gateway.SandboxIPv4, gateway.SandboxIPv6, gateway.NameServerIPv4, gateway.NameServerIPv6}
	theirs := []netip.Addr{sandbox.SandboxIPv4, sandbox.SandboxIPv6, sandbox.NameServerIPv4, sandbox.NameServerIPv6}
	if !slices.Equal(ours, theirs) {
		t.Errorf("%v, but package sandbox has %v", ours, theirs)
	}
}

// carried returns how many networks the helper of a tenant carries.
func (m *Manager) carried(tenant string) int {
	t := m.tenant(tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.networks)
}

// The helper gets a network with the program's first packet, in a second helper, too.
func TestFirstPacket(t *testing.T) {
	serveEcho(t)
	m := newManager(t)
	silent, b := attachBox(t, m, "a"), attachBox(t, m, "a")
	if n := m.carried("a"); n != 0 {
		t.Errorf("before the first packet: %d networks in the helper", n)
	}
	p := m.process(t, "a")
	p.kill()
	<-p.noted
	b.echo(t).Close()
	if n := m.carried("a"); n != 1 {
		t.Errorf("after a first packet: %d networks in the helper", n)
	}
	silent.network.Detach()
	b.network.Detach()
	if len(b.closed) != 1 || len(silent.closed)+len(silent.denials) > 0 {
		t.Errorf("events: %+v, %+v", b.closed, silent)
	}
	if len(silent.cut) > 0 {
		t.Error("the connections of a network without any were cut")
	}
}

// The refusal of a packet is reported if the program ends right after it.
func TestOnlyPacket(t *testing.T) {
	m := newManager(t)
	for range 50 {
		b := attachBox(t, m, "a")
		c, err := b.Dial("udp", networktest.Private+":53")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.Close()
		b.network.Detach()
		if len(b.denials) != 1 {
			t.Fatalf("refusals: %+v", b.denials)
		}
	}
}

// The end of a sandbox does not wait for a helper that does not take the network.
func TestDetachBeforeStoppedHelperCarries(t *testing.T) {
	m, b := boxOfStopped(t, attachBox)
	c, err := b.Dial("udp", echoAddress)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for m.carried("a") == 0 { // else Detach would begin itself
		runtime.Gosched()
	}
	b.network.Detach()
	b.network.Detach() // does nothing
	if s := m.Stats(); s.Networks != 0 || s.Deaths != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// A device that can't be watched is an error of the attachment.
func TestDeviceThatCannotBeWatched(t *testing.T) {
	m := newManager(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file")) // epoll takes no regular file, see epoll_ctl(2)
	if err != nil {
		t.Fatal(err)
	}
	b, l := link(t, m, "a")
	l.TUN = file
	if err := b.network.Attach(context.Background(), l); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v", err)
	}
	b.network.Detach()
	if s := m.Stats(); s.Networks != 0 {
		t.Errorf("stats: %+v", s)
	}
}
