package sandbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// poolPeriod is how often the pool looks whether it holds too much.
	poolPeriod = 5 * time.Second
	// poolIdle is how long a profile that nobody asks for keeps its sandboxes.
	poolIdle = time.Minute
	// interpreterIdle is the same for interpreters, which take longer to start.
	interpreterIdle = 10 * time.Minute
	// maxBehind is how many ended sandboxes may wait to be freed behind their answers,
	// and maxBehindBytes what they took of memory together, at their peaks. Each has its
	// ids until then, so they are no more than half of what there are ids for.
	maxBehind      = 1024
	maxBehindBytes = 1 << 30
	// maxFreers is how many of them are freed at once. The kernel lets each wait, and
	// more would stand in the way of those that end.
	maxFreers = 8
	// startShare is how much longer than the start of an interpreter no other is
	// started: who asks for one after the other has that much of a processor.
	startShare = 9
	// refillPause is how long a sandbox that was taken is missing while its program runs,
	// and answerPause how long when it has ended.
	refillPause = 10 * time.Millisecond
	answerPause = time.Millisecond
	// steadyAfter is how often in a row the same mounts are asked for again before a sandbox
	// gets them ahead. One that then needs others costs more than one without any.
	steadyAfter = 3
	// freePause is how long an ended sandbox waits for its answer to be sent, and for
	// others: the kernel takes several apart with less work than one after the other.
	freePause = 5 * time.Millisecond
	// maxShelves is how many profiles are remembered. Requests choose them: there may be as
	// many as there are requests.
	maxShelves = 64
	// motherPause is between two tries to start a mother.
	motherPause = 5 * time.Second
)

// A pool makes sandboxes ahead, of the profiles that are asked for, and as many as
// are asked for at once. Each is used once.
type pool struct {
	host *Host
	max  int // sandboxes that wait, of all profiles
	// interpreters is how many are kept ready at most.
	interpreters int
	wake         chan struct{}
	making       chan struct{} // one place for each that is made: more than there are processors are all slower
	quit         chan struct{}
	once         sync.Once      // closes quit
	told         chan struct{}  // closed when the first mother lives, or does not
	done         sync.WaitGroup // work, and what is freed behind the answers

	mu      sync.Mutex
	mother  *mother // nil: none lives
	shelves map[profile]*shelf
	ready   map[readyKey]*readySlot
	rest    time.Time // until then no interpreter is started
	starter string    // the caller for whom one was started last
	// Until then the starter starts no other: another caller could not start one during rest.
	turnEnds time.Time

	mostBehind int // maxBehind or less
	behindMu   sync.Mutex
	ended      []endedCell // that wait, in the order of their ends
	endedCount int         // of those, and of those that are being freed
	endedBytes int64       // of the same
	freeing    bool        // startFreers comes after freePause
	freers     int         // goroutines that free
}

// An endedCell waits to be freed.
type endedCell struct {
	bytes   int64 // that it took at its peak
	destroy func()
}

// A shelf holds the prepared sandboxes of one profile.
type shelf struct {
	like  Spec // what was asked for last, as far as it is blank
	same  int  // how often in a row, beside the first time, with these mounts
	ready []*cell
	want  int
	least int // how few were ready since the last look
	asked time.Time
}

