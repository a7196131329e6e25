package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/skillrun/skillrun/internal/certtest"
)

// issuerTable accepts the tokens of an issuer. It has no minimum time between requests to the issuer.
func issuerTable(t *testing.T, i *certtest.Issuer, edit func(*Issuer)) *Table {
	t.Helper()
	c := Issuer{URL: i.URL, Audience: "skillrun", TenantClaim: "tenant", RoleClaim: "role", ClockSkew: time.Minute}
	if edit != nil {
		edit(&c)
	}
	table := openTable(t, Config{Issuers: []Issuer{c}})
	pages(table, i).interval = 0
	return table
}

// pages returns the transport that asks an issuer.
func pages(table *Table, i *certtest.Issuer) *patientTransport {
	return table.issuers[i.URL].client.Transport.(*patientTransport)
}

func TestJSONWebTokens(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, func(c *Issuer) { c.Tenants = []string{"acme", "globex"} })
	now := time.Now()
	name := i.URL + "#agent-1"
	for _, c := range []struct {
		name    string
		changes map[string]any
		want    Identity
		reason  string
	}{
		{"a good one", nil, identified("acme", name, Invoke), ""},
		{"several audiences", map[string]any{"aud": []string{"x", "skillrun"}}, identified("acme", name, Invoke), ""},
		{"another tenant", map[string]any{"tenant": "globex"}, identified("globex", name, Invoke), ""},
		{"several roles", map[string]any{"role": []any{"x", "admin", "read", 5}}, identified("acme", name, Admin), ""},
		{"within the skew", map[string]any{"exp": now.Add(-30 * time.Second).Unix(), "nbf": now.Add(30 * time.Second).Unix()}, identified("acme", name, Invoke), ""},
		{"expired", map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}, Identity{}, "the token has expired at"},
		{"without an end", map[string]any{"exp": nil}, Identity{}, "the token's claim exp is missing"},
		{"an end that is a text", map[string]any{"exp": strconv.FormatInt(now.Add(time.Minute).Unix(), 10)}, Identity{}, "the token's claim exp is missing, or not a number"},
		{"not yet valid", map[string]any{"nbf": now.Add(2 * time.Minute).Unix()}, Identity{}, "not valid yet"},
		{"valid in an hour", map[string]any{"nbf": now.Add(time.Hour).Unix()}, Identity{}, "not valid yet"},
		{"valid never", map[string]any{"nbf": 1e300}, Identity{}, "not valid yet"},
		{"valid after a text", map[string]any{"nbf": strconv.FormatInt(now.Unix(), 10)}, Identity{}, "the token's claim nbf is not a number"},
		{"another audience", map[string]any{"aud": "other"}, Identity{}, `the token is for another audience; it must be for "skillrun"`},
		{"no audience", map[string]any{"aud": nil}, Identity{}, "for another audience"},
		{"another issuer", map[string]any{"iss": "https://evil.example"}, Identity{}, `the issuer of the token, "https://evil.example", is not in identity.issuers`},
		{"no issuer", map[string]any{"iss": nil}, Identity{}, "no claim iss"},
		{"no subject", map[string]any{"sub": nil}, Identity{}, "claim sub"},
		{"a long subject", map[string]any{"sub": strings.Repeat("x", 256)}, Identity{}, "claim sub"},
		{"a subject of two lines", map[string]any{"sub": "a\nb"}, Identity{}, "claim sub"},
		{"no tenant", map[string]any{"tenant": nil}, Identity{}, "the token's claim tenant names no tenant of this issuer"},
		{"a tenant of another issuer", map[string]any{"tenant": "default"}, Identity{}, "names no tenant of this issuer"},
		{"tenants", map[string]any{"tenant": []string{"acme"}}, Identity{}, "names no tenant of this issuer"},
		{"no role", map[string]any{"role": nil}, Identity{}, "the token's claim role has no role; it needs read, invoke or admin"},
		{"an operator", map[string]any{"role": "operator"}, Identity{}, "has no role"},
		{"no operator", map[string]any{"role": []string{"operator", "read"}}, identified("acme", name, Read), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantIdentity(t, table, bearer(i.Sign(c.changes)), c.want, c.reason)
		})
	}
}

