package ingress

import (
	"time"

	"golang.org/x/time/rate"
)

// A TLS handshake takes about half a millisecond of processor time, before the caller has sent any
// credential. So a caller may begin only some of them each second. A client needs one for each
// connection, and keeps its connection for many calls.
const (
	handshakesPerSecond = 50
	handshakeBurst      = 2 * MaxPeerUnidentified
)

// handshakes bounds the TLS handshakes of each caller. The zero handshakes is ready to use; one
// goroutine at a time may use it.
type handshakes struct {
	buckets map[string]*rate.Limiter
	sweepAt int // number of buckets
}

// minSweep is the smallest number of buckets at which the full ones are dropped.
const minSweep = 1024

// allow reports whether a caller may begin a handshake now, and counts it.
func (h *handshakes) allow(peer string, now time.Time) bool {
	b := h.buckets[peer]
	if b == nil {
		h.sweep(now)
		b = rate.NewLimiter(handshakesPerSecond, handshakeBurst)
		h.buckets[peer] = b
	}
	return b.AllowN(now, 1)
}

// sweep drops full buckets, because a caller without a bucket has a full one. It does so when their
// number has doubled, so that a call of allow takes constant time on average.
func (h *handshakes) sweep(now time.Time) {
	if h.buckets == nil {
		h.buckets, h.sweepAt = map[string]*rate.Limiter{}, minSweep
	}
	if len(h.buckets) < h.sweepAt {
		return
	}
	for peer, b := range h.buckets {
		if b.TokensAt(now) >= handshakeBurst {
			delete(h.buckets, peer)
		}
	}
	h.sweepAt = max(minSweep, 2*len(h.buckets))
}
