package dial

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A Proxy is an HTTP proxy that opens TCP connections for the Gateway (CONNECT, RFC 9110, 9.3.6). The Gateway asks the
// proxy only after the rules have allowed a connection. The proxy's own addresses are closed to sandboxes unless a rule
// has exactly such an address: many proxies serve every request from this machine, and know nothing of the rules.
type Proxy struct {
	Addresses []netip.AddrPort `json:"addresses"` // the first one that accepts is used
	// Secure means TLS between the Gateway and the proxy. Name is compared with the proxy's certificate.
	Secure bool   `json:"secure,omitempty"`
	Name   string `json:"name,omitempty"`
	CA     string `json:"ca,omitempty"` // PEM; empty: the roots of NewRelay
	// Authorization is the header Proxy-Authorization, or empty.
	Authorization credential.Value `json:"authorization,omitempty"`
	// ResolvesNames means that the proxy gets names, and looks them up. Else it gets the address that was
	// resolved here and judged.
	ResolvesNames bool `json:"resolves_names,omitempty"`
	// Direct are the names and the CIDRs that are reached without the proxy.
	Direct Direct `json:"direct"`
}

// Direct has destinations that need no proxy.
type Direct struct {
	Names    []string       `json:"names,omitempty"` // see policy.ParseDomain
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
}

func (d Direct) hasName(name string) bool {
	return slices.ContainsFunc(d.Names, func(text string) bool {
		domain, err := policy.ParseDomain(text)
		return err == nil && domain.Matches(name)
	})
}

// hasAddress reports whether an address needs no proxy. The addresses of a machine's own links mean other
// hosts at the proxy.
func (d Direct) hasAddress(a netip.Addr) bool {
	// An IPv4 address in IPv6 form (::ffff:a.b.c.d) is the same destination.
	a = a.Unmap()
	return a.IsLoopback() || a.IsLinkLocalUnicast() || slices.ContainsFunc(d.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// A dialFunc opens a connection to an address.
type dialFunc func(ctx context.Context, network, to string) (net.Conn, error)

// A Relay opens connections through a Proxy, for one Gateway or for the daemon. A nil Relay carries nothing.
type Relay struct {
	Proxy
	roots   *x509.CertPool
	connect dialFunc // makes the sockets

	mu     sync.Mutex
	names  map[netip.Addr]string // of addresses that stand for a name
	byName map[string]netip.Addr
	next   netip.Addr
}

// NewRelay makes a Relay, or nil without a proxy. The roots sign the certificate of a proxy that names no CA.
func NewRelay(p *Proxy, roots *x509.CertPool, connect dialFunc) *Relay {
	if p == nil {
		return nil
	}
	if p.CA != "" {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(p.CA))
	}
	if roots == nil {
		roots = x509.NewCertPool() // nil would mean files that the helper can't read
	}
	return &Relay{Proxy: *p, roots: roots, connect: connect, names: map[netip.Addr]string{}, byName: map[string]netip.Addr{}, next: policy.ProxyNames.Addr().Next()}
}

// Resolves reports whether only the proxy looks a name up.
func (r *Relay) Resolves(name string) bool {
	return r != nil && r.ResolvesNames && !r.Direct.hasName(name)
}

// Own returns the proxy's addresses, for the rules to refuse.
func (r *Relay) Own() *policy.Own {
	own := &policy.Own{Service: "the proxy of the daemon"}
	var all []netip.Addr
	for _, a := range r.Addresses {
		all = append(all, a.Addr())
	}
	own.Set(all)
	return own
}

// Stand returns the address that stands for a name until the end of the Gateway. ok is false if none is left.
func (r *Relay) Stand(name string) (a netip.Addr, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.byName[name]; ok {
		return a, true
	}
	if a = r.next; !policy.ProxyNames.Contains(a) {
		return a, false
	}
	r.next = a.Next()
	r.names[a], r.byName[name] = name, a
	return a, true
}

// NameOf returns the name that an address stands for, or "".
func (r *Relay) NameOf(a netip.Addr) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[a]
}

// Carries reports whether connections to an address go through the proxy. names are the address's names.
func (r *Relay) Carries(a netip.Addr, names []string) bool {
	return r != nil && !r.Direct.hasAddress(a) && !slices.ContainsFunc(names, r.Direct.hasName)
}

// A ProxyError is the reason why the proxy opened no connection, for the program's owner.
type ProxyError struct{ Reason string }

func (e ProxyError) Error() string { return e.Reason }

// Dial opens a connection to a host, which is an address or a name with a port.
func (r *Relay) Dial(ctx context.Context, host string) (*Conn, error) {
	tcp, err := r.reach(ctx)
	if err != nil {
		return nil, ProxyError{"the proxy can't be reached (network_proxy.url): " + Cause(err)}
	}
	u := &Conn{Conn: tcp, Socket: tcp}
	// A deadline in the past ends a write or a read of open that waits for the proxy. stop returns false if that has
	// begun.
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	if err = r.open(u, host); err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		tcp.Close()
		return nil, err
	}
	return u, nil
}