// Each skew that the configuration allows counts for the begin and for the end of a token.
func TestClockSkew(t *testing.T) {
	i := certtest.NewIssuer(t)
	agent := identified("acme", i.URL+"#agent-1", Invoke)
	const margin = 30 * time.Second // more than the test takes
	for _, skew := range []time.Duration{0, time.Minute, 3 * time.Minute, 5 * time.Minute} {
		table := issuerTable(t, i, func(c *Issuer) { c.ClockSkew = skew })
		in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
		for _, c := range []struct {
			changes map[string]any
			want    Identity
			reason  string
		}{
			{map[string]any{"nbf": in(skew)}, agent, ""},
			{map[string]any{"nbf": in(skew + margin)}, Identity{}, "not valid yet"},
			{map[string]any{"exp": in(margin - skew)}, agent, ""},
			{map[string]any{"exp": in(-skew - time.Second)}, Identity{}, "the token has expired at"},
		} {
			t.Run(fmt.Sprint(skew, c.changes), func(t *testing.T) {
				wantIdentity(t, table, bearer(i.Sign(c.changes)), c.want, c.reason)
			})
		}
	}
}

// Tokens that the issuer did not sign are refused, and so is one with two tenants.
func TestForgedTokens(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, nil)
	good := i.Sign(nil)
	wantIdentity(t, table, bearer(good), identified("acme", i.URL+"#agent-1", Invoke), "")
	parts := strings.Split(good, ".")
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The published key, used as the secret of a symmetric algorithm.
	public, err := i.PublicKey().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	twice := fmt.Sprintf(`{"iss":%q,"sub":"agent-1","aud":"skillrun","exp":%d,"tenant":"acme","tenant":"globex","role":"invoke"}`, i.URL, time.Now().Add(time.Hour).Unix())
	for _, c := range []struct{ name, token, reason string }{
		{"a claim twice", i.SignText(twice), "the token's claims are not clear: one may be there twice"},
		{"algorithm none", encode(map[string]any{"alg": "none"}) + "." + parts[1] + ".", "its algorithm is not allowed"},
		{"algorithm None", encode(map[string]any{"alg": "None"}) + "." + parts[1] + "." + parts[2], "its algorithm is not allowed"},
		{"a symmetric key", certtest.SignJWT(t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, i.Claims(nil)), "its algorithm is not allowed"},
		{"a key of the token", certtest.SignJWT(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: stranger, KeyID: "one"}}, i.Claims(nil)), "the token's signature is not the issuer's"},
		{"other claims", parts[0] + "." + encode(i.Claims(map[string]any{"role": "admin"})) + "." + parts[2], "the token's signature is not the issuer's"},
		{"no signature", parts[0] + "." + parts[1] + ".", "the token"},
		{"two parts", parts[0] + "." + parts[1], "neither one of this daemon nor a JSON Web Token"},
		{"claims that are not base64", parts[0] + ".%." + parts[2], "its claims are not base64"},
		{"claims that are not JSON", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("x")) + "." + parts[2], "no claim iss"},
		{"of this daemon", tokenPrefix + "a_b", "identity.tokens is not set"},
		{"too long", parts[0] + "." + strings.Repeat("A", maxToken) + "." + parts[2], "a token has at most 8192"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantIdentity(t, table, bearer(c.token), Identity{}, c.reason)
		})
	}
}

// An issuer may let users choose the names of further claims. A claim whose name equals a registered one except for its
// case, or for a letter that folds to the same one (U+017F, the long s), does not count, in any order of the two claims.
func TestNamesOfClaimsAreExact(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, nil)
	past, future := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	agent := identified("acme", i.URL+"#agent-1", Invoke)
	for _, c := range []struct {
		name   string         // of the registered claim
		value  any            // nil: the claim is missing
		others map[string]any // claims with similar names
		want   Identity
		reason string
	}{
		{"aud", "other", map[string]any{"AUD": "skillrun"}, Identity{}, "for another audience"},
		{"aud", nil, map[string]any{"Aud": "skillrun"}, Identity{}, "for another audience"},
		{"aud", "skillrun", map[string]any{"AUD": "other"}, agent, ""},
		{"sub", "agent-1", map[string]any{"SUB": "alice", "\u017fub": "alice"}, agent, ""},
		{"sub", nil, map[string]any{"Sub": "alice"}, Identity{}, "claim sub"},
		{"exp", past, map[string]any{"EXP": future}, Identity{}, "the token has expired at"},
		{"exp", nil, map[string]any{"Exp": future}, Identity{}, "the token's claim exp is missing"},
		{"iss", "https://evil.example", map[string]any{"ISS": i.URL, "i\u017fs": i.URL}, Identity{}, "iss"},
		{"iss", nil, map[string]any{"ISS": i.URL}, Identity{}, "the token's claim iss is not"},
	} {
		rest := i.Claims(map[string]any{c.name: nil})
		for _, parts := range [][]map[string]any{{{c.name: c.value}, c.others, rest}, {c.others, {c.name: c.value}, rest}} {
			t.Run(fmt.Sprint(parts[:2]), func(t *testing.T) {
				wantIdentity(t, table, bearer(i.SignText(joinedClaims(t, parts))), c.want, c.reason)
			})
		}
	}
}

