package budget

import (
	"context"
	"sync"
	"time"
)

// An Intake is what one gRPC call has sent and the daemon holds. It is made when the
// call's headers come (Conn.Begin). A nil Intake, of a call whose connection has no Meter, counts
// nothing: Received, Hold, Forget and Answer accept it.
type Intake struct {
	*Budget
	conn    *Conn
	abandon func() // ends the connection

	// By the connection's reader alone.
	parse messageParser

	// By budget.mu.
	who caller
	// holders begins at 1, for the stream (Conn.Begin). At 0 every byte has been given
	// back, and the stream's later messages are not counted.
	holders int     // the stream, the handler, executions
	held    int64   // of the budget
	later   []int64 // sizes of the held messages, without the first
	count   int     // of messages that the handler has got
	refused error   // the message that the handler gets next is not the caller's
}

type intakeKey struct{}

// Of returns the intake of a call, or nil.
func Of(ctx context.Context) *Intake {
	in, _ := ctx.Value(intakeKey{}).(*Intake)
	return in
}

// admit counts a message that is announced with n bytes. False means that it is
// refused, and that the handler will know why.
func (in *Intake) admit(n int64) bool {
	if n > in.maxMessage {
		return in.refuse(&SizeError{n, in.maxMessage})
	}
	in.mu.Lock()
	who := in.who
	in.mu.Unlock()
	if !in.take(who, n) {
		return in.refuse(&FullError{in.limit})
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	// take has already counted n bytes.
	if in.holders == 0 { // the call is over
		in.add(who, -n)
		return true
	}
	if in.who != who { // the caller was identified after the first bytes
		in.addTo(in.who.tenant, n)
	}
	if in.held += n; in.parse.messages > 0 {
		in.later = append(in.later, n)
	}
	return true
}

// Identified counts the call's bytes for the tenant of the caller, too.
func (in *Intake) Identified(tenant string) {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.addTo(in.who.tenant, -in.held)
	in.who.tenant = tenant
	in.addTo(tenant, in.held)
}

// refuse keeps err for Received. Its result is the one of admit.
func (in *Intake) refuse(err error) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refused = err
	return false
}

// Received notes that the handler has got a message, and returns the error if the message was
// refused. Of the messages after the first, two count: one that the program has not read yet
// from its standard input, and the next one, which waits for that.
func (in *Intake) Received() error {
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
func (in *Intake) incomplete(yes bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, listed := in.receiving[in]; !yes {
		delete(in.receiving, in)
	} else if !listed && in.holders > 0 {
		in.receiving[in] = time.Now()
	}
}

// Hold keeps the bytes counted until release is called.
func (in *Intake) Hold() (release func()) {
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
func (in *Intake) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.holders--; in.holders == 0 {
		in.free(in.held)
		delete(in.receiving, in)
	}
}

// Forget says that n bytes of the first message are no longer in memory.
func (in *Intake) Forget(n int64) {
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
func (in *Intake) free(n int64) {
	in.held -= n
	in.add(in.who, -n)
}