// reach connects to the proxy.
func (r *Relay) reach(ctx context.Context) (*net.TCPConn, error) {
	c, err := firstOf(ctx, r.Addresses, func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		return r.connect(ctx, "tcp", a.String())
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// firstOf tries one address after the other. Each gets an equal part of the time that is left.
func firstOf(ctx context.Context, all []netip.AddrPort, dial func(context.Context, netip.AddrPort) (net.Conn, error)) (c net.Conn, err error) {
	err = errors.New("its name has no address")
	for i, a := range all {
		each, cancel := ctx, context.CancelFunc(func() {})
		// The remaining time is shared equally: the first address that does not answer must not take the time of the
		// others.
		if late, ok := ctx.Deadline(); ok {
			each, cancel = context.WithTimeout(ctx, time.Until(late)/time.Duration(len(all)-i))
		}
		c, err = dial(each, a)
		cancel()
		if err == nil {
			return c, nil
		}
	}
	return nil, err
}

// Dial connects a process that is no helper to a destination, a name or an address with a port. It takes the same way as
// the connections of sandboxes: through the proxy, unless Direct has the destination. check judges each address before
// the address is dialed or named to the proxy. A name that only the proxy looks up has no address to judge.
func (p *Proxy) Dial(ctx context.Context, to string, check func(netip.AddrPort) error) (net.Conn, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	host, service, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	r := NewRelay(p, roots, (&net.Dialer{}).DialContext)
	var found []netip.Addr
	if a, notAddress := netip.ParseAddr(host); notAddress == nil {
		found = []netip.Addr{a}
	} else if host = policy.NormalName(host); r.Resolves(host) {
		return r.Dial(ctx, net.JoinHostPort(host, service))
	} else if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, a := range found {
		all = append(all, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return firstOf(ctx, all, func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		if err := check(a); err != nil {
			return nil, err
		}
		if !r.Carries(a.Addr(), []string{host}) {
			return r.connect(ctx, "tcp", a.String())
		}
		return r.Dial(ctx, a.String())
	})
}

// open asks the proxy for a connection.
func (r *Relay) open(u *Conn, host string) error {
	if r.Secure {
		u.Conn = tls.Client(u.Socket, &tls.Config{ServerName: r.Name, RootCAs: r.roots, MinVersion: tls.VersionTLS12})
	}
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: host}, Host: host, Header: http.Header{"User-Agent": {""}}}
	if r.Authorization != "" {
		request.Header.Set("Proxy-Authorization", string(r.Authorization))
	}
	if err := request.Write(u.Conn); err != nil {
		return ProxyError{"the connection to the proxy failed: " + Cause(err)}
	}
	// One bound for all heads, so that a proxy can't send heads with 1xx without end.
	from := bufio.NewReader(&HeadReader{From: u.Conn, Left: MaxHead, Lines: MaxLines})
	answer, err := http.ReadResponse(from, request)
	// A client skips any 1xx before the answer (RFC 9110, 15.2). 101 is the answer: the proxy changes the protocol.
	for err == nil && answer.StatusCode/100 == 1 && answer.StatusCode != http.StatusSwitchingProtocols {
		answer, err = http.ReadResponse(from, request)
	}
	if err != nil {
		return ProxyError{noAnswer(err)}
	}
	// Any 2xx opens the tunnel (RFC 9110, 9.3.6).
	if answer.StatusCode/100 != 2 {
		return r.refusal(answer.StatusCode)
	}
	// The destination may speak first, and its bytes may come with the proxy's answer.
	if n := from.Buffered(); n > 0 {
		early, _ := from.Peek(n)
		u.Early = bytes.Clone(early)
	}
	return nil
}

// refusal explains a status of the proxy. Nothing else of its answer is shown: anyone could have written it.
func (r *Relay) refusal(status int) error {
	text := strconv.Itoa(status)
	if known := http.StatusText(status); known != "" {
		text += " " + known
	}
	switch {
	case status == http.StatusProxyAuthRequired && r.Authorization == "":
		text += "; it wants network_proxy.username and network_proxy.password"
	case status == http.StatusProxyAuthRequired, status == http.StatusUnauthorized: // tinyproxy's answer to a wrong password
		text += "; it does not accept network_proxy.username and network_proxy.password"
	case status >= 500:
		return ProxyError{"the proxy did not reach the destination: " + text}
	}
	return ProxyError{"the proxy refused the connection: " + text}
}

// noAnswer explains an error of reading the proxy's answer. Errors of the parser have bytes of the answer, so they
// are not shown.
func noAnswer(err error) string {
	_, ofConnection := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, ErrLongHead):
		return fmt.Sprintf("the head of the proxy's answer has more than %d KiB or more than %d lines", MaxHead>>10, MaxLines)
	case ofConnection, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the proxy did not answer the request for a connection: " + Cause(err)
	}
	return "the proxy's answer is not HTTP"
}

// Cause is an error's text without the addresses of sockets, and with bytes of the peer made printable.
func Cause(err error) string {
	var late net.Error
	if own := Fault(err); own != "" {
		return own
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && !op.Timeout() {
		err = op.Err
	} else if errors.As(err, &late) && late.Timeout() {
		return "no answer in time"
	}
	return Clipped(fmt.Sprint(err))
}

// A Conn is a connection towards a destination.
type Conn struct {
	net.Conn              // the socket, or TLS to a proxy
	Socket   *net.TCPConn // below Conn
	Early    []byte       // that came with the proxy's answer; read first
}

func (u *Conn) Read(b []byte) (int, error) {
	if len(u.Early) > 0 {
		n := copy(b, u.Early)
		if u.Early = u.Early[n:]; len(u.Early) == 0 {
			u.Early = nil
		}
		return n, nil
	}
	return u.Conn.Read(b)
}

// CloseWrite tells the destination that no more data comes.
func (u *Conn) CloseWrite() error {
	return u.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// Reset ends the connection without the rest of its data.
func (u *Conn) Reset() {
	// With a linger time of 0, close(2) sends a RST (SO_LINGER, socket(7)). The peer then knows that data is missing.
	_ = u.Socket.SetLinger(0)
	u.Socket.Close()
}
