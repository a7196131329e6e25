package network

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/sandbox"
)

// ErrRemoved says that the tenant of a network was removed.
var ErrRemoved = errors.New("the tenant was removed")

// Config of a Manager. Program, Dir, Group and Log are necessary.
type Config struct {
	// Program is the program of the helpers, cmd/skillrun-network. It must be of this Version. The Manager does not close
	// it.
	Program *ProgramFile
	Version string
	// Dir is a directory for this Manager. It stays empty: it is the helpers' root directory.
	Dir string
	// Resolvers answer the sandboxes' DNS questions. Nil: the name servers in /etc/resolv.conf, which
	// is read at each attachment.
	Resolvers []netip.AddrPort
	// Own are public addresses that a router translates to this machine (NAT). Sandboxes are refused these addresses
	// like the addresses of the machine's interfaces, which the Manager finds itself.
	Own []netip.Addr
	// Proxy opens the TCP connections of all sandboxes. Nil: helpers make them.
	Proxy *Proxy
	// Limits bound each network. Zero: policy.DefaultLimits. Zero Dial or Hello: the value in DefaultLimits.
	Limits policy.Limits
	// Tenant bounds all networks of a tenant together. Zero: policy.DefaultTenantLimits.
	Tenant policy.TenantLimits
	// IdleTime is how long a helper without a network stays. Zero: one minute.
	IdleTime time.Duration
	// AnswerTime is how long a helper has for an answer before it is killed. Zero: ten seconds. Even a
	// busy machine answers in milliseconds.
	AnswerTime time.Duration
	// DetachTime is how long the end of a sandbox waits for the last events of its network. Zero: two seconds.
	DetachTime time.Duration
	// Group makes the cgroup of a helper, which bounds its memory.
	Group func(tenant string) (Group, error)
	Log   *slog.Logger
}

// A Group is the cgroup of one helper; *sandbox.HelperGroup is one.
type Group interface {
	ID() int // the helper's user and group; no other process has it
	Enter(pid int) error
	OutOfMemory() bool // whether the kernel killed the helper because of its memory
	Close() error      // kills the helper, if it lives
}

// A Manager makes networks for sandboxes. Its methods may be called by several goroutines.
type Manager struct {
	config Config
	closer chan *os.File  // devices without a use
	parent chan func()    // calls on the thread that starts helpers
	closed sync.WaitGroup // tasks that Close waits for

	watcher   *watcher
	addresses *os.File // see watchAddresses
	reading   sync.Mutex
	readings  uint64 // of the machine's addresses; guarded by reading
	deaths    atomic.Int64
	ooms      atomic.Int64 // of the deaths
	open      atomic.Int64

	mu       sync.Mutex
	tenants  map[string]*tenant
	removed  map[string]bool // tenants that are gone
	reserved [reserves]int   // by reserve of local ports: the number of tenants that have it
	ended    bool
}

// NewManager starts no helper yet.
func NewManager(c Config) (*Manager, error) {
	if c.Limits == (policy.Limits{}) {
		c.Limits = policy.DefaultLimits()
	}
	c.Limits.Dial = cmp.Or(c.Limits.Dial, policy.DefaultLimits().Dial)
	c.Limits.Hello = cmp.Or(c.Limits.Hello, policy.DefaultLimits().Hello)
	if c.Tenant == (policy.TenantLimits{}) {
		c.Tenant = policy.DefaultTenantLimits()
	}
	if c.IdleTime == 0 {
		c.IdleTime = time.Minute
	}
	if c.AnswerTime == 0 {
		c.AnswerTime = 10 * time.Second
	}
	c.DetachTime = cmp.Or(c.DetachTime, 2*time.Second)
	if err := os.MkdirAll(c.Dir, 0o555); err != nil {
		return nil, err
	}
	m := &Manager{config: c, closer: make(chan *os.File, 1024), parent: make(chan func()), tenants: map[string]*tenant{}, removed: map[string]bool{}}
	var err error
	if m.addresses, err = openAddresses(); err != nil {
		return nil, err
	}
	if m.watcher, err = newWatcher(); err != nil {
		m.addresses.Close()
		return nil, err
	}
	m.closed.Go(m.watcher.run)
	m.closed.Go(m.watchAddresses)
	m.closed.Go(m.closeDevices)
	go m.startHelpers()
	return m, nil
}

