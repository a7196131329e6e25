package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The load of the faults has two sessions for each tenant. Each execution in them prints the file log and adds its
// key to the file, so each commit depends on the commit before. A lost, doubled or mixed commit changes what
// the next execution prints. In the first session, requests wait for each other. In the second one they do not, so
// other calls can come between them: PutSessionFile replaces the file, and DeleteSession removes the session, which
// another one then replaces.

const (
	sessionClients  = 3 // of each tenant in its first session; the first two send the same requests, and the last one also reads
	freeClients     = 3 // of each tenant in its second session; the last one puts files, reads and deletes
	tenantClients   = faultClients + sessionClients + freeClients
	sessionLines    = 20
	sessionVersions = 10 // that the daemon keeps, by default
)

// Reasons of refusals that a client may get from a session, and that change nothing.
const (
	sessionIsBusy    = "SESSION_BUSY"
	sessionIsGone    = "SESSION_NOT_FOUND"
	sessionIsDamaged = "SESSION_DAMAGED" // also while the disk with it fails
)

// sessionRefusal returns one of the reasons above, or "" for other errors and for nil.
func sessionRefusal(err error) string {
	if reason := errorInfo(err)["reason"]; slices.Contains([]string{sessionIsBusy, sessionIsGone, sessionIsDamaged}, reason) {
		return reason
	}
	return ""
}

// A sessionVariant is a kind of execution in a session.
type sessionVariant struct {
	fails, commitFailed bool
	earlier             bool // it starts from the version before the last one that its client knows of
}

var sessionVariants = []sessionVariant{{}, {fails: true, commitFailed: true}, {fails: true}, {earlier: true}}

// failure is the exit code of programs that fail.
const failure = 3

var failing = fmt.Sprintf("; exit %d", failure)

func (op *faultOp) fails() bool { return strings.HasSuffix(op.req.GetCode().GetText(), failing) }

// unreadable is in the error output of a program that could not read the file, because the disk with the session has
// failed. The file then seems to be empty.
const unreadable = "Input/output error"

// appendTo is the program of an execution with a key. It needs no process but its own.
func appendTo(key string, fails bool) *pb.ExecuteRequest {
	text := fmt.Sprintf(`mapfile -t lines <log
for line in "${lines[@]}"; do echo "$line"; done
lines+=(%s)
printf '%%s\n' "${lines[@]:${#lines[@]} > %[2]d ? ${#lines[@]} - %[2]d : 0}" >log`, key, sessionLines)
	if fails {
		text += failing
	}
	return shell("hostile", text)
}

// rounds numbers the rounds of a client: until the load has ended, and then one for each variant. So each load has all.
func (l *faultLoad) rounds() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n, left := 0, len(sessionVariants); left > 0 && l.t.Context().Err() == nil && yield(n); n++ {
			if l.ended.Load() {
				left--
			}
		}
	}
}

// A sessionClient is a client that executes in sessions, and knows the last version that it has made.
type sessionClient struct {
	*faultLoad
	tenant, client int
	wait           bool
	id             string // of the session with the version
	version        uint32
	between        int // executions of untilFree
}

// execute executes a variant with a key.
func (c *sessionClient) execute(u *sessionUser, key string, v sessionVariant) *faultOp {
	req := appendTo(key, v.fails)
	req.Session = &pb.SessionUse{SessionId: u.id, Wait: c.wait, CommitFailed: v.commitFailed}
	if v.earlier && c.id == u.id {
		req.Session.Version = c.version - 1 // 0: the newest
	}
	op := c.request(c.tenant, c.client, key, req)
	if made := op.outcome.GetSession().GetCommittedVersion(); made != 0 {
		c.id, c.version = u.id, made
	}
	return op
}

// startSession makes the first session of a tenant, and starts its clients.
func (l *faultLoad) startSession(d *running, tenant int) {
	u := d.newSession(l.tenants[tenant], &pb.CreateSessionRequest{})
	l.sessions = append(l.sessions, u)
	for n := range sessionClients {
		c := &sessionClient{faultLoad: l, tenant: tenant, client: faultClients + n, wait: true}
		l.clients.Go(func() {
			for i := range l.rounds() {
				v := sessionVariants[i%len(sessionVariants)]
				v.earlier = v.earlier && n == sessionClients-1 // the others must not differ
				c.execute(u, fmt.Sprintf("wait%s.%d.%d", l.round, n/2, i), v)
				if n == sessionClients-1 {
					c.read(u)
				}
			}
		})
	}
}

// startFreeSession makes the second session of a tenant, and starts its clients.
func (l *faultLoad) startFreeSession(d *running, tenant int) {
	var now atomic.Pointer[sessionUser]
	now.Store(d.newSession(l.tenants[tenant], &pb.CreateSessionRequest{}))
	for n := range freeClients {
		c := &sessionClient{faultLoad: l, tenant: tenant, client: faultClients + sessionClients + n}
		l.clients.Go(func() {
			for i := range l.rounds() {
				u := now.Load()
				if n < freeClients-1 {
					c.untilFree(func() string {
						return c.execute(u, fmt.Sprintf("free%s.%d.%d", l.round, n, i), sessionVariants[i%len(sessionVariants)]).refused
					})
					continue
				}
				c.untilFree(func() string { return c.put(u, fmt.Sprintf("put%d\n", i)) })
				c.read(u)
				if i%len(sessionVariants) == len(sessionVariants)-1 {
					c.untilFree(func() string { return c.remove(u) })
					now.Store(c.create(u))
				}
			}
		})
	}
}

