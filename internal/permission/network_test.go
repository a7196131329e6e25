package permission

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/skill"
)

func parsed(t *testing.T, allow ...string) *policy.Rules {
	t.Helper()
	rules, err := policy.Parse(policy.Config{Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// networkFor returns the allow rules that a skill gets, "" for none, or the error.
func networkFor(t *testing.T, n Network, asks bool, request *policy.Config) (string, error) {
	t.Helper()
	sk := withTools()
	sk.Digest, sk.Manifest.NetworkAccess = digest, asks
	g, err := Policy{Network: n}.Check(who, sk, Source{Kind: Code, Code: "1"}, request)
	if err != nil || g.Network() == nil {
		return "", err
	}
	allow, deny := g.Network().Strings()
	return strings.Join(append(allow, deny...), " "), nil
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestNetwork(t *testing.T) {
	none := &policy.Config{Allow: []string{"none"}}
	public := Network{Rules: parsed(t, "public")}
	named := Network{Skills: map[string]*policy.Rules{"demo": parsed(t, "db.example:5432")}}
	closed := Network{Rules: parsed(t, "public"), Skills: map[string]*policy.Rules{"demo": nil}}
	pinned := Network{Rules: parsed(t, "public"), Skills: map[string]*policy.Rules{"demo": parsed(t, "a.example"), "demo@" + digest: parsed(t, "b.example"), "demo@sha256:other": parsed(t, "c.example")}}
	for _, tt := range []struct {
		what    string
		network Network
		asks    bool
		request *policy.Config
		want    string // "" for no network, "refused" for a refusal
	}{
		{"nothing asked", public, false, nil, ""},
		{"skill asks, granted", public, true, nil, "public"},
		{"skill asks, not granted", Network{}, true, nil, "refused"},
		{"skill asks, rules that allow nothing", Network{Rules: parsed(t, "none")}, true, nil, "refused"},
		{"skill asks, not granted, request turns it off", Network{}, true, none, ""},
		{"granted, request turns it off", public, true, none, ""},
		{"request asks, skill does not", public, false, &policy.Config{}, "refused"},
		{"both ask", public, true, &policy.Config{}, "public"},
		{"both ask, not granted", Network{}, true, &policy.Config{}, "refused"},
		{"request tightens", public, true, &policy.Config{Allow: []string{"example.com:*"}}, "example.com"},
		{"request denies", public, true, &policy.Config{Deny: []string{"example.com"}}, "public example.com"},
		{"request wants more", named, true, &policy.Config{Allow: []string{"public"}}, "refused"},
		{"named, and does not ask", named, false, nil, "db.example:5432"},
		{"named, request turns it off", named, false, none, ""},
		{"named without rules, and does not ask", closed, false, nil, ""},
		{"named without rules, and asks", closed, true, nil, "refused"},
		{"named without rules, and the request asks", closed, false, &policy.Config{}, "refused"},
		{"learns, and does not ask", public, false, &policy.Config{Learn: true}, "public:* public:*/udp"},
		{"learns with a deny rule", named, false, &policy.Config{Learn: true, Deny: []string{"a.example"}}, "public:* public:*/udp a.example"},
		{"learns without a network", Network{}, true, &policy.Config{Learn: true}, "refused"},
		{"learns, named without rules", closed, true, &policy.Config{Learn: true}, "refused"},
		{"named by its digest", pinned, false, nil, "b.example"},
	} {
		got, err := networkFor(t, tt.network, tt.asks, tt.request)
		refused, ok := errors.AsType[*NetworkRefused](err)
		if ok {
			got = "refused"
			if refused.Skill != "demo" || refused.Reason == "" {
				t.Errorf("%s: %v", tt.what, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q (%v)", tt.what, got, tt.want, err)
		}
	}
}

// What an operator must change is the skill's own entry, if it has one.
func TestNetworkNamesWhatDecides(t *testing.T) {
	sk := withTools()
	sk.Digest = digest
	for _, tt := range []struct{ entry, key string }{{"", "network.allow"}, {"other", "network.allow"}, {"demo", "network.skills.demo.allow"}, {"demo@" + sk.Digest, "network.skills.demo@" + sk.Digest + ".allow"}} {
		n := Network{Rules: parsed(t, "public"), Skills: map[string]*policy.Rules{tt.entry: parsed(t, "a.example")}}
		if got := n.allowKey(sk); got != tt.key {
			t.Errorf("with an entry for %q: %s", tt.entry, got)
		}
	}
	for want, n := range map[string]Network{
		"its entry under `network.skills` allows nothing": {Rules: parsed(t, "public"), Skills: map[string]*policy.Rules{"demo": nil}},
		"set `network: {allow: [], skills: {demo: ":       {},
	} {
		if _, err := networkFor(t, n, true, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNetworkRequestMistakes(t *testing.T) {
	for _, request := range []*policy.Config{{Allow: []string{"*"}}, {Deny: []string{"https://x"}}} {
		_, err := networkFor(t, Network{Rules: parsed(t, "public")}, true, request)
		if _, ok := errors.AsType[*NetworkRequestError](err); !ok || err.Error() == "" {
			t.Errorf("%+v: got %v", request, err)
		}
	}
}

// A tenant's network is never wider than the daemon's, skill by skill.
func TestNetworkTighten(t *testing.T) {
	daemon := Network{Rules: parsed(t, "public"), Skills: map[string]*policy.Rules{"pdf": parsed(t, "a.example", "b.example"), "db@" + digest: parsed(t, "10.0.0.0/8:*")}}
	tenant := Network{Rules: parsed(t, "*.example:*"), Skills: map[string]*policy.Rules{"pdf": parsed(t, "b.example", "c.example"), "web": parsed(t, "w.example:*"), "db": parsed(t, "10.1.0.0/16:5432")}}
	both := tenant.Tighten(daemon)
	for key, want := range map[string]string{
		"pdf": "b.example", "web": "w.example", "db@" + digest: "10.1.0.0/16:5432", "db": "none", "other": "*.example",
	} {
		name, digest, _ := strings.Cut(key, "@")
		rules, _ := both.named(name, digest)
		if allow, _ := rules.Strings(); !slices.Equal(allow, []string{want}) {
			t.Errorf("%s: got %q, want %s", key, allow, want)
		}
	}
	if !tenant.Tighten(Network{}).Rules.AllowsNothing() || (Network{}).Tighten(daemon).Rules != nil {
		t.Error("none does not stay none")
	}
	for _, tt := range []struct {
		n    Network
		want bool
	}{{Network{}, true}, {Network{Rules: parsed(t, "none")}, true}, {daemon, false}, {Network{Skills: tenant.Skills}, false}, {tenant.Tighten(Network{}), true}} {
		if got := tt.n.None(); got != tt.want {
			t.Errorf("%+v: None is %v", tt.n, got)
		}
	}
}

// A skill has the credentials that name it, for domains that its rules allow. Two lists are not mixed.
func TestNetworkCredentials(t *testing.T) {
	binding := func(name, domain string, skills ...string) credential.Binding {
		return credential.Binding{Name: name, Domain: domain, Skills: skills}
	}
	n := Network{Rules: parsed(t, "*.example"), Credentials: []credential.Binding{
		binding("all", "a.example"), binding("refused", "a.other"), binding("below", "*.other"),
		binding("mine", "b.example", "pdf"), binding("version", "b.example", "pdf@"+digest), binding("others", "b.example", "web"),
	}}
	names := func(n Network, rules *policy.Rules) (list []string) {
		for _, b := range n.credentials(&skill.Skill{Name: "pdf", Digest: digest}, rules) {
			list = append(list, b.Name)
		}
		return list
	}
	if got := names(n, n.Rules); !slices.Equal(got, []string{"all", "mine", "version"}) {
		t.Errorf("got %q", got)
	}
	if got := names(n, nil); got != nil {
		t.Errorf("without a network: %q", got)
	}
	if both := (Network{Rules: parsed(t, "public")}).Tighten(n); both.Credentials != nil {
		t.Errorf("a tenant has the daemon's: %v", both.Credentials)
	}
	if both := n.Tighten(Network{Rules: parsed(t, "public")}); len(both.Credentials) != len(n.Credentials) {
		t.Errorf("a tenant has lost its own: %v", both.Credentials)
	}
}

// A request that asks for nothing that is granted gets its own rules back in the error.
func TestRequestOutsideTheGrantedRules(t *testing.T) {
	_, err := networkFor(t, Network{Rules: parsed(t, "example.com")}, true, &policy.Config{Allow: []string{"example.net", "example.org"}})
	const want = `the request's rules, "example.net, example.org", allow no destination that the granted rules allow; the granted rules are example.com`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