// startPool starts to prepare, in the background. max is of Config.Prepared.
func startPool(h *Host, max int) *pool {
	p := &pool{
		host: h, max: max, interpreters: h.config.Interpreters, shelves: map[profile]*shelf{}, ready: map[readyKey]*readySlot{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), told: make(chan struct{}),
		making:     make(chan struct{}, runtime.NumCPU()),
		mostBehind: min(maxBehind, len(h.ids.used)/2),
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
	if p == nil || p.host.faults.onlyMade() || !s.preparable() {
		return nil
	}
	key := s.profile()
	if k := s.readyKey(); k != (readyKey{}) && p.interpreters > 0 {
		var in *interpreter
		key.ready, in = p.askInterpreter(k, s.Caller)
		c, m := p.pick(key, s)
		if c != nil {
			return c
		}
		if in != nil && m != nil {
			c, err := p.host.prepare(m, in, s)
			if err == nil {
				return c
			}
			p.host.log().Warn("the interpreter forked no child; the sandbox executes one", "error", err)
		}
		key.ready = readyKey{}
	}
	c, m := p.pick(key, s)
	if c != nil || m == nil {
		return c
	}
	p.stir() // more are asked for than stand ready
	c, err := p.prepare(m, nil, s)
	if err != nil {
		p.host.log().Warn("the mother made no sandbox; libcontainer makes it", "error", err)
		return nil
	}
	return c
}

// prepare is Host's, when there is a place. Forks of an interpreter need none: it makes
// one at a time, and what its children do then is bounded by those who ask.
func (p *pool) prepare(m *mother, in *interpreter, s Spec) (*cell, error) {
	if in == nil {
		p.making <- struct{}{}
		defer func() { <-p.making }()
	}
	return p.host.prepare(m, in, s)
}

// pick takes one from its shelf. It also returns who can make one.
func (p *pool) pick(key profile, s Spec) (*cell, *mother) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mother == nil {
		return nil, nil
	}
	f := p.shelves[key]
	if f == nil {
		p.forgetShelf()
		f = &shelf{want: 1}
		p.shelves[key] = f
	}
	f.same++
	if !sameMounts(f.like, s) {
		f.same = 0
	}
	f.like, f.asked = s.blank(), time.Now()
	for len(f.ready) > 0 {
		i := f.best(s)
		c := f.ready[i]
		f.ready = slices.Delete(f.ready, i, i+1)
		f.least = min(f.least, len(f.ready))
		if c.waits() {
			return c, p.mother
		}
		p.done.Go(c.discard) // somebody killed it
	}
	f.want = min(f.want+1, p.max)
	f.least = 0
	return nil, p.mother
}

// forgetShelf makes room for another shelf, if there are many. p.mu is held.
func (p *pool) forgetShelf() {
	if len(p.shelves) < maxShelves {
		return
	}
	var oldest profile
	for key, f := range p.shelves {
		if o := p.shelves[oldest]; o == nil || f.asked.Before(o.asked) {
			oldest = key
		}
	}
	p.removeShelf(oldest)
}

// removeShelf takes a shelf away, with what stands on it. p.mu is held.
func (p *pool) removeShelf(key profile) {
	for _, c := range p.shelves[key].ready {
		p.done.Go(c.discard)
	}
	delete(p.shelves, key)
}

// best is the sandbox whose mounts were made ahead for s, else one of which none were.
func (f *shelf) best(s Spec) int {
	best := 0
	for i, c := range f.ready {
		switch {
		case c.ahead == nil:
			best = i
		case sameMounts(c.ahead.spec, s):
			return i
		}
	}
	return best
}

// forgetInterpreter makes room for another start, and takes away what the one that is
// gone forked ahead, which ended with it.
func (p *pool) forgetInterpreter(k readyKey, r *readySlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[k] == r {
		p.drop(k)
	}
}

// drop ends an interpreter and what it forked ahead. p.mu is held.
func (p *pool) drop(k readyKey) {
	in := p.ready[k].in
	delete(p.ready, k)
	for key := range p.shelves {
		if key.ready == k {
			p.removeShelf(key)
		}
	}
	if in != nil {
		in.close()
	}
}

// running counts the children of an interpreter that are no longer on a shelf. p.mu
// is held.
func (p *pool) running(k readyKey) int {
	r := p.ready[k]
	if r.failed {
		return 0
	}
	if r.in == nil {
		return 1 // it starts
	}
	n := r.in.children()
	for key, f := range p.shelves {
		if key.ready != k {
			continue
		}
		for _, c := range f.ready {
			if c.waits() { // else its child has ended, and is not counted
				n--
			}
		}
	}
	return n
}

// refill lets the pool make what was taken, but not yet: to make one is more work than
// most programs are, and both want the same processors. The timer is the time that a
// program has them for; sooner is when it has ended, and answerPause after. Who finds
// nothing meanwhile has one made, and the shelf holds more from then on.
func (p *pool) refill() (after *time.Timer) { return time.AfterFunc(refillPause, p.stir) }

// programEnded is told of every sandbox that was taken, with refill's timer.
func (p *pool) programEnded(after *time.Timer) {
	if after.Stop() {
		time.AfterFunc(answerPause, p.stir)
	}
}

// stir has work look what is to be made.
func (p *pool) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// behind frees a sandbox that took so much memory while its caller goes on. False: too
// much waits to be freed.
func (p *pool) behind(bytes int64, destroy func()) bool {
	p.behindMu.Lock()
	defer p.behindMu.Unlock()
	if p.endedCount >= p.mostBehind || p.endedBytes+bytes > maxBehindBytes {
		return false
	}
	p.ended = append(p.ended, endedCell{bytes, destroy})
	p.endedBytes += bytes
	p.endedCount++
	if !p.freeing {
		p.freeing = true
		p.done.Add(1)
		time.AfterFunc(freePause, func() {
			defer p.done.Done()
			p.startFreers()
		})
	}
	return true
}

