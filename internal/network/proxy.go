package network

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
)

// A Proxy describes the HTTP proxy of a Manager's configuration. The helpers can read neither files nor the names
// of /etc/hosts, so the Manager reads the secret and looks up the proxy's name for each attachment.
type Proxy struct {
	Host     string // a name or an address
	Port     uint16
	Secure   bool // TLS to the proxy
	Username string
	Password credential.Source // zero: the proxy gets no user name and no password
	CA       credential.Source // the authorities that sign the proxy's certificate; zero: the machine's

	ResolvesNames bool // see dial.Proxy
	Direct        dial.Direct
}

// lookupTime bounds the wait for the proxy's addresses.
const lookupTime = 10 * time.Second

// open returns the Proxy for a helper, or nil without a proxy.
func (p *Proxy) open(ctx context.Context) (*dial.Proxy, error) {
	if p == nil {
		return nil, nil
	}
	g := &dial.Proxy{Secure: p.Secure, Name: p.Host, ResolvesNames: p.ResolvesNames, Direct: p.Direct}
	var err error
	if g.Authorization, g.CA, err = p.read(); err != nil {
		return nil, fmt.Errorf("network_proxy: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.Host)
	if err != nil {
		return nil, fmt.Errorf("network_proxy.url: %w", err)
	}
	for _, a := range found {
		g.Addresses = append(g.Addresses, netip.AddrPortFrom(a.Unmap(), p.Port))
	}
	return g, nil
}

// Dial connects the daemon to a destination, as dial.Proxy.Dial does. Each call reads the password again and looks up
// the proxy's name again.
func (p *Proxy) Dial(ctx context.Context, to string, check func(netip.AddrPort) error) (net.Conn, error) {
	g, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	return g.Dial(ctx, to, check)
}

// Check reads the files of the Proxy, and forgets them.
func (p *Proxy) Check() error {
	_, _, err := p.read()
	return err
}

func (p *Proxy) read() (authorization credential.Value, ca string, err error) {
	if p.Password != (credential.Source{}) {
		password, err := p.Password.Secret()
		if err != nil {
			return "", "", err
		}
		authorization = credential.Value("Basic " + base64.StdEncoding.EncodeToString([]byte(p.Username+":"+password)))
	}
	if p.CA != (credential.Source{}) {
		ca, err = p.CA.Certificates()
	}
	return authorization, ca, err
}
