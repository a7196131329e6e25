package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A sessionState is a session: the number of its newest version, and the file of this version and of the versions before.
type sessionState struct {
	gone    bool
	version uint32
	logs    [sessionVersions + 1]string // logs[n] is the file of version-n; one more than is kept, because old versions are removed later
}

// commit returns the state after a commit of the file.
func (s sessionState) commit(log string) sessionState {
	copy(s.logs[1:], s.logs[:])
	s.version, s.logs[0] = s.version+1, log
	return s
}

// log returns the file of a version. Version 0 is the empty session.
func (s sessionState) log(version uint32) (log string, ok bool) {
	if version > s.version || s.version-version >= uint32(len(s.logs)) {
		return "", false
	}
	return s.logs[s.version-version], true
}

// appended is a file after an execution with a key.
func appended(log, key string) string {
	lines := strings.SplitAfter(log, "\n")[:strings.Count(log, "\n")]
	return strings.Join(lines[max(0, len(lines)-(sessionLines-1)):], "") + key + "\n"
}

// A sessionSeen is one observation of a session, by an execution or another call.
type sessionSeen struct {
	kind    sessionKind
	key     string
	at      uint32 // the version that the request names; 0: the newest
	base    uint32 // of an execution that has started: the version that it got
	started bool
	made    uint32 // the new version; sessionNumber: the newest one
	text    string // that was read, printed or put
	partial bool   // an execution that commits even if it was ended: its commit may lack the change of the file
}

type sessionKind int

const (
	sessionFile          sessionKind = iota // read text
	sessionNumber                           // read made
	sessionCommitted                        // printed text, and added key
	sessionPartial                          // was ended, and committed the changes that it had made until then
	sessionFailed                           // printed text, and committed nothing
	sessionUnknown                          // added key, or not
	sessionUnchanged                        // ended without a commit
	sessionBusy                             // was refused, because the session had a writer
	sessionGone                             // was refused, because the session or its version does not exist
	sessionPut                              // replaced the file by text
	sessionPutUnknown                       // the same, or not
	sessionDeleted                          // deleted the session
	sessionDeleteUnknown                    // the same, or not
)

// sessionModel decides whether some order of the operations explains all observations. An execution whose daemon died,
// and another call without an answer, may or may not have taken effect, so each leads to two states.
var sessionModel = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{sessionState{}} },
	Equal: func(a, b any) bool { return a == b },
	Step: func(state, _, output any) []any {
		s, seen := state.(sessionState), output.(sessionSeen)
		if s.gone {
			return s.afterDeletion(seen)
		}
		switch seen.kind {
		case sessionFile:
			return only(s, seen.text == s.logs[0])
		case sessionNumber:
			return only(s, seen.made == s.version)
		case sessionUnchanged, sessionBusy:
			return []any{s}
		case sessionGone:
			return only(s, seen.at > 0 && seen.at+sessionVersions <= s.version)
		case sessionPut:
			if seen.made == s.version && seen.text == s.logs[0] {
				return []any{s} // an unanswered call before it had put the same
			}
			return only(s.commit(seen.text), seen.made == s.version+1)
		case sessionPutUnknown:
			return []any{s, s.commit(seen.text)}
		case sessionDeleted:
			return []any{sessionState{gone: true}}
		case sessionDeleteUnknown:
			return []any{s, sessionState{gone: true}}
		}
		return s.afterExecution(seen)
	},
}

// only is the one next state, if it is possible.
func only(s sessionState, possible bool) []any {
	if !possible {
		return nil
	}
	return []any{s}
}

// afterDeletion is the step of sessionModel for a deleted session.
func (s sessionState) afterDeletion(seen sessionSeen) []any {
	return only(s, slices.Contains([]sessionKind{sessionGone, sessionUnknown, sessionUnchanged, sessionPutUnknown, sessionDeleteUnknown}, seen.kind))
}

// afterExecution is the step of sessionModel for an execution that has begun, or may have.
func (s sessionState) afterExecution(seen sessionSeen) []any {
	base := s.version
	if seen.at > 0 {
		base = seen.at
	}
	log, ok := s.log(base)
	ok = ok && (!seen.started || seen.base == base)
	after := []any{s.commit(appended(log, seen.key))}
	if seen.partial {
		after = append(after, s.commit(log))
	}
	switch seen.kind {
	case sessionFailed:
		return only(s, ok && seen.text == log)
	case sessionUnknown:
		if !ok {
			return []any{s}
		}
		return append(after, s)
	case sessionCommitted:
		ok = ok && seen.text == log
		after = after[:1]
	}
	if !ok || seen.made != s.version+1 {
		return nil
	}
	return after
}