// startFreers has what waits freed.
func (p *pool) startFreers() {
	p.behindMu.Lock()
	defer p.behindMu.Unlock()
	p.freeing = false
	for range min(len(p.ended), maxFreers-p.freers) {
		p.freers++
		p.done.Go(p.freeEnded)
	}
}

// freeEnded frees what waits, until nothing does.
func (p *pool) freeEnded() {
	p.behindMu.Lock()
	defer p.behindMu.Unlock()
	for len(p.ended) > 0 {
		c := p.ended[0]
		p.ended = p.ended[1:]
		p.behindMu.Unlock()
		c.destroy()
		p.behindMu.Lock()
		p.endedBytes -= c.bytes
		p.endedCount--
	}
	p.freers--
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
			p.host.log().Warn("the mother of sandboxes ended; another one is started")
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
	m, shelves, ready := p.mother, p.shelves, p.ready
	p.mother, p.shelves, p.ready = nil, map[profile]*shelf{}, map[readyKey]*readySlot{}
	p.mu.Unlock()
	for _, r := range ready {
		if r.in != nil {
			r.in.close()
		}
	}
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
	at, ok := p.lacking()
	if !ok {
		p.mu.Unlock()
		return false
	}
	f := p.shelves[at]
	var in *interpreter
	if r := p.ready[at.ready]; r != nil {
		in = r.in
	}
	like, m, mount := f.like, p.mother, f.same >= steadyAfter
	p.mu.Unlock()
	c, err := p.prepare(m, in, like)
	if err != nil {
		p.host.log().Error("no sandbox was made ahead", "error", err)
		return false
	}
	if mount {
		if err := c.mountAhead(); err != nil { // a directory that is gone meanwhile
			p.host.log().Debug("no mounts were made ahead", "error", err)
			c.discard()
			p.mu.Lock()
			f.same = 0
			p.mu.Unlock()
			return true
		}
	}
	p.mu.Lock()
	kept := p.shelves[at] == f // it may have been dropped meanwhile
	if kept {
		f.ready = append(f.ready, c)
	}
	p.mu.Unlock()
	if !kept {
		c.discard()
	}
	return true
}

// lacking is the shelf that gets the next one: of those that hold less than they should
// the one that was asked for last, for which there is room. p.mu is held.
func (p *pool) lacking() (profile, bool) {
	var found []profile
	total := 0
	for key, s := range p.shelves {
		total += len(s.ready)
		r := p.ready[key.ready]
		if key.ready != (readyKey{}) && (r == nil || r.in == nil) {
			continue // it executes meanwhile
		}
		if len(s.ready) < s.want {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, func(a, b profile) int { return p.shelves[b].asked.Compare(p.shelves[a].asked) })
	for _, key := range found {
		if total < p.max || p.makeRoom(p.shelves[key]) {
			return key, true
		}
	}
	return profile{}, false
}

// makeRoom lets one sandbox go for f, from a shelf that was asked for long before f, or
// that holds more and was not asked for long after: two shelves must not take from each
// other in turns. p.mu is held.
func (p *pool) makeRoom(f *shelf) bool {
	var from *shelf
	for _, s := range p.shelves {
		before := f.asked.Sub(s.asked)
		gives := before > poolPeriod || before > -poolPeriod && len(s.ready) > len(f.ready)+1
		if s != f && len(s.ready) > 0 && gives && (from == nil || s.asked.Before(from.asked)) {
			from = s
		}
	}
	if from == nil {
		return false
	}
	c := from.ready[0]
	from.ready = from.ready[1:]
	p.done.Go(c.discard)
	return true
}

// shrink lets go what was not needed.
func (p *pool) shrink() {
	var spare []*cell
	p.mu.Lock()
	for k, r := range p.ready {
		if time.Since(r.last()) > interpreterIdle && p.running(k) == 0 {
			p.drop(k)
		}
	}
	for key, f := range p.shelves {
		if time.Since(f.asked) > poolIdle {
			p.removeShelf(key)
			continue
		}
		f.ready = slices.DeleteFunc(f.ready, func(c *cell) bool {
			if c.waits() && (c.ahead == nil || sameMounts(c.ahead.spec, f.like)) {
				return false
			}
			spare = append(spare, c) // somebody killed it, or what it shows is asked for no more
			return true
		})
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
