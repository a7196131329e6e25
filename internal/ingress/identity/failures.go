package identity

import (
	"crypto/sha256"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A check of a signature takes up to a tenth of a millisecond of processor time, and a caller can send bad
// credentials in every call. So an address may have only some bad ones each second; further ones are refused
// without a check. Credentials that were good before are still checked, since honest callers can share an address
// with others.
const (
	failuresPerSecond = 20
	failureBurst      = 200
	// maxGood bounds the hashes of good credentials.
	maxGood = 4096
	// minSweep is the smallest number of buckets at which the full ones are dropped.
	minSweep = 1024
)

// failures bounds the checks of bad credentials. The zero failures is ready to use.
type failures struct {
	mu      sync.Mutex
	buckets map[string]*rate.Limiter // by peer; a peer without one has a full one
	sweepAt int                      // number of buckets
	good    map[[sha256.Size]byte]struct{}
}

// A proof is a credential whose check takes time. It has the hash of the credential and its peer.
type proof struct {
	peer string
	hash [sha256.Size]byte
}

// proofOf returns the proof of a caller. ok is false if there is nothing to check.
func (t *Table) proofOf(c Credentials) (p proof, ok bool) {
	switch {
	case len(c.Authorization) == 1 && (t.tokens != nil || len(t.issuers) > 0):
		p.hash = sha256.Sum256([]byte(c.Authorization[0]))
	case c.TLS != nil && len(c.TLS.PeerCertificates) > 0:
		p.hash = sha256.Sum256(c.TLS.PeerCertificates[0].Raw)
	default:
		return p, false
	}
	p.peer = peerOf(c.Addr)
	return p, true
}

// peerOf is the address without a port. An IPv6 address counts as its network of 64 bits, in which a machine can choose
// any address.
func peerOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.To4() != nil || tcp.IP.IsLoopback() {
		return hostOf(addr)
	}
	return tcp.IP.Mask(net.CIDRMask(64, 128)).String()
}

// mayCheck reports whether a credential may be checked now.
func (f *failures) mayCheck(p proof, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.buckets[p.peer]
	if b == nil || b.TokensAt(now) >= 1 {
		return true
	}
	_, good := f.good[p.hash]
	return good
}

// checked notes the result of a check.
func (f *failures) checked(p proof, good bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if good {
		f.remember(p.hash)
		return
	}
	delete(f.good, p.hash) // it has expired, or was revoked
	b := f.buckets[p.peer]
	if b == nil {
		f.sweep(now)
		b = rate.NewLimiter(failuresPerSecond, failureBurst)
		f.buckets[p.peer] = b
	}
	b.AllowN(now, 1)
}

// remember keeps the hash of a good credential. If there are too many, another one goes.
func (f *failures) remember(hash [sha256.Size]byte) {
	if _, known := f.good[hash]; known {
		return
	}
	if f.good == nil {
		f.good = map[[sha256.Size]byte]struct{}{}
	}
	for old := range f.good {
		if len(f.good) < maxGood {
			break
		}
		delete(f.good, old)
	}
	f.good[hash] = struct{}{}
}

// sweep drops full buckets when their number has doubled.
func (f *failures) sweep(now time.Time) {
	if f.buckets == nil {
		f.buckets, f.sweepAt = map[string]*rate.Limiter{}, minSweep
	}
	if len(f.buckets) < f.sweepAt {
		return
	}
	for peer, b := range f.buckets {
		if b.TokensAt(now) >= failureBurst {
			delete(f.buckets, peer)
		}
	}
	f.sweepAt = max(minSweep, 2*len(f.buckets))
}