// sessionHistories returns the executions in each session and the other calls, for sessionModel. records has the
// executions as the daemon reports them at the end.
func (l *faultLoad) sessionHistories(records map[string]*result) [][]porcupine.Operation {
	type place struct {
		tenant int
		key    string
	}
	histories := map[string][]porcupine.Operation{}
	executions := map[place]*porcupine.Operation{} // requests with one key are one execution
	sessions := map[place]string{}
	for _, op := range l.ops {
		use := op.req.GetSession()
		if use == nil {
			continue
		}
		o := porcupine.Operation{ClientId: op.client, Call: int64(op.call), Return: math.MaxInt64}
		if op.refused != "" {
			kind := sessionBusy
			if op.refused == sessionIsGone {
				kind = sessionGone
			}
			o.Return, o.Output = int64(op.answer), sessionSeen{kind: kind, at: use.Version}
			histories[use.SessionId] = append(histories[use.SessionId], o)
			continue
		}
		at := place{op.tenant, op.key}
		if executions[at] == nil {
			o.Output = sessionSeen{kind: sessionUnknown, key: op.key, at: use.Version, partial: use.CommitFailed}
			executions[at], sessions[at] = &o, use.SessionId
		}
		all := executions[at]
		all.Call = min(all.Call, int64(op.call))
		if op.outcome != nil {
			all.Return = min(all.Return, int64(op.ended))
		}
		all.Output = op.seen(all.Output.(sessionSeen), records[op.id])
	}
	for at, o := range executions {
		histories[sessions[at]] = append(histories[sessions[at]], *o)
	}
	for _, op := range l.sessionOps {
		o := porcupine.Operation{ClientId: op.client, Call: int64(op.call), Return: int64(op.answer), Output: op.sessionSeen}
		if op.answer == 0 {
			o.Return = math.MaxInt64
		}
		histories[op.session] = append(histories[op.session], o)
	}
	return slices.Collect(maps.Values(histories))
}

// seen completes an observation with the outcome of the request. The outcome that the client got counts more than the
// record: a commit that a client knows of must be durable.
func (op *faultOp) seen(so sessionSeen, now *result) sessionSeen {
	if op.base != nil {
		so.started, so.base = true, op.base.Version
	}
	out, text := op.outcome, string(op.stdout)
	if out == nil && now != nil {
		out, text = now.outcome, now.stdout.String()
	}
	exited := out.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED
	session, whole := out.GetSession(), !out.GetStdout().GetTruncated()
	switch {
	case so.kind != sessionUnknown, out == nil:
	case session.GetCommittedVersion() != 0:
		so.kind, so.made, so.text = sessionPartial, session.CommittedVersion, text
		if exited && whole {
			so.kind = sessionCommitted
		}
	case out.End == pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST, session.GetUncommitted() == pb.SessionUncommitted_SESSION_UNCOMMITTED_ERROR:
		// On a failing disk, the next start may find the version.
	case exited && whole && out.GetExitCode() == failure:
		so.kind, so.text = sessionFailed, text
	default:
		so.kind = sessionUnchanged
	}
	return so
}

// wantAllKinds checks that the histories have each kind of call that every load makes at its end, when no daemon dies.
func wantAllKinds(t *testing.T, histories [][]porcupine.Operation) {
	t.Helper()
	missing := map[string]func(sessionSeen) bool{
		"a commit":                     func(s sessionSeen) bool { return s.kind == sessionCommitted && s.at == 0 && !s.partial },
		"a commit from an earlier one": func(s sessionSeen) bool { return s.kind == sessionCommitted && s.at > 0 },
		"a commit of a failure":        func(s sessionSeen) bool { return s.kind == sessionCommitted && s.partial },
		"a failure":                    func(s sessionSeen) bool { return s.kind == sessionFailed },
		"an upload":                    func(s sessionSeen) bool { return s.kind == sessionPut },
		"a deletion":                   func(s sessionSeen) bool { return s.kind == sessionDeleted || s.kind == sessionGone },
		"a read":                       func(s sessionSeen) bool { return s.kind == sessionFile },
	}
	kinds := map[sessionKind]int{}
	for _, history := range histories {
		for _, op := range history {
			seen := op.Output.(sessionSeen)
			kinds[seen.kind]++
			maps.DeleteFunc(missing, func(_ string, is func(sessionSeen) bool) bool { return is(seen) })
		}
	}
	t.Logf("%d sessions: %d uploads, %d deletions, %d commits, %d requests found the session busy", len(histories),
		kinds[sessionPut], kinds[sessionDeleted], kinds[sessionCommitted]+kinds[sessionPartial], kinds[sessionBusy])
	if len(missing) > 0 {
		t.Errorf("the sessions have no %v", slices.Sorted(maps.Keys(missing)))
	}
}

