package skillrun

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Patience says how long the calls of a client wait for a daemon that restarts. A wait begins with the first
// error and ends with the next event or byte from the daemon. A call waits only if it can be repeated
// safely, see [WithPatience].
type Patience struct {
	// Absent limits the wait without any answer. Zero: a broken call is repeated once, without a pause.
	Absent time.Duration
	// Draining limits the whole wait, in which a daemon may answer that it drains. Less than Absent:
	// Absent.
	Draining time.Duration
	// Unreached is for calls of a client that has never reached a daemon. True: they wait like the others.
	// False: they return their error at once.
	Unreached bool
	// OnWait, if not nil, is called before each pause with the error of the last try. Calls that wait at the
	// same time call it at the same time.
	OnWait func(err error)
}

// DefaultPatience is the patience of a client without [WithPatience]. A daemon starts within seconds, and
// drains for 30 s by default.
var DefaultPatience = Patience{Absent: 15 * time.Second, Draining: time.Minute}

// WithPatience returns an option of Dial that replaces [DefaultPatience]. A client waits when
//   - it starts an execution, and the daemon has refused the request because it drains, or has not received
//     it. A request that the daemon may have received is sent again only with an idempotency key;
//   - it follows an execution, and the stream breaks;
//   - it reads artifacts and files, or uploads a file to a session;
//   - it makes another call that reads, cancels an execution or updates a session, also by a generated client;
//   - it makes any other call with one request, and the daemon has refused it because it drains, or has not
//     received it.
func WithPatience(p Patience) grpc.DialOption { return patienceOption{Patience: p} }

// patienceOption is an option that Dial itself applies.
type patienceOption struct {
	grpc.EmptyDialOption
	Patience
}

// patience is a Patience with the lengths of the pauses.
type patience struct {
	Patience
	first time.Duration // pause before the third try; doubled each time
	most  time.Duration // longest pause
}

const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// newPatience returns the patience of the options.
func newPatience(opts []grpc.DialOption) patience {
	p := patience{DefaultPatience, firstPause, mostPause}
	for _, o := range opts {
		if o, ok := o.(patienceOption); ok {
			p.Patience = o.Patience
		}
	}
	return p
}

// tries are the tries of a call since its last success. The zero value: none.
type tries struct {
	n               int       // failed tries
	began, answered time.Time // the first error; the last answer of a daemon
}

// wait waits after a try that failed with cause. It returns false if patience or ctx has ended. The second
// try follows the first one at once.
func (p patience) wait(ctx context.Context, t *tries, cause error) bool {
	now := time.Now()
	if t.n++; t.n == 1 {
		t.began, t.answered = now, now
		return ctx.Err() == nil
	}
	if Reason(cause) != "" {
		t.answered = now
	}
	left := min(max(p.Draining, p.Absent)-now.Sub(t.began), p.Absent-now.Sub(t.answered))
	if left <= 0 || ctx.Err() != nil {
		return false
	}
	if p.OnWait != nil {
		p.OnWait(cause)
	}
	timer := time.NewTimer(min(p.pause(t.n), left))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause returns the pause before a try. It has up to 20 % jitter, so that clients that were cut off together
// do not return together.
func (p patience) pause(try int) time.Duration {
	pause := p.first
	for ; try > 2 && pause < p.most; try-- {
		pause *= 2
	}
	pause = min(pause, p.most)
	return pause - time.Duration(rand.Int64N(int64(pause)/5+1))
}

// reached records whether a client has ever had a connection.
type reached struct{ atomic.Bool }

// HandleConn is called by gRPC when a connection is ready, and when it ends.
func (r *reached) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		r.Store(true)
	}
}

func (r *reached) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *reached) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }

// mayReturn reports whether the daemon can be there later, after a call that it did not receive.
func (c *Client) mayReturn(err error) bool {
	return status.Code(err) == codes.Unavailable && (c.reached.Load() || c.patience.Unreached && absent(err))
}

// absent reports whether err may come from a daemon that restarts. The other causes stay: a wrong
// name, a wrong certificate, a socket that this user may not open. gRPC has only texts for them.
func absent(err error) bool {
	text := status.Convert(err).Message()
	for _, stays := range []string{"permission denied", "lookup ", "no such host", "name resolver", "x509:", "tls:"} {
		if strings.Contains(text, stays) {
			return false
		}
	}
	return true
}
