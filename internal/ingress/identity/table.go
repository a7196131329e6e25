package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/reload"
	"github.com/skillrun/skillrun/internal/permission"
)

// Config has the credentials that a Table accepts. The zero Config accepts users of Unix sockets
// and callers on a loopback address, all for DefaultTenant.
type Config struct {
	Rows []Row
	// Authorities is a file with the authorities of client certificates, in PEM. Empty: no file.
	Authorities string
	// Bundles has a file with authorities, in PEM, for each SPIFFE trust domain.
	Bundles map[string]string
	// Tokens is the file that CreateToken and RevokeToken write. The file may be missing. Empty: no
	// tokens.
	Tokens string
	// Issuers are the issuers of JSON Web Tokens.
	Issuers []Issuer
	// Failed is called for each caller that could not be identified, with its address and the reason.
	// Nil: no call.
	Failed func(from string, err error)
	Log    *slog.Logger
}

// Network reports whether the Config has a credential for callers over TCP. If it has one, a loopback
// address alone does not identify a caller.
func (c *Config) Network() bool {
	return c.Authorities != "" || len(c.Bundles) > 0 || c.Tokens != "" || len(c.Issuers) > 0
}

// A Table identifies callers. Its methods may be called concurrently.
type Table struct {
	rows     atomic.Pointer[rowSet]
	network  bool
	certs    certificates
	tokens   *reload.Files[tokens] // nil: none
	issuers  map[string]*issuer    // by URL
	report   func(from string, err error)
	log      *slog.Logger
	failures *failures

	mu       sync.Mutex // guards the fields below
	failed   int        // callers that were not identified since the last line of the log
	loggedAt time.Time
}

// logInterval is the minimum time between two lines of the log about callers that were not
// identified.
const logInterval = time.Second

