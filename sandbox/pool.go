package sandbox

import (
	"context"
	"sync"
	"time"
)

const (
	// poolPeriod is how often the pool looks whether it holds too much.
	poolPeriod = 5 * time.Second
	// poolIdle is how long a profile that nobody asks for keeps its sandboxes.
	poolIdle = time.Minute
	// maxBehind is how many ended sandboxes may be freed behind their answers.
	maxBehind = 64
	// motherPause is between two tries to start a mother.
	motherPause = 5 * time.Second
)

// A pool makes sandboxes ahead, of the profiles that are asked for, and as many as
// are asked for at once. Each is used once.
type pool struct {
	host *Host
	max  int // sandboxes that wait, of all profiles
	wake chan struct{}
	quit chan struct{}
	once sync.Once      // closes quit
	told chan struct{}  // closed when the first mother lives, or does not
	done sync.WaitGroup // work, and what is freed behind the answers
	free chan struct{}  // one place for each that is freed

	mu      sync.Mutex
	mother  *mother // nil: none lives
	shelves map[profile]*shelf
}

// A shelf holds the prepared sandboxes of one profile.
type shelf struct {
	like  Spec // what was asked for last
	ready []*cell
	want  int
	least int // how few were ready since the last look
	asked time.Time
}

// startPool starts to prepare, in the background. max is of Config.Prepared.
func startPool(h *Host, max int) *pool {
	p := &pool{
		host: h, max: max, shelves: map[profile]*shelf{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), free: make(chan struct{}, maxBehind), told: make(chan struct{}),
	}
	p.done.Go(p.work)
	return p
}

// wait reports whether sandboxes are made ahead, once that is known.
func (p *pool) wait(ctx context.Context) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.told:
	case <-p.quit:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mother != nil
}

// take returns a sandbox for s: a prepared one, or one that is made now. It is nil
// if there is no mother, or none that could make it.
func (p *pool) take(s Spec) *cell {
	if p == nil || p.host.faults != nil || !s.preparable() {
		return nil
	}
	c, m := p.ready(s)
	if c != nil || m == nil {
		return c
	}
	c, err := p.host.prepare(m, s)
	if err != nil {
		p.host.log().Warn("the mother made no sandbox; libcontainer makes it", "error", err)
		return nil
	}
	return c
}

// ready takes one from its shelf. It also returns who can make one.
func (p *pool) ready(s Spec) (*cell, *mother) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mother == nil {
		return nil, nil
	}
	key := s.profile()
	f := p.shelves[key]
	if f == nil {
		f = &shelf{want: 1}
		p.shelves[key] = f
	}
	f.like, f.asked = s, time.Now()
	for len(f.ready) > 0 {
		c := f.ready[0]
		f.ready = f.ready[1:]
		f.least = min(f.least, len(f.ready))
		if c.waits() {
			return c, p.mother
		}
		go c.discard() // somebody killed it
	}
	f.want = min(f.want+1, p.max)
	f.least = 0
	return nil, p.mother
}

// refill lets the pool make what was taken.
func (p *pool) refill() {
	if p == nil {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// behind frees a sandbox while its caller goes on. False: too many are being freed.
func (p *pool) behind(destroy func()) bool {
	select {
	case p.free <- struct{}{}:
	default:
		return false
	}
	p.done.Go(func() {
		destroy()
		<-p.free
	})
	return true
}

// work is the one goroutine that makes sandboxes ahead.
func (p *pool) work() {
	tick := time.NewTicker(poolPeriod)
	defer tick.Stop()
	for p.keepMother() {
		for p.makeOne() {
			select {
			case <-p.quit:
				p.end()
				return
			default:
			}
		}
		select {
		case <-p.quit:
			p.end()
			return
		case <-p.gone():
		case <-p.wake:
		case <-tick.C:
			p.shrink()
		}
	}
}

// tell ends wait.
func (p *pool) tell() {
	select {
	case <-p.told:
	default:
		close(p.told)
	}
}

// keepMother returns when a mother lives; false: the pool ends.
func (p *pool) keepMother() bool {
	for {
		select {
		case <-p.quit:
			p.end()
			return false
		case <-p.gone():
			p.bury()
		default:
			if p.mother != nil {
				return true
			}
		}
		m, err := p.host.startMother()
		if err == nil {
			p.mu.Lock()
			p.mother = m
			p.mu.Unlock()
			p.tell()
			continue
		}
		p.tell()
		p.host.log().Error("sandboxes are not made ahead", "error", err)
		select {
		case <-p.quit:
			return false
		case <-time.After(motherPause):
		}
	}
}

// gone is closed when the mother is; never if there is none.
func (p *pool) gone() <-chan struct{} {
	if p.mother == nil {
		return nil
	}
	return p.mother.gone
}

// bury takes apart what a dead mother leaves. Its sandboxes that are in use end by
// themselves.
func (p *pool) bury() {
	p.mu.Lock()
	m, shelves := p.mother, p.shelves
	p.mother, p.shelves = nil, map[profile]*shelf{}
	p.mu.Unlock()
	for _, f := range shelves {
		for _, c := range f.ready {
			c.discard()
		}
	}
	if err := m.destroy(); err != nil {
		p.host.log().Error("mother of sandboxes left behind", "error", err)
	}
}

// makeOne makes one sandbox where one is missing. False: none is, or none can be
// made.
func (p *pool) makeOne() bool {
	p.mu.Lock()
	var f *shelf
	total := 0
	for _, s := range p.shelves {
		total += len(s.ready)
		if len(s.ready) < s.want && (f == nil || s.asked.After(f.asked)) {
			f = s
		}
	}
	if f == nil || total >= p.max {
		p.mu.Unlock()
		return false
	}
	like, m := f.like, p.mother
	p.mu.Unlock()
	c, err := p.host.prepare(m, like)
	if err != nil {
		p.host.log().Error("no sandbox was made ahead", "error", err)
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.ready = append(f.ready, c)
	return true
}

// shrink lets go what was not needed.
func (p *pool) shrink() {
	var spare []*cell
	p.mu.Lock()
	for key, f := range p.shelves {
		if time.Since(f.asked) > poolIdle {
			spare = append(spare, f.ready...)
			delete(p.shelves, key)
			continue
		}
		// A half of what was never touched may go.
		n := f.least / 2
		spare = append(spare, f.ready[:min(n, len(f.ready))]...)
		f.ready = f.ready[min(n, len(f.ready)):]
		f.want = max(f.want-n, 1)
		f.least = len(f.ready)
	}
	p.mu.Unlock()
	for _, c := range spare {
		c.discard()
	}
}

// end is the end of work.
func (p *pool) end() {
	if p.mother != nil {
		p.bury()
	}
}

// close waits until nothing of the pool is left. No sandbox of it may be in use any
// more.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.once.Do(func() { close(p.quit) })
	p.done.Wait()
}
