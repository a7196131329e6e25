package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A tenant's rules are reported if they allow something, but nothing that the daemon's rules allow.
func TestRulesThatAllowNothing(t *testing.T) {
	for _, tt := range []struct {
		name, daemon, tenant string
		want                 []string
	}{
		{"nothing is set", "network: none", "", nil},
		{"the daemon's", "network: {}", "", nil},
		{"something is left", "network: {}", "network: {allow: [public, '10.0.0.0/8']}", nil},
		{"another port", "network: {}", "network: {allow: ['example.com:8080']}", []string{"policy.network.allow"}},
		{"none", "network: {}", "network: none", nil},
		{"an empty list", "network: {}", "network: {allow: []}", nil},
		{"of a skill", "network: {allow: [example.com]}", "network: {allow: [example.com], 'skills': {a: {allow: [example.org]}, b: {allow: [example.com]}, c: none}}",
			[]string{"policy.network.skills.a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := defaultConfig()
			found := &problems{path: "daemon"}
			found.decode([]byte(tt.daemon), &c)
			s := &tenantSource{name: "acme", found: &problems{path: "acme"}}
			s.found.decode([]byte("policy: {"+tt.tenant+"}"), &s.config)
			s.check(&c, "/")
			if len(found.list)+len(s.found.list) > 0 {
				t.Fatalf("mistakes: %v, %v", found.err(), s.found.err())
			}
			if got := s.config.Policy.Network.emptied(c.Network.network()); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The log warns of such rules at the start and after a change, and the daemon serves.
func TestRulesThatAllowNothingAreLogged(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.Mkdir(dir+"/tenants", 0o755); err != nil {
		t.Fatal(err)
	}
	const rules = "policy: {network: {allow: ['example.com:8080']}}\n"
	if err := os.WriteFile(dir+"/tenants/acme.yaml", []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, withTokens+"tenants_dir: tenants\nnetwork: {}\n")
	warned := func(tenant string) bool {
		for line := range strings.Lines(d.log.String()) {
			if strings.Contains(line, "rules of a tenant allow nothing") && strings.Contains(line, "tenant="+tenant+" ") && strings.Contains(line, "keys=policy.network.allow") {
				return true
			}
		}
		return false
	}
	if !warned("acme") {
		t.Errorf("no warning at the start:\n%s", d.log)
	}
	d.write("tenants/globex.yaml", rules)
	until(t, "no warning after a change", func() bool { return warned("globex") })
}
