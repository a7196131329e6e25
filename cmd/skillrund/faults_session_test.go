package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The load of the faults has a session for each tenant. Each execution in it prints the file log and adds its
// key to the file, so each commit depends on the commit before. A lost, doubled or mixed commit changes what
// the next execution prints.

const (
	sessionClients = 3 // of each tenant; the first two send the same requests, and the last one also reads
	sessionLines   = 20
)

// appendTo is the program of an execution with a key.
func appendTo(key string) *pb.ExecuteRequest {
	text := "cat log 2>/dev/null; (tail -n %d log 2>/dev/null; echo %s) >new && mv new log"
	return shell("hostile", fmt.Sprintf(text, sessionLines-1, key))
}

// startSession makes the session of a tenant, and starts the clients that work in it.
func (l *faultLoad) startSession(d *running, tenant int) {
	u := d.newSession(l.tenants[tenant], &pb.CreateSessionRequest{})
	for c := range sessionClients {
		l.clients.Go(func() {
			for n := 0; !l.ended.Load(); n++ {
				key := fmt.Sprintf("session%d.%d", c/2, n)
				req := appendTo(key)
				req.Session = &pb.SessionUse{SessionId: u.id, Wait: true}
				l.request(tenant, faultClients+c, key, req)
				if c == sessionClients-1 {
					l.readSession(u, tenant)
				}
			}
		})
	}
}

// A sessionRead is one read of a session's file, or of the number of its newest version.
type sessionRead struct {
	tenant, client int
	call, answer   time.Duration // since faultLoad.begun
	sessionSeen
}

// readSession reads the file and the number of the newest version. A read that fails proves nothing.
func (l *faultLoad) readSession(u *sessionUser, tenant int) {
	client := tenant*(faultClients+sessionClients) + faultClients + sessionClients - 1
	note := func(call time.Duration, seen sessionSeen) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reads = append(l.reads, &sessionRead{tenant, client, call, time.Since(l.begun), seen})
	}
	ctx, cancel := context.WithTimeout(l.tenants[tenant], patience)
	defer cancel()
	call := time.Since(l.begun)
	if text, err := u.text(ctx, "log"); err == nil {
		note(call, sessionSeen{kind: sessionFile, text: text})
	} else if status.Code(err) != codes.NotFound { // ten versions later, or no version yet
		l.refusal("read", err)
	}
	call = time.Since(l.begun)
	got, err := u.sessions.GetSession(ctx, &pb.GetSessionRequest{SessionId: u.id}, grpc.WaitForReady(true))
	if err == nil {
		note(call, sessionSeen{kind: sessionNumber, version: got.Session.Newest.GetNumber()})
	} else {
		l.refusal("read", err)
	}
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

// A sessionState is a session: a register of the number and of the file of its newest version.
type sessionState struct {
	version uint32
	log     string
}

// with returns the state after the commit of an execution with a key.
func (s sessionState) with(key string) sessionState {
	lines := strings.SplitAfter(s.log, "\n")[:strings.Count(s.log, "\n")]
	lines = lines[max(0, len(lines)-(sessionLines-1)):]
	return sessionState{s.version + 1, strings.Join(lines, "") + key + "\n"}
}

// A sessionSeen is one observation of a session, by an execution or a reader.
type sessionSeen struct {
	kind    sessionKind
	key     string
	version uint32 // sessionCommitted, sessionUnknown: the one it started from
	text    string
	started bool // sessionUnknown: it has started from version
}

type sessionKind int

const (
	sessionFile      sessionKind = iota // read text
	sessionNumber                       // read version
	sessionCommitted                    // printed text, and added key
	sessionUnknown                      // added key, or not
	sessionUnchanged                    // ended without a commit
)