// The model itself refuses what must not happen.
func TestSessionModel(t *testing.T) {
	const ms = time.Millisecond
	exec := func(key string, call, answer time.Duration, base, made uint32, text string, changes ...func(*faultOp)) *faultOp {
		op := &faultOp{
			key: key, call: call, ended: answer, id: key, base: &pb.SessionBase{Version: base}, stdout: []byte(text), req: appendTo(key, false),
			outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, Session: &pb.SessionResult{CommittedVersion: made}},
		}
		op.req.Session = &pb.SessionUse{SessionId: "s"}
		for _, change := range changes {
			change(op)
		}
		return op
	}
	at := func(version uint32) func(*faultOp) {
		return func(op *faultOp) { op.req.Session.Version = version }
	}
	failed := func(op *faultOp) { op.outcome.ExitCode = new(int32(failure)) }
	commitFailed := func(op *faultOp) { op.req.Session.CommitFailed = true }
	cancelled := func(op *faultOp) { op.outcome.End = pb.ExecutionEnd_EXECUTION_END_CANCELLED }
	notWritten := func(op *faultOp) {
		op.outcome.Session.Uncommitted = pb.SessionUncommitted_SESSION_UNCOMMITTED_ERROR
	}
	lost := func(key string, call, answer time.Duration, base uint32) *faultOp {
		return exec(key, call, answer, base, 0, "", func(op *faultOp) { op.outcome.End = pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST })
	}
	silent := func(key string, call time.Duration) *faultOp {
		return &faultOp{key: key, call: call, req: exec(key, 0, 0, 0, 0, "").req}
	}
	refused := func(key, reason string, call, answer time.Duration, changes ...func(*faultOp)) *faultOp {
		op := silent(key, call)
		op.answer, op.refused = answer, reason
		for _, change := range changes {
			change(op)
		}
		return op
	}
	call := func(from, to time.Duration, seen sessionSeen) *sessionOp {
		return &sessionOp{session: "s", call: from, answer: to, sessionSeen: seen}
	}
	file := func(from, to time.Duration, text string) *sessionOp {
		return call(from, to, sessionSeen{kind: sessionFile, text: text})
	}
	number := func(from, to time.Duration, n uint32) *sessionOp {
		return call(from, to, sessionSeen{kind: sessionNumber, made: n})
	}
	put := func(from, to time.Duration, made uint32, text string) *sessionOp {
		return call(from, to, sessionSeen{kind: sessionPut, made: made, text: text})
	}
	silentPut := func(from, to time.Duration, text string) *sessionOp {
		return call(from, to, sessionSeen{kind: sessionPutUnknown, text: text})
	}
	plain := func(kind sessionKind, from, to time.Duration) *sessionOp {
		return call(from, to, sessionSeen{kind: kind})
	}
	const a, b, ab = "a\n", "b\n", "a\nb\n"
	first, second := exec("a", 1*ms, 2*ms, 0, 1, ""), exec("b", 3*ms, 4*ms, 1, 2, a)
	var many []*faultOp // versions 1 to 11
	log := ""
	for n := range uint32(11) {
		key, from := string(rune('a'+n)), time.Duration(n)*10*ms
		many = append(many, exec(key, from, from+ms, n, n+1, log))
		log = appended(log, key)
	}
	for _, tt := range []struct {
		name  string
		ops   []*faultOp
		calls []*sessionOp
		want  bool
	}{
		{"two executions", []*faultOp{first, second}, []*sessionOp{file(5*ms, 6*ms, ab), number(5*ms, 6*ms, 2)}, true},
		{"a repeated request", []*faultOp{first, exec("a", 3*ms, 4*ms, 0, 1, ""), exec("b", 5*ms, 6*ms, 1, 2, a)}, nil, true},
		{"a lost commit", []*faultOp{first, exec("b", 3*ms, 4*ms, 0, 1, "")}, nil, false},
		{"a commit lost for a reader", []*faultOp{first, second}, []*sessionOp{file(5*ms, 6*ms, a)}, false},
		{"a doubled commit", []*faultOp{first, exec("b", 3*ms, 4*ms, 2, 3, a+a)}, nil, false},
		{"another's file", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 2, b)}, nil, false},
		{"a version that was skipped", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 3, a)}, nil, false},
		{"a read before the commit", []*faultOp{exec("a", 3*ms, 4*ms, 0, 1, "")}, []*sessionOp{file(1*ms, 2*ms, a)}, false},
		{"a read during the commit", []*faultOp{exec("a", 1*ms, 4*ms, 0, 1, "")}, []*sessionOp{file(2*ms, 3*ms, a)}, true},
		{"a read that goes back", []*faultOp{exec("a", 1*ms, 6*ms, 0, 1, "")}, []*sessionOp{number(2*ms, 3*ms, 1), number(4*ms, 5*ms, 0)}, false},
		{"a lost execution that has committed", []*faultOp{lost("a", 1*ms, 2*ms, 0), second}, nil, true},
		{"a lost execution that has not", []*faultOp{lost("a", 1*ms, 2*ms, 0), exec("b", 3*ms, 4*ms, 0, 1, "")}, nil, true},
		{"a lost execution that commits after its end", []*faultOp{lost("a", 1*ms, 2*ms, 0)}, []*sessionOp{number(3*ms, 4*ms, 0), number(5*ms, 6*ms, 1)}, false},
		{"a lost execution on another version", []*faultOp{first, lost("b", 3*ms, 4*ms, 0)}, []*sessionOp{number(5*ms, 6*ms, 2)}, false},
		{"a silent request that has committed", []*faultOp{silent("a", 1*ms), second}, nil, true},

		{"from an earlier version", []*faultOp{first, second, exec("c", 5*ms, 6*ms, 1, 3, a, at(1))}, []*sessionOp{file(7*ms, 8*ms, "a\nc\n")}, true},
		{"from another version than it named", []*faultOp{first, second, exec("c", 5*ms, 6*ms, 2, 3, ab, at(1))}, nil, false},
		{"from an earlier version with the newest file", []*faultOp{first, second, exec("c", 5*ms, 6*ms, 1, 3, ab, at(1))}, nil, false},
		{"from a version that comes later", []*faultOp{exec("b", 1*ms, 2*ms, 1, 2, a, at(1)), exec("a", 3*ms, 4*ms, 0, 1, "")}, nil, false},
		{"from the oldest version that is kept", append(many[:11:11], exec("z", 200*ms, 201*ms, 2, 12, ab, at(2))), nil, true},
		{"a version that is no longer kept", append(many[:11:11], refused("z", sessionIsGone, 200*ms, 201*ms, at(1))), nil, true},
		{"a version that is kept and not found", append(many[:11:11], refused("z", sessionIsGone, 200*ms, 201*ms, at(2))), nil, false},

		{"a failure", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 0, a, failed)}, []*sessionOp{number(5*ms, 6*ms, 1), file(5*ms, 6*ms, a)}, true},
		{"a failure that has committed", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 0, a, failed)}, []*sessionOp{file(5*ms, 6*ms, ab)}, false},
		{"a failure on another file", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 0, b, failed)}, nil, false},
		{"a failure that commits", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 2, a, failed, commitFailed)}, []*sessionOp{file(5*ms, 6*ms, ab)}, true},
		{"a failure whose commit is lost", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 2, a, failed, commitFailed)}, []*sessionOp{file(5*ms, 6*ms, a)}, false},
		{"one that was ended before its change", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 2, "", cancelled, commitFailed)}, []*sessionOp{file(5*ms, 6*ms, a), number(5*ms, 6*ms, 2)}, true},
		{"one that was ended after its change", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 2, "", cancelled, commitFailed)}, []*sessionOp{file(5*ms, 6*ms, ab)}, true},
		{"one that was ended and commits nothing", []*faultOp{first, exec("b", 3*ms, 4*ms, 1, 0, "", cancelled)}, []*sessionOp{number(5*ms, 6*ms, 2)}, false},
		{"a version that could not be written and is found", []*faultOp{exec("a", 1*ms, 2*ms, 0, 0, "", notWritten), second}, nil, true},

		{"a request that did not wait", []*faultOp{exec("a", 1*ms, 4*ms, 0, 1, ""), refused("b", sessionIsBusy, 2*ms, 3*ms)}, []*sessionOp{file(5*ms, 6*ms, a)}, true},
		{"a request that was refused and has run", []*faultOp{exec("a", 1*ms, 4*ms, 0, 1, ""), refused("b", sessionIsBusy, 2*ms, 3*ms)}, []*sessionOp{file(5*ms, 6*ms, ab)}, false},
		{"a request that was refused and then accepted", []*faultOp{first, refused("b", sessionIsBusy, 1*ms, 2*ms), second}, []*sessionOp{file(5*ms, 6*ms, ab)}, true},

		{"an upload", []*faultOp{first, exec("c", 5*ms, 6*ms, 2, 3, b)}, []*sessionOp{put(3*ms, 4*ms, 2, b), file(7*ms, 8*ms, "b\nc\n")}, true},
		{"an upload that is lost", []*faultOp{first, second}, []*sessionOp{put(5*ms, 6*ms, 3, "p\n"), file(7*ms, 8*ms, ab)}, false},
		{"an upload that replaces a commit", []*faultOp{first, second}, []*sessionOp{put(5*ms, 6*ms, 2, "p\n")}, false},
		{"an upload of what is there", []*faultOp{first}, []*sessionOp{put(3*ms, 4*ms, 1, a)}, true},
		{"an upload that was not made", []*faultOp{first}, []*sessionOp{put(3*ms, 4*ms, 1, b)}, false},
		{"a silent upload with effect", []*faultOp{first}, []*sessionOp{silentPut(3*ms, 4*ms, b), file(5*ms, 6*ms, b), number(5*ms, 6*ms, 2)}, true},
		{"a silent upload without effect", []*faultOp{first, second}, []*sessionOp{silentPut(2*ms, 3*ms, b)}, true},
		{"a silent upload that is repeated", []*faultOp{first}, []*sessionOp{silentPut(3*ms, 4*ms, b), put(5*ms, 6*ms, 2, b), number(7*ms, 8*ms, 2)}, true},
		{"a silent upload with effect after its end", []*faultOp{first}, []*sessionOp{silentPut(3*ms, 4*ms, b), number(5*ms, 6*ms, 1), number(7*ms, 8*ms, 2)}, false},
		{"a silent upload that may come at the next start", []*faultOp{first}, []*sessionOp{silentPut(3*ms, 0, b), number(5*ms, 6*ms, 1), number(7*ms, 8*ms, 2)}, true},

		{"a deletion", []*faultOp{first, refused("b", sessionIsGone, 5*ms, 6*ms)}, []*sessionOp{plain(sessionDeleted, 3*ms, 4*ms), plain(sessionGone, 7*ms, 8*ms)}, true},
		{"an execution after the deletion", []*faultOp{first, exec("b", 5*ms, 6*ms, 1, 2, a)}, []*sessionOp{plain(sessionDeleted, 3*ms, 4*ms)}, false},
		{"an upload after the deletion", []*faultOp{first}, []*sessionOp{plain(sessionDeleted, 3*ms, 4*ms), put(5*ms, 6*ms, 2, b)}, false},
		{"a session that comes back", []*faultOp{first}, []*sessionOp{plain(sessionDeleted, 3*ms, 4*ms), number(5*ms, 6*ms, 1)}, false},
		{"a session that is not found without a deletion", []*faultOp{first}, []*sessionOp{plain(sessionGone, 3*ms, 4*ms)}, false},
		{"a session that is busy after its deletion", nil, []*sessionOp{plain(sessionDeleted, 1*ms, 2*ms), plain(sessionBusy, 3*ms, 4*ms)}, false},
		{"a silent deletion with effect", []*faultOp{first}, []*sessionOp{plain(sessionDeleteUnknown, 3*ms, 4*ms), plain(sessionGone, 5*ms, 6*ms)}, true},
		{"a silent deletion without effect", []*faultOp{first, exec("b", 5*ms, 6*ms, 1, 2, a)}, []*sessionOp{plain(sessionDeleteUnknown, 3*ms, 4*ms)}, true},
		{"a silent deletion with effect after its end", []*faultOp{first}, []*sessionOp{plain(sessionDeleteUnknown, 3*ms, 4*ms), number(5*ms, 6*ms, 1), plain(sessionGone, 7*ms, 8*ms)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := isLinearizable(t, (&faultLoad{ops: tt.ops, sessionOps: tt.calls}).sessionHistories(nil), sessionModel); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
