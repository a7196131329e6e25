package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/toolview"
)

// sessions holds the open HTTP sessions with their principals. For other principals a
// session does not exist.
type sessions struct {
	background *sync.WaitGroup
	broken     context.Context // done when every session must end at once
	idle       time.Duration
	ended      func(*session) // is called once for each session, after its end

	mu   sync.Mutex
	byID map[string]*session
}

// A session is one HTTP session of an agent. sessions.mu guards the fields after the blank
// line.
type session struct {
	who    permission.Principal
	sdk    *sdk.ServerSession
	here   context.Context // done when the session must end at once
	cancel context.CancelCauseFunc
	// conversation has the session of files, and this name.
	conversation *toolview.Conversation
	name         string

	requests int       // requests under way
	used     time.Time // end of the last request
	timer    *time.Timer
}

// errIdle ends a session that was not used for maxSessionIdle.
var errIdle = errors.New("the session was idle for too long")

// newSessions: background gets a goroutine for each session; broken ends all of them.
func newSessions(broken context.Context, background *sync.WaitGroup) *sessions {
	return &sessions{background: background, broken: broken, idle: maxSessionIdle, ended: func(*session) {}, byID: map[string]*session{}}
}

// add registers a new session. It returns an error if the limits leave no room for it. name is the name of its
// conversation.
func (t *sessions) add(ss *sdk.ServerSession, who permission.Principal, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[ss.ID()] != nil {
		return nil // initialized twice, which the SDK refuses
	}
	if err := t.makeRoom(who); err != nil {
		return err
	}
	n := &session{who: who, sdk: ss, requests: 1, used: time.Now(), conversation: toolview.NamedConversation(name), name: name}
	n.here, n.cancel = context.WithCancelCause(t.broken)
	n.timer = time.AfterFunc(t.idle, func() { t.expire(n) })
	t.byID[ss.ID()] = n
	t.background.Go(func() {
		ss.Wait()
		t.mu.Lock()
		n.timer.Stop()
		n.cancel(errGone)
		delete(t.byID, ss.ID())
		t.mu.Unlock()
		t.ended(n)
	})
	// The request that opens the session does not count as one of its requests: it has no
	// session id.
	t.release(n)
	return nil
}

// makeRoom ends an idle session if there are too many. That is better than refusing the new
// one: most clients never end their sessions, and a client whose session is gone gets 404,
// after which the protocol has it open a new one.
func (t *sessions) makeRoom(who permission.Principal) error {
	c := sessionCounts{principals: map[permission.Principal]int{}, tenants: map[string]int{}}
	for _, n := range t.byID {
		c.principals[n.who]++
		c.tenants[n.who.Tenant]++
	}
	ownFull, tenantFull := c.principals[who] >= maxPrincipalSessions, c.tenants[who.Tenant] >= maxTenantSessions
	if !ownFull && !tenantFull && len(t.byID) < maxSessions {
		return nil
	}
	out := t.victim(who, c, ownFull, tenantFull)
	if out == nil {
		return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf(
			"too many sessions: %d of %d of your tenant, %d of %d are yours; end one (DELETE) or try again later",
			c.tenants[who.Tenant], maxTenantSessions, c.principals[who], maxPrincipalSessions)}
	}
	// At once, so that the new session fits. The goroutine of add deletes it again, which does
	// nothing.
	delete(t.byID, out.sdk.ID())
	t.end(out, errors.New("a newer session took its place"))
	return nil
}

// sessionCounts has the numbers of open sessions, by tenant and by principal.
type sessionCounts struct {
	principals map[permission.Principal]int
	tenants    map[string]int
}

// goesBefore reports whether a should be ended rather than b: one of the tenant with the most sessions, among these of
// the principal with the most, and among these the one that has been idle for longest.
func (c sessionCounts) goesBefore(a, b *session) bool {
	if n, m := c.tenants[a.who.Tenant], c.tenants[b.who.Tenant]; n != m {
		return n > m
	}
	if n, m := c.principals[a.who], c.principals[b.who]; n != m {
		return n > m
	}
	return a.used.Before(b.used)
}

// victim returns the idle session that a new session of the principal who replaces, or nil if it may replace none:
//   - with own (who has as many sessions as a principal may have), only a session of who;
//   - with tenant (the tenant has as many sessions as a tenant may have), only a session of the tenant;
//   - a session of another tenant, if that tenant has more sessions than the tenant of who;
//   - a session of another principal of the tenant, if that principal has more sessions than who.
func (t *sessions) victim(who permission.Principal, c sessionCounts, own, tenant bool) (best *session) {
	for _, n := range t.byID {
		sameTenant := n.who.Tenant == who.Tenant
		switch {
		// A session with a request under way is never taken, and one that ends is no gain.
		case n.requests > 0 || n.here.Err() != nil:
		case n.who != who && own || !sameTenant && tenant:
		case !sameTenant && c.tenants[n.who.Tenant] <= c.tenants[who.Tenant]:
		case sameTenant && n.who != who && c.principals[n.who] <= c.principals[who]:
		case best == nil || c.goesBefore(n, best):
			best = n
		}
	}
	return best
}

// enter begins a request of a session. It returns false for an unknown session or another principal.
func (t *sessions) enter(id string, who permission.Principal) (*session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n == nil || n.who != who || n.here.Err() != nil {
		return nil, false
	}
	n.requests++
	n.timer.Stop()
	return n, true
}

// leave ends a request of a session.
func (t *sessions) leave(n *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(n)
}

// release ends a request and starts the idle timer after the last one. t.mu is held.
func (t *sessions) release(n *session) {
	n.requests--
	n.used = time.Now()
	if n.requests == 0 && n.here.Err() == nil {
		n.timer.Reset(t.idle)
	}
}

// expire ends a session whose idle timer has fired, unless a request began in the meantime.
func (t *sessions) expire(n *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.requests == 0 {
		t.end(n, errIdle)
	}
}

// end cancels a session's calls and closes the session in the background. Closing waits for the
// calls. t.mu is held.
func (t *sessions) end(n *session, why error) {
	n.timer.Stop()
	n.cancel(why)
	t.background.Go(func() { n.sdk.Close() })
}

// count returns the number of open sessions, idle ones too.
func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}
