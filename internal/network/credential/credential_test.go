package credential

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
)

const secret = "s3cr3t"

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Secrets come from files, systemd credentials and the environment. No error has a part of a secret.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SECRET_SET", secret)
	t.Setenv("SECRET_LONG", strings.Repeat("x", maxSecret+1))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	write(t, dir+"/good", secret+"\n")
	write(t, dir+"/windows", secret+"\r\n")
	write(t, dir+"/empty", "\n")
	write(t, dir+"/lines", secret+"\nX-Other: 1\n")
	write(t, dir+"/blank", " "+secret)
	write(t, dir+"/long", strings.Repeat("x", maxSecret+1))
	if err := errors.Join(os.Mkdir(dir+"/in", 0o700), os.Symlink("../good", dir+"/in/out"), os.Symlink("data", dir+"/in/link"), syscall.Mkfifo(dir+"/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/in/data", secret)
	for _, tt := range []struct {
		s    Source
		want string // of the error; empty: the secret
	}{
		{Source{File: dir + "/good"}, ""},
		{Source{File: dir + "/windows"}, ""},
		{Source{Systemd: "good"}, ""},
		{Source{Env: "SECRET_SET"}, ""},
		{Source{File: "link", Beneath: dir + "/in"}, ""},
		{Source{File: "out", Beneath: dir + "/in"}, "escapes"},
		{Source{File: "data", Beneath: dir + "/missing"}, "no such file"},
		{Source{File: dir + "/missing"}, "no such file"},
		{Source{File: dir + "/empty"}, "is empty"},
		{Source{File: dir + "/lines"}, "not one line"},
		{Source{File: dir + "/blank"}, "not one line"},
		{Source{File: dir + "/long"}, "more than 8192 bytes"},
		{Source{File: dir + "/pipe"}, "is not a file"},
		{Source{File: dir}, "is not a file"},
		{Source{Systemd: "missing"}, "the systemd credential missing: no such file"},
		{Source{Env: "SECRET_NOT_SET"}, "the environment variable SECRET_NOT_SET is not set"},
		{Source{Env: "SECRET_LONG"}, "more than 8192 bytes"},
	} {
		got, err := tt.s.Secret()
		if tt.want == "" {
			if got != secret || err != nil {
				t.Errorf("%v: got %q, %v", tt.s, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: got %v", tt.s, err)
		}
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	if _, err := (Source{Systemd: "good"}).Secret(); err == nil || !strings.Contains(err.Error(), "LoadCredential=good:PATH") {
		t.Errorf("without systemd: %v", err)
	}
}

// A changed file counts from the next execution on, and a missing one is an error that names the credential.
func TestOpen(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "secret"), "first")
	b := []Binding{{Name: "api", Domain: "api.example.com", Header: "Authorization", Value: "Bearer {secret}", Secret: Source{File: file}}}
	for _, want := range []string{"first", "second"} {
		write(t, file, want)
		s, err := Open(b)
		if err != nil || string(s.Credentials()[0].Value) != "Bearer "+want || !s.NeedsRoots() {
			t.Fatalf("%v, %v", s, err)
		}
	}
	if err := b[0].Check(); err != nil {
		t.Error(err)
	}
	if s, err := Open(nil); s != nil || err != nil {
		t.Errorf("without bindings: %v, %v", s, err)
	}
	noCA := b[0]
	noCA.CA = Source{File: file}
	if _, err := Open([]Binding{noCA}); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("CA: %v", err)
	}
	long := b[0]
	long.Value = strings.Repeat("{secret}", maxTotal/len("second")+1)
	if _, err := Open([]Binding{long}); err == nil || !strings.Contains(err.Error(), "more than 98304 bytes") {
		t.Errorf("too long: %v", err)
	}
	if _, err := Open([]Binding{{Name: "bad", Domain: "10.0.0.1"}}); err == nil {
		t.Error("an address is a domain")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err := Open(b)
	if e, ok := errors.AsType[*UnavailableError](err); !ok || e.Credential != "api" || !strings.HasPrefix(err.Error(), "credential api: ") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// A Set crosses to another process as JSON, and no form of fmt or slog has its secrets.
func TestSetHasNoSecretInText(t *testing.T) {
	t.Setenv("SECRET_SET", secret)
	s, err := Open([]Binding{{Name: "api", Domain: "*.example.com:8443", Header: "X-Key", Value: "{secret}", PlainHTTP: true, Secret: Source{Env: "SECRET_SET"}}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	value := s.credentials[0].Value
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "credential", s.Credentials()[0], "value", value)
	for _, text := range []string{log.String(), fmt.Sprintf("%v %+v %#v", s.credentials, s.credentials, s.credentials), fmt.Sprintf("%s %q %x", value, value, value)} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) || !strings.Contains(text, "(secret)") {
			t.Errorf("text %q", text)
		}
	}
	wire, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again Set
	if err := json.Unmarshal(wire, &again); err != nil {
		t.Fatal(err)
	}
	if again.Credentials()[0] != s.Credentials()[0] || !bytes.Equal(again.Authority().PEM(), s.Authority().PEM()) {
		t.Errorf("got %v", again)
	}
	if _, err := again.Authority().Leaf("a.example.com"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"key":""}`, `{"key":1}`, `[]`} {
		if json.Unmarshal([]byte(bad), &again) == nil {
			t.Errorf("%s is a Set", bad)
		}
	}
}

func TestMatches(t *testing.T) {
	const (
		tls   = 1 << iota // with TLS
		plain             // without
	)
	for _, tt := range []struct {
		c    Credential
		name string
		port uint16
		want int
	}{
		{Credential{Domain: "a.example"}, "a.example", 443, tls},
		{Credential{Domain: "a.example"}, "A.example.", 443, tls},
		{Credential{Domain: "a.example"}, "a.example", 80, 0},
		{Credential{Domain: "a.example"}, "a.example", 8443, 0},
		{Credential{Domain: "a.example", PlainHTTP: true}, "a.example", 80, plain},
		{Credential{Domain: "a.example", PlainHTTP: true}, "a.example", 443, tls}, // never the secret in clear there
		{Credential{Domain: "a.example:8443"}, "a.example", 8443, tls},
		{Credential{Domain: "a.example:8443", PlainHTTP: true}, "a.example", 8443, tls | plain},
		{Credential{Domain: "a.example:8443", PlainHTTP: true}, "a.example", 80, 0},
		{Credential{Domain: "a.example:443", PlainHTTP: true}, "a.example", 443, tls | plain},
		{Credential{Domain: "*.example"}, "a.example", 443, tls},
		{Credential{Domain: "*.example"}, "example", 443, 0},
		{Credential{Domain: "a.example"}, "ba.example", 443, 0},
		{Credential{Domain: "bad domain"}, "bad domain", 443, 0},
	} {
		for secure, bit := range map[bool]int{true: tls, false: plain} {
			if got := tt.c.Matches(tt.name, tt.port, secure); got != (tt.want&bit != 0) {
				t.Errorf("%s, plain HTTP %t, %s:%d, secure %t: got %v", tt.c.Domain, tt.c.PlainHTTP, tt.name, tt.port, secure, got)
			}
		}
	}
}

func TestBindingForSkills(t *testing.T) {
	b := Binding{Skills: []string{"a", "b@sha256:1"}}
	if !b.For("a", "sha256:9") || !b.For("b", "sha256:1") || b.For("b", "sha256:2") || b.For("c", "sha256:1") || !(Binding{}).For("c", "") {
		t.Error("For is wrong")
	}
}

func TestCheckHeaderAndValue(t *testing.T) {
	for _, name := range []string{"Authorization", "x-api-key", "Cookie"} {
		if err := CheckHeader(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a b", "host", "Connection", "transfer-encoding", "Proxy-Authorization", "a\n"} {
		if CheckHeader(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	if CheckValue("Bearer {secret}") != nil || CheckValue("Bearer x") == nil || CheckValue("{secret}\r\nX: y") == nil {
		t.Error("CheckValue is wrong")
	}
}

// The certificates are good for the bound names alone, by the constraint in the authority's own certificate.
func TestAuthority(t *testing.T) {
	a, err := NewAuthority([]string{"api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("no PEM")
	}
	for name, good := range map[string]bool{"api.example.com": true, "evil.example.org": false} {
		leaf, err := a.Leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := a.Leaf(name); again != leaf {
			t.Error("a second certificate for a name")
		}
		c, err := x509.ParseCertificate(leaf.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	a, err := NewAuthority([]string{"machine.example"})
	if err != nil {
		t.Fatal(err)
	}
	machine := strings.TrimSpace(string(a.PEM()))
	t.Setenv("SSL_CERT_FILE", write(t, dir+"/roots", machine))
	t.Setenv("SECRET_SET", secret)
	s, err := Open([]Binding{{Name: "api", Domain: "a.example", Header: "X", Value: "{secret}", Secret: Source{Env: "SECRET_SET"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Trusted()); got != machine+"\n"+string(s.Authority().PEM()) {
		t.Errorf("got %s", got)
	}
	block, _ := pem.Decode(a.PEM())
	if roots, err := Roots(); err != nil || len(roots) != 1 || !bytes.Equal(roots[0], block.Bytes) {
		t.Errorf("roots: %d, %v", len(roots), err)
	}
	t.Setenv("SSL_CERT_FILE", dir+"/missing")
	if _, err := Roots(); err == nil || !strings.Contains(err.Error(), "ca-certificates") {
		t.Errorf("without a file: %v", err)
	}
	if got := s.Trusted(); !bytes.Equal(got, s.Authority().PEM()) {
		t.Errorf("without a file: %s", got)
	}
}

// The port is that of the domain, or the usual one with TLS, or the one without TLS.
func TestUsableWith(t *testing.T) {
	for _, tt := range []struct {
		binding Binding
		rule    string
		want    bool
	}{
		{Binding{Domain: "*.example"}, "a.example:443", true},
		{Binding{Domain: "*.example"}, "a.example:80", false},
		{Binding{Domain: "*.example", PlainHTTP: true}, "a.example:80", true},
		{Binding{Domain: "*.example:8443", PlainHTTP: true}, "a.example", false},
		{Binding{Domain: "*.example:8443"}, "a.example:8443", true},
	} {
		rules, err := policy.Parse(policy.Config{Allow: []string{tt.rule}})
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.binding.UsableWith(rules); got != tt.want {
			t.Errorf("%+v with %s: %v", tt.binding, tt.rule, got)
		}
	}
}
