package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
)

// HTTP sessions in a takeover. The client of a session goes on with its id, in the next daemon. The SDK cannot make a
// session with a given id. So at the first request with the id of a handed session, this package initializes a new
// session as the client had done, and gives the SDK the id of that one instead, in this request and in later ones.

// A HandedSession is an HTTP session that another server can go on with.
type HandedSession struct {
	ID         string // as its client names it
	Who        permission.Principal
	Initialize json.RawMessage // the parameters of the client's initialize
	Name       string          // of its conversation, see toolview.NamedConversation
	Used       time.Time
}

// maxHandedBytes bounds the parameters of a handed session. Real clients send a few hundred bytes.
const maxHandedBytes = 8 << 10

// inherited has the sessions of an earlier server.
type inherited struct {
	mu   sync.Mutex
	byID map[string]*handed
}

type handed struct {
	HandedSession
	reopen sync.Once
	own    string // the id of the new session; empty: not reopened, or that failed; set once under reopen and mu
}

// HandOver returns the sessions for the next server. Their conversations do not end with this server. It must come after
// Hold. A client that opens a session now is sent to the next server.
func (s *Server) HandOver() (all []HandedSession) {
	s.handedOver.Store(true)
	names := map[string]string{} // the id that a client uses, by the id of the session
	s.inherited.mu.Lock()
	for id, h := range s.inherited.byID {
		if h.own != "" {
			names[h.own] = id
		} else if time.Since(h.Used) < s.sessions.idle {
			all = append(all, h.HandedSession)
		}
	}
	s.inherited.mu.Unlock()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for id, n := range s.sessions.byID {
		params, err := json.Marshal(n.sdk.InitializeParams())
		if err != nil || len(params) > maxHandedBytes || n.here.Err() != nil {
			continue
		}
		if known, ok := names[id]; ok {
			id = known
		}
		all = append(all, HandedSession{ID: id, Who: n.who, Initialize: params, Name: n.name, Used: n.used})
	}
	return all
}

// Inherit takes the sessions of an earlier server. Call it before Serve.
func (s *Server) Inherit(all []HandedSession) {
	s.inherited.byID = map[string]*handed{}
	for _, h := range all {
		s.inherited.byID[h.ID] = &handed{HandedSession: h}
	}
}

// ownID returns the id of the session with which a client goes on, after it has reopened the session if necessary. It
// returns id if no earlier server had such a session of the caller.
func (s *Server) ownID(c *caller, id string) string {
	s.inherited.mu.Lock()
	h := s.inherited.byID[id]
	s.inherited.mu.Unlock()
	if h == nil || h.Who != c.Principal {
		return id
	}
	h.reopen.Do(func() {
		if time.Since(h.Used) >= s.sessions.idle {
			return
		}
		own := s.reopen(c, h.HandedSession)
		s.inherited.mu.Lock()
		defer s.inherited.mu.Unlock()
		h.own = own
	})
	if h.own == "" {
		return id
	}
	return h.own
}

// reopen initializes a session for the client of an earlier one, and returns its id. It returns "" if the session is
// refused, for example by a quota; then the client gets 404 and initializes a session itself.
func (s *Server) reopen(c *caller, h HandedSession) (id string) {
	// Not until the caller goes: its next request needs the session, too.
	as := &caller{Identity: c.Identity, address: c.address, here: context.WithoutCancel(c.here), name: h.Name}
	post := func(message string) http.Header {
		r, err := http.NewRequestWithContext(as.here, http.MethodPost, Path, strings.NewReader(message))
		if err != nil {
			panic(err) // cannot happen: the method and the path are constant
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if id != "" {
			r.Header.Set(sessionHeader, id)
		}
		w := discarded{}
		bear(as, s.stateful, w, r)
		return http.Header(w)
	}
	id = post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + string(h.Initialize) + `}`).Get(sessionHeader)
	if id != "" {
		post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return id
}

// discarded is an http.ResponseWriter that keeps the header only.
type discarded http.Header

func (d discarded) Header() http.Header         { return http.Header(d) }
func (d discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d discarded) WriteHeader(int)             {}
func (d discarded) Flush()                      {}
