package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	uniquejson "github.com/go-jose/go-jose/v4/json"

	"github.com/skillrun/skillrun/internal/permission"
)

// An Issuer signs JSON Web Tokens that the daemon accepts. The daemon finds the issuer's keys by OpenID
// Connect Discovery.
type Issuer struct {
	// URL is the claim iss, exactly. It must be https, or http on a loopback address.
	URL string
	// Audience must be one of the values of the claim aud.
	Audience string
	// Tenant is the tenant of every caller. If it is empty, TenantClaim names a claim with the
	// tenant, and Tenants lists the tenants that it may name (empty: any).
	Tenant, TenantClaim string
	Tenants             []string
	// Role is the role of every caller. If RoleClaim is set, Role must be None. RoleClaim names a claim
	// with a word or a list of words. The highest role in it applies, at most Admin.
	Role      Role
	RoleClaim string
	// ClockSkew is the largest difference between the clocks of the issuer and the daemon.
	ClockSkew time.Duration
	// Authorities is a file with the authorities of the issuer's https certificate, in PEM. Empty: the
	// system's authorities.
	Authorities string
}

const (
	// fetchInterval is the minimum time between two requests to an issuer for the same page. So
	// tokens with invented keys can't make the daemon flood the issuer.
	fetchInterval = 10 * time.Second
	fetchTimeout  = 5 * time.Second
	maxPage       = 1 << 20 // bytes of an issuer's answer
	// maxSubject is the maximum length of a claim sub: OpenID Connect Core 1.0, section 2.
	maxSubject = 255
)

// algorithms are the signature algorithms that a token may have. All use asymmetric keys. "none" is
// not in the list.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// CheckIssuerURL returns why a text can't be an Issuer.URL, or nil.
func CheckIssuerURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%.200q is not the URL of an issuer; write https://HOST, as in the claim iss", text)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "https" || u.Scheme == "http" && ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%.200q is not encrypted; write https://HOST, or an http URL of a loopback address such as http://127.0.0.1:8080", text)
}

// An issuer verifies the tokens of one Issuer.
type issuer struct {
	Issuer
	client *http.Client

	mu       sync.Mutex // guards the field below
	verifier *oidc.IDTokenVerifier
}

// newIssuer asks for nothing yet: the daemon must start while an issuer is down.
func newIssuer(c Issuer, log *slog.Logger) (*issuer, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if c.Authorities != "" {
		data, err := os.ReadFile(c.Authorities)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.Authorities)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &issuer{Issuer: c, client: &http.Client{
		Timeout:   fetchTimeout,
		Transport: &patientTransport{next: transport, interval: fetchInterval, log: log, last: map[string]time.Time{}},
		// A redirect could lead to a page of another server than the issuer's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// A patientTransport asks for each page at most once in an interval, and bounds the answers. An issuer
// has two pages: its configuration and its keys.
type patientTransport struct {
	next     http.RoundTripper
	interval time.Duration
	log      *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

var errTooSoon = errors.New("asked a moment ago")

// RoundTrip counts a request that fails like one that succeeds, so that an issuer that is down is not flooded either.
func (t *patientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	page, now := r.URL.String(), time.Now()
	t.mu.Lock()
	last, asked := t.last[page]
	if asked && now.Sub(last) < t.interval {
		t.mu.Unlock()
		return nil, errTooSoon
	}
	t.last[page] = now
	t.mu.Unlock()
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		// At most one line in an interval, because each line belongs to a request.
		t.log.Error("the issuer of tokens does not answer", "page", page, "err", err)
		return nil, err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxPage), answer.Body}
	return answer, nil
}

// ready returns the verifier. The first call that succeeds reads the issuer's configuration.
func (i *issuer) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	// The provider keeps the client of ctx, but does not end with ctx.
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), i.URL)
	if err != nil {
		return nil, &Error{Reason: "the issuer of the token can't be asked for its keys now; try again later", Detail: err, unchecked: true}
	}
	i.verifier = provider.Verifier(&oidc.Config{
		SupportedSigningAlgs: algorithms,
		// The library ignores the case of the names of claims, and has its own tolerance for nbf. So check looks at these
		// claims.
		SkipIssuerCheck: true, SkipClientIDCheck: true, SkipExpiryCheck: true,
	})
	return i.verifier, nil
}

