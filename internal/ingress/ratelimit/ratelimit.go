// Package ratelimit bounds how often each peer may do something, in constant time and with memory
// that follows the number of active peers.
package ratelimit

import (
	"time"

	"golang.org/x/time/rate"
)

// minSweep is the smallest number of buckets at which full ones are dropped. 1024 buckets take less
// than 200 KiB.
const minSweep = 1024

// Peers has a token bucket for each peer. One goroutine at a time may use it: the callers hold a lock
// already, for the decision that follows.
type Peers struct {
	perSecond rate.Limit
	burst     int                      // events at once
	buckets   map[string]*rate.Limiter // by the peer's name; a missing bucket counts as full
	sweepAt   int                      // the number of buckets at which sweep runs
}

// New returns a Peers in which every peer has burst tokens at first, and then gets perSecond of them
// each second, up to burst.
func New(perSecond float64, burst int) *Peers {
	return &Peers{perSecond: rate.Limit(perSecond), burst: burst, buckets: map[string]*rate.Limiter{}, sweepAt: minSweep}
}

// Take takes a token of a peer. It returns false, and takes nothing, if the peer's bucket is empty.
func (p *Peers) Take(peer string, now time.Time) bool {
	b := p.buckets[peer]
	if b == nil {
		p.sweep(now)
		b = rate.NewLimiter(p.perSecond, p.burst)
		p.buckets[peer] = b
	}
	return b.AllowN(now, 1)
}

// Has reports whether a peer has a token, and takes none.
func (p *Peers) Has(peer string, now time.Time) bool {
	b := p.buckets[peer]
	return b == nil || b.TokensAt(now) >= 1
}

// sweep drops the full buckets when the number of buckets has doubled since the last sweep, so that a
// call of Take takes constant time on average.
func (p *Peers) sweep(now time.Time) {
	if len(p.buckets) < p.sweepAt {
		return
	}
	for peer, b := range p.buckets {
		if b.TokensAt(now) >= float64(p.burst) {
			delete(p.buckets, peer)
		}
	}
	p.sweepAt = max(minSweep, 2*len(p.buckets))
}
