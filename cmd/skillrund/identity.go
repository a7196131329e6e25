package main

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// identityConfig is the key identity: the credentials of callers, with their tenants and roles.
type identityConfig struct {
	Callers []callerRow `yaml:"callers"`
	// PEM files with the authorities of client certificates. SPIFFE maps trust domains to them.
	Authorities string            `yaml:"authorities"`
	SPIFFE      map[string]string `yaml:"spiffe"`
	// The file of skillrund token.
	Tokens  string         `yaml:"tokens"`
	Issuers []issuerConfig `yaml:"issuers"`
}

// A callerRow is an identity.Row.
type callerRow struct {
	Caller string        `yaml:"caller"`
	Tenant string        `yaml:"tenant"`
	Role   identity.Role `yaml:"role"`
}

// An issuerConfig is an identity.Issuer.
type issuerConfig struct {
	Issuer      string        `yaml:"issuer"`
	Audience    string        `yaml:"audience"`
	Tenant      string        `yaml:"tenant"`
	TenantClaim string        `yaml:"tenant_claim"`
	Tenants     []string      `yaml:"tenants"`
	Role        identity.Role `yaml:"role"`
	RoleClaim   string        `yaml:"role_claim"`
	ClockSkew   duration      `yaml:"clock_skew"`
	Authorities string        `yaml:"authorities"`
}

// Of issuers[].clock_skew.
const (
	defaultClockSkew = duration(time.Minute)
	maxClockSkew     = duration(5 * time.Minute)
)

// resolveIdentity makes paths absolute and sets the default of clock_skew.
func (c *config) resolveIdentity(dir string, lines map[string]int) {
	for _, p := range []*string{&c.Identity.Authorities, &c.Identity.Tokens} {
		*p = absolute(dir, *p)
	}
	for domain, path := range c.Identity.SPIFFE {
		c.Identity.SPIFFE[domain] = absolute(dir, path)
	}
	for n := range c.Identity.Issuers {
		i := &c.Identity.Issuers[n]
		i.Authorities = absolute(dir, i.Authorities)
		// The line, not the value: 0s is a valid choice.
		if lines[join(index("identity.issuers", n), "clock_skew")] == 0 {
			i.ClockSkew = defaultClockSkew
		}
	}
}

// callers returns the rows of identity.callers.
func (c *config) callers() (rows []identity.Row) {
	for _, r := range c.Identity.Callers {
		rows = append(rows, identity.Row(r))
	}
	return rows
}

// identity converts the configuration.
func (c *config) identity(log *slog.Logger) identity.Config {
	to := identity.Config{Rows: c.callers(), Authorities: c.Identity.Authorities, Bundles: c.Identity.SPIFFE, Tokens: c.Identity.Tokens, Log: log}
	for _, s := range c.loaded {
		to.Rows = append(to.Rows, s.rows()...)
	}
	for _, i := range c.Identity.Issuers {
		to.Issuers = append(to.Issuers, identity.Issuer{
			URL: i.Issuer, Audience: i.Audience, Tenant: i.Tenant, TenantClaim: i.TenantClaim, Tenants: i.Tenants,
			Role: i.Role, RoleClaim: i.RoleClaim, ClockSkew: time.Duration(i.ClockSkew), Authorities: i.Authorities,
		})
	}
	return to
}

// asksCredentials reports whether TCP clients must send a credential. If not, a loopback address
// is enough.
// identity decides, since its listeners apply the same rule.
func (c *config) asksCredentials() bool {
	to := c.identity(nil)
	return to.Network()
}

// checkIdentity checks the rows. It also checks that callers over a network can be identified.
func (c *config) checkIdentity(bad badFunc) {
	for n := range c.Identity.Callers {
		c.checkCaller(n, bad)
	}
	for _, domain := range slices.Sorted(maps.Keys(c.Identity.SPIFFE)) {
		key := join("identity.spiffe", domain)
		if err := identity.CheckTrustDomain(domain); err != nil {
			bad(key, "%v", err)
		}
		if c.Identity.SPIFFE[domain] == "" {
			bad(key, "is empty; write the file with the authorities of the trust domain (PEM)")
		}
	}
	for n := range c.Identity.Issuers {
		c.checkIssuer(n, bad)
	}
	if (c.usesTLS() || c.Listen.Insecure) && !c.asksCredentials() {
		const remedy = "set identity.tokens, identity.authorities, identity.spiffe or identity.issuers"
		key := "listen.tls"
		if c.Listen.Insecure {
			key = "listen.insecure"
		}
		switch {
		case !c.onlyLoopback():
			bad(key, "lets other machines connect, but nobody on them could be identified; %s", remedy)
		case c.Listen.Insecure:
			bad(key, "true, but every TCP listener is on a loopback address, which needs no TLS; remove it")
		default:
			bad(key, "with TLS every caller needs a credential, also on a loopback address, but no credentials are configured; %s, or remove listen.tls", remedy)
		}
	}
}

