package sandbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

const (
	// poolPeriod is how often the pool checks whether it holds too much.
	poolPeriod = 5 * time.Second
	// poolIdle is how long a profile without requests keeps its sandboxes.
	poolIdle = time.Minute
	// pythonIdle is the same for Python zygotes, which take longer to start.
	pythonIdle = 10 * time.Minute
	// maxDeferred bounds how many ended sandboxes wait for their teardown after their
	// answers are sent. maxDeferredBytes bounds the sum of their memory peaks. An ended
	// sandbox holds its ids until its teardown, so at most half of all ids may be held
	// this way (mostDeferred).
	maxDeferred      = 1024
	maxDeferredBytes = 1 << 30
	// maxFreers bounds how many teardowns run at once. A teardown mostly waits for the
	// kernel, and more of them would slow down the programs that end now.
	maxFreers = 8
	// startShare bounds the starts of Python zygotes: after a start that took T, the next
	// start waits 9 T. A caller that asks for one after another uses a tenth of a processor.
	startShare = 9
	// refillPause is how long after a take the pool makes the next sandbox, if the program
	// still runs. answerPause is the delay after the program's end.
	refillPause = 10 * time.Millisecond
	answerPause = time.Millisecond
	// freePause delays the first teardown until the answer is sent and more programs have
	// ended: the kernel destroys several sandboxes with less work than one after the other.
	freePause = 5 * time.Millisecond
	// maxBuckets bounds how many profiles are remembered. Requests choose the profiles, so
	// there may be as many profiles as requests.
	maxBuckets = 64
	// zygotePause is the delay between two attempts to start a zygote.
	zygotePause = 5 * time.Second
)

// A pool makes prewarmed sandboxes for the profiles of recent requests. It keeps as many
// as were taken at once, up to max. Each sandbox is used once.
type pool struct {
	host *Host
	max  int // waiting sandboxes, of all profiles together
	// pythonZygotes bounds how many Python zygotes run.
	pythonZygotes int
	wakeups       chan struct{}
	making        chan struct{} // holds a token for each sandbox being made; one per processor, since more only slow each other down
	quit          chan struct{}
	once          sync.Once      // closes quit
	decided       chan struct{}  // closed when the first start of a zygote has succeeded or failed
	done          sync.WaitGroup // work, discards and deferred teardowns

	// mu guards the fields up to turnEnds, the buckets and the Python zygotes' entries. It is
	// never held while a sandbox is made or destroyed.
	mu      sync.Mutex
	zygote  *zygote.Zygote // nil: none runs. Only the goroutine of work sets it, and reads it without mu
	buckets map[profile]*bucket
	pythons map[pyzygote.Key]*pythonEntry
	rest    time.Time // until then no Python zygote is started
	starter string    // the caller that the last one was started for
	// Until turnEnds the starter starts no other one, because another caller was refused
	// during rest.
	turnEnds time.Time

	mostDeferred  int            // maxDeferred, or half of the pairs of ids if that is less
	deferredMu    sync.Mutex     // guards the fields below; nothing takes mu while it is held
	deferred      []endedSandbox // waiting, in the order of their ends
	deferredCount int            // the waiting ones and those being torn down
	deferredBytes int64          // the memory peaks of the same
	freeing       bool           // a timer will call startFreers
	freers        int            // running goroutines of freeEnded
}

// An endedSandbox waits for its teardown.
type endedSandbox struct {
	bytes   int64 // peak of its memory
	destroy func()
}

// A bucket holds the prepared sandboxes of one profile.
type bucket struct {
	template Spec // the last Spec that was asked for, blank
	waiting  []*sandbox
	want     int // how many should wait
	least    int // the fewest that waited since the last shrink
	asked    time.Time
}

// startPool starts the pool's goroutine. max is Config.Prepared.
func startPool(h *Host, max int) *pool {
	p := &pool{
		host: h, max: max, pythonZygotes: h.config.PythonZygotes, buckets: map[profile]*bucket{}, pythons: map[pyzygote.Key]*pythonEntry{},
		wakeups: make(chan struct{}, 1), quit: make(chan struct{}), decided: make(chan struct{}),
		making:       make(chan struct{}, runtime.NumCPU()),
		mostDeferred: min(maxDeferred, len(h.ids.used)/2),
	}
	p.done.Go(p.work)
	return p
}

// wait waits for the first start of a zygote and reports whether a zygote runs.
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

