package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
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

// --check prints such rules with their lines, and succeeds. A tenant with a mistake has the mistake only.
func TestCheckWarnsOfRulesThatAllowNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/tenants", 0o755); err != nil {
		t.Fatal(err)
	}
	const rules = "network:\n    allow: ['example.com:8080']\n"
	for name, text := range map[string]string{
		"c.yaml":              "network: {}\ntenants_dir: tenants\ntenants:\n  acme:\n    policy:\n      network:\n        skills: {a: {allow: ['1.2.3.4:99']}}\n",
		"tenants/globex.yaml": "policy:\n  " + rules, "tenants/wide.yaml": "policy: {network: {allow: [public]}}\n",
		"tenants/wrong.yaml": "policy:\n  shel: true\n  " + rules,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func() (string, error) {
		out, err := exec.Command(binary(t, "skillrund"), "--config", dir+"/c.yaml", "--check").CombinedOutput()
		return string(out), err
	}
	const why = ": allows nothing, because the daemon's network allows none of it; change one of the two\n"
	warnings := "skillrund: warning: config " + dir + "/c.yaml: line 7: tenants.acme.policy.network.skills.a" + why +
		"skillrund: warning: config " + dir + "/tenants/globex.yaml: line 3: policy.network.allow" + why
	if out, err := check(); err == nil || !strings.HasPrefix(out, warnings+"skillrund: config ") || strings.Count(out, "warning") != 2 {
		t.Errorf("with a mistake: %v\n%s\nwant\n%s", err, out, warnings)
	}
	if err := os.Remove(dir + "/tenants/wrong.yaml"); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err != nil || out != warnings {
		t.Errorf("%v\n%s\nwant\n%s", err, out, warnings)
	}
}

// The log and GetCapabilities warn of such rules and of missing secrets, at the start and after a change. The daemon
// serves and is not degraded, and only operators get the warnings.
func TestWarningsAboutTheNetwork(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.Mkdir(dir+"/tenants", 0o755); err != nil {
		t.Fatal(err)
	}
	const rules = "policy: {network: {allow: ['example.com:8080']}}\n"
	if err := os.WriteFile(dir+"/tenants/acme.yaml", []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, withTokens+"tenants_dir: tenants\nnetwork: {credentials: [{name: hub, domain: a.example, secret: {env: NOT_SET_ANYWHERE}}]}\n")
	warnings := func(who context.Context) (list []string) {
		r, err := d.system.GetCapabilities(who, &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if r.State != pb.DaemonState_DAEMON_STATE_READY {
			t.Errorf("the state is %s", r.State)
		}
		for _, w := range r.ConfigurationWarnings {
			list = append(list, w.Tenant+" "+filepath.Base(w.File)+" "+w.Reason)
		}
		return list
	}
	const why = ".yaml line 1: policy.network.allow: allows nothing, because the daemon's network allows none of it; change one of the two"
	want := func(tenants ...string) {
		t.Helper()
		got := warnings(t.Context())
		if len(got) != 1+len(tenants) || !strings.HasPrefix(got[0], " skillrund.yaml the credential hub can't be used; executions that may use it are refused: ") || !strings.Contains(got[0], "NOT_SET_ANYWHERE") {
			t.Fatalf("got %q", got)
		}
		for i, name := range tenants {
			if got[i+1] != name+" "+name+why {
				t.Errorf("got %q, want one of %s", got[i+1], name)
			}
		}
	}
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
	want("acme")
	if got := warnings(d.asTenant(t.Context(), "acme", "admin")); len(got) > 0 {
		t.Errorf("a tenant gets %q", got)
	}
	d.write("tenants/globex.yaml", rules)
	until(t, "no warning after a change", func() bool { return warned("globex") && len(warnings(t.Context())) == 3 })
	want("acme", "globex")
	d.write("tenants/acme.yaml", "policy: {network: {allow: [public]}}\n")
	until(t, "the warning stays after a change", func() bool { return len(warnings(t.Context())) == 2 })
	want("globex")
	if n := strings.Count(d.log.String(), "a credential can't be used"); n != 1 {
		t.Errorf("the log says %d times that the daemon's credential can't be used", n)
	}
}
