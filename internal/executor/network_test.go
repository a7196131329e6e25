package executor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// A testNetwork is the network of each execution. The test decides which events its sink gets.
type testNetwork struct {
	opened  int
	tenant  string
	id      string
	rules   *policy.Rules
	secrets *credential.Set
	happens func(policy.DaemonSink)
	to      policy.DaemonSink
}

func (n *testNetwork) Open(tenant, execution string, rules *policy.Rules, credentials *credential.Set, to policy.DaemonSink) sandbox.Network {
	n.opened++
	n.tenant, n.id, n.rules, n.secrets, n.to = tenant, execution, rules, credentials, to
	return n
}

func (n *testNetwork) Attach(context.Context, sandbox.Link) error { return nil }
func (n *testNetwork) Detach()                                    {}

func mustParse(t *testing.T, allow ...string) *policy.Rules {
	t.Helper()
	rules, err := policy.Parse(policy.Config{Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// networked returns an executor whose policy gives the skill demo a network. Programs exit with code.
func networked(t *testing.T, n *testNetwork, code int, edit ...func(*Config)) *Executor {
	t.Helper()
	start := func(_ context.Context, spec sandbox.Spec, _ sandbox.IO) (process, error) {
		f := newFake()
		if got, ok := spec.Network.(*testNetwork); ok && got.happens != nil {
			got.happens(got.to)
		}
		f.exit <- sandbox.Exit{End: sandbox.Exited, Code: code}
		return f, nil
	}
	edit = append([]func(*Config){func(c *Config) {
		c.Policy = permission.Policy{Network: permission.Network{Skills: map[string]*policy.Rules{"demo": mustParse(t, "public", "example.com:8080")}}}
		c.Networks = n
	}}, edit...)
	return newExecutor(t, t.TempDir(), start, edit...)
}

// The network is opened with the rules of the grant: the policy's and the request's. The header and
// the record have the same rules.
func TestNetworkHasTheRulesOfTheGrant(t *testing.T) {
	n := &testNetwork{}
	x := networked(t, n, 0)
	req := scriptRequest()
	req.Network = &policy.Config{Allow: []string{"example.com:*"}, Deny: []string{"10.0.0.0/8"}}
	id := execute(t, x, req)
	events := follow(t, x, id)
	want := Network{Allow: []string{"example.com", "example.com:8080"}, Deny: []string{"10.0.0.0/8"}}
	same := func(got *Network) bool {
		return got != nil && slices.Equal(got.Allow, want.Allow) && slices.Equal(got.Deny, want.Deny)
	}
	allow, deny := n.rules.Strings()
	if n.opened != 1 || n.tenant != who.Tenant || n.id != id || !same(&Network{Allow: allow, Deny: deny}) {
		t.Errorf("opened %+v with %q, %q", n, allow, deny)
	}
	if got := events[0].Header.Network; !same(got) {
		t.Errorf("header: got %+v", got)
	}
	e, err := x.Get(t.Context(), who, id)
	if err != nil || !same(e.Header.Network) || e.Outcome.Usage.Network == nil {
		t.Errorf("record: got %+v, %v", e, err)
	}
}

// npm and pip give up soon where the network refuses: the pauses between their attempts are short. Without
// a network npm tries once.
func TestQuickRetries(t *testing.T) {
	env := func(change func(*Request)) []string {
		var spec sandbox.Spec
		x := networked(t, &testNetwork{}, 0)
		start := x.start
		x.start = func(ctx context.Context, s sandbox.Spec, io sandbox.IO) (process, error) {
			spec = s
			return start(ctx, s, io)
		}
		req := scriptRequest()
		change(&req)
		follow(t, x, execute(t, x, req))
		return slices.DeleteFunc(spec.Env, func(v string) bool { return !strings.HasPrefix(v, "npm_") && !strings.HasPrefix(v, "PIP_") })
	}
	for name, tt := range map[string]struct {
		change func(*Request)
		want   []string
	}{
		"network":    {func(*Request) {}, []string{"PIP_RETRIES=2", "npm_config_fetch_retry_maxtimeout=1000", "npm_config_fetch_retry_mintimeout=500"}},
		"no network": {func(r *Request) { r.Network = &policy.Config{Allow: []string{policy.Nothing}} }, []string{"npm_config_fetch_retries=0"}},
	} {
		if got := env(tt.change); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// The execution's credentials go to its network. Its sandbox gets a file of authorities, and variables that
// name it; a request may name another file.
func TestCredentialsOfTheGrant(t *testing.T) {
	t.Setenv("SECRET_OF_TEST", "s3cr3t")
	n := &testNetwork{}
	var spec sandbox.Spec
	var trusted []byte
	x := networked(t, n, 0, func(c *Config) {
		c.Policy.Network.Credentials = []credential.Binding{
			{Name: "api", Domain: "api.example.com", Header: "Authorization", Value: "{secret}", Secret: credential.Source{Env: "SECRET_OF_TEST"}},
			{Name: "other", Domain: "api.example.com", Header: "X", Value: "{secret}", Skills: []string{"other"}, Secret: credential.Source{Env: "NOT_SET"}},
		}
	})
	start := x.start
	x.start = func(ctx context.Context, s sandbox.Spec, io sandbox.IO) (process, error) {
		spec = s
		for _, m := range s.Mounts {
			if m.Target == trustedDir {
				trusted, _ = os.ReadFile(filepath.Join(m.Source, trustedFile))
			}
		}
		return start(ctx, s, io)
	}
	req := scriptRequest()
	req.Env = map[string]string{"AWS_CA_BUNDLE": "/mine"}
	id := execute(t, x, req)
	follow(t, x, id)
	if n.secrets == nil || len(n.secrets.Credentials()) != 1 || n.secrets.Credentials()[0].Value != "s3cr3t" {
		t.Fatalf("network: %v", n.secrets)
	}
	if !strings.HasSuffix(string(trusted), string(n.secrets.Authority().PEM())) {
		t.Errorf("authorities: %s", trusted)
	}
	for _, want := range []string{"SSL_CERT_FILE=/opt/certificates/ca-certificates.crt", "NODE_EXTRA_CA_CERTS=/opt/certificates/ca-certificates.crt", "AWS_CA_BUNDLE=/mine"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("no %s in %q", want, spec.Env)
		}
	}
	if text := strings.Join(spec.Env, " "); strings.Count(text, "AWS_CA_BUNDLE=") != 1 || strings.Contains(text, "s3cr3t") {
		t.Errorf("environment %s", text)
	}
	req.Network = &policy.Config{Allow: []string{"none"}}
	spec = sandbox.Spec{}
	follow(t, x, execute(t, x, req))
	if n.opened != 1 || len(spec.Mounts) != 1 || slices.ContainsFunc(spec.Env, func(e string) bool { return strings.HasPrefix(e, "SSL_CERT_FILE=") }) {
		t.Errorf("without a network: opened %d times, %+v", n.opened, spec)
	}
	os.Unsetenv("SECRET_OF_TEST")
	_, _, err := x.Execute(t.Context(), scriptRequest())
	if e, ok := errors.AsType[*credential.UnavailableError](err); !ok || e.Credential != "api" {
		t.Errorf("without the secret: %v", err)
	}
}

func TestNoNetworkIsOpenedWithoutAGrant(t *testing.T) {
	n := &testNetwork{}
	x := networked(t, n, 0)
	req := scriptRequest()
	req.Network = &policy.Config{Allow: []string{"none"}}
	events := follow(t, x, execute(t, x, req))
	if out := events[len(events)-1].Outcome; n.opened != 0 || events[0].Header.Network != nil || out.Usage.Network != nil {
		t.Errorf("opened %d, header %+v, outcome %+v", n.opened, events[0].Header, out)
	}
	bad := scriptRequest()
	bad.Network = &policy.Config{Allow: []string{"*", "a b"}}
	_, _, err := x.Execute(t.Context(), bad)
	if refused, ok := errors.AsType[*RequestError](err); !ok || refused.Field != "network_rules.allow" || strings.Contains(refused.Reason, "\n") || !strings.Contains(refused.Reason, "a b") {
		t.Errorf("rules that are none: got %v", err)
	}
	x.Networks = nil
	if _, _, err := x.Execute(t.Context(), scriptRequest()); err == nil || !strings.Contains(err.Error(), "the daemon has none") {
		t.Errorf("a grant without networks: got %v", err)
	}
}

// Refusals are numbered events, up to a bound; the outcome and the audit log have the
// sums.
func TestNetworkEvents(t *testing.T) {
	to := netip.MustParseAddrPort("169.254.169.254:80")
	n := &testNetwork{happens: func(s policy.DaemonSink) {
		for range MaxDeniedEvents + 50 {
			s.Denied(policy.Denial{Time: time.Now(), Protocol: "tcp", To: to, Rule: "link-local", Reason: "r", Missing: "169.254.169.254:80"})
		}
		for range MaxListedConnections + 1 {
			s.Closed(policy.Connection{Start: time.Unix(1, 0), Took: time.Second, Protocol: "tcp", To: to, Name: "a.example", Sent: 2, Received: 3, Error: strings.Repeat("x", 100)})
		}
		s.Dropped(policy.Dropped{Denials: 7, Connections: 8, Sent: 9, Received: 10})
	}}
	dir := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(audit.Config{Dir: dir, KeyFile: filepath.Join(t.TempDir(), "key"), FileBytes: 1 << 20, Files: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x := networked(t, n, 0, func(c *Config) { c.Audit = log })
	id := execute(t, x, scriptRequest())
	events := follow(t, x, id)
	denied := 0
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("event %d has the number %d", i, e.Seq)
		}
		if e.Denied == nil {
			continue
		}
		if denied++; e.Denied.To != to || e.Denied.Rule != "link-local" || e.Denied.Missing != "169.254.169.254:80" || events[1].Started == nil {
			t.Fatalf("event %d: %+v", i, e.Denied)
		}
	}
	out := events[len(events)-1].Outcome
	u := out.Usage.Network
	if denied != MaxDeniedEvents || out.Evidence.NetworkDenied != MaxDeniedEvents+57 || u == nil || u.Count != MaxListedConnections+9 ||
		u.Sent != 2*(MaxListedConnections+1)+9 || u.Received != 3*(MaxListedConnections+1)+10 || len(u.Connections) != MaxListedConnections || len(u.Denials) != maxListedDenials {
		t.Errorf("%d events, evidence %+v, usage %+v", denied, out.Evidence, u)
	}
	if want := `"169.254.169.254:80"`; !strings.Contains(out.Advice, want) || strings.Count(out.Advice, want) != 1 {
		t.Errorf("advice %q", out.Advice)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if e := auditedEnd(t, dir, id); e.Network == nil || e.Network.Denied != out.Evidence.NetworkDenied || e.Network.Sent != u.Sent || len(e.Network.Connections) != MaxListedConnections || e.Network.Connections[0].Name != "a.example" || len(e.Network.Connections[0].Error) != maxAuditedError {
		t.Errorf("audit log: %+v", e.Network)
	}
}

// If a helper has died, nobody knows the connections that it carried: the usage, the audit log and the learned rules say so.
func TestUsageAfterADeadHelper(t *testing.T) {
	n := &testNetwork{happens: func(s policy.DaemonSink) {
		s.Lost()
		s.Closed(policy.Connection{Protocol: "tcp", To: netip.MustParseAddrPort("20.1.0.1:443"), Name: "a.example", Sent: 2})
	}}
	dir := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(audit.Config{Dir: dir, KeyFile: filepath.Join(t.TempDir(), "key"), FileBytes: 1 << 20, Files: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x := networked(t, n, 0, func(c *Config) { c.Audit = log })
	req := scriptRequest()
	req.Network = &policy.Config{Learn: true}
	id := execute(t, x, req)
	events := follow(t, x, id)
	out := events[len(events)-1].Outcome
	if u := out.Usage.Network; !u.Incomplete || u.Count != 1 || !out.Learned.Incomplete {
		t.Errorf("usage %+v, learned %+v", u, out.Learned)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if e := auditedEnd(t, dir, id); !e.Network.Incomplete {
		t.Errorf("audit log: %+v", e.Network)
	}
}

// While an execution runs, the audit log gets the connections that have ended, soon and once. After the end it gets none.
func TestConnectionsOfARunningExecutionAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entries []*audit.Network
		s := &networkSink{audit: func(n *audit.Network) { entries = append(entries, n) }}
		closed := func(name string, times int) {
			for range times {
				s.Closed(policy.Connection{Start: time.Now(), Protocol: "tcp", Name: name, Sent: 2})
			}
		}
		want := func(when string, count int, listed ...string) {
			t.Helper()
			time.Sleep(auditPause)
			synctest.Wait()
			var got []string
			if len(entries) > 0 {
				for _, c := range entries[len(entries)-1].Connections {
					got = append(got, c.Name)
				}
			}
			if len(entries) != count || !slices.Equal(got, listed) {
				t.Errorf("%s: %d entries, the last with %q, want %d and %q", when, len(entries), got, count, listed)
			}
		}
		want("without a connection", 0)
		closed("a", 2)
		want("after two", 1, "a", "a")
		want("later", 1, "a", "a")
		closed("b", 1)
		want("after the third", 2, "b")
		if n := entries[1]; n.Count != 3 || n.Sent != 6 {
			t.Errorf("sums: %+v", n)
		}
		closed("c", MaxListedConnections)
		want("at the bound", 3, slices.Repeat([]string{"c"}, MaxListedConnections-3)...)
		closed("d", 1)
		want("beyond the bound", 3, slices.Repeat([]string{"c"}, MaxListedConnections-3)...)

		entries = nil
		s = &networkSink{audit: s.audit}
		closed("a", 1)
		var out Outcome
		s.into(&out)
		closed("late", 1)
		want("after the end", 0)
		if len(out.Usage.Network.Connections) != 1 {
			t.Errorf("usage: %+v", out.Usage.Network)
		}
	})
}

// The entry about connections of a running execution names the execution.
func TestAuditOfConnections(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(audit.Config{Dir: dir, KeyFile: filepath.Join(t.TempDir(), "key"), FileBytes: 1 << 20, Files: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n := &testNetwork{happens: func(to policy.DaemonSink) {
		to.Closed(policy.Connection{Start: time.Now(), Protocol: "tcp", Name: "a.example"})
		to.(*networkSink).writeConnections() // as its timer does
	}}
	x := networked(t, n, 0, func(c *Config) { c.Audit = log })
	id := execute(t, x, scriptRequest())
	follow(t, x, id)
	if err := log.Close(); err != nil { // ends the checkpoints, too
		t.Fatal(err)
	}
	for _, event := range []audit.Event{audit.Connections, audit.End} {
		e := audited(t, dir, event, id)
		if e.Tenant != who.Tenant || e.Network == nil || len(e.Network.Connections) != 1 || e.Network.Connections[0].Name != "a.example" {
			t.Errorf("%s: %+v", event, e)
		}
	}
}

// auditedEnd returns the entry about the end of an execution.
func auditedEnd(t *testing.T, dir, id string) audit.Entry {
	t.Helper()
	return audited(t, dir, audit.End, id)
}

// audited returns the entry of an event of an execution.
func audited(t *testing.T, dir string, event audit.Event, id string) (e audit.Entry) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if json.Unmarshal([]byte(line), &e) == nil && e.Event == event && e.Execution == id {
				return e
			}
		}
	}
	t.Fatal("no entry about the end")
	return e
}

func TestNetworkAdvice(t *testing.T) {
	denials := func(missing ...string) func(policy.DaemonSink) {
		return func(s policy.DaemonSink) {
			for _, rule := range missing {
				s.Denied(policy.Denial{Protocol: "dns", Missing: rule})
			}
		}
	}
	for _, tt := range []struct {
		happens func(policy.DaemonSink)
		request *policy.Config
		code    int
		want    string
	}{
		{nil, nil, 0, ""},
		{nil, nil, 1, ""},
		{denials("a.example"), nil, 0, `refused something once. If it is wanted, add "a.example" to network.skills.demo.allow in the daemon's configuration, and in the tenant's policy if that has rules for the network.`},
		{denials("a.example"), &policy.Config{Deny: []string{"b.example"}}, 0, `add "a.example" to network.skills.demo.allow in the daemon's configuration, and in the tenant's policy if that has rules for the network.`},
		{denials("a.example"), &policy.Config{Allow: []string{"b.example"}}, 0, `add "a.example" to the allow rules of the request (--network). It must also be in network.skills.demo.allow in the daemon's configuration, and`},
		{denials("a.example", "b.example", "a.example"), nil, 1, `add "a.example", "b.example" to`},
		{denials("1", "2", "3", "4", "5"), nil, 1, `add "1", "2", "3" and more (see the denied events) to`},
		{denials(""), nil, 1, "once; the denied events say what."},
		{func(s policy.DaemonSink) {
			s.Denied(policy.Denial{Reason: "the proxy refused"})
			s.Denied(policy.Denial{Reason: "other"})
		}, nil, 1, "2 times. The first reason: the proxy refused."},
	} {
		x := networked(t, &testNetwork{happens: tt.happens}, tt.code)
		req := scriptRequest()
		req.Network = tt.request
		events := follow(t, x, execute(t, x, req))
		if got := events[len(events)-1].Outcome.Advice; !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// An execution whose network can't be opened does not run without it.
func TestNetworkThatCannotBeOpened(t *testing.T) {
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		return nil, &sandbox.SetupError{Step: stepNetwork, Err: errors.New("secret")}
	})
	events := follow(t, x, execute(t, x, scriptRequest()))
	if out := events[len(events)-1].Outcome; out.End != SetupFailed || !strings.Contains(out.Advice, "its network could not be opened") || strings.Contains(out.Advice, "secret") {
		t.Errorf("got %+v", out)
	}
}

// Events that come after the end, from a slow carrier, change nothing.
func TestNetworkEventsAfterTheEnd(t *testing.T) {
	n := &testNetwork{}
	x := networked(t, n, 0)
	id := execute(t, x, scriptRequest())
	before := len(follow(t, x, id))
	for range 2 {
		n.to.Denied(policy.Denial{Protocol: "tcp"})
		n.to.Closed(policy.Connection{})
	}
	if after := len(follow(t, x, id)); after != before {
		t.Errorf("%d events, then %d", before, after)
	}
}
