package policy

import "testing"

func TestDomain(t *testing.T) {
	for _, tt := range []struct {
		text, name string
		port       uint16
		has, not   string
	}{
		{"api.example.com", "api.example.com", 0, "API.Example.com.", "x.api.example.com"},
		{"*.example.com", "example.com", 0, "a.b.example.com", "example.com"},
		{"Api.example.com:8443", "api.example.com", 8443, "api.example.com", "api.example.com.evil.org"},
		{"bücher.example", "xn--bcher-kva.example", 0, "xn--bcher-kva.example", "notxn--bcher-kva.example"},
	} {
		d, err := ParseDomain(tt.text)
		if err != nil || d.Name() != tt.name || d.Port() != tt.port || !d.Matches(tt.has) || d.Matches(tt.not) || d.Matches("") {
			t.Errorf("%s: got %q, port %d, %v", tt.text, d.Name(), d.Port(), err)
		}
	}
	for _, text := range []string{"", "public", "10.0.0.1", "10.0.0.0/8", "https://a.example", "a.example:80,443", "a.example:1-2", "a.example:*", "a.example/udp", "*"} {
		if _, err := ParseDomain(text); err == nil {
			t.Errorf("%q is a domain", text)
		}
	}
}
