package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/toolview"
)

// withFiles gives conversations sessions of files.
func withFiles(c *Config) {
	c.Tools = toolview.New(toolview.Config{Executor: c.Executor, Skills: c.Skills, SessionIdle: time.Hour, Log: c.Log})
}

// A client of an HTTP session goes on with its id at the next server, and at the one after that. Nobody else does.
func TestHandedSessions(t *testing.T) {
	first := startIdle(t, nil)
	r := first.open(t, first.mine)
	idle := first.open(t, first.mine)
	next := startIdle(t, nil)
	next.Inherit(first.HandOver())
	other := &raw{t: t, http: httpClient(t, next.socket(principal("default", "bob"))), session: r.session, version: r.version}
	if got := other.ping(); got != http.StatusNotFound {
		t.Errorf("another caller: got %d, want 404", got)
	}
	r.http = httpClient(t, next.mine)
	for range 2 {
		if got := r.ping(); got != http.StatusOK {
			t.Errorf("the next server: got %d", got)
		}
	}
	if got := next.sessions.count(); got != 1 {
		t.Errorf("%d sessions, want 1: the other client has not come yet", got)
	}
	// Methods of extensions work, too.
	resp := r.request("POST", `{"jsonrpc":"2.0","id":3,"method":"skills/list"}`)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("skills/list: got %d", resp.StatusCode)
	}
	last := startIdle(t, nil)
	all := next.HandOver()
	if len(all) != 2 {
		t.Errorf("%d sessions are handed over, want 2", len(all))
	}
	last.Inherit(all)
	for _, r := range []*raw{r, idle} {
		r.http = httpClient(t, last.mine)
		if got := r.ping(); got != http.StatusOK {
			t.Errorf("the last server: got %d", got)
		}
	}
	// The client ends its session.
	gone := r.request("DELETE", "")
	gone.Body.Close()
	if got := r.ping(); got != http.StatusNotFound {
		t.Errorf("after its end: got %d", got)
	}
	// One that was idle for too long, and one with large parameters, are not kept.
	for i := range all {
		all[i].Used = all[i].Used.Add(-2 * maxSessionIdle)
	}
	late := startIdle(t, nil)
	late.Inherit(all)
	idle.http = httpClient(t, late.mine)
	if got := idle.ping(); got != http.StatusNotFound {
		t.Errorf("after an hour: got %d", got)
	}
	large := &raw{t: t, http: httpClient(t, late.mine)}
	resp = large.request("POST", strings.Replace(initialize, `"name":"`, `"name":"`+strings.Repeat("x", maxHandedBytes), 1))
	resp.Body.Close()
	if got := late.HandOver(); len(got) != 0 {
		t.Errorf("%d sessions are handed over, want none", len(got))
	}
}

// After Hold, a request on an open connection is sent to the process that accepts connections next, with its method and
// body. A call that is under way is answered.
func TestHoldRedirects(t *testing.T) {
	started, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	d := startIdle(t, func(c *Config) {
		c.Tools = fakeTools(func(context.Context, toolview.ToolCall) (toolview.Result, error) {
			close(started)
			<-released
			return toolview.Result{Content: "done"}, nil
		})
	})
	r := d.open(t, d.mine) // its connection is idle now
	r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	call := d.connect(t, "http", "")
	answered := make(chan string)
	go func() { answered <- call.call("fake", map[string]any{}).text }()
	<-started
	if err := d.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The body is read, also if it is larger than what net/http reads by itself.
	resp := r.request("POST", strings.Repeat(" ", 1<<20))
	resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Location") != Path || !resp.Close {
		t.Errorf("got %d, Location %q, close %v; want 307, %s, true", resp.StatusCode, resp.Header.Get("Location"), resp.Close, Path)
	}
	release()
	if got := <-answered; got != "done" {
		t.Errorf("got %q", got)
	}
}

// A call that the daemon has handed over, without a byte of an answer, is redirected as if it came late. With a part
// of the answer the client gets the reason.
func TestHandedOverCallIsRedirected(t *testing.T) {
	for _, c := range []struct {
		name, meta string
		err        error
		status     int
	}{
		{"a call that waited for its session", "", executor.ErrHandedOver, http.StatusTemporaryRedirect},
		{"a call that was refused a moment before", "", executor.ErrDraining, http.StatusTemporaryRedirect},
		{"with a part of the answer", `"_meta":{"progressToken":1},`, executor.ErrHandedOver, http.StatusOK},
		{"another error", "", executor.ErrNoRegistry, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			started, handed := make(chan struct{}), make(chan struct{})
			d := startIdle(t, func(config *Config) {
				config.Tools = fakeTools(func(_ context.Context, call toolview.ToolCall) (toolview.Result, error) {
					if call.Sink != nil {
						call.Sink(executor.Output{Data: []byte("a part")})
					}
					close(started)
					<-handed
					return toolview.Result{}, fmt.Errorf("x: %w", c.err)
				})
			})
			r := d.open(t, d.mine)
			r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			go func() {
				<-started
				if err := d.Hold(t.Context()); err != nil {
					t.Error(err)
				}
				close(handed)
			}()
			resp := r.request("POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+c.meta+`"name":"fake","arguments":{}}}`)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status {
				t.Fatalf("got %d, %q, %v, want %d", resp.StatusCode, body, err, c.status)
			}
			redirected := resp.Header.Get("Location") == Path && resp.Close && len(body) == 0 && resp.Header.Get("Content-Type") == ""
			if answered := strings.Contains(string(body), c.err.Error()); redirected == answered || redirected != (c.status == http.StatusTemporaryRedirect) {
				t.Errorf("got %v, %q", resp.Header, body)
			}
		})
	}
}

// A client that goes while its session is reopened finds the session at its next request.
func TestCallerGoesDuringReopening(t *testing.T) {
	first := startIdle(t, nil)
	r := first.open(t, first.mine)
	all := first.HandOver()
	next := startIdle(t, nil)
	next.Inherit(all)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	next.ownID(&caller{Identity: identity.Identity{Principal: all[0].Who, Role: identity.Invoke}, here: gone}, r.session)
	r.http = httpClient(t, next.mine)
	if got := r.ping(); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	list := r.request("POST", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	defer list.Body.Close()
	if body, err := io.ReadAll(list.Body); err != nil || !strings.Contains(string(body), "run_skill_script") {
		t.Errorf("got %s, %v", body, err)
	}
}

// A session that is opened after the list of sessions was made is opened at the next server instead.
func TestSessionOpenedDuringHandOver(t *testing.T) {
	var d *daemon
	d = startIdle(t, func(c *Config) {
		// The server calls it for a message that has come before the server's own Hold.
		c.Hold = func(*ingress.Conn, int64) (func(), bool) {
			if err := d.Server.Hold(t.Context()); err != nil {
				t.Error(err)
			}
			if got := d.HandOver(); len(got) != 0 {
				t.Errorf("%d sessions are handed over", len(got))
			}
			return func() {}, true
		}
	})
	r := &raw{t: t, http: httpClient(t, d.mine)}
	r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp := r.request("POST", initialize)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get(sessionHeader) != "" {
		t.Errorf("got %d, %v", resp.StatusCode, resp.Header)
	}
}
