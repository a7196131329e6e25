package policy

import (
	"net/netip"
	"testing"
)

// A name that only a proxy looks up is judged by the rules with names and by public. Rules with addresses are
// not about it.
func TestDialName(t *testing.T) {
	r, err := Parse(Config{Allow: []string{"public", "db.example:5432", "20.1.0.0/16:*"}, Deny: []string{"bad.example", "some.example:80"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name         string
		port         uint16
		anyName      bool
		rule, reason string
	}{
		{"web.example", 443, true, "public", ""},
		{"DB.example.", 5432, false, "db.example:5432", ""},
		{"web.example", 5432, false, "", "no rule allows tcp port 5432 of web.example"},
		{"web.example", 22, false, "", "no rule allows tcp port 22 of web.example"},
		{"bad.example", 443, false, "bad.example", `the rule "bad.example" denies bad.example:443`},
		{"some.example", 80, false, "some.example:80", `the rule "some.example:80" denies some.example:80`},
		{"some.example", 443, true, "public", ""},
		{"db.example", 53, false, KindResolver, "other name servers are refused unless a rule names their address"},
		{"10.0.0.1", 443, false, "", "not a host name with a port"},
		{"web.example", 0, false, "", "not a host name with a port"},
	} {
		v, anyName := r.DialName(tt.name, tt.port)
		if v.Allowed != (tt.reason == "") || anyName != tt.anyName || v.Rule != tt.rule || v.Reason != tt.reason {
			t.Errorf("%s:%d: got %+v, %v", tt.name, tt.port, v, anyName)
		}
	}
	if v, _ := r.DialName("web.example", 22); v.Missing != "web.example:22" {
		t.Errorf("missing rule: %+v", v)
	}
	if v, _ := (*Rules)(nil).DialName("web.example", 443); v.Allowed {
		t.Error("nil Rules allow a name")
	}
}

// The address that stands for a name is no rule, the name is one.
func TestLearnProxiedNames(t *testing.T) {
	to := netip.MustParseAddrPort("198.18.0.1:443")
	got := Learn([]Connection{{Protocol: "tcp", To: to, Name: "api.example"}, {Protocol: "tcp", To: to}, {Protocol: "tcp", To: to, Name: "localhost.localdomain."}})
	if len(got) != 2 || got[0] != "api.example:443" || got[1] != "localhost.localdomain:443" {
		t.Errorf("got %q", got)
	}
}
