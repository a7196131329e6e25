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
	// pythonIdle is the same for interpreters, which take longer to start.
	pythonIdle = 10 * time.Minute
	// maxDeferred is how many ended sandboxes may wait to be freed behind their answers,
	// and maxDeferredBytes what they took of memory together, at their peaks. Each has its
	// ids until then, so they are no more than half of what there are ids for.
	maxDeferred      = 1024
	maxDeferredBytes = 1 << 30
	// maxFreers is how many of them are freed at once. The kernel lets each wait, and
	// more would stand in the way of those that end.
	maxFreers = 8
	// startShare is how much longer than the start of a Python zygote no other is
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
	// maxBuckets is how many profiles are remembered. Requests choose them: there may be as
	// many as there are requests.
	maxBuckets = 64
	// zygotePause is between two tries to start a zygote.
	zygotePause = 5 * time.Second
)

// A pool makes sandboxes ahead, of the profiles that are asked for, and as many as
// are asked for at once. Each is used once.
type pool struct {
	host *Host
	max  int // sandboxes that wait, of all profiles
	// interpreters is how many are kept ready at most.
	pythonZygotes int
	wakeups       chan struct{}
	making        chan struct{} // one place for each that is made: more than there are processors are all slower
	quit          chan struct{}
	once          sync.Once      // closes quit
	decided       chan struct{}  // closed when the first zygote lives, or does not
	done          sync.WaitGroup // work, and what is freed behind the answers

	mu      sync.Mutex
	zygote  *zygote // nil: none lives
	buckets map[profile]*bucket
	pythons map[pythonKey]*pythonEntry
	rest    time.Time // until then no interpreter is started
	starter string    // the caller for whom one was started last
	// Until then the starter starts no other: another caller could not start one during rest.
	turnEnds time.Time

	mostDeferred  int // maxDeferred or less
	deferredMu    sync.Mutex
	deferred      []endedSandbox // that wait, in the order of their ends
	deferredCount int            // of those, and of those that are being freed
	deferredBytes int64          // of the same
	freeing       bool           // startFreers comes after freePause
	freers        int            // goroutines that free
}

// An endedSandbox waits to be freed.
type endedSandbox struct {
	bytes   int64 // that it took at its peak
	destroy func()
}

// A bucket holds the prepared sandboxes of one profile.
type bucket struct {
	template Spec // what was asked for last, as far as it is blank
	streak   int  // how often in a row, beside the first time, with these mounts
	waiting  []*sandbox
	want     int
	least    int // how few were ready since the last look
	asked    time.Time
}

