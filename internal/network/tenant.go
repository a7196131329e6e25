package network

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/network/wire"
)

// ErrHelper says that the helper of a tenant can't run now.
var ErrHelper = errors.New("the network helper does not run")

// Pauses after deaths of a helper: none after the first one within crashTime, then firstPause, and
// twice as long after each further one.
const (
	crashTime    = time.Minute
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// A tenant has the helper of one tenant and the networks in it.
type tenant struct {
	manager *Manager
	name    string
	reserve int             // of local ports
	life    context.Context // ends with close
	end     context.CancelFunc
	tasks   sync.WaitGroup

	events   sync.Mutex
	accounts map[uint64]*account // of networks, guarded by events
	counts   TenantStats         // guarded by events

	starting sync.Mutex // held while a helper starts; before mu

	mu        sync.Mutex
	process   *process            // nil: none runs
	networks  map[uint64]*Network // that helpers carry, by Network.number
	number    uint64              // of the last network; no number comes twice, also with a new helper
	users     int                 // networks that are attached or are about to be
	idle      *time.Timer
	deaths    []time.Time // within crashTime
	notBefore time.Time
	removed   bool // the last network ends the helper
	ended     bool
}

func newTenant(m *Manager, name string) *tenant {
	t := &tenant{manager: m, name: name, networks: map[uint64]*Network{}, accounts: map[uint64]*account{}}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

func (t *tenant) running() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process != nil
}

// prepare starts the helper in the background. Its error comes again in attach.
func (t *tenant) prepare() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process == nil && !t.ended {
		t.tasks.Go(func() { _, _ = t.helper() })
	}
}

// helper returns the helper that runs, or starts one. It takes no context: other networks need the
// helper, too.
func (t *tenant) helper() (*process, error) {
	t.starting.Lock()
	defer t.starting.Unlock()
	t.mu.Lock()
	p, ended, wait, deaths := t.process, t.ended, time.Until(t.notBefore), len(t.deaths)
	t.mu.Unlock()
	switch {
	case ended:
		return nil, fmt.Errorf("%w: the daemon ends it", ErrHelper)
	case p != nil:
		return p, nil
	case wait > 0:
		return nil, fmt.Errorf("%w: it died %d times in a minute; the next one starts in %v. The daemon's log has the reasons",
			ErrHelper, deaths, wait.Round(time.Millisecond))
	}
	p, err := startProcess(t.life, t)
	if err != nil {
		// A start that close has ended is no death.
		if t.life.Err() == nil {
			t.died(err)
		}
		return nil, fmt.Errorf("%w: %w", ErrHelper, err)
	}
	t.mu.Lock()
	t.process = p
	t.rest()
	t.tasks.Go(func() { t.watch(p) })
	t.mu.Unlock()
	if err := t.sendFirstAddresses(p); err != nil {
		p.kill()
		<-p.noted // else the next call would return the dead process
		return nil, fmt.Errorf("%w: %w", ErrHelper, err)
	}
	return p, nil
}

// died notes a death and sets the pause before the next start.
func (t *tenant) died(reason error) {
	t.manager.deaths.Add(1)
	if errors.Is(reason, errMemory) {
		t.manager.ooms.Add(1)
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.deaths) > 0 && now.Sub(t.deaths[0]) > crashTime {
		t.deaths = t.deaths[1:]
	}
	pause := time.Duration(0)
	if n := len(t.deaths); n > 0 {
		pause = min(firstPause<<min(n-1, 10), longestPause)
	}
	t.deaths = append(t.deaths, now)
	t.notBefore = now.Add(pause)
	t.manager.config.Log.Error("a network helper died; its connections end", "tenant", t.name, "reason", reason, "networks", len(t.networks), "pause", pause)
}

// watch asks the helper whether it still answers, and replaces it after its death.
func (t *tenant) watch(p *process) {
	// Five questions in AnswerTime. The reply does not matter; call kills a helper that sends none.
	ticker := time.NewTicker(t.manager.config.AnswerTime / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = p.call(t.life, wire.Request{Kind: wire.Ping}, -1)
		case <-p.dead:
			t.lost(p)
			return
		}
	}
}

// lost handles the end of a helper. If the tenant did not end it, the sandboxes' connections are cut
// and a new helper takes over.
func (t *tenant) lost(p *process) {
	t.mu.Lock()
	if t.process != p { // the tenant has ended it
		t.mu.Unlock()
		close(p.noted)
		return
	}
	t.process = nil
	networks := t.carried()
	t.mu.Unlock()
	p.socket.File.Close()
	t.died(p.lastWords())
	close(p.noted)
	for _, n := range networks {
		t.miss(n)
		if err := n.cut(); err != nil {
			t.manager.config.Log.Warn("connections of a dead network helper stay open", "tenant", t.name, "execution", n.execution, "reason", err)
		}
	}
	t.restore(t.life, t.carried)
}

// carried returns the networks that a helper must carry. The caller holds mu.
func (t *tenant) carried() (all []*Network) {
	for _, n := range t.networks {
		all = append(all, n)
	}
	return all
}

// restore starts helpers until one carries the networks that want returns, want returns none, or ctx ends. It calls want
// with mu held.
func (t *tenant) restore(ctx context.Context, want func() []*Network) {
	for {
		t.mu.Lock()
		networks, wait := want(), time.Until(t.notBefore)
		t.mu.Unlock()
		if len(networks) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		p, err := t.helper()
		if err != nil {
			continue
		}
		for _, n := range networks {
			if err := t.carry(p, n); err != nil && !errors.Is(err, errDied) && n.life.Err() == nil {
				t.manager.config.Log.Error("a network has ended", "tenant", t.name, "execution", n.execution, "reason", err)
				_ = n.cut() // nothing will answer the program
			}
		}
		return // if p has died, its own watch restores
	}
}

// rest starts or stops the time after which a helper without networks ends. The caller holds mu.
func (t *tenant) rest() {
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	if t.users == 0 && !t.ended {
		t.idle = time.AfterFunc(t.manager.config.IdleTime, t.endIdle)
	}
}

// remove notes that the tenant is gone. It reports whether the tenant has no network.
func (t *tenant) remove() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removed = true
	return t.users == 0
}

func (t *tenant) restored() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removed = false
}

// deserted reports whether the tenant is gone and has no network.
func (t *tenant) deserted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removed && t.users == 0
}

func (t *tenant) endIdle() {
	t.mu.Lock()
	p := t.process
	// A network may have joined between the timer's end and the lock.
	if t.users > 0 || p == nil {
		t.mu.Unlock()
		return
	}
	t.process = nil
	t.mu.Unlock()
	p.end()
}

// close ends the helper, and its networks with it.
func (t *tenant) close() {
	t.end() // a start that waits for the helper ends
	t.starting.Lock()
	t.mu.Lock()
	p := t.process
	t.process, t.ended = nil, true
	t.rest()
	t.mu.Unlock()
	t.starting.Unlock()
	if p != nil {
		p.end()
	}
	t.tasks.Wait()
}
