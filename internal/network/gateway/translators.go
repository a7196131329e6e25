package gateway

import (
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// translators finds out whether the machine's network translates IPv6 addresses to IPv4 (NAT64), and with which prefix:
// the resolvers know (RFC 7050). Without the prefix, 10.0.0.1 could be reached by an IPv6 address that looks public, and
// the resolvers themselves make such addresses for names that have only an IPv4 address (DNS64, RFC 6147). All sandboxes
// of a tenant share the knowledge.
type translators struct {
	policy.Translators
	mu   sync.Mutex // held while a resolver is asked
	ends time.Time  // of the knowledge
}

const (
	translatedName    = "ipv4only.arpa"
	translatorTime    = time.Minute      // an answer counts at least so long
	translatorPause   = 10 * time.Minute // after an answer without a prefix
	translatorFailure = 30 * time.Second // after no answer; the last answer still counts
)

// learnTranslators asks the resolvers if the last answer is old. It is called before an IPv6 address is judged. If the
// resolvers do not answer, the last answer counts. A proxy that looks names up is there because the resolvers know
// nothing.
func (n *nameServer) learnTranslators() {
	t := &n.gateway.entries.tenant.translators
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.ends) || len(n.resolvers) == 0 || n.gateway.relay.Resolves(translatedName) {
		return
	}
	found := n.ask(translatedName, dns.TypeAAAA)
	switch {
	case n.gateway.life.Err() != nil: // another sandbox asks again
	case found.code == dns.RcodeServerFailure:
		t.ends = time.Now().Add(translatorFailure)
	default:
		t.Learn(found.addresses)
		t.ends = time.Now().Add(max(found.rest(), translatorTime))
		if len(found.addresses) == 0 {
			t.ends = time.Now().Add(translatorPause)
		}
	}
}