// startPool starts to prepare, in the background. max is of Config.Prepared.
func startPool(h *Host, max int) *pool {
	p := &pool{
		host: h, max: max, pythonZygotes: h.config.PythonZygotes, buckets: map[profile]*bucket{}, pythons: map[pythonKey]*pythonEntry{},
		wakeups: make(chan struct{}, 1), quit: make(chan struct{}), decided: make(chan struct{}),
		making:       make(chan struct{}, runtime.NumCPU()),
		mostDeferred: min(maxDeferred, len(h.ids.used)/2),
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
	case <-p.decided:
	case <-p.quit:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.zygote != nil
}

// take returns a sandbox for s: a prepared one, or one that is made now. It is nil
// if there is no zygote, or none that could make it.
func (p *pool) take(s Spec) *sandbox {
	if p == nil || p.host.faults.onlyMade() || !s.preparable() {
		return nil
	}
	key := s.profile()
	if k := s.pythonKey(); k != (pythonKey{}) && p.pythonZygotes > 0 {
		var in *pythonZygote
		key.python, in = p.askPythonZygote(k, s.Caller)
		c, m := p.pick(key, s)
		if c != nil {
			return c
		}
		if in != nil && m != nil {
			c, err := p.host.prepare(m, in, s)
			if err == nil {
				return c
			}
			p.host.log().Warn("the Python zygote forked no child; the sandbox executes one", "error", err)
		}
		key.python = pythonKey{}
	}
	c, m := p.pick(key, s)
	if c != nil || m == nil {
		return c
	}
	p.wakeUp() // more are asked for than stand ready
	c, err := p.prepare(m, nil, s)
	if err != nil {
		p.host.log().Warn("the zygote made no sandbox; libcontainer makes it", "error", err)
		return nil
	}
	return c
}

// prepare is Host's, when there is a place. Forks of a Python zygote need none: it makes
// one at a time, and what its children do then is bounded by those who ask.
func (p *pool) prepare(m *zygote, in *pythonZygote, s Spec) (*sandbox, error) {
	if in == nil {
		p.making <- struct{}{}
		defer func() { <-p.making }()
	}
	return p.host.prepare(m, in, s)
}

// pick takes one from its bucket. It also returns who can make one.
func (p *pool) pick(key profile, s Spec) (*sandbox, *zygote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zygote == nil {
		return nil, nil
	}
	f := p.buckets[key]
	if f == nil {
		p.forgetBucket()
		f = &bucket{want: 1}
		p.buckets[key] = f
	}
	f.streak++
	if !sameMounts(f.template, s) {
		f.streak = 0
	}
	f.template, f.asked = s.blank(), time.Now()
	for len(f.waiting) > 0 {
		i := f.best(s)
		c := f.waiting[i]
		f.waiting = slices.Delete(f.waiting, i, i+1)
		f.least = min(f.least, len(f.waiting))
		if c.waits() {
			return c, p.zygote
		}
		p.done.Go(c.discard) // somebody killed it
	}
	f.want = min(f.want+1, p.max)
	f.least = 0
	return nil, p.zygote
}

// forgetBucket makes room for another bucket, if there are many. p.mu is held.
func (p *pool) forgetBucket() {
	if len(p.buckets) < maxBuckets {
		return
	}
	var oldest profile
	for key, f := range p.buckets {
		if o := p.buckets[oldest]; o == nil || f.asked.Before(o.asked) {
			oldest = key
		}
	}
	p.removeBucket(oldest)
}

// removeBucket takes a bucket away, with what stands on it. p.mu is held.
func (p *pool) removeBucket(key profile) {
	for _, c := range p.buckets[key].waiting {
		p.done.Go(c.discard)
	}
	delete(p.buckets, key)
}

// best is the sandbox whose mounts were made ahead for s, else one of which none were.
func (f *bucket) best(s Spec) int {
	best := 0
	for i, c := range f.waiting {
		switch {
		case c.premounts == nil:
			best = i
		case sameMounts(c.premounts.spec, s):
			return i
		}
	}
	return best
}

// forgetPythonZygote makes room for another start, and takes away what the one that is
// gone forked ahead, which ended with it.
func (p *pool) forgetPythonZygote(k pythonKey, r *pythonEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pythons[k] == r {
		p.drop(k)
	}
}

// drop ends a Python zygote and what it forked ahead. p.mu is held.
func (p *pool) drop(k pythonKey) {
	in := p.pythons[k].in
	delete(p.pythons, k)
	for key := range p.buckets {
		if key.python == k {
			p.removeBucket(key)
		}
	}
	if in != nil {
		in.close()
	}
}

// running counts the children of a Python zygote that are no longer on a bucket. p.mu
// is held.
func (p *pool) running(k pythonKey) int {
	r := p.pythons[k]
	if r.failed {
		return 0
	}
	if r.in == nil {
		return 1 // it starts
	}
	n := r.in.children()
	for key, f := range p.buckets {
		if key.python != k {
			continue
		}
		for _, c := range f.waiting {
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
// nothing meanwhile has one made, and the bucket holds more from then on.
func (p *pool) refill() (after *time.Timer) { return time.AfterFunc(refillPause, p.wakeUp) }

// programEnded is told of every sandbox that was taken, with refill's timer.
func (p *pool) programEnded(after *time.Timer) {
	if after.Stop() {
		time.AfterFunc(answerPause, p.wakeUp)
	}
}

// stir has work look what is to be made.
func (p *pool) wakeUp() {
	select {
	case p.wakeups <- struct{}{}:
	default:
	}
}

// behind frees a sandbox that took so much memory while its caller goes on. False: too
// much waits to be freed.
func (p *pool) deferTeardown(bytes int64, destroy func()) bool {
	p.deferredMu.Lock()
	defer p.deferredMu.Unlock()
	if p.deferredCount >= p.mostDeferred || p.deferredBytes+bytes > maxDeferredBytes {
		return false
	}
	p.deferred = append(p.deferred, endedSandbox{bytes, destroy})
	p.deferredBytes += bytes
	p.deferredCount++
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
	p.deferredMu.Lock()
	defer p.deferredMu.Unlock()
	p.freeing = false
	for range min(len(p.deferred), maxFreers-p.freers) {
		p.freers++
		p.done.Go(p.freeEnded)
	}
}

// freeEnded frees what waits, until nothing does.
func (p *pool) freeEnded() {
	p.deferredMu.Lock()
	defer p.deferredMu.Unlock()
	for len(p.deferred) > 0 {
		c := p.deferred[0]
		p.deferred = p.deferred[1:]
		p.deferredMu.Unlock()
		c.destroy()
		p.deferredMu.Lock()
		p.deferredBytes -= c.bytes
		p.deferredCount--
	}
	p.freers--
}

// work is the one goroutine that makes sandboxes ahead.
func (p *pool) work() {
	tick := time.NewTicker(poolPeriod)
	defer tick.Stop()
	for p.keepZygote() {
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
		case <-p.wakeups:
		case <-tick.C:
			p.shrink()
		}
	}
}

// tell ends wait.
func (p *pool) notify() {
	select {
	case <-p.decided:
	default:
		close(p.decided)
	}
}

// keepZygote returns when a zygote lives; false: the pool ends.
func (p *pool) keepZygote() bool {
	for {
		select {
		case <-p.quit:
			p.end()
			return false
		case <-p.gone():
			p.host.log().Warn("the zygote of sandboxes ended; another one is started")
			p.discardZygote()
		default:
			if p.zygote != nil {
				return true
			}
		}
		m, err := p.host.startZygote()
		if err == nil {
			p.mu.Lock()
			p.zygote = m
			p.mu.Unlock()
			p.notify()
			continue
		}
		p.notify()
		p.host.log().Error("sandboxes are not made ahead", "error", err)
		select {
		case <-p.quit:
			return false
		case <-time.After(zygotePause):
		}
	}
}

// gone is closed when the zygote is; never if there is none.
func (p *pool) gone() <-chan struct{} {
	if p.zygote == nil {
		return nil
	}
	return p.zygote.gone
}

// bury takes apart what a dead zygote leaves. Its sandboxes that are in use end by
// themselves.
func (p *pool) discardZygote() {
	p.mu.Lock()
	m, buckets, pythons := p.zygote, p.buckets, p.pythons
	p.zygote, p.buckets, p.pythons = nil, map[profile]*bucket{}, map[pythonKey]*pythonEntry{}
	p.mu.Unlock()
	for _, r := range pythons {
		if r.in != nil {
			r.in.close()
		}
	}
	for _, f := range buckets {
		for _, c := range f.waiting {
			c.discard()
		}
	}
	if err := m.destroy(); err != nil {
		p.host.log().Error("zygote of sandboxes left behind", "error", err)
	}
}

// makeOne makes one sandbox where one is missing. False: none is, or none can be
// made.
func (p *pool) makeOne() bool {
	p.mu.Lock()
	at, ok := p.shortfall()
	if !ok {
		p.mu.Unlock()
		return false
	}
	f := p.buckets[at]
	var in *pythonZygote
	if r := p.pythons[at.python]; r != nil {
		in = r.in
	}
	template, m, mount := f.template, p.zygote, f.streak >= steadyAfter
	p.mu.Unlock()
	c, err := p.prepare(m, in, template)
	if err != nil {
		p.host.log().Error("no sandbox was made ahead", "error", err)
		return false
	}
	if mount {
		if err := c.premount(); err != nil { // a directory that is gone meanwhile
			p.host.log().Debug("no mounts were made ahead", "error", err)
			c.discard()
			p.mu.Lock()
			f.streak = 0
			p.mu.Unlock()
			return true
		}
	}
	p.mu.Lock()
	kept := p.buckets[at] == f // it may have been dropped meanwhile
	if kept {
		f.waiting = append(f.waiting, c)
	}
	p.mu.Unlock()
	if !kept {
		c.discard()
	}
	return true
}

// lacking is the bucket that gets the next one: of those that hold less than they should
// the one that was asked for last, for which there is room. p.mu is held.
func (p *pool) shortfall() (profile, bool) {
	var found []profile
	total := 0
	for key, s := range p.buckets {
		total += len(s.waiting)
		r := p.pythons[key.python]
		if key.python != (pythonKey{}) && (r == nil || r.in == nil) {
			continue // it executes meanwhile
		}
		if len(s.waiting) < s.want {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, func(a, b profile) int { return p.buckets[b].asked.Compare(p.buckets[a].asked) })
	for _, key := range found {
		if total < p.max || p.makeRoom(p.buckets[key]) {
			return key, true
		}
	}
	return profile{}, false
}

// makeRoom lets one sandbox go for f, from a bucket that was asked for long before f, or
// that holds more and was not asked for long after: two buckets must not take from each
// other in turns. p.mu is held.
func (p *pool) makeRoom(f *bucket) bool {
	var from *bucket
	for _, s := range p.buckets {
		before := f.asked.Sub(s.asked)
		gives := before > poolPeriod || before > -poolPeriod && len(s.waiting) > len(f.waiting)+1
		if s != f && len(s.waiting) > 0 && gives && (from == nil || s.asked.Before(from.asked)) {
			from = s
		}
	}
	if from == nil {
		return false
	}
	c := from.waiting[0]
	from.waiting = from.waiting[1:]
	p.done.Go(c.discard)
	return true
}

// shrink lets go what was not needed.
func (p *pool) shrink() {
	var surplus []*sandbox
	p.mu.Lock()
	for k, r := range p.pythons {
		if time.Since(r.last()) > pythonIdle && p.running(k) == 0 {
			p.drop(k)
		}
	}
	for key, f := range p.buckets {
		if time.Since(f.asked) > poolIdle {
			p.removeBucket(key)
			continue
		}
		f.waiting = slices.DeleteFunc(f.waiting, func(c *sandbox) bool {
			if c.waits() && (c.premounts == nil || sameMounts(c.premounts.spec, f.template)) {
				return false
			}
			surplus = append(surplus, c) // somebody killed it, or what it shows is asked for no more
			return true
		})
		// A half of what was never touched may go.
		n := f.least / 2
		surplus = append(surplus, f.waiting[:min(n, len(f.waiting))]...)
		f.waiting = f.waiting[min(n, len(f.waiting)):]
		f.want = max(f.want-n, 1)
		f.least = len(f.waiting)
	}
	p.mu.Unlock()
	for _, c := range surplus {
		c.discard()
	}
}

// end is the end of work.
func (p *pool) end() {
	if p.zygote != nil {
		p.discardZygote()
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