// Open returns the network of one execution, with its credentials or nil. It starts the tenant's helper if
// none runs, and returns before the helper runs. Nothing has to be closed: sandbox calls Detach. For a tenant that is
// gone, Open starts nothing, and Attach will fail.
func (m *Manager) Open(tenant, execution string, rules *policy.Rules, credentials *credential.Set, to policy.DaemonSink) sandbox.Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &Network{manager: m, name: tenant, execution: execution, rules: rules, secrets: credentials, sink: to, late: m.removed[tenant]}
	if !n.late {
		m.tenant(tenant).prepare()
	}
	return n
}

// Add ends the effect of Remove, for a tenant that is back.
func (m *Manager) Add(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.removed, tenant)
	if t := m.tenants[tenant]; t != nil {
		t.restored()
	}
}

// Remove ends the helper of a tenant that is gone: at once, or with the last of the tenant's networks.
// It does not wait for the end. Networks that were opened before can still be attached.
func (m *Manager) Remove(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed[tenant] = true
	if t := m.tenants[tenant]; t != nil && t.remove() {
		m.forget(t)
	}
}

// join finds the tenant of a network that is about to be attached. The tenant stays until it is left.
func (m *Manager) join(n *Network) *tenant {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tenant(n.name)
	t.join(n, m.removed[n.name])
	return t
}

// left forgets a removed tenant after its last network.
func (m *Manager) left(t *tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenants[t.name] == t && t.deserted() {
		m.forget(t)
	}
}

// forget closes a tenant that has no network. The caller holds mu.
func (m *Manager) forget(t *tenant) {
	delete(m.tenants, t.name)
	m.reserved[t.reserve]--
	// In the background, because close waits for the helper's end, and the caller holds mu.
	m.closed.Go(t.close)
}

// Close ends all helpers. Only the first call does something.
func (m *Manager) Close() {
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return
	}
	m.ended = true
	tenants := m.tenants
	m.tenants = map[string]*tenant{}
	m.mu.Unlock()
	var all sync.WaitGroup
	for _, t := range tenants {
		all.Go(t.close)
	}
	all.Wait()
	// nil ends closeDevices after the devices that were sent before it. No tenant is left that could send another.
	m.closer <- nil
	m.addresses.Close()
	m.watcher.close()
	m.closed.Wait()
	close(m.parent)
}

// tenant returns the tenant of a name. The caller holds mu.
func (m *Manager) tenant(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = newTenant(m, name)
		// After Close, a late caller gets a tenant that starts nothing and that no map has.
		t.ended = m.ended
		if !m.ended {
			t.reserve = m.takeReserve()
			m.tenants[name] = t
		}
	}
	return t
}

// closeDevices closes devices one after the other. Each close blocks a thread in the kernel for about
// 20 ms, so only this goroutine closes. A helper closes its descriptor before that, since it would stop carrying packets.
func (m *Manager) closeDevices() {
	for f := range m.closer {
		if f == nil {
			return
		}
		f.Close()
	}
}

// startHelpers starts the helpers of all tenants on one thread, which lives until Close. A helper asks the kernel
// to kill it when the thread ends that started it (PR_SET_PDEATHSIG, prctl(2)). Other threads of a Go
// program may end before the program does.
func (m *Manager) startHelpers() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := range m.parent {
		start()
	}
}

// start starts a process from that thread.
func (m *Manager) start(c *exec.Cmd) error {
	started := make(chan error)
	m.parent <- func() { started <- c.Start() }
	return <-started
}

// resolvers returns the DNS servers of the machine.
func (c Config) resolvers() ([]netip.AddrPort, error) {
	if c.Resolvers != nil {
		return c.Resolvers, nil
	}
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return nameServers(string(text)), nil
}

// nameServers returns the name servers of a resolv.conf(5).
func nameServers(text string) (all []netip.AddrPort) {
	for line := range strings.Lines(text) {
		// An address that can't be parsed is left out.
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err == nil {
				all = append(all, netip.AddrPortFrom(a, 53))
			}
		}
	}
	return all
}
