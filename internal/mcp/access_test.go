package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// everyMethod has the methods that the SDK passes on to this package, and the published index.
var everyMethod = []string{
	"completion/complete", "initialize", "logging/setLevel", "notifications/cancelled", "notifications/initialized",
	"notifications/progress", "notifications/roots/list_changed", "ping", "prompts/get", "prompts/list", "resources/list",
	"resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "server/discover",
	"subscriptions/listen", "tools/call", "tools/list", methodList, methodGet, methodDirectory, methodPublished,
}

// Every method is open to the role that the table names and closed to the role below; a method
// without a row is closed.
func TestAccessTable(t *testing.T) {
	for _, method := range everyMethod {
		if accessTable[method] == identity.None {
			t.Errorf("%s is closed", method)
		}
	}
	if len(everyMethod) != len(accessTable) {
		t.Errorf("the table has %d methods, want %d", len(accessTable), len(everyMethod))
	}
	for role := identity.None; role <= identity.Operator; role++ {
		c := &caller{Identity: identity.Identity{Principal: alice, Role: role}}
		for method, need := range accessTable {
			if _, err := c.mayCall(method, need); (err == nil) != (role >= need) {
				t.Errorf("%s by %s: %v", method, role, err)
			}
		}
		if _, err := c.mayCall("tools/new", accessTable["tools/new"]); err == nil || !strings.Contains(err.Error(), `"tools/new": no role may call this method`) {
			t.Errorf("a method without a row: %v", err)
		}
	}
}

// The server of a removed tenant goes; the one of a configured tenant stays. None is kept for an unknown tenant.
func TestDropTenants(t *testing.T) {
	tenants := tenant.New(&tenant.Tenant{Name: "acme"}, &tenant.Tenant{Name: "globex"})
	s := &Server{
		x: &executor.Executor{Config: executor.Config{Tenants: tenants}}, skills: &skill.Registry{},
		audiences: map[string]*audience{}, options: &sdk.ServerOptions{},
	}
	for _, name := range []string{"acme", "globex"} {
		s.audiences[name] = &audience{sdk: sdk.NewServer(&sdk.Implementation{Name: "x"}, nil)}
	}
	tenants.Replace(&tenant.Tenant{Name: "globex"})
	s.DropTenants()
	s.background.Wait()
	if s.strangers = new(audience); s.audienceOf("acme") != s.strangers {
		t.Error("a tenant that is not configured has a server")
	}
	if len(s.audiences) != 1 || s.audiences["globex"] == nil || !s.knows("globex") || s.knows("acme") {
		t.Errorf("got %v", s.audiences)
	}
}

// Without configured tenants, the names in tokens make a bounded number of servers. One with a session stays.
func TestServersAreBounded(t *testing.T) {
	d := startIdle(t, nil)
	r := d.open(t, d.mine)
	for i := range 3 * maxAudiences {
		d.audienceOf(fmt.Sprint("tenant-", i))
	}
	if n := len(d.allAudiences()); n != maxAudiences || d.audiences[alice.Tenant] == nil || r.ping() != 200 {
		t.Errorf("%d servers, want %d with the one of the session", n, maxAudiences)
	}
}

// A reader sees skills and tools, and runs nothing, over both transports.
func TestReaders(t *testing.T) {
	d := startIdle(t, func(c *Config) {
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			return identity.Identity{Principal: alice, Role: identity.Read}, nil
		}
	})
	for _, transport := range []string{"lines", "http"} {
		for _, version := range []string{"", "2025-11-25"} {
			t.Run(fmt.Sprint(transport, version), func(t *testing.T) {
				c := d.connect(t, transport, version)
				if _, err := c.ListTools(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if _, err := c.ListResources(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_skills", Arguments: json.RawMessage("{}")}); err != nil || r.IsError {
					t.Errorf("a tool that runs nothing: %v, %v", r, err)
				}
				_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: json.RawMessage(`{"skill": "demo", "command": "true"}`)})
				var denied *jsonrpc.Error
				if !errors.As(err, &denied) || denied.Code != codeDenied || !strings.Contains(denied.Message, "tools/call needs the role invoke; alice of tenant default has read") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// A connection without HTTP lasts for hours. Each message on it needs a credential that is valid
// then, of the same principal.
func TestLinesIdentifyEachMessage(t *testing.T) {
	var state atomic.Value
	state.Store("valid")
	d := startIdle(t, func(c *Config) {
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			switch state.Load() {
			case "revoked":
				return identity.Identity{}, errors.New("the token is unknown, or it was revoked")
			case "another's":
				return identity.Identity{Principal: principal("other", "alice"), Role: identity.Operator}, nil
			}
			return identity.Identity{Principal: alice, Role: identity.Operator}, nil
		}
	})
	c := d.connect(t, "lines", "")
	for _, want := range []struct{ state, text string }{
		{"valid", ""}, {"revoked", "not identified: the token is unknown, or it was revoked"}, {"another's", "another principal's now"}, {"valid", ""},
	} {
		state.Store(want.state)
		_, err := c.ListTools(t.Context(), nil)
		if (err == nil) != (want.text == "") || err != nil && !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: got %v", want.state, err)
		}
	}
}

// Each message with an answer counts towards the quota of calls of its tenant. Operators are not counted, and
// notifications are counted elsewhere: no client could repeat one that is refused.
func TestCallsCountTowardsTheQuota(t *testing.T) {
	x := executortest.New(t, executortest.Config{Dir: t.TempDir(), Edit: func(c *executor.Config) {
		c.Tenants = tenant.New(&tenant.Tenant{Name: alice.Tenant, Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}})
	}}).Executor
	s := &Server{x: x}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // a caller who is gone does not wait for the refusal
	c := &caller{Identity: identity.Identity{Principal: alice, Role: identity.Admin}, here: gone}
	if _, err := s.mayCall(c, "ping", identity.Read); err != nil {
		t.Fatalf("the first message: %v", err)
	}
	for method, need := range accessTable {
		reason, err := s.mayCall(c, method, need)
		if strings.HasPrefix(method, "notifications/") {
			if err != nil {
				t.Errorf("%s: %v", method, err)
			}
			continue
		}
		refused, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || reason != saturated || refused.Code != codeBusy || !strings.Contains(refused.Message, "1 of 1 calls at once") {
			t.Errorf("%s: got %q, %v", method, reason, err)
		}
	}
	c.Role = identity.Operator
	if _, err := s.mayCall(c, "ping", identity.Read); err != nil {
		t.Errorf("an operator: %v", err)
	}
}

