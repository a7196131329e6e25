package credential

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// A Set has the credentials of one execution and its authority. It does not change.
type Set struct {
	credentials []Credential
	authority   *Authority
}

// maxTotal bounds the bytes of all values and authorities: they go to the helper in one packet, with the rules.
const maxTotal = 96 << 10

// Open reads the secrets of bindings. Nil: there are no bindings. The error is an *UnavailableError, or
// one of making the authority.
func Open(bindings []Binding) (*Set, error) {
	if len(bindings) == 0 {
		return nil, nil
	}
	s := &Set{}
	var names []string
	total := 0
	for _, b := range bindings {
		d, err := policy.ParseDomain(b.Domain)
		if err != nil {
			return nil, fmt.Errorf("credential %s: %w", b.Name, err)
		}
		c, err := b.open()
		if err != nil {
			return nil, err
		}
		if total += len(c.Value) + len(c.CA); total > maxTotal {
			return nil, &UnavailableError{b.Name, fmt.Errorf("the credentials of an execution and their authorities have more than %d bytes; write only the necessary certificates into ca_file", maxTotal)}
		}
		s.credentials = append(s.credentials, c)
		// The constraint of a name also covers the names below it, so "*." is not needed.
		names = append(names, d.Name())
	}
	var err error
	s.authority, err = NewAuthority(names)
	return s, err
}

// Credentials returns the credentials, in the order of the bindings. The caller must not change them.
func (s *Set) Credentials() []Credential { return s.credentials }

// Names returns the names of the credentials. s may be nil.
func (s *Set) Names() (names []string) {
	if s == nil {
		return nil
	}
	for _, c := range s.credentials {
		names = append(names, c.Name)
	}
	return names
}

// Authority returns the authority of the execution.
func (s *Set) Authority() *Authority { return s.authority }

// NeedsRoots reports whether a server's certificate is compared with the machine's authorities.
func (s *Set) NeedsRoots() bool {
	for _, c := range s.credentials {
		if c.CA == "" {
			return true
		}
	}
	return false
}

// wire is a Set in a packet to the network helper.
type wire struct {
	Credentials []Credential `json:"credentials"`
	Certificate []byte       `json:"certificate"`
	Key         []byte       `json:"key"`
}

// MarshalJSON returns the Set with its secrets. Only the socket to the network helper may have them.
func (s *Set) MarshalJSON() ([]byte, error) {
	certificate, key, err := s.authority.marshal()
	if err != nil {
		return nil, err
	}
	return json.Marshal(wire{s.credentials, certificate, key})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (s *Set) UnmarshalJSON(b []byte) (err error) {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	s.credentials = w.Credentials
	s.authority, err = parseAuthority(w.Certificate, w.Key)
	return err
}

// bundles are the files in which systems keep their authorities (crypto/x509, root_linux.go).
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// Bundle returns the machine's authorities in PEM. SSL_CERT_FILE names another file, as it does for most
// programs.
func Bundle() ([]byte, error) {
	files := bundles
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		// A file that exists and can't be read is an error: the next one of the list could trust other authorities.
		if !errors.Is(err, os.ErrNotExist) {
			return b, err
		}
	}
	return nil, errors.New("the machine has no file of trusted authorities; install the package ca-certificates")
}

// Roots returns the machine's authorities as DER, one after the other.
func Roots() (list [][]byte, err error) {
	rest, err := Bundle()
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return list, nil
		}
		if block.Type == "CERTIFICATE" {
			list = append(list, block.Bytes)
		}
	}
}

// Trusted returns the authorities that the sandbox trusts, in PEM: the machine's authorities, if it has a
// file of them, and the Set's authority.
func (s *Set) Trusted() []byte {
	machine, _ := Bundle()
	if len(machine) > 0 && !bytes.HasSuffix(machine, []byte("\n")) {
		machine = append(machine, '\n')
	}
	return append(machine, s.authority.PEM()...)
}