// onlyLoopback reports whether other machines can reach none of the TCP listeners.
func (c *config) onlyLoopback() bool {
	for _, address := range []string{c.Listen.TCP, c.Listen.MCPTCP, c.Listen.MetricsTCP} {
		if address != "" && checkTCP(address, false) != nil {
			return false
		}
	}
	return true
}

// checkCaller checks one row of identity.callers.
func (c *config) checkCaller(n int, bad badFunc) {
	row, key := c.Identity.Callers[n], index("identity.callers", n)
	c.checkCredential(join(key, "caller"), row.Caller, bad)
	if err := identity.CheckTenant(row.Tenant); err != nil {
		bad(join(key, "tenant"), "%v", err)
	}
	if row.Role == identity.None {
		bad(join(key, "role"), "is not set; write read, invoke, admin or operator")
	}
	same := func(other callerRow) bool { return other.Caller == row.Caller }
	if slices.ContainsFunc(c.Identity.Callers[:n], same) {
		bad(join(key, "caller"), "%s is listed twice; remove one of the two", row.Caller)
	}
}

// checkCredential checks the name of a caller, and that the daemon can check its credential.
func (c *config) checkCredential(key, caller string, bad badFunc) {
	domain := identity.TrustDomain(caller)
	switch err := identity.CheckCaller(caller); {
	case err != nil:
		bad(key, "%v", err)
	case identity.IsSubject(caller) && c.Identity.Authorities == "":
		bad(key, "%s is the subject of a certificate, but identity.authorities is not set; write the file with its authority (PEM)", caller)
	case domain != "" && c.Identity.SPIFFE[domain] == "":
		bad(key, "%s is of the trust domain %s, but identity.spiffe does not have it; write spiffe: {%s: FILE}", caller, domain, domain)
	}
}

// checkIssuer checks one entry of identity.issuers.
// Both a fixed tenant and a claim would leave open which one counts; the same holds for roles.
func (c *config) checkIssuer(n int, bad badFunc) {
	i, key := c.Identity.Issuers[n], index("identity.issuers", n)
	if err := identity.CheckIssuerURL(i.Issuer); err != nil {
		bad(join(key, "issuer"), "%v", err)
	}
	if slices.ContainsFunc(c.Identity.Issuers[:n], func(o issuerConfig) bool { return o.Issuer == i.Issuer }) {
		bad(join(key, "issuer"), "%s is listed twice; remove one of the two", i.Issuer)
	}
	if i.Audience == "" {
		bad(join(key, "audience"), "is empty; write the audience that the issuer puts into tokens for this daemon")
	}
	switch {
	case (i.Tenant == "") == (i.TenantClaim == ""):
		bad(key, "set one of tenant and tenant_claim")
	case i.Tenant != "" && identity.CheckTenant(i.Tenant) != nil:
		bad(join(key, "tenant"), "%v", identity.CheckTenant(i.Tenant))
	case i.Tenant != "" && len(i.Tenants) > 0:
		bad(join(key, "tenants"), "is for tenant_claim, which is not set; remove it")
	}
	for k, name := range i.Tenants {
		if err := identity.CheckTenant(name); err != nil {
			bad(index(join(key, "tenants"), k), "%v", err)
		}
	}
	if (i.Role == identity.None) == (i.RoleClaim == "") {
		bad(key, "set one of role and role_claim")
	}
	if i.ClockSkew < 0 || i.ClockSkew > maxClockSkew {
		bad(join(key, "clock_skew"), "%s; must be 0s to %s", i.ClockSkew, maxClockSkew)
	}
}

// inspectIdentity reads each file of credentials, and reports an error for each file that can't be
// used.
func (c *config) inspectIdentity(bad badFunc) {
	log := slog.New(slog.DiscardHandler)
	// Each file is opened alone, so that each mistake is reported with its key.
	try := func(key string, part identity.Config) {
		part.Log = log
		if _, err := identity.Open(part); err != nil {
			bad(key, "%v", err)
		}
	}
	try("identity.authorities", identity.Config{Authorities: c.Identity.Authorities})
	for _, domain := range slices.Sorted(maps.Keys(c.Identity.SPIFFE)) {
		try(join("identity.spiffe", domain), identity.Config{Bundles: map[string]string{domain: c.Identity.SPIFFE[domain]}})
	}
	if path := c.Identity.Tokens; path != "" {
		try("identity.tokens", identity.Config{Tokens: path})
		// The file may be missing, but a misspelled directory is a mistake.
		if err := readableDir(filepath.Dir(path)); err != nil {
			bad("identity.tokens", "%v; write a file in a directory that exists", err)
		}
	}
	for n, i := range c.Identity.Issuers {
		try(join(index("identity.issuers", n), "authorities"), identity.Config{Issuers: []identity.Issuer{{URL: i.Issuer, Authorities: i.Authorities}}})
	}
}
