package identity

import (
	"crypto/sha256"
	"net"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/ratelimit"
)

// A check of a signature takes up to a tenth of a millisecond of processor time, and a caller can send a bad
// credential in every call. So the daemon checks only some bad credentials of an address each second, and refuses
// further credentials from there without a check. It still checks credentials that were good before, because an honest
// caller can share the address with an attacker.
const (
	failuresPerSecond = 20
	failureBurst      = 200
	// maxGood bounds the hashes of good credentials.
	maxGood = 4096
)

// failures bounds the checks of bad credentials.
type failures struct {
	mu     sync.Mutex
	checks *ratelimit.Peers // a token for each further bad credential
	good   map[[sha256.Size]byte]struct{}
}

func newFailures() *failures {
	return &failures{checks: ratelimit.New(failuresPerSecond, failureBurst), good: map[[sha256.Size]byte]struct{}{}}
}

// A proof describes a credential whose check takes time: the hash of the credential, and the peer that sent it.
type proof struct {
	peer string
	hash [sha256.Size]byte
}

// proofOf returns the proof of a caller. ok is false for a caller without a credential to check.
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

// peerOf returns the address without a port. For IPv6 it returns the /64 network, because a machine can choose any
// address of its network.
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
	_, good := f.good[p.hash]
	return good || f.checks.Has(p.peer, now)
}

// checked notes the result of a check.
func (f *failures) checked(p proof, good bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if good {
		f.remember(p.hash)
		return
	}
	delete(f.good, p.hash) // a credential that was good has expired, or was revoked
	f.checks.Take(p.peer, now)
}

// remember keeps the hash of a good credential. Beyond maxGood hashes it drops another one.
func (f *failures) remember(hash [sha256.Size]byte) {
	if _, known := f.good[hash]; known {
		return
	}
	for old := range f.good {
		if len(f.good) < maxGood {
			break
		}
		delete(f.good, old)
	}
	f.good[hash] = struct{}{}
}
