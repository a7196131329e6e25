package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An Issuer signs JSON Web Tokens. It is an OpenID Connect issuer on a loopback address, which
// publishes its key. It ends with the test.
type Issuer struct {
	URL string
	t   testing.TB

	mu      sync.Mutex // guards the fields below
	key     jose.JSONWebKey
	fetches map[string]int // by path
	down    bool
}

// NewIssuer starts an issuer.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, fetches: map[string]int{}}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.Rotate("one")
	return i
}

// ServeHTTP answers the two requests of OpenID Connect Discovery.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetches[r.URL.Path]++
	if i.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	default:
		http.NotFound(w, r)
	}
}

// Rotate makes a new key with an id and forgets the old key.
func (i *Issuer) Rotate(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key = jose.JSONWebKey{Key: key, KeyID: id, Algorithm: "ES256", Use: "sig"}
}

// PublicKey returns the key that the issuer publishes.
func (i *Issuer) PublicKey() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key.Public()
}

// Fetched returns how often a path was requested.
func (i *Issuer) Fetched(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches[path]
}

// SetDown makes the issuer answer every request with status 503, or not any longer.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Claims returns valid claims with changes: subject agent-1, audience skillrun, tenant acme and
// role invoke, for an hour. A nil value removes a claim.
func (i *Issuer) Claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": i.URL, "sub": "agent-1", "aud": "skillrun", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"tenant": "acme", "role": "invoke",
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Sign returns a token of the issuer with the claims of Claims(changes).
func (i *Issuer) Sign(changes map[string]any) string {
	i.t.Helper()
	claims, err := json.Marshal(i.Claims(changes))
	if err != nil {
		i.t.Fatal(err)
	}
	return i.SignText(string(claims))
}

// SignText returns a token of the issuer with any text as its claims.
func (i *Issuer) SignText(claims string) string {
	i.t.Helper()
	i.mu.Lock()
	key := i.key
	i.mu.Unlock()
	return SignJWT(i.t, jose.SigningKey{Algorithm: jose.ES256, Key: key}, json.RawMessage(claims))
}

// SignJWT returns a token that any key signs. headers are further headers of the token.
func SignJWT(t testing.TB, key jose.SigningKey, claims any, headers ...map[jose.HeaderKey]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	for _, more := range headers {
		for name, value := range more {
			options = options.WithHeader(name, value)
		}
	}
	s, err := jose.NewSigner(key, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
