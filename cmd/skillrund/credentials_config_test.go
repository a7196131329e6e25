package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/credential"
)

// A credential has defaults for the header and its value; a secret has one place.
func TestConfigOfCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(writeConfig(t, `network:
  credentials:
    - {name: a, domain: api.example.com, secret: {file: `+file+`}}
    - {name: b, domain: "*.example.org:8443", header: X-Key, value: "k={secret}", secret: {systemd_credential: key}, skills: [pdf], plain_http: true, ca_file: `+file+`}
    - {name: c, domain: api.example.com, header: Cookie, secret: {env: API_COOKIE}}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := c.Network.network().Credentials
	want := []credential.Binding{
		{Name: "a", Domain: "api.example.com", Header: "Authorization", Value: "{secret}", Secret: credential.Source{File: file}},
		{Name: "b", Domain: "*.example.org:8443", Header: "X-Key", Value: "k={secret}", Secret: credential.Source{Systemd: "key"}, Skills: []string{"pdf"}, PlainHTTP: true, CA: credential.Source{File: file}},
		{Name: "c", Domain: "api.example.com", Header: "Cookie", Value: "{secret}", Secret: credential.Source{Env: "API_COOKIE"}},
	}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if a, b := got[i], want[i]; a.Name != b.Name || a.Domain != b.Domain || a.Header != b.Header || a.Value != b.Value || a.Secret != b.Secret || a.PlainHTTP != b.PlainHTTP || a.CA != b.CA || strings.Join(a.Skills, " ") != strings.Join(b.Skills, " ") {
			t.Errorf("got %+v, want %+v", a, b)
		}
	}
}

// A mistake in a credential is told with its key, and without a value that could be the secret.
func TestConfigOfCredentialsSaysWhatIsWrong(t *testing.T) {
	const head, good = "network:\n  credentials:\n    - ", "domain: api.example.com, secret: {env: KEY}"
	for _, tt := range []struct{ entry, want string }{
		{"{" + good + "}", "network.credentials[0].name: \"\"; write a name"},
		{"{name: A B, " + good + "}", "network.credentials[0].name"},
		{"{name: a, " + good + "}\n    - {name: a, " + good + "}", "network.credentials[1].name: a is the name of another entry"},
		{"{name: a, domain: 10.0.0.1, secret: {env: KEY}}", "network.credentials[0].domain"},
		{"{name: a, secret: {env: KEY}}", "network.credentials[0].domain: \"\": not a domain; write a name such as api.example.com or *.example.com"},
		{"{name: a, domain: '*', secret: {env: KEY}}", "network.credentials[0].domain: \"*\": not a domain; write a name such as api.example.com"},
		{"{name: a, domain: 'a.example:1-2', secret: {env: KEY}}", "more than one port"},
		{"{name: a, header: Host, " + good + "}", "network.credentials[0].header"},
		{"{name: a, value: s3cr3t, " + good + "}", "network.credentials[0].value: has no place for the secret"},
		{"{name: a, skills: ['x@y'], " + good + "}", "network.credentials[0].skills[0]"},
		{"{name: a, domain: a.example}", "network.credentials[0].secret: has 0 of the keys"},
		{"{name: a, domain: a.example, secret: s3cr3t}", "network.credentials[0].secret: not a place; write {file: PATH}"},
		{"{name: a, domain: a.example, secret: [s3cr3t]}", "not a place"},
		{"{name: a, domain: a.example, secret: {file: /x, env: KEY}}", "has 2 of the keys"},
		{"{name: a, domain: a.example, secret: {file: secrets/s3cr3t}}", "network.credentials[0].secret.file: the path is not absolute"},
		{"{name: a, domain: a.example, secret: {env: s3cr3t-value}}", "network.credentials[0].secret.env: not the name of an environment variable"},
		{"{name: a, domain: a.example, secret: {systemd_credential: ../s3cr3t}}", "network.credentials[0].secret.systemd_credential: not the name"},
		{"{name: a, ca_file: ca.pem, " + good + "}", "network.credentials[0].ca_file: the path is not absolute"},
	} {
		_, err := loadConfig(writeConfig(t, head+tt.entry+"\n"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v", tt.entry, err)
		}
	}
	many := strings.Repeat("    - {name: x, domain: a.example, secret: {env: KEY}}\n", maxCredentials+1)
	if _, err := loadConfig(writeConfig(t, "network:\n  credentials:\n"+many)); err == nil || !strings.Contains(err.Error(), "17 entries; at most 16") {
		t.Errorf("many: %v", err)
	}
}

// A file of tenants_dir may be written by another person than the daemon's configuration. Its secrets are
// only files in the tenant's directory of secrets_dir.
func TestConfigOfTenantsCredentials(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"tenants", "secrets/acme", "secrets/globex"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("secrets/acme/key", "of-acme")
	write("secrets/globex/key", "of-globex")
	if err := os.Symlink("../globex/key", filepath.Join(dir, "secrets/acme/link")); err != nil {
		t.Fatal(err)
	}
	check := func(daemon, secret string) (*tenantSource, error) {
		t.Helper()
		write("tenants/acme.yaml", "policy: {network: {credentials: [{name: a, domain: a.example, secret: "+secret+"}]}}\n")
		write("skillrund.yaml", "network: {credentials: [{name: daemon, domain: a.example, secret: {env: KEY}}]}\ntenants_dir: tenants\n"+daemon)
		c, found, err := readConfig(filepath.Join(dir, "skillrund.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.loaded {
			s.inspect()
		}
		if err := found.err(); err != nil {
			return nil, err
		}
		return c.loaded[0], c.loaded[0].found.err()
	}
	const has = "secrets_dir: secrets\n"
	s, err := check(has, "{file: key}")
	if err != nil {
		t.Fatal(err)
	}
	n := s.config.tenant("acme", s.config.Policy.Network.network()).Policy.Network
	if set, err := credential.Open(n.Credentials); err != nil || len(n.Credentials) != 1 || set.Credentials()[0].Value != "of-acme" {
		t.Errorf("got %v, %v", n.Credentials, err)
	}
	for _, tt := range []struct{ daemon, secret, want string }{
		{"", "{file: key}", "the daemon has no secrets_dir"},
		{has, "{file: /etc/shadow}", "not a file in "},
		{has, "{file: ../globex/key}", "not a file in "},
		{has, "{file: link}", "escapes"},
		{has, "{file: missing}", "no such file"},
		{"", "{file: /etc/passwd}", "the daemon has no secrets_dir"},
		{has, "{file: key, env: NOT_SET_ANYWHERE}", "has 2 of the keys"},
		{has, "{env: HOME}", "only the daemon's configuration file"},
		{has, "{systemd_credential: key}", "only the daemon's configuration file"},
	} {
		if _, err := check(tt.daemon, tt.secret); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "policy.network.credentials[0].secret") || strings.Contains(err.Error(), "2 errors") {
			t.Errorf("%s: got %v", tt.secret, err)
		}
	}
}