// refusals counts the calls beyond a quota.
type refusals struct{ atomic.Int64 }

func (*refusals) Ended(string, time.Duration, executor.Outcome, string) {}
func (*refusals) Refused(string, error)                                 {}
func (r *refusals) CallRefused(string)                                  { r.Add(1) }

// Messages that are no calls wait in the quota of calls, too, because they cost the daemon as much. They are not refused
// for it.
func TestOtherMessagesCountTowardsTheQuota(t *testing.T) {
	n := &refusals{}
	x := executortest.New(t, executortest.Config{Dir: t.TempDir(), Edit: func(c *executor.Config) {
		c.Tenants, c.Observer = tenant.New(&tenant.Tenant{Name: alice.Tenant, Quota: admission.Quota{Running: 1}}), n
	}}).Executor
	d := startIdle(t, func(c *Config) {
		c.Executor = x
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			return identity.Identity{Principal: alice, Role: identity.Read}, nil
		}
	})
	r, p := d.open(t, d.mine), d.pipe(t)
	x.SetTenants(&tenant.Tenant{Name: alice.Tenant, Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}})
	const note = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`
	send := func(lines ...string) {
		for _, line := range append(lines, "no JSON") {
			p.send(line)
		}
		p.want(nil, "not valid JSON")
	}
	send() // the first message is within the quota
	for _, lines := range [][]string{{}, {note}, {" "}, {`{"jsonrpc":"2.0","id":1,"result":{}}`}} {
		before := n.Load()
		if send(lines...); n.Load() != before+int64(len(lines))+1 {
			t.Errorf("%q: %d messages were counted", lines, n.Load()-before)
		}
	}
	before := n.Load()
	p.send(`{"jsonrpc":"2.0","id":"u","method":"nope"}`)
	if p.want("u", "method not found"); n.Load() != before+1 {
		t.Error("an unknown method was not counted")
	}
	for body, status := range map[string]int{"no JSON": 400, note: 202, `{"jsonrpc":"2.0","id":"u","method":"nope"}`: 200} {
		before := n.Load()
		resp := r.request("POST", body)
		resp.Body.Close()
		if resp.StatusCode != status || n.Load() != before+1 {
			t.Errorf("%s: got %d, %d messages were counted", body, resp.StatusCode, n.Load()-before)
		}
	}
	const call = `{"jsonrpc":"2.0","id":"c","method":"tools/call"}`
	const run = `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"run_skill_script"}}`
	for what, request := range map[string]func() *http.Response{
		"media type that the SDK refuses": func() *http.Response { return r.request("POST", call, "Accept", "application/json") },
		"call without parameters":         func() *http.Response { return r.request("POST", call) },
		"call that the role refuses":      func() *http.Response { return r.request("POST", run) },
		"GET without a session":           func() *http.Response { return (&raw{t: t, http: r.http}).request("GET", "") },
	} {
		before := n.Load()
		resp := request()
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		for end := time.Now().Add(30 * time.Second); n.Load() == before && time.Now().Before(end); { // it may be counted after the answer
			time.Sleep(time.Millisecond)
		}
		if n.Load() != before+1 {
			t.Errorf("%s: %d messages were counted", what, n.Load()-before)
		}
	}
	before = n.Load()
	p.send(run)
	if p.want("c", "needs the role"); n.Load() != before+1 {
		t.Error("a call that the role refuses was not counted without HTTP")
	}
}