// untilFree repeats a call while the session is busy. In between it executes something else.
func (c *sessionClient) untilFree(call func() (refused string)) {
	for c.t.Context().Err() == nil && call() == sessionIsBusy {
		c.between++
		c.request(c.tenant, c.client, fmt.Sprintf("between%s.%d.%d", c.round, c.client, c.between), c.programs[0]())
	}
}

// A sessionOp is a call that is no execution.
type sessionOp struct {
	session      string
	client       int
	call, answer time.Duration // since faultLoad.begun
	late         bool          // it may take effect until the start of the next daemon
	sessionSeen
}

// note adds a call that began at a time. If it failed, it may have been refused; else its kind becomes unknown.
func (c *sessionClient) note(u *sessionUser, call time.Duration, seen sessionSeen, err error, unknown sessionKind) (refused string) {
	op := &sessionOp{session: u.id, client: c.tenant*tenantClients + c.client, call: call, answer: time.Since(c.begun), sessionSeen: seen}
	switch refused = sessionRefusal(err); {
	case refused == sessionIsBusy:
		op.kind = sessionBusy
	case refused == sessionIsGone:
		op.kind = sessionGone
	case refused == sessionIsDamaged:
		c.refusal(u.id, err)
		op.kind = sessionUnchanged
	case err != nil:
		c.refusal(u.id, err)
		op.kind = unknown
		// The connection of a client breaks after the daemon's death, so the call has no effect after that. A daemon
		// with a failing disk may find the effect at its next start.
		op.late = status.Code(err) != codes.Unavailable
	}
	if op.kind == sessionUnchanged {
		return "" // a read that has failed, or a damaged session
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionOps = append(c.sessionOps, op)
	return refused
}

// bounded is the context of one call.
func (c *sessionClient) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.tenants[c.tenant], patience)
}

// read reads the file and the number of the newest version. A file that does not exist proves nothing: the
// session may be empty or gone, or have ten versions more.
func (c *sessionClient) read(u *sessionUser) {
	ctx, cancel := c.bounded()
	defer cancel()
	call := time.Since(c.begun)
	text, err := u.text(ctx, "log")
	if status.Code(err) != codes.NotFound {
		c.note(u, call, sessionSeen{kind: sessionFile, text: text}, err, sessionUnchanged)
	}
	call = time.Since(c.begun)
	got, err := u.sessions.GetSession(ctx, &pb.GetSessionRequest{SessionId: u.id}, grpc.WaitForReady(true))
	c.note(u, call, sessionSeen{kind: sessionNumber, made: got.GetSession().GetNewest().GetNumber()}, err, sessionUnchanged)
}

// put makes a version with another content of the file. It is repeated until it is answered.
func (c *sessionClient) put(u *sessionUser, content string) (refused string) {
	return c.repeat(func(ctx context.Context, call time.Duration) (string, error) {
		version, err := u.put(ctx, "log", content)
		return c.note(u, call, sessionSeen{kind: sessionPut, made: version, text: content}, err, sessionPutUnknown), err
	})
}

// remove deletes the session.
func (c *sessionClient) remove(u *sessionUser) (refused string) {
	return c.repeat(func(ctx context.Context, call time.Duration) (string, error) {
		_, err := u.sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: u.id}, grpc.WaitForReady(true))
		return c.note(u, call, sessionSeen{kind: sessionDeleted}, err, sessionDeleteUnknown), err
	})
}

// create makes another session.
func (c *sessionClient) create(u *sessionUser) *sessionUser {
	next := *u
	c.repeat(func(ctx context.Context, _ time.Duration) (string, error) {
		made, err := u.sessions.CreateSession(ctx, &pb.CreateSessionRequest{}, grpc.WaitForReady(true))
		if err != nil {
			c.refusal("create", err)
		}
		next.id = made.GetSession().GetSessionId()
		return "", err
	})
	return &next
}

// repeat makes a call until it succeeds or is refused because of the session.
func (c *sessionClient) repeat(call func(ctx context.Context, at time.Duration) (refused string, err error)) (refused string) {
	for c.t.Context().Err() == nil {
		ctx, cancel := c.bounded()
		refused, err := call(ctx, time.Since(c.begun))
		cancel()
		if err == nil || refused != "" {
			return refused
		}
	}
	return ""
}

// text returns the content of a file of the newest version.
func (u *sessionUser) text(ctx context.Context, path string) (string, error) {
	stream, err := u.sessions.GetSessionFile(ctx, &pb.GetSessionFileRequest{SessionId: u.id, Path: path}, grpc.WaitForReady(true))
	var b strings.Builder
	for err == nil {
		var r *pb.GetSessionFileResponse
		if r, err = stream.Recv(); err == nil {
			b.Write(r.Data)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b.String(), err
}

// put uploads a file, and returns the version that has it.
func (u *sessionUser) put(ctx context.Context, path, content string) (version uint32, _ error) {
	stream, err := u.sessions.PutSessionFile(ctx, grpc.WaitForReady(true))
	if err != nil {
		return 0, err
	}
	header := &pb.PutSessionFileHeader{SessionId: u.id, Path: path, SizeBytes: uint64(len(content)), Sha256: sum([]byte(content))}
	for _, m := range []*pb.PutSessionFileRequest{
		{Message: &pb.PutSessionFileRequest_Header{Header: header}}, {Message: &pb.PutSessionFileRequest_Data{Data: []byte(content)}},
	} {
		if stream.Send(m) != nil {
			break // CloseAndRecv has the error
		}
	}
	done, err := stream.CloseAndRecv()
	return done.GetVersion().GetNumber(), err
}
