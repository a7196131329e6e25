package gateway

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A broker adds credentials to the sandbox's requests. It takes a connection over only if the client
// names a bound domain that this sandbox has resolved to the connection's address. All other
// connections pass as if there were no broker: TLS stays between the program and its server.
type broker struct {
	set   *credential.Set
	roots *x509.CertPool
}

// newBroker returns nil without credentials. Then brokered reads nothing, and passes every connection on.
func newBroker(set *credential.Set, roots *x509.CertPool) *broker {
	if set == nil {
		return nil
	}
	return &broker{set, roots}
}

// matching returns the credentials for requests to a name. Of two for the same header the first counts.
func (b *broker) matching(name string, port uint16, secure bool) (list []credential.Credential) {
	for _, c := range b.set.Credentials() {
		same := func(o credential.Credential) bool {
			return http.CanonicalHeaderKey(o.Header) == http.CanonicalHeaderKey(c.Header)
		}
		if c.Matches(name, port, secure) && !slices.ContainsFunc(list, same) {
			list = append(list, c)
		}
	}
	return list
}

// brokered reports whether the connection gets credentials. It reads the client's first bytes, and
// puts them back.
func (c *connection) brokered() (*exchange, bool) {
	b, port := c.gateway.broker, c.decision.to.Port()
	if b == nil {
		return nil, false
	}
	// The names of the address come first. Without a bound domain among them, the client's bytes are not read, so a
	// program whose server speaks first does not wait for itself.
	names, _ := c.gateway.pins.names(c.decision.to.Addr())
	bound := func(name string) bool {
		return len(b.matching(name, port, true)) > 0 || len(b.matching(name, port, false)) > 0
	}
	if !slices.ContainsFunc(names, bound) {
		return nil, false
	}
	seen := &recorder{from: c.in}
	name, secure := c.named(seen)
	c.in.again = seen.bytes
	// A client can send any name, so the name alone decides nothing. This sandbox must have got the address as an
	// answer for the name, and the rules must allow the name here.
	if name == "" || !includes(names, name) {
		return nil, false
	}
	// The names are those of now: the sandbox may have resolved some of them after the decision. So the rules are asked
	// again, also those that deny the name.
	if _, ok := c.gateway.spoken(c.decision, name, "name"); !ok {
		// Without a credential the connection goes on as any other, which refuses the name.
		return nil, false
	}
	list := b.matching(name, port, secure)
	if len(list) == 0 {
		return nil, false
	}
	c.decision.name = name
	return newExchange(c, name, secure, list), true
}

// named returns the server name of TLS, or the Host of a first request without TLS. Empty: the client
// sent something else.
func (c *connection) named(from io.Reader) (name string, secure bool) {
	// No deadline for the first byte: an unused connection may stay for limits.Idle. After its first byte, the client
	// has limits.Hello for the rest of the name.
	first := make([]byte, 1)
	if _, err := io.ReadFull(from, first); err != nil {
		return "", false
	}
	_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
	defer c.in.SetReadDeadline(time.Time{})
	from = io.MultiReader(bytes.NewReader(first), from)
	if first[0] == handshakeRecord {
		hello, _, err := readHello(from)
		if err != nil {
			return "", true
		}
		return policy.NormalName(hello.ServerName), true
	}
	r, err := http.ReadRequest(bufio.NewReader(&dial.HeadReader{From: from, Left: dial.MaxHead, Lines: dial.MaxLines}))
	if err != nil {
		return "", false
	}
	name, _ = cutPort(r.Host)
	return name, false
}

// cutPort returns the name in a Host, and its port or "". A name in brackets keeps them, because no server takes it for the
// name alone. An address loses them.
func cutPort(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return policy.NormalName(host), ""
	}
	if _, err := netip.ParseAddr(name); err != nil && strings.HasPrefix(host, "[") {
		name = "[" + name + "]"
	}
	return policy.NormalName(name), port
}

// A recorder keeps the bytes that are read from it.
type recorder struct {
	from  io.Reader
	bytes []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.bytes = append(r.bytes, b[:n]...)
	return n, err
}