// jwt identifies a caller by a JSON Web Token.
func (t *Table) jwt(text string) (Identity, error) {
	url, err := issuerOf(text)
	if err != nil {
		return Identity{}, err
	}
	i := t.issuers[url]
	if i == nil {
		return Identity{}, refuse("the issuer of the token, %.200q, is not in identity.issuers", url)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*fetchTimeout)
	defer cancel()
	verifier, err := i.ready(ctx)
	if err != nil {
		return Identity{}, err
	}
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		return Identity{}, explain(err)
	}
	var payload json.RawMessage
	var claims map[string]any
	if err := token.Claims(&payload); err != nil {
		return Identity{}, refuse("the token's claims can't be read")
	}
	// Not encoding/json, which takes the last of two claims with the same name. Another reader of the
	// token may take the first.
	if err := uniquejson.Unmarshal(payload, &claims); err != nil {
		return Identity{}, &Error{Reason: "the token's claims are not clear: one may be there twice", Detail: err}
	}
	if err := i.check(claims); err != nil {
		return Identity{}, err
	}
	return i.identify(claims)
}

// issuerOf reads the claim iss of a token before the token is verified, to find the issuer's keys. It ignores the case of
// the name; check looks at the exact claim.
func issuerOf(text string) (string, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return "", refuse("the token is neither one of this daemon nor a JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", refuse("the token is not a JSON Web Token: its claims are not base64")
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Issuer == "" {
		return "", refuse("the token has no claim iss")
	}
	return claims.Issuer, nil
}

// explain returns the error for a token that is not valid. The library's errors are for the log only,
// because some name the issuer's addresses.
func explain(err error) error {
	reason := "the token is not valid"
	switch text := err.Error(); {
	case strings.HasPrefix(text, "oidc: malformed jwt"):
		reason = "the token is malformed, or its algorithm is not allowed"
	case strings.HasPrefix(text, "failed to verify signature: fetching keys"):
		reason = "no key of the issuer that is known now fits the token's signature"
	case strings.HasPrefix(text, "failed to verify signature"):
		reason = "the token's signature is not the issuer's"
	}
	return &Error{Reason: reason, Detail: err}
}

// check returns an error if a verified token is not for this daemon now. Only a claim with the exact name counts (RFC 7519,
// section 7.3): an issuer may let its users choose the names of other claims, such as "AUD".
func (i *issuer) check(claims map[string]any) error {
	if claims["iss"] != i.URL {
		return refuse("the token's claim iss is not %q", i.URL)
	}
	audiences, ok := claims["aud"].([]any)
	if !ok {
		audiences = []any{claims["aud"]}
	}
	if !slices.Contains(audiences, any(i.Audience)) {
		return refuse("the token is for another audience; it must be for %q", i.Audience)
	}
	return checkTimes(claims, time.Now(), i.ClockSkew)
}

// checkTimes returns an error if the claims exp or nbf say that a token is not valid now. A token needs no nbf.
func checkTimes(claims map[string]any, now time.Time, skew time.Duration) error {
	exp, ok := claims["exp"].(float64)
	if !ok {
		return refuse("the token's claim exp is missing, or not a number")
	}
	nbf, ok := claims["nbf"].(float64)
	if _, has := claims["nbf"]; has && !ok {
		return refuse("the token's claim nbf is not a number")
	}
	// Seconds, because a claim may be a time that time.Time can't have.
	seconds := float64(now.UnixMicro()) / 1e6
	switch {
	case exp < seconds-skew.Seconds():
		return refuse("the token has expired at %s", time.Unix(int64(exp), 0).UTC().Format(time.RFC3339))
	case nbf > seconds+skew.Seconds():
		return refuse("the token is not valid yet (nbf)")
	}
	return nil
}

// identify reads the principal, the tenant and the role from the claims of a verified token.
func (i *issuer) identify(claims map[string]any) (Identity, error) {
	subject, _ := claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject || strings.IndexFunc(subject, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
		return Identity{}, refuse("the token's claim sub is empty, too long, or has control characters")
	}
	id := Identity{permission.Principal{Tenant: i.Tenant, Name: i.URL + "#" + subject}, i.Role}
	if i.Tenant == "" {
		name, _ := claims[i.TenantClaim].(string)
		if CheckTenant(name) != nil || len(i.Tenants) > 0 && !slices.Contains(i.Tenants, name) {
			return Identity{}, refuse("the token's claim %s names no tenant of this issuer", i.TenantClaim)
		}
		id.Tenant = name
	}
	if i.RoleClaim != "" {
		if id.Role = highestRole(claims[i.RoleClaim]); id.Role == None {
			return Identity{}, refuse("the token's claim %s has no role; it needs read, invoke or admin", i.RoleClaim)
		}
	}
	return id, nil
}

// highestRole returns the highest role in a claim, a word or a list of words. It ignores the role
// Operator, which only the configuration and token create give.
func highestRole(claim any) (highest Role) {
	words, ok := claim.([]any)
	if !ok {
		words = []any{claim}
	}
	for _, word := range words {
		text, _ := word.(string)
		if r, err := ParseRole(text); err == nil && r <= Admin {
			highest = max(highest, r)
		}
	}
	return highest
}
