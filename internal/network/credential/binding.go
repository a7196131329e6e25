package credential

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// Placeholder stands for the secret in Binding.Value.
const Placeholder = "{secret}"

// A Binding says which header carries a secret to a domain. It does not have the secret.
type Binding struct {
	Name      string // for events, usage and the audit log
	Domain    string // see policy.ParseDomain; without a port: 443, and also 80 if PlainHTTP is set
	Header    string
	Value     string // of the header, with Placeholder
	PlainHTTP bool   // also for requests without TLS
	// Skills are names, or name@digest, of the skills that may use it. Nil: all.
	Skills []string
	Secret Source
	// CA has the authorities, in PEM, that sign the domain's certificate. Zero: the machine's.
	CA Source
}

// For reports whether a skill may use the credential.
func (b Binding) For(name, digest string) bool {
	return b.Skills == nil || slices.Contains(b.Skills, name) || slices.Contains(b.Skills, name+"@"+digest)
}

// UsableWith reports whether rules may allow a connection that gets the credential.
func (b Binding) UsableWith(rules *policy.Rules) bool {
	d, err := policy.ParseDomain(b.Domain)
	if err != nil {
		return false
	}
	// As in Credential.Matches.
	usable := rules.MayReach(d, cmp.Or(d.Port(), 443))
	if d.Port() == 0 && b.PlainHTTP {
		usable = usable || rules.MayReach(d, 80)
	}
	return usable
}

// framing are headers that say where a message ends, or are about one connection (RFC 9110, section 7.6.1). With
// one of them, a secret would change the meaning of the request.
var framing = []string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// CheckHeader returns why a credential can't be in a header, or nil.
func CheckHeader(name string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("not a header; write a name such as Authorization")
	case slices.Contains(framing, canonical) || strings.HasPrefix(canonical, "Proxy-"):
		return fmt.Errorf("%s is about the connection and carries no credential; write a header such as Authorization", canonical)
	}
	return nil
}

// CheckValue returns why a text can't be Binding.Value, or nil. A line break would begin another header
// (RFC 9110, section 5.5).
func CheckValue(text string) error {
	switch {
	case !strings.Contains(text, Placeholder):
		return fmt.Errorf("has no place for the secret; write %s, or a text such as Bearer %s", Placeholder, Placeholder)
	case !httpguts.ValidHeaderFieldValue(text):
		return errors.New("has a character that a header can't have; write one line of text")
	}
	return nil
}

// A Credential is a Binding with its secret. Its fields cross to the network helper as JSON.
type Credential struct {
	Name      string `json:"name"`
	Domain    string `json:"domain"`
	Header    string `json:"header"`
	Value     Value  `json:"value"`
	PlainHTTP bool   `json:"plain_http,omitempty"`
	CA        string `json:"ca,omitempty"` // PEM; empty: the machine's
}

// A Value has a secret. Package fmt does not print it.
type Value string

// Format implements fmt.Formatter.
func (Value) Format(s fmt.State, _ rune) { fmt.Fprint(s, "(secret)") }

// open reads the secret.
func (b Binding) open() (Credential, error) {
	secret, err := b.Secret.Secret()
	if err != nil {
		return Credential{}, &UnavailableError{b.Name, err}
	}
	c := Credential{Name: b.Name, Domain: b.Domain, Header: b.Header, PlainHTTP: b.PlainHTTP,
		Value: Value(strings.ReplaceAll(b.Value, Placeholder, secret))}
	if !b.CA.isZero() {
		if c.CA, err = b.CA.Certificates(); err != nil {
			return Credential{}, &UnavailableError{b.Name, err}
		}
	}
	return c, nil
}

// Check reads what open reads, and forgets it. The error is an *UnavailableError.
func (b Binding) Check() error {
	_, err := b.open()
	return err
}

// UnavailableError says that a credential can't be used now, so that a skill that may use it can't run.
type UnavailableError struct {
	Credential string
	Err        error // for operators: it may have a path of the machine, but never a secret
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("credential %s: %v", e.Credential, e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// Matches reports whether the credential is for requests to a name and port, with TLS if secure is set.
func (c Credential) Matches(name string, port uint16, secure bool) bool {
	// Open has parsed the same text. An error here is a faulty packet, and matches nothing.
	d, err := policy.ParseDomain(c.Domain)
	if err != nil || !d.Matches(name) || !secure && !c.PlainHTTP {
		return false
	}
	usual := uint16(443)
	if !secure {
		usual = 80
	}
	return port == cmp.Or(d.Port(), usual)
}