// Open reads the files of a Config. The Table reads them again when they change. Open does not connect
// to issuers.
func Open(c Config) (*Table, error) {
	t := &Table{network: c.Network(), issuers: map[string]*issuer{}, report: c.Failed, log: c.Log, failures: newFailures()}
	err := t.SetRows(c.Rows)
	if err != nil {
		return nil, err
	}
	if t.certs, err = openCertificates(c); err != nil {
		return nil, err
	}
	if c.Tokens != "" {
		if t.tokens, err = reload.OpenOptional(c.Log, "tokens", parseTokens(c.Tokens), c.Tokens); err != nil {
			return nil, err
		}
	}
	for _, i := range c.Issuers {
		if t.issuers[i.URL], err = newIssuer(i, c.Log); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// A rowSet has the rows of a Table.
type rowSet struct {
	byCaller map[string]Row
	gids     []Row // rows of groups, in their order
	hasUnix  bool  // a row is for a user or a group
}

// SetRows replaces the rows of the Table, all together. After an error the rows stay as they were. If two
// rows have the same caller, the last one counts.
func (t *Table) SetRows(rows []Row) error {
	set := &rowSet{byCaller: map[string]Row{}}
	for _, r := range rows {
		if err := CheckCaller(r.Caller); err != nil {
			return err
		}
		set.byCaller[r.Caller] = r
		isGID := strings.HasPrefix(r.Caller, prefixGID)
		if isGID {
			set.gids = append(set.gids, r)
		}
		set.hasUnix = set.hasUnix || isGID || strings.HasPrefix(r.Caller, prefixUID)
	}
	t.rows.Store(set)
	return nil
}

// Identify returns the identity of a caller, or an [Error]. It counts the callers that it can't
// identify, and logs their number at most once a second.
//
// If the Table accepts tokens, the header Authorization comes first, since a caller sends it on
// purpose. A caller whose token is not valid is refused, even if its connection has another credential.
//
// If an address has sent many invalid credentials, Identify refuses further ones without a check, unless they were valid
// before; see failures.
func (t *Table) Identify(c Credentials) (id Identity, err error) {
	p, costs := t.proofOf(c)
	if costs && !t.failures.mayCheck(p, time.Now()) {
		err = refuse("too many credentials from %s were not valid; wait a few seconds", hostOf(c.Addr))
	} else if id, err = t.identify(c); costs {
		if e, ok := errors.AsType[*Error](err); err == nil {
			t.failures.valid(p, id.Principal)
		} else if !ok || !e.unchecked {
			t.failures.invalid(p, time.Now())
		}
	}
	if err != nil {
		t.count(c.Addr, err)
		return Identity{}, err
	}
	return id, nil
}

// identify looks at one credential: the first that the caller has, in the order of Identify's comment. An invalid one is
// not replaced by the next.
func (t *Table) identify(c Credentials) (Identity, error) {
	if len(c.Authorization) > 0 && (t.tokens != nil || len(t.issuers) > 0) {
		return t.bearer(c.Authorization)
	}
	if user, ok := c.Addr.(User); ok {
		return t.user(user)
	}
	if c.TLS != nil && len(c.TLS.PeerCertificates) > 0 {
		return t.certificate(c)
	}
	tcp, ok := c.Addr.(*net.TCPAddr)
	switch {
	case t.network:
		return Identity{}, refuse("no credential was sent; send %s", t.wanted())
	case c.TLS != nil && ok && tcp.IP.IsLoopback():
		return Identity{}, refuse("with TLS every caller needs a credential, and no credentials are configured")
	case c.TLS != nil || !ok || !tcp.IP.IsLoopback():
		return Identity{}, refuse("%s is not on this machine, and no credentials are configured", hostOf(c.Addr))
	}
	return Anonymous(), nil
}

// wanted names the credentials that callers without a Unix socket may have.
func (t *Table) wanted() string {
	switch {
	case t.tokens == nil && len(t.issuers) == 0:
		return "a client certificate"
	case !t.certs.any():
		return "a token (Authorization: Bearer)"
	}
	return "a token (Authorization: Bearer) or a client certificate"
}

// Anonymous returns the identity of callers on a loopback address while no credentials for TCP are
// configured. A loopback address is not a credential: every user of the machine can connect to it.
func Anonymous() Identity {
	return Identity{permission.Principal{Tenant: DefaultTenant, Name: "anonymous"}, Admin}
}

// user identifies a user of a Unix socket. If no row is for a user or a group, every user with
// permission to open the socket is an operator; the mode of the socket gives that permission. If such a
// row exists, only root and the daemon's own user need no row.
func (t *Table) user(u User) (Identity, error) {
	if u.Err != nil {
		return Identity{}, u.Err
	}
	name := prefixUID + strconv.FormatUint(uint64(u.UID), 10)
	rows := t.rows.Load()
	if r, ok := rows.byCaller[name]; ok {
		return r.identity(name), nil
	}
	if !rows.hasUnix || u.UID == 0 || int(u.UID) == os.Geteuid() {
		return Row{Tenant: DefaultTenant, Role: Operator}.identity(name), nil
	}
	for _, r := range rows.gids {
		for _, gid := range u.Groups {
			if r.Caller == prefixGID+strconv.FormatUint(uint64(gid), 10) {
				return r.identity(name), nil
			}
		}
	}
	return Identity{}, refuse("%s has no row in identity.callers or in a tenant's callers, and no group of it has", name)
}

// identity returns the identity of a principal with this row.
func (r Row) identity(name string) Identity {
	return Identity{permission.Principal{Tenant: r.Tenant, Name: name}, r.Role}
}

// count counts a caller that was not identified.
func (t *Table) count(addr net.Addr, err error) {
	if t.report != nil {
		t.report(hostOf(addr), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	now := time.Now()
	if now.Sub(t.loggedAt) < logInterval {
		return
	}
	args := []any{"count", t.failed, "last_from", hostOf(addr), "last_reason", err.Error()}
	if e, ok := err.(*Error); ok && e.Detail != nil {
		args = append(args, "last_detail", e.Detail.Error())
	}
	t.log.Warn("callers not identified", args...)
	t.failed, t.loggedAt = 0, now
}

// hostOf returns an address without its port.
func hostOf(addr net.Addr) string {
	switch addr := addr.(type) {
	case nil:
		return "an unknown address"
	case User:
		return prefixUID + strconv.FormatUint(uint64(addr.UID), 10)
	case *net.TCPAddr:
		return addr.IP.String()
	}
	return fmt.Sprint(addr)
}
