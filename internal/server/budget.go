package server

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Bounds on what requests hold in memory together. A budget of B bytes (Config.RequestBytes)
// has three limits on the sum of all requests; a message counts by the most generous one that
// applies:
//
//	B    any message
//	1.5B a small message
//	2B   a message whose caller then holds at most B/callerShare
const (
	// smallMessage is a message that a stream's window holds whole: what small ones
	// can hold is bounded by the number of streams too.
	smallMessage = streamWindow
	// tinyMessage is never refused: that is what asks, cancels and looks after health.
	tinyMessage = 4 << 10
	// stalledAfter is how long a message may take that is in the way of others.
	stalledAfter = 20 * time.Second
	// retryBudget is the wait that a refused caller is told.
	retryBudget = time.Second
	// callerShare is the part of the budget that each caller may hold though others have
	// taken all of it.
	callerShare = 8
)

// A budget bounds the bytes of requests in memory: requests that are being received, that
// wait, and that a running execution holds. A message counts from the five bytes that announce
// its size, before gRPC makes room for it, until its last holder releases it. Small messages
// may use half as much again, so that large messages don't keep them out. Callers who hold
// little may use twice as much, so that other callers don't keep them out.
type budget struct {
	// B, and the largest message, in bytes. Never changed.
	limit, maxMessage int64

	mu sync.Mutex // guards the fields below
	// The sum of callers. Tiny messages are counted but never refused, so used may pass 2B.
	used      int64
	callers   map[string]int64      // what each of them uses; no zeros
	receiving map[*intake]time.Time // incomplete ones of more than one frame, and since when
}

// A budgetError refuses a message because the budget has no room for it now.
type budgetError struct{ limit int64 }

func (e *budgetError) Error() string {
	return fmt.Sprintf("request memory is full (%d bytes); retry shortly", e.limit)
}

// A sizeError is a message that is larger than the daemon takes. The words are
// gRPC's own, which clients look for.
type sizeError struct{ size, limit int64 }

func (e *sizeError) Error() string {
	return fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", e.size, e.limit)
}

func newBudget(limit, maxMessage int64) *budget {
	return &budget{limit: limit, maxMessage: maxMessage, callers: map[string]int64{}, receiving: map[*intake]time.Time{}}
}

// take takes n bytes for a message of a caller, or returns false. Every take must be followed by
// an add of -n: free and Hold do it. A refusal first looks for messages that have stalled, so
// that a retry may succeed.
func (b *budget) take(who string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The limits rise from rule to rule, so the last rule that applies gives the largest.
	limit := b.limit
	if n <= smallMessage {
		limit += limit / 2
	}
	if b.callers[who]+n <= b.limit/callerShare {
		limit = 2 * b.limit
	}
	if b.used+n > limit && n > tinyMessage {
		b.breakStalled()
		return false
	}
	b.add(who, n)
	return true
}

// add changes by n the bytes that a caller uses. The caller of add holds b.mu.
func (b *budget) add(who string, n int64) {
	b.used += n
	if b.callers[who] += n; b.callers[who] == 0 {
		delete(b.callers, who)
	}
}

// Hold counts n bytes of a request that did not come by gRPC, until release is called. It
// returns false if the budget has no room for them now.
func (s *Server) Hold(who string, n int64) (release func(), ok bool) {
	if !s.budget.take(who, n) {
		return nil, false
	}
	return sync.OnceFunc(func() {
		s.budget.mu.Lock()
		defer s.budget.mu.Unlock()
		s.budget.add(who, -n)
	}), true
}

// breakStalled closes the connections of messages that have stalled for stalledAfter. Their
// bytes become free when their calls have ended. The caller of breakStalled holds b.mu.
func (b *budget) breakStalled() {
	for in, since := range b.receiving {
		if time.Since(since) >= stalledAfter {
			delete(b.receiving, in)
			// In its own goroutine, because closing a connection may block, and b.mu is held.
			go in.abandon()
		}
	}
}

// An intake is what one call has sent and the daemon holds. It is made when the call's headers
// come (begin). A nil intake counts nothing: its methods that handlers call accept it.
type intake struct {
	*budget
	who     string // the caller
	abandon func() // ends the connection

	// By the connection's reader alone.
	parse messageParser

	// By budget.mu.
	// holders begins at 1, for the stream (meteredConn.begin). At 0 every byte has been given
	// back, and the stream's later messages are not counted.
	holders int     // the stream, the handler, executions
	held    int64   // of the budget
	later   []int64 // sizes of the held messages, without the first
	count   int     // of messages that the handler has got
	refused error   // the message that the handler gets next is not the caller's
}

type intakeKey struct{}

// intakeOf returns the intake of a call, or nil.
func intakeOf(ctx context.Context) *intake {
	in, _ := ctx.Value(intakeKey{}).(*intake)
	return in
}

// admit counts a message that is announced with n bytes. False means that it is
// refused, and that the handler will know why.
func (in *intake) admit(n int64) bool {
	if n > in.maxMessage {
		return in.refuse(&sizeError{n, in.maxMessage})
	}
	if !in.take(in.who, n) {
		return in.refuse(&budgetError{in.limit})
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	// take has already counted n bytes.
	if in.holders == 0 { // the call is over
		in.add(in.who, -n)
		return true
	}
	if in.held += n; in.parse.messages > 0 {
		in.later = append(in.later, n)
	}
	return true
}

// refuse keeps err for received. Its result is the one of admit.
func (in *intake) refuse(err error) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refused = err
	return false
}

// received notes that the handler has got a message, and returns the error if the message was
// refused. Of the messages after the first, two count: one that the program has not read yet
// from its standard input, and the next one, which waits for that.
func (in *intake) received() error {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refused != nil {
		return in.refused
	}
	if in.count++; in.count > 3 && len(in.later) > 0 {
		in.free(in.later[0])
		in.later = in.later[1:]
	}
	return nil
}

// incomplete notes that a message goes on in another frame, or is complete.
func (in *intake) incomplete(yes bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, listed := in.receiving[in]; !yes {
		delete(in.receiving, in)
	} else if !listed && in.holders > 0 {
		in.receiving[in] = time.Now()
	}
}

// hold keeps the bytes counted until release is called.
func (in *intake) hold() (release func()) {
	if in == nil {
		return func() {}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.holders == 0 {
		return func() {} // it is given back: its stream is over
	}
	in.holders++
	return sync.OnceFunc(in.release)
}

// release gives up one hold. After the last one, no byte of the intake counts.
func (in *intake) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.holders--; in.holders == 0 {
		in.free(in.held)
		delete(in.receiving, in)
	}
}

// forget says that n bytes of the first message are no longer in memory.
func (in *intake) forget(n int64) {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.holders > 0 {
		in.free(n)
	}
}

// free gives n bytes back. in.mu is held.
func (in *intake) free(n int64) {
	in.held -= n
	in.add(in.who, -n)
}
