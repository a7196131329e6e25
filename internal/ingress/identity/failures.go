package identity

import (
	"crypto/sha256"
	"net"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/ratelimit"
	"github.com/skillrun/skillrun/internal/permission"
)

// A check of a signature takes up to a tenth of a millisecond of processor time, and a caller can send a bad
// credential in every call. So the daemon checks only some bad credentials of an address each second, and refuses
// further credentials from there without a check. It still checks credentials that were good before, because an honest
// caller can share the address with an attacker.
const (
	failuresPerSecond = 20
	failureBurst      = 200
	// maxGood is the maximum number of hashes of good credentials, about 1 MiB.
	maxGood = 4096
)

// failures bounds the checks of bad credentials.
type failures struct {
	mu     sync.Mutex
	checks *ratelimit.Peers // a token for each further bad credential
	good   map[[sha256.Size]byte]permission.Principal
	// counts has the number of hashes in good of each principal: by its tenant, then by its name.
	counts map[string]map[string]int
}

func newFailures() *failures {
	return &failures{
		checks: ratelimit.New(failuresPerSecond, failureBurst),
		good:   map[[sha256.Size]byte]permission.Principal{}, counts: map[string]map[string]int{},
	}
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

// valid notes that a credential was checked and belongs to a principal.
func (f *failures) valid(p proof, who permission.Principal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.good[p.hash]; known {
		return
	}
	if len(f.good) >= maxGood {
		f.forgetOne()
	}
	f.good[p.hash] = who
	if f.counts[who.Tenant] == nil {
		f.counts[who.Tenant] = map[string]int{}
	}
	f.counts[who.Tenant][who.Name]++
}

// invalid notes that a credential was checked and is not valid. If it was valid before, it has expired or was revoked.
func (f *failures) invalid(p proof, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(p.hash)
	f.checks.Take(p.peer, now)
}

// forgetOne forgets a good credential of the tenant with the most, and in this tenant of the principal with the most. So
// a principal with any number of valid credentials makes the daemon forget only its own.
func (f *failures) forgetOne() {
	var who permission.Principal
	most := 0
	for tenant, names := range f.counts {
		sum := 0
		for _, n := range names {
			sum += n
		}
		if sum > most {
			who.Tenant, most = tenant, sum
		}
	}
	most = 0
	for name, n := range f.counts[who.Tenant] {
		if n > most {
			who.Name, most = name, n
		}
	}
	for hash, owner := range f.good {
		if owner == who {
			f.forget(hash)
			return
		}
	}
}

// forget removes a credential from the good ones, if it is there.
func (f *failures) forget(hash [sha256.Size]byte) {
	who, known := f.good[hash]
	if !known {
		return
	}
	delete(f.good, hash)
	names := f.counts[who.Tenant]
	if names[who.Name]--; names[who.Name] == 0 {
		delete(names, who.Name)
	}
	if len(names) == 0 {
		delete(f.counts, who.Tenant)
	}
}