// joinedClaims returns an object with the claims of the parts in their order, without those that are nil.
func joinedClaims(t *testing.T, parts []map[string]any) string {
	t.Helper()
	var fields []string
	for _, part := range parts {
		for name, value := range part {
			data, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if value != nil {
				fields = append(fields, fmt.Sprintf("%q:%s", name, data))
			}
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// A new key of the issuer is valid at once, and the old one is not valid any longer.
func TestKeysRotate(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, nil)
	want := identified("acme", i.URL+"#agent-1", Invoke)
	old := i.Sign(nil)
	wantIdentity(t, table, bearer(old), want, "")
	i.Rotate("two")
	wantIdentity(t, table, bearer(i.Sign(nil)), want, "")
	wantIdentity(t, table, bearer(old), Identity{}, "signature")
	if n := i.Fetched("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("asked %d times for the configuration, want once", n)
	}
}

// Tokens with invented keys don't cause requests to the issuer.
func TestIssuersAreAskedSeldom(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, nil)
	pages(table, i).interval = fetchInterval
	good := i.Sign(nil)
	wantIdentity(t, table, bearer(good), identified("acme", i.URL+"#agent-1", Invoke), "")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 50 {
		key := jose.JSONWebKey{Key: stranger, KeyID: fmt.Sprint("invented-", n)}
		forged := certtest.SignJWT(t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, i.Claims(nil))
		wantIdentity(t, table, bearer(forged), Identity{}, "no key of the issuer that is known now fits the token's signature")
	}
	wantIdentity(t, table, bearer(good), identified("acme", i.URL+"#agent-1", Invoke), "")
	if n := i.Fetched("/keys"); n != 1 {
		t.Errorf("asked %d times for the keys, want once", n)
	}
}

// The daemon asks an issuer that does not answer again later. Only the log has the issuer's addresses.
func TestIssuerIsDown(t *testing.T) {
	i := certtest.NewIssuer(t)
	table := issuerTable(t, i, func(c *Issuer) { c.TenantClaim, c.Tenant, c.RoleClaim, c.Role = "", "acme", "", Read })
	var logs bytes.Buffer
	table.log = slog.New(slog.NewTextHandler(&logs, nil))
	i.SetDown(true)
	_, err := table.Identify(bearer(i.Sign(nil)))
	if err == nil || err.Error() != "the issuer of the token can't be asked for its keys now; try again later" {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(logs.String(), "503") {
		t.Errorf("the log does not say why:\n%s", logs.String())
	}
	i.SetDown(false)
	wantIdentity(t, table, bearer(i.Sign(map[string]any{"tenant": "globex", "role": "admin"})), identified("acme", i.URL+"#agent-1", Read), "")
}

func TestCheckIssuerURL(t *testing.T) {
	for url, want := range map[string]string{
		"https://login.example.org": "", "https://login.example.org/tenant/1": "", "http://127.0.0.1:8080": "", "http://[::1]:1/a": "",
		"http://login.example.org": "is not encrypted; write https://HOST",
		"http://localhost:1":       "is not encrypted",
		"login.example.org":        "is not the URL of an issuer",
		"https://user@example.org": "is not the URL of an issuer",
		"https://example.org?x=1":  "is not the URL of an issuer",
		"https://":                 "is not the URL of an issuer",
		"":                         "is not the URL of an issuer",
	} {
		err := CheckIssuerURL(url)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", url, err, want)
		}
	}
}
