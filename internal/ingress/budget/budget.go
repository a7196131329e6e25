// Package budget bounds the bytes of requests that the daemon holds in memory, of all protocols
// together, and of gRPC's answers that wait for a slow client. A server of gRPC wraps each
// connection with [Budget.Meter]; other servers call [Budget.Hold] for each message.
//
// gRPC has no hook between a message's size and its bytes, so the wrapped connection reads the
// frames before gRPC does (conn.go). It counts each message for the [Intake] of its call, which
// the handler finds with [Of] (intake.go). The handler counts a large answer with [Intake.Answer]
// (outbound.go).
package budget

import (
	"fmt"
	"sync"
	"time"
)

// Bounds on the memory of all requests together. A budget of B bytes (request_bytes) has three
// limits on the sum of all requests. For each message the largest limit that applies decides:
//
//	B    any message
//	1.5B a small message
//	2B   a message whose peer then holds at most B/share
//	2.5B a message whose tenant then holds at most B/share
//
// A peer is a user or an address. One tenant can have many peers and could fill the budget up to 2B. The last line keeps
// room for the other tenants.
const (
	// SmallMessage, in bytes, is the largest small message. A gRPC server must have stream
	// windows of this size. A window then holds a whole small message, so the number of streams also
	// bounds the memory of small messages.
	SmallMessage = 64 << 10
	// TinyMessage, in bytes, is the largest message that is never refused. Queries, cancels and health
	// checks are that small.
	TinyMessage = 4 << 10
	// stalledAfter is the time after which an incomplete message has stalled, if it keeps other messages
	// out. An answer has stalled if no part of it was written for this time.
	stalledAfter = 20 * time.Second
	// RetryAfter is the time after which a refused caller should try again.
	RetryAfter = time.Second
	// share divides the budget: each peer and each tenant may hold one part, even if others have taken the
	// whole budget.
	share = 8
)

// A Budget bounds the bytes of requests in memory: requests that are being received, that
// wait, and that a running execution holds. A message counts from the five bytes that announce
// its size, before gRPC makes room for it, until its last holder releases it. Small messages
// may use one and a half times the budget, so that large messages don't keep them out. Peers with
// little memory may use twice the budget, and tenants with little memory a half more, so that others don't keep them
// out.
type Budget struct {
	// B, and the largest message, in bytes. Never changed.
	limit, maxMessage int64

	mu sync.Mutex // guards the fields below
	// The sum of peers. Tiny messages are counted but never refused, so used may pass 2.5B.
	used      int64
	peers     map[string]int64                 // bytes that each peer uses; no zeros
	tenants   map[string]int64                 // bytes of each tenant's identified callers; no zeros
	receiving map[*Intake]time.Time            // calls with an incomplete message of more than one frame, and since when
	outbound  map[*Conn]map[*Outbound]struct{} // answers that are being sent; no empty maps
}

// A FullError refuses a message because the budget has no room for it now.
type FullError struct{ Limit int64 } // bytes

func (e *FullError) Error() string {
	return fmt.Sprintf("request memory is full (%d bytes); retry shortly", e.Limit)
}

// A SizeError refuses a message that is larger than the maximum. Its text is gRPC's text, because
// clients look for it.
type SizeError struct{ Size, Limit int64 } // bytes

func (e *SizeError) Error() string {
	return fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", e.Size, e.Limit)
}

// New returns a budget of limit bytes for messages of at most maxMessage bytes. limit must not
// be less than maxMessage, or no message of that size would ever have room.
func New(limit, maxMessage int64) (*Budget, error) {
	if limit < maxMessage {
		return nil, fmt.Errorf("a budget of %d bytes has no room for one message of %d", limit, maxMessage)
	}
	return &Budget{limit: limit, maxMessage: maxMessage, peers: map[string]int64{}, tenants: map[string]int64{}, receiving: map[*Intake]time.Time{}, outbound: map[*Conn]map[*Outbound]struct{}{}}, nil
}

// A caller is a peer that calls for a tenant. The tenant is empty until the caller is identified.
type caller struct{ peer, tenant string }

// take takes n bytes for a message of a caller, or returns false. Every take must be followed by
// an add of -n: free, Hold and Outbound do it. A refusal first looks for messages that have stalled, so
// that a retry may succeed.
func (b *Budget) take(who caller, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The limits rise from rule to rule, so the last rule that applies gives the largest.
	limit := b.limit
	if n <= SmallMessage {
		limit += limit / 2
	}
	if b.peers[who.peer]+n <= b.limit/share {
		limit = 2 * b.limit
	}
	if who.tenant != "" && b.tenants[who.tenant]+n <= b.limit/share {
		limit = 2*b.limit + b.limit/2
	}
	if b.used+n > limit && n > TinyMessage {
		b.breakStalled()
		return false
	}
	b.add(who, n)
	return true
}

// add changes by n the bytes that a caller uses. The caller of add holds b.mu.
func (b *Budget) add(who caller, n int64) {
	b.used += n
	if b.peers[who.peer] += n; b.peers[who.peer] == 0 {
		delete(b.peers, who.peer)
	}
	b.addTo(who.tenant, n)
}

// addTo adds n to the bytes of a tenant. Without a tenant, "", it does nothing. b.mu is held.
func (b *Budget) addTo(tenant string, n int64) {
	if tenant == "" {
		return
	}
	if b.tenants[tenant] += n; b.tenants[tenant] == 0 {
		delete(b.tenants, tenant)
	}
}

// Hold counts n bytes of a request that an identified caller sent by another protocol than gRPC, until
// release is called. It returns false if the budget has no room for them now.
func (b *Budget) Hold(peer, tenant string, n int64) (release func(), ok bool) {
	who := caller{peer, tenant}
	if !b.take(who, n) {
		return nil, false
	}
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.add(who, -n)
	}), true
}

// Used returns the bytes that all messages use now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// breakStalled closes the connections of messages and answers that have stalled for stalledAfter. The
// bytes of messages become free when their calls have ended. The caller of breakStalled holds b.mu.
func (b *Budget) breakStalled() {
	for in, since := range b.receiving {
		if time.Since(since) >= stalledAfter {
			delete(b.receiving, in)
			// In its own goroutine, because closing a connection may block, and b.mu is held.
			go in.abandon()
		}
	}
	for conn, answers := range b.outbound {
		if !conn.abandoned && anyStalled(answers) {
			conn.abandoned = true
			go conn.Conn.Close() // then gRPC closes conn
		}
	}
}
