package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// resolved is the answer to one question.
type resolved struct {
	code      int // of the answer, dns.RcodeSuccess and so on
	addresses []netip.Addr
	ends      time.Time
}

func (r resolved) rest() time.Duration { return max(time.Until(r.ends), 0).Truncate(time.Second) }

const (
	largestTTL  = time.Hour
	negativeTTL = 5 * time.Second // of answers without an address, and of failures
	askTime     = 3 * time.Second // for each resolver
	ednsSize    = 1232            // bytes of an answer by UDP, which no network fragments
)

var (
	errQuestion = errors.New("the answer is for another question")
	errCode     = errors.New("the resolver failed")
	errBusy     = errors.New("the tenant asks too much")
)

// ask asks one resolver after the other. A program can't tell a resolver that is silent from a name that does not exist, so
// an event does.
func (n *nameServer) ask(name string, kind uint16) resolved {
	silent := "no name server answers (network_resolvers in the daemon's configuration, or the machine's /etc/resolv.conf)"
	for _, r := range n.resolvers {
		found, err := n.askOne(r, name, kind)
		if err == nil {
			return found
		}
		if reason := dial.Fault(err); reason != "" {
			silent = reason
		} else if errors.Is(err, errCode) || errors.Is(err, errQuestion) || errors.Is(err, errBusy) {
			silent = ""
		}
	}
	if silent != "" && name != translatedName && n.gateway.life.Err() == nil { // the script has not asked for translatedName
		n.gateway.report.denied(policy.Denial{Protocol: "dns", Name: name, Reason: silent})
	}
	return resolved{code: dns.RcodeServerFailure, ends: time.Now()}
}

// askOne asks by UDP, and again by TCP if the answer was too long (RFC 7766). The message is new: nothing that the
// program has put into its question reaches the resolver, apart from the name and the type.
func (n *nameServer) askOne(resolver netip.AddrPort, name string, kind uint16) (resolved, error) {
	ctx, cancel := context.WithTimeout(n.gateway.life, askTime)
	defer cancel()
	// The wait for a turn counts towards askTime, so a busy tenant's question fails rather than waits for long.
	asking := n.gateway.entries.tenant.asking
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
	case <-ctx.Done():
		return resolved{}, errBusy
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	m.SetEdns0(ednsSize, false)
	answer, err := n.exchange(ctx, "udp", resolver, m)
	if err == nil && answer.Truncated {
		answer, err = n.exchange(ctx, "tcp", resolver, m)
	}
	if err != nil {
		return resolved{}, err
	}
	return read(answer, m.Question[0])
}

func (n *nameServer) exchange(ctx context.Context, network string, resolver netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	c, err := n.gateway.entries.tenant.ports.Dial(ctx, network, resolver.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	answer, _, err := (&dns.Client{Net: network, UDPSize: ednsSize, Timeout: askTime}).ExchangeWithConnContext(ctx, m, &dns.Conn{Conn: c})
	return answer, err
}

// read takes the addresses out of a resolver's answer. The resolver has followed aliases, so their
// owner names are not compared.
func read(m *dns.Msg, q dns.Question) (resolved, error) {
	if len(m.Question) != 1 || policy.NormalName(m.Question[0].Name) != policy.NormalName(q.Name) || m.Question[0].Qtype != q.Qtype {
		return resolved{}, errQuestion
	}
	switch m.Rcode {
	case dns.RcodeSuccess:
	case dns.RcodeNameError:
		return resolved{code: m.Rcode, ends: time.Now().Add(negativeTTL)}, nil
	default:
		return resolved{}, errCode
	}
	ttl := largestTTL
	found := resolved{code: dns.RcodeSuccess}
	for _, r := range m.Answer {
		// The least of all TTLs, also of aliases: after it, the name can lead elsewhere.
		ttl = min(ttl, time.Duration(r.Header().Ttl)*time.Second)
		if a, ok := addressOf(r); ok && r.Header().Rrtype == q.Qtype && len(found.addresses) < maxAnswer {
			found.addresses = append(found.addresses, a)
		}
	}
	// The name exists and has no address of this type. The TTL of such an answer is in its SOA (RFC 2308), which is
	// not read here.
	if len(found.addresses) == 0 {
		ttl = negativeTTL
	}
	found.ends = time.Now().Add(ttl)
	return found, nil
}

func addressOf(r dns.RR) (a netip.Addr, ok bool) {
	switch r := r.(type) {
	case *dns.A:
		a, ok = netip.AddrFromSlice(r.A)
		return a.Unmap(), ok
	case *dns.AAAA:
		return netip.AddrFromSlice(r.AAAA)
	}
	return a, false
}

// A cache has the answers for one sandbox. Sandboxes share no cache: the time until an answer would
// tell one sandbox which names another one asks for.
type cache struct {
	mu      sync.Mutex
	answers map[question]resolved
	asked   map[string]bool // every name that a resolver was asked for

	questions int // to the resolvers
	limits    policy.Limits
}

// A question is a key of a cache.
type question struct {
	name string // as policy.NormalName returns it
	kind uint16 // dns.TypeA or dns.TypeAAAA
}

func newCache(l policy.Limits) *cache {
	return &cache{answers: map[question]resolved{}, asked: map[string]bool{}, limits: l}
}

func (c *cache) get(name string, kind uint16) (resolved, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.answers[question{name, kind}]
	return r, ok && r.rest() > 0
}

// put stores an answer. admit already bounds the number of names.
func (c *cache) put(name string, kind uint16, r resolved) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[question{name, kind}] = r
}

// admit takes in one question to the resolvers. It returns the limit that is reached, or "".
func (c *cache) admit(name string) (reached string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.questions >= c.limits.Questions:
		return fmt.Sprintf("more than %d questions (network_limits.questions)", c.limits.Questions)
	case !c.asked[name] && len(c.asked) >= c.limits.Names:
		return fmt.Sprintf("more than %d different names (network_limits.names)", c.limits.Names)
	}
	c.questions++
	c.asked[name] = true
	return ""
}