// take returns a sandbox for s: a prepared one, or one that the zygote makes now. It
// returns nil if no zygote runs, or if the zygote can't make this sandbox.
func (p *pool) take(s Spec) *sandbox {
	if p == nil || onlyDirect(p.host) || !s.preparable() {
		return nil
	}
	key := s.profile()
	if k := s.pythonKey(); k != (pyzygote.Key{}) && p.pythonZygotes > 0 {
		var in *pyzygote.Zygote
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
			p.host.log().Warn("a Python zygote could not fork; the script is executed", "error", err)
		}
		key.python = pyzygote.Key{}
	}
	c, m := p.pick(key, s)
	if c != nil || m == nil {
		return c
	}
	p.wakeUp() // more sandboxes are needed than were waiting
	c, err := p.prepare(m, nil, s)
	if err != nil {
		p.host.log().Warn("the zygote could not make a sandbox; libcontainer makes it", "error", err)
		return nil
	}
	return c
}

// prepare calls Host.prepare, at most once per processor at a time. Forks of a Python
// zygote are not counted: a Python zygote forks one child at a time.
func (p *pool) prepare(m *zygote.Zygote, in *pyzygote.Zygote, s Spec) (*sandbox, error) {
	if in == nil {
		p.making <- struct{}{}
		defer func() { <-p.making }()
	}
	return p.host.prepare(m, in, s)
}

// pick takes a sandbox from the bucket for key; nil if none waits. It also returns the
// zygote, which can make one.
func (p *pool) pick(key profile, s Spec) (*sandbox, *zygote.Zygote) {
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
	f.template, f.asked = s.blank(), time.Now()
	for last := len(f.waiting) - 1; last >= 0; last-- {
		c := f.waiting[last]
		f.waiting[last] = nil
		f.waiting = f.waiting[:last]
		f.least = min(f.least, len(f.waiting))
		if c.waits() {
			return c, p.zygote
		}
		p.done.Go(c.discard) // it was killed while it waited
	}
	f.want = min(f.want+1, p.max)
	f.least = 0
	return nil, p.zygote
}

// forgetBucket removes the bucket with the oldest request if there are maxBuckets. p.mu is held.
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

// removeBucket removes a bucket and discards its sandboxes. p.mu is held.
func (p *pool) removeBucket(key profile) {
	for _, c := range p.buckets[key].waiting {
		p.done.Go(c.discard)
	}
	delete(p.buckets, key)
}

// forgetPythonZygote removes a Python zygote that has ended, so that another one can start.
// It also removes its waiting sandboxes, whose processes ended with the Python zygote.
func (p *pool) forgetPythonZygote(k pyzygote.Key, r *pythonEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pythons[k] == r {
		p.drop(k)
	}
}

// drop ends a Python zygote and its waiting sandboxes. p.mu is held.
func (p *pool) drop(k pyzygote.Key) {
	in := p.pythons[k].in
	delete(p.pythons, k)
	for key := range p.buckets {
		if key.python == k {
			p.removeBucket(key)
		}
	}
	if in != nil {
		in.Close()
	}
}

// running counts the children of a Python zygote that run programs, and not the children
// that wait in a bucket. A Python zygote that is being started counts as one. p.mu is held.
func (p *pool) running(k pyzygote.Key) int {
	r := p.pythons[k]
	if r.failed {
		return 0
	}
	if r.in == nil {
		return 1 // it is being started
	}
	n := r.in.Children()
	for key, f := range p.buckets {
		if key.python != k {
			continue
		}
		for _, c := range f.waiting {
			if c.waits() { // else its child has ended, and children() doesn't count it
				n--
			}
		}
	}
	return n
}

// refill wakes the pool after refillPause, to replace a sandbox that was taken. To make a
// sandbox is more work than most programs are, and both need the same processors, so the
// program gets refillPause first. If the program ends sooner, programEnded wakes the pool
// instead. A request that finds an empty bucket in between gets a sandbox that is made
// for it, and the bucket then holds one more.
func (p *pool) refill() (after *time.Timer) { return time.AfterFunc(refillPause, p.wakeUp) }

// programEnded is called at the end of every program whose sandbox the pool gave out, with
// the timer of its refill.
func (p *pool) programEnded(after *time.Timer) {
	if after.Stop() {
		time.AfterFunc(answerPause, p.wakeUp)
	}
}

// wakeUp makes the goroutine of work check which sandboxes are missing. It never blocks: the
// channel holds one wake-up, and one check serves all callers.
func (p *pool) wakeUp() {
	select {
	case p.wakeups <- struct{}{}:
	default:
	}
}