// sessionModel decides whether some order of the operations explains all observations. An execution whose daemon died may
// or may not have committed, so it leads to two states.
var sessionModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{sessionState{}} },
	Step: func(state, _, output any) []any {
		s, seen := state.(sessionState), output.(sessionSeen)
		switch {
		case seen.kind == sessionFile && seen.text == s.log, seen.kind == sessionNumber && seen.version == s.version:
			return []any{s}
		case seen.kind == sessionCommitted && seen.version == s.version && seen.text == s.log:
			return []any{s.with(seen.key)}
		case seen.kind == sessionUnknown && (!seen.started || seen.version == s.version):
			return []any{s, s.with(seen.key)}
		case seen.kind == sessionUnknown, seen.kind == sessionUnchanged:
			return []any{s}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// sessionHistories returns the executions and reads of each session, for sessionModel. records has the executions as the
// daemon reports them at the end.
func (l *faultLoad) sessionHistories(records map[string]*result) [][]porcupine.Operation {
	type place struct {
		tenant int
		key    string
	}
	executions := map[place]*porcupine.Operation{} // requests with one key are one execution
	for _, op := range l.ops {
		if !strings.HasPrefix(op.key, "session") {
			continue
		}
		at := place{op.tenant, op.key}
		o := executions[at]
		if o == nil {
			o = &porcupine.Operation{ClientId: op.client, Call: int64(op.call), Return: math.MaxInt64, Output: sessionSeen{kind: sessionUnknown, key: op.key}}
			executions[at] = o
		}
		o.Call = min(o.Call, int64(op.call))
		if op.outcome != nil {
			o.Return = min(o.Return, int64(op.ended))
		}
		o.Output = op.seen(o.Output.(sessionSeen), records[op.id])
	}
	histories := map[int][]porcupine.Operation{}
	for at, o := range executions {
		histories[at.tenant] = append(histories[at.tenant], *o)
	}
	for _, r := range l.reads {
		histories[r.tenant] = append(histories[r.tenant], porcupine.Operation{ClientId: r.client, Call: int64(r.call), Return: int64(r.answer), Output: r.sessionSeen})
	}
	return slices.Collect(maps.Values(histories))
}

// seen completes an observation with the outcome of the request. The outcome that the client got counts more than the
// record: a commit that a client knows of must be durable.
func (op *faultOp) seen(so sessionSeen, now *result) sessionSeen {
	if op.base != nil {
		so.started, so.version = true, op.base.Version
	}
	out, text := op.outcome, string(op.stdout)
	if out == nil && now != nil {
		out, text = now.outcome, now.stdout.String()
	}
	switch {
	case so.kind == sessionCommitted:
	case out.GetSession().GetCommittedVersion() != 0:
		so.kind, so.text = sessionCommitted, text
	case out != nil && out.End != pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST:
		so.kind = sessionUnchanged
	}
	return so
}

// The model itself refuses what must not happen.
func TestSessionModel(t *testing.T) {
	const ms = time.Millisecond
	run := func(key string, call, answer time.Duration, base, made uint32, text string) *faultOp {
		return &faultOp{
			key: "session" + key, call: call, ended: answer, id: key, base: &pb.SessionBase{Version: base}, stdout: []byte(text),
			outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, Session: &pb.SessionResult{CommittedVersion: made}},
		}
	}
	lost := func(key string, call, answer time.Duration, base uint32) *faultOp {
		op := run(key, call, answer, base, 0, "")
		op.outcome.End = pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST
		return op
	}
	silent := func(key string, call time.Duration) *faultOp { return &faultOp{key: "session" + key, call: call} }
	file := func(call, answer time.Duration, text string) *sessionRead {
		return &sessionRead{call: call, answer: answer, sessionSeen: sessionSeen{kind: sessionFile, text: text}}
	}
	number := func(call, answer time.Duration, n uint32) *sessionRead {
		return &sessionRead{call: call, answer: answer, sessionSeen: sessionSeen{kind: sessionNumber, version: n}}
	}
	const a, b, ab = "sessiona\n", "sessionb\n", "sessiona\nsessionb\n"
	first, second := run("a", 1*ms, 2*ms, 0, 1, ""), run("b", 3*ms, 4*ms, 1, 2, a)
	for _, tt := range []struct {
		name  string
		ops   []*faultOp
		reads []*sessionRead
		want  bool
	}{
		{"two executions", []*faultOp{first, second}, []*sessionRead{file(5*ms, 6*ms, ab), number(5*ms, 6*ms, 2)}, true},
		{"a repeated request", []*faultOp{first, run("a", 3*ms, 4*ms, 0, 1, ""), run("b", 5*ms, 6*ms, 1, 2, a)}, nil, true},
		{"a lost commit", []*faultOp{first, run("b", 3*ms, 4*ms, 0, 1, "")}, nil, false},
		{"a commit lost for a reader", []*faultOp{first, second}, []*sessionRead{file(5*ms, 6*ms, a)}, false},
		{"a doubled commit", []*faultOp{first, run("b", 3*ms, 4*ms, 2, 3, a+a)}, nil, false},
		{"another's file", []*faultOp{first, run("b", 3*ms, 4*ms, 1, 2, b)}, nil, false},
		{"a read before the commit", []*faultOp{run("a", 3*ms, 4*ms, 0, 1, "")}, []*sessionRead{file(1*ms, 2*ms, a)}, false},
		{"a read during the commit", []*faultOp{run("a", 1*ms, 4*ms, 0, 1, "")}, []*sessionRead{file(2*ms, 3*ms, a)}, true},
		{"a read that goes back", []*faultOp{run("a", 1*ms, 6*ms, 0, 1, "")}, []*sessionRead{number(2*ms, 3*ms, 1), number(4*ms, 5*ms, 0)}, false},
		{"a lost execution that has committed", []*faultOp{lost("a", 1*ms, 2*ms, 0), second}, nil, true},
		{"a lost execution that has not", []*faultOp{lost("a", 1*ms, 2*ms, 0), run("b", 3*ms, 4*ms, 0, 1, "")}, nil, true},
		{"a lost execution that commits after its end", []*faultOp{lost("a", 1*ms, 2*ms, 0)}, []*sessionRead{number(3*ms, 4*ms, 0), number(5*ms, 6*ms, 1)}, false},
		{"a lost execution on another version", []*faultOp{first, lost("b", 3*ms, 4*ms, 0)}, []*sessionRead{number(5*ms, 6*ms, 2)}, false},
		{"a silent request that has committed", []*faultOp{silent("a", 1*ms), second}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isLinearizable(t, (&faultLoad{ops: tt.ops, reads: tt.reads}).sessionHistories(nil), sessionModel); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
