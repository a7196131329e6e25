package sandbox

import (
	"cmp"
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
	// pythonPause is the delay before a Python zygote that did not start may be tried again.
	pythonPause = 30 * time.Second
)

// A pool makes prewarmed sandboxes for the profiles of recent requests. It keeps as many
// as were taken at once, up to max. Each sandbox is used once.
type pool struct {
	host *Host
	max  int // waiting sandboxes, of all profiles together
	// pythonZygotes bounds how many Python zygotes run, zygotes how many of groups. The zygote of
	// the default group is not counted.
	pythonZygotes, zygotes int
	wakeups                chan struct{}
	making                 *turns // to make a sandbox: one per processor, since more only slow each other down
	quit                   chan struct{}
	once                   sync.Once      // closes quit
	decided                chan struct{}  // closed when the first start of a zygote has succeeded or failed
	done                   sync.WaitGroup // work, discards and deferred teardowns
	makers                 sync.WaitGroup // sandboxes that prewarm makes

	// mu guards the fields up to turnEnds, the buckets and the Python zygotes' entries. It is
	// never held while a sandbox is made or destroyed.
	mu      sync.Mutex
	zygote  *zygote.Zygote // the default group's; nil: none runs. Only the goroutine of work sets it, and reads it without mu
	byGroup map[string]*zygoteEntry
	ending  map[string]bool // groups whose last zygote is not destroyed yet
	buckets map[profile]*bucket
	pending map[string]bool // groups for which prewarm makes a sandbox that no request has claimed
	pythons map[pythonKey]*pythonEntry
	rest    time.Time // until then no Python zygote is started
	starter string    // the caller that the last one was started for
	// zygoteStarts says that the zygote of a group is being started. Before zygoteRest none
	// starts in the place of another group's; after the pool has ended, none at all.
	zygoteStarts bool
	zygoteRest   time.Time
	ended        bool
	frugal       bool // the pool keeps little for later programs; see Host.HandOver
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

// A bucket holds the waiting sandboxes of one profile.
type bucket struct {
	template Spec // the last Spec that was asked for, blank
	waiting  []*sandbox
	want     int // how many should wait
	least    int // the fewest that waited since the last shrink
	asked    time.Time
	made     time.Time     // when the pool last began to make a sandbox for it
	next     chan *sandbox // of the one that is being made; nil: none, or a request has claimed it
}

// startPool starts the pool's goroutine. max is Config.Prewarmed.
func startPool(h *Host, max int) *pool {
	p := &pool{
		host: h, max: max, pythonZygotes: h.config.PythonZygotes, zygotes: h.config.GroupZygotes,
		byGroup: map[string]*zygoteEntry{}, ending: map[string]bool{}, buckets: map[profile]*bucket{}, pending: map[string]bool{}, pythons: map[pythonKey]*pythonEntry{},
		wakeups: make(chan struct{}, 1), quit: make(chan struct{}), decided: make(chan struct{}),
		making:       newTurns(runtime.NumCPU()),
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

// take returns a sandbox for s: a prewarmed one, or one that the zygote makes now. It
// returns nil if no zygote runs, or if ctx ends.
func (p *pool) take(ctx context.Context, s Spec) *sandbox {
	if p == nil || onlyDirect(p.host) {
		return nil
	}
	key := s.profile()
	if k := s.pythonKey(); !k.none() && p.pythonZygotes > 0 {
		var python *pyzygote.Zygote
		key.python, python = p.askPythonZygote(k, s.Caller)
		c, z := p.get(ctx, key, s)
		if c != nil {
			return c
		}
		if python != nil && z != nil {
			c, err := p.host.buildCloned(ctx, z, python, s)
			if err == nil || ctx.Err() != nil {
				return c
			}
			p.host.log().Warn("a Python zygote could not fork; the script is executed", "err", err)
		}
		key.python = pythonKey{}
	}
	c, z := p.get(ctx, key, s)
	if c != nil || z == nil || ctx.Err() != nil {
		return c
	}
	p.wakeUp() // more sandboxes are needed than were waiting
	c, err := p.buildCloned(ctx, z, nil, s)
	if err != nil && ctx.Err() == nil {
		p.host.log().Warn("the zygote could not make a sandbox; libcontainer makes it", "err", err)
	}
	return c // nil after an error
}

// buildCloned calls Host.buildCloned, at most once per processor at a time; groups take turns. Forks of a Python
// zygote are not counted: a Python zygote forks one child at a time.
func (p *pool) buildCloned(ctx context.Context, z *zygote.Zygote, python *pyzygote.Zygote, s Spec) (*sandbox, error) {
	if python == nil {
		leave, err := p.making.enter(ctx, s.Group)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	return p.host.buildCloned(ctx, z, python, s)
}

// get takes a sandbox from the bucket for key, or waits for the one that the pool makes for it, which is ready before
// one that the request begins. It returns nil if there is neither. It also returns the zygote, which can make one.
func (p *pool) get(ctx context.Context, key profile, s Spec) (*sandbox, *zygote.Zygote) {
	c, next, z := p.pick(key, s)
	if next == nil {
		return c, z
	}
	p.wakeUp() // the pool makes another one
	select {
	case c := <-next:
		return c, z
	case <-ctx.Done():
		p.done.Go(func() {
			if c := <-next; c != nil {
				c.discard()
			}
		})
		return nil, z
	}
}

// pick takes a sandbox from the bucket for key. If none waits, but the pool makes one that no request has claimed, pick
// claims it: next gets it, or is closed if it could not be made. pick also returns the zygote.
func (p *pool) pick(key profile, s Spec) (_ *sandbox, next <-chan *sandbox, _ *zygote.Zygote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	z := p.zygoteFor(s.Group)
	if z == nil {
		return nil, nil, nil
	}
	b := p.buckets[key]
	if b == nil {
		p.forgetBucket()
		b = &bucket{want: 1}
		p.buckets[key] = b
	}
	b.template, b.asked = s.blank(), time.Now()
	for last := len(b.waiting) - 1; last >= 0; last-- {
		c := b.waiting[last]
		b.waiting[last] = nil
		b.waiting = b.waiting[:last]
		b.least = min(b.least, len(b.waiting))
		if c.waits() {
			return c, nil, z
		}
		p.done.Go(c.discard) // it was killed while it waited
	}
	b.want = min(b.want+1, p.max)
	b.least = 0
	if b.next == nil {
		return nil, nil, z
	}
	next, b.next = b.next, nil
	delete(p.pending, key.group)
	return nil, next, z
}

// forgetBucket removes a bucket if there are maxBuckets: of the group with the most buckets, the
// bucket with the oldest request. p.mu is held.
func (p *pool) forgetBucket() {
	if len(p.buckets) < maxBuckets {
		return
	}
	of := map[string]int{}
	for key := range p.buckets {
		of[key.group]++
	}
	var oldest profile
	for key, b := range p.buckets {
		o := p.buckets[oldest]
		if o == nil || of[key.group] > of[oldest.group] || of[key.group] == of[oldest.group] && b.asked.Before(o.asked) {
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
func (p *pool) forgetPythonZygote(k pythonKey, e *pythonEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pythons[k] == e {
		p.drop(k)
	}
}

// drop ends a Python zygote and its waiting sandboxes. p.mu is held.
func (p *pool) drop(k pythonKey) {
	python := p.pythons[k].zygote
	delete(p.pythons, k)
	for key := range p.buckets {
		if key.python == k {
			p.removeBucket(key)
		}
	}
	if python != nil {
		python.Close()
	}
}

// running counts the children of a Python zygote that run programs, and not the children
// that wait in a bucket. A Python zygote that is being started counts as one. p.mu is held.
func (p *pool) running(k pythonKey) int {
	e := p.pythons[k]
	if e.failed {
		return 0
	}
	if e.zygote == nil {
		return 1 // it is being started
	}
	n := e.zygote.Children()
	for key, b := range p.buckets {
		if key.python != k {
			continue
		}
		for _, c := range b.waiting {
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

// work is the goroutine that keeps the zygote and decides which sandboxes are prewarmed.
func (p *pool) work() {
	tick := time.NewTicker(poolPeriod)
	defer tick.Stop()
	for p.keepZygote() {
		p.prewarm()
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
		z, err := p.host.startZygote(p.host.groups.common)
		if err == nil {
			p.mu.Lock()
			p.zygote = z
			p.mu.Unlock()
			p.notify()
			continue
		}
		p.notify()
		p.host.log().Error("the zygote did not start; libcontainer makes each sandbox", "err", err)
		select {
		case <-p.quit:
			p.end()
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

// discardZygote removes the default group's zygote and its waiting sandboxes. Sandboxes in use
// died with the zygote; the Process of each removes its own.
func (p *pool) discardZygote() {
	p.mu.Lock()
	z := p.zygote
	p.zygote = nil
	waiting := p.emptyGroup("")
	p.mu.Unlock()
	for _, c := range waiting {
		c.discard()
	}
	if err := z.Destroy(); err != nil {
		p.host.log().Error("the zygote was not removed", "err", err)
	}
}

// emptyGroup forgets the buckets of a group and ends its Python zygotes. The caller discards the
// sandboxes that waited. p.mu is held.
func (p *pool) emptyGroup(name string) (waiting []*sandbox) {
	for k, e := range p.pythons {
		if k.group != name {
			continue
		}
		delete(p.pythons, k)
		if e.zygote != nil {
			e.zygote.Close()
		}
	}
	for key, b := range p.buckets {
		if key.group == name {
			waiting = append(waiting, b.waiting...)
			delete(p.buckets, key)
		}
	}
	return waiting
}

// prewarm begins to make a sandbox for each group that lacks one. Each group has its own goroutine: a sandbox of a group
// whose processes use up its share of the processors can take a tenth of a second, and the other groups must not wait
// for it.
func (p *pool) prewarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, ok := p.shortfall(); ok; at, ok = p.shortfall() {
		b := p.buckets[at]
		var python *pyzygote.Zygote
		if e := p.pythons[at.python]; e != nil {
			python = e.zygote
		}
		b.made = time.Now()
		next := make(chan *sandbox, 1)
		p.pending[at.group], b.next = true, next
		template, z := b.template, p.zygoteOf(at.group)
		p.makers.Go(func() {
			c, err := p.buildCloned(context.Background(), z, python, template)
			p.made(at, b, next, c, err)
		})
	}
}

// made gives a sandbox, which could be made unless err is set, to the request that has claimed it, else to its bucket.
// After a success it has the pool look for the next one.
func (p *pool) made(at profile, b *bucket, next chan *sandbox, c *sandbox, err error) {
	if err == nil {
		c.prewarmed = true
	}
	p.mu.Lock()
	claimed := b.next != next
	kept := err == nil && p.buckets[at] == b // the bucket may have been removed since
	switch {
	case claimed && err == nil:
		kept = true
		next <- c
	case claimed:
		close(next)
	default:
		b.next = nil
		delete(p.pending, at.group)
		if kept {
			b.waiting = append(b.waiting, c)
		}
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.notPrewarmed(at, b, err)
		return
	case !kept:
		c.discard()
	}
	p.wakeUp()
}

// shortfall returns the bucket that gets the next sandbox: one that holds less than it wants and for which
// there is room, of a group for which none is being made. The groups take turns: the group of the latest request may
// be a crowd, which would get every sandbox. Within a group the bucket with the latest request is next. p.mu is held.
func (p *pool) shortfall() (profile, bool) {
	if p.frugal {
		return profile{}, false
	}
	var found []profile
	total := len(p.pending)
	made := map[string]time.Time{} // by group: the latest bucket.made
	for key, s := range p.buckets {
		total += len(s.waiting)
		if s.made.After(made[key.group]) {
			made[key.group] = s.made
		}
		e := p.pythons[key.python]
		if !key.python.none() && (e == nil || e.zygote == nil) {
			continue // no such Python zygote runs: its programs are executed
		}
		if p.pending[key.group] {
			continue
		}
		if key.python.none() && p.making.waits(key.group) {
			continue // a start waits for its turn, and this sandbox would take the turn
		}
		if len(s.waiting) < s.want {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, func(a, b profile) int {
		return cmp.Or(made[a.group].Compare(made[b.group]), p.buckets[b].asked.Compare(p.buckets[a].asked))
	})
	for _, key := range found {
		if total < p.max || p.makeRoom(key) {
			return key, true
		}
	}
	return profile{}, false
}

// makeRoom discards one waiting sandbox in favor of the bucket for key. Buckets that were asked for
// at most poolPeriod before the latest request of any bucket are recent, and so are their groups.
// Only a recent bucket gets room, by one of these rules:
//
//   - A bucket of the same group gives if it is not recent, or if it holds at least two more.
//   - A group that holds at least two more than this one gives, the largest first.
//   - A group that is not recent gives its last sandbox to a group without any.
//
// So one group's burst leaves every other recent group a sandbox. The moves end: within a group a
// sandbox never leaves the recent buckets, and between those each move makes their numbers more
// equal; the second rule makes the numbers of groups more equal; and after a move by the third rule
// the giver is not recent, so it gets none back. p.mu is held.
func (p *pool) makeRoom(key profile) bool {
	var latest time.Time
	for _, s := range p.buckets {
		if s.asked.After(latest) {
			latest = s.asked
		}
	}
	b := p.buckets[key]
	recent := func(s *bucket) bool { return latest.Sub(s.asked) <= poolPeriod }
	if !recent(b) {
		return false
	}
	groups := map[string]groupShare{}
	for k, s := range p.buckets {
		g := groups[k.group]
		groups[k.group] = groupShare{g.held + len(s.waiting), g.recent || recent(s)}
	}
	held := groups[key.group].held
	var from *bucket
	var fromHeld int
	for k, s := range p.buckets {
		g := groups[k.group]
		gives := g.held > held+1 || held == 0 && !g.recent
		if k.group == key.group {
			gives = !recent(s) || len(s.waiting) > len(b.waiting)+1
		}
		if s == b || len(s.waiting) == 0 || !gives {
			continue
		}
		if from == nil || g.held > fromHeld || g.held == fromHeld && s.asked.Before(from.asked) {
			from, fromHeld = s, g.held
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

// A groupShare says how many sandboxes of a group wait, and whether one of its buckets is recent.
type groupShare struct {
	held   int // sandboxes that wait
	recent bool
}

// shrink discards sandboxes and Python zygotes that were not needed lately.
func (p *pool) shrink() {
	var surplus []*sandbox
	p.mu.Lock()
	zygotes, pythons, sandboxes := zygoteIdle, pythonIdle, poolIdle
	if p.frugal {
		zygotes, pythons, sandboxes = poolPeriod, poolPeriod, 0
	}
	for k, e := range p.pythons {
		if time.Since(e.last()) > pythons && p.running(k) == 0 {
			p.drop(k)
		}
	}
	p.dropIdleZygotes(zygotes)
	for key, b := range p.buckets {
		if time.Since(b.asked) > sandboxes {
			p.removeBucket(key)
			continue
		}
		b.waiting = slices.DeleteFunc(b.waiting, func(c *sandbox) bool {
			if c.waits() {
				return false
			}
			surplus = append(surplus, c) // it was killed
			return true
		})
		// Half of the sandboxes that were not needed since the last shrink may go.
		n := b.least / 2
		surplus = append(surplus, b.waiting[:min(n, len(b.waiting))]...)
		b.waiting = b.waiting[min(n, len(b.waiting)):]
		b.want = max(b.want-n, 1)
		b.least = len(b.waiting)
	}
	p.mu.Unlock()
	for _, c := range surplus {
		c.discard()
	}
	p.host.groups.freeSurplus()
}

// setFrugal sets p.frugal. A frugal pool keeps no prewarmed sandboxes, and drops unused zygotes soon. shrink frees them.
func (p *pool) setFrugal(frugal bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.frugal = frugal
	p.mu.Unlock()
	p.wakeUp()
}

// end removes the zygotes. work calls it last.
func (p *pool) end() {
	p.makers.Wait()
	p.endGroups()
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
