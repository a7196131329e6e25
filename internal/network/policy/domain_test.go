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

func TestMayReach(t *testing.T) {
	for _, tt := range []struct {
		allow, deny []string
		domain      string
		port        uint16
		want        bool
	}{
		{nil, nil, "a.example", 443, true},
		{nil, nil, "*.example", 443, true},
		{nil, nil, "*.example", 8443, false},
		{[]string{"a.example"}, nil, "a.example", 443, true},
		{[]string{"a.example"}, nil, "*.example", 443, true},
		{[]string{"a.example"}, nil, "*.a.example", 443, false},
		{[]string{"*.a.example"}, nil, "*.example", 443, true},
		{[]string{"*.example"}, nil, "*.a.example", 443, true},
		{[]string{"*.example"}, nil, "*.other", 443, false},
		{[]string{"*.example/udp"}, nil, "*.example", 443, false},
		{[]string{"10.0.0.0/8"}, nil, "*.example", 443, false},
		{[]string{"public", "10.0.0.0/8:8443"}, nil, "*.example", 8443, true}, // the name may have a private address
		{[]string{}, nil, "*.example", 443, false},
		{nil, []string{"*.example"}, "*.example", 443, false},
		{nil, []string{"*.example:80"}, "*.a.example", 443, true},
		{nil, []string{"*.a.example"}, "*.example", 443, true}, // only a part of the domain
	} {
		d, err := ParseDomain(tt.domain)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules(t, tt.allow, tt.deny...).MayReach(d, tt.port); got != tt.want {
			t.Errorf("allow %q, deny %q: %s:%d is %v", tt.allow, tt.deny, tt.domain, tt.port, got)
		}
	}
	if d, err := ParseDomain("a.example"); err != nil || (*Rules)(nil).MayReach(d, 443) {
		t.Errorf("nil rules: %v", err)
	}
}