// deferTeardown queues the teardown of a sandbox whose memory peaked at bytes, so that its
// caller needn't wait for it. It returns false if too much is queued already.
func (p *pool) deferTeardown(bytes int64, destroy func()) bool {
	if p == nil {
		return false
	}
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

// startFreers starts goroutines that work off the queue, at most maxFreers in total.
func (p *pool) startFreers() {
	p.deferredMu.Lock()
	defer p.deferredMu.Unlock()
	p.freeing = false
	for range min(len(p.deferred), maxFreers-p.freers) {
		p.freers++
		p.done.Go(p.freeEnded)
	}
}

// freeEnded tears sandboxes down until the queue is empty.
func (p *pool) freeEnded() {
	p.deferredMu.Lock()
	defer p.deferredMu.Unlock()
	for len(p.deferred) > 0 {
		c := p.deferred[0]
		p.deferred = p.deferred[1:]
		p.deferredMu.Unlock() // destroy takes milliseconds, and ending sandboxes need the lock
		c.destroy()
		p.deferredMu.Lock()
		p.deferredBytes -= c.bytes
		p.deferredCount--
	}
	p.freers--
}

// work is the one goroutine that prewarms sandboxes.
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

// notify ends wait. Only the goroutine of work calls it.
func (p *pool) notify() {
	select {
	case <-p.decided:
	default:
		close(p.decided)
	}
}

// keepZygote returns true when a zygote runs, and starts one if needed. It returns false
// when the pool ends.
func (p *pool) keepZygote() bool {
	for {
		select {
		case <-p.quit:
			p.end()
			return false
		case <-p.gone():
			p.host.log().Warn("the zygote ended; starting another one")
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
		p.host.log().Error("the zygote did not start; libcontainer makes each sandbox", "error", err)
		select {
		case <-p.quit:
			return false
		case <-time.After(zygotePause):
		}
	}
}

// gone returns a channel that is closed when the zygote has ended; nil if none runs.
func (p *pool) gone() <-chan struct{} {
	if p.zygote == nil {
		return nil
	}
	return p.zygote.Gone()
}

// discardZygote removes a zygote and its waiting sandboxes. Sandboxes in use died with the
// zygote; the Process of each removes its own.
func (p *pool) discardZygote() {
	p.mu.Lock()
	m, buckets, pythons := p.zygote, p.buckets, p.pythons
	p.zygote, p.buckets, p.pythons = nil, map[profile]*bucket{}, map[pyzygote.Key]*pythonEntry{}
	p.mu.Unlock()
	for _, r := range pythons {
		if r.in != nil {
			r.in.Close()
		}
	}
	for _, f := range buckets {
		for _, c := range f.waiting {
			c.discard()
		}
	}
	if err := m.Destroy(); err != nil {
		p.host.log().Error("the zygote was not removed", "error", err)
	}
}

// makeOne makes one sandbox for the bucket that shortfall names. It returns false if no
// bucket lacks one, or if the zygote made none.
func (p *pool) makeOne() bool {
	p.mu.Lock()
	at, ok := p.shortfall()
	if !ok {
		p.mu.Unlock()
		return false
	}
	f := p.buckets[at]
	var in *pyzygote.Zygote
	if r := p.pythons[at.python]; r != nil {
		in = r.in
	}
	template, m := f.template, p.zygote
	p.mu.Unlock()
	c, err := p.prepare(m, in, template)
	if err != nil {
		p.host.log().Error("a sandbox could not be prewarmed", "error", err)
		return false
	}
	p.mu.Lock()
	kept := p.buckets[at] == f // the bucket may have been removed since
	if kept {
		f.waiting = append(f.waiting, c)
	}
	p.mu.Unlock()
	if !kept {
		c.discard()
	}
	return true
}

// shortfall returns the bucket that gets the next sandbox: of the buckets that hold less
// than they want, the one with the latest request for which there is room. p.mu is held.
func (p *pool) shortfall() (profile, bool) {
	var found []profile
	total := 0
	for key, s := range p.buckets {
		total += len(s.waiting)
		r := p.pythons[key.python]
		if key.python != (pyzygote.Key{}) && (r == nil || r.in == nil) {
			continue // no such Python zygote runs: its programs are executed
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

// makeRoom discards one sandbox of another bucket in favor of f. The other bucket must have
// its last request more than poolPeriod before f's. It may also hold at least two more than
// f, with its last request at most poolPeriod after f's. These rules keep two buckets from
// taking from each other in turns. p.mu is held.
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

// shrink discards sandboxes and Python zygotes that were not needed lately.
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
			if c.waits() {
				return false
			}
			surplus = append(surplus, c) // it was killed
			return true
		})
		// Half of the sandboxes that were not needed since the last shrink may go.
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

// end removes the zygote. work calls it last.
func (p *pool) end() {
	if p.zygote != nil {
		p.discardZygote()
	}
}

// close ends the pool and waits until all of its resources are freed. No sandbox of the pool
// may be in use.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.once.Do(func() { close(p.quit) })
	p.done.Wait()
}
