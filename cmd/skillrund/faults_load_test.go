package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A faultLoad is the clients of two tenants, who execute requests with idempotency keys while daemons
// die and come. A client repeats a request until it has an answer, and two clients of a tenant share
// each key. So every key has one execution, however often it was requested.
type faultLoad struct {
	t        *testing.T
	runs     executionClient // its connection outlives the daemons
	tenants  []context.Context
	sessions []*sessionUser // one of each tenant
	programs []faultProgram
	ends     []pb.ExecutionEnd // that the fault explains, besides EXITED
	refusals []codes.Code      // that the fault explains, besides UNAVAILABLE
	spared   context.Context   // of a tenant whose executions may not end so; nil: none
	// refusesNone says that the fault explains no refusal: each is printed.
	refusesNone bool
	round       string // is in each key, so that the keys of two loads differ
	damaged     bool   // sessions of an earlier load may be damaged
	begun       time.Time
	ended       atomic.Bool
	clients     sync.WaitGroup
	answers     atomic.Int64 // acknowledged executions, counted again for each client

	// powerless says that the disk loses its power: outputs and outcomes may be lost. scarce says that the daemon may
	// lack the resources to keep outputs, artifacts and versions of sessions. In both cases the daemon must say so.
	powerless, scarce bool
	refused           atomic.Int64 // requests
	excused           atomic.Int64 // answers with one of ends

	starts []time.Duration // of daemons after a disk that failed, since begun

	mu         sync.Mutex
	ops        []*faultOp
	sessionOps []*sessionOp
}

// A faultOp is one request, as its client saw it.
type faultOp struct {
	tenant       int
	client       int
	key          string
	req          *pb.ExecuteRequest
	call, answer time.Duration // since faultLoad.begun; answer is 0 if the daemon died before it answered
	refused      string        // sessionIsBusy or sessionIsGone; "": neither
	ended        time.Duration // when outcome came
	id           string        // "": no answer
	deduplicated bool
	base         *pb.SessionBase // nil: it works in no session
	stdout       []byte
	stderr       string
	outcome      *pb.ExecutionOutcome
}

// faultWall ends a program whose init was killed or stopped. Other programs have patience.
const faultWall = 15 * time.Second

const (
	faultClients = 4 // of each tenant; two by two they send the same requests
	// The skills that come with the daemon would only make its starts longer.
	faultConfig = withTokens + "skills: [skills]\ntenants: {left: {}, right: {}}\n"
)

// A faultProgram makes a request. Each start of its program prints another word. So a program that started
// twice has two first lines.
type faultProgram func() *pb.ExecuteRequest

var faultPrograms = []faultProgram{
	func() *pb.ExecuteRequest {
		return code("hostile", "import uuid\nprint(uuid.uuid4(), flush=True)\nopen('made', 'w').write('x')\nprint('end')")
	},
	func() *pb.ExecuteRequest {
		return shell("hostile", "cat /proc/sys/kernel/random/uuid; echo x >made; echo end")
	},
}

// lostWithDaemon are the ends of executions whose daemon dies or drains.
var lostWithDaemon = []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST, pb.ExecutionEnd_EXECUTION_END_CANCELLED}

// startLoad starts the clients. They use the socket of d and of each daemon after it.
func startLoad(t *testing.T, d *running, ends ...pb.ExecutionEnd) *faultLoad {
	return startLoadOf(t, d, faultPrograms, ends...)
}

// startLoadOf is like startLoad, with other programs.
func startLoadOf(t *testing.T, d *running, programs []faultProgram, ends ...pb.ExecutionEnd) *faultLoad {
	l := &faultLoad{programs: programs, ends: ends}
	l.start(t, d)
	return l
}

// start starts the clients of a load that has its settings.
func (l *faultLoad) start(t *testing.T, d *running) {
	l.t, l.runs, l.begun = t, d.runs, time.Now()
	t.Cleanup(l.end) // after a failure
	for i, name := range []string{"left", "right"} {
		l.tenants = append(l.tenants, d.asTenant(t.Context(), name, "invoke"))
		for c := range faultClients {
			l.clients.Go(func() {
				for n := 0; !l.ended.Load(); n++ {
					key := fmt.Sprintf("key%s-%d-%d", l.round, c/2, n)
					l.request(i, c, key, l.programs[c/2%len(l.programs)]())
				}
			})
		}
		l.startSession(d, i)
		l.startFreeSession(d, i)
	}
}

// untilAnswers waits for more answers.
func (l *faultLoad) untilAnswers(more int64) {
	l.t.Helper()
	goal := l.answers.Load() + more
	until(l.t, "the load stands still", func() bool { return l.answers.Load() >= goal })
}

// untilTried waits until more requests were answered or refused.
func (l *faultLoad) untilTried(more int64) {
	l.t.Helper()
	tried := func() int64 { return l.answers.Load() + l.refused.Load() }
	goal := tried() + more
	until(l.t, "no request is answered or refused", func() bool { return tried() >= goal })
}

// request sends a request until it is answered, and returns the last attempt. In a session, the answer is the outcome,
// because it has the committed version, or a refusal because of the session.
func (l *faultLoad) request(tenant, client int, key string, req *pb.ExecuteRequest) (op *faultOp) {
	limit := patience
	if slices.Contains(l.ends, pb.ExecutionEnd_EXECUTION_END_TIMED_OUT) {
		limit = faultWall
	}
	wall(req, limit)
	req.IdempotencyKey, req.Labels = key, map[string]string{"key": key}
	for l.t.Context().Err() == nil {
		op = &faultOp{tenant: tenant, client: tenant*tenantClients + client, key: key, req: req, call: time.Since(l.begun)}
		l.mu.Lock()
		l.ops = append(l.ops, op)
		l.mu.Unlock()
		err := l.try(op, req)
		if op.refused != "" {
			break
		}
		if op.outcome != nil || op.id != "" && req.Session == nil || l.damaged && status.Code(err) == codes.DataLoss {
			l.answers.Add(1)
			break
		}
	}
	return op
}

// try sends a request once.
func (l *faultLoad) try(op *faultOp, req *pb.ExecuteRequest) error {
	ctx, cancel := context.WithTimeout(l.tenants[op.tenant], patience)
	defer cancel()
	stream, err := l.runs.Execute(ctx, req, grpc.WaitForReady(true))
	if err == nil {
		var r *result
		r, err = collect(l.t, stream, 0, func(e *pb.ExecutionEvent) {
			if h := e.GetHeader(); h != nil {
				op.id, op.deduplicated, op.base, op.answer = e.ExecutionId, h.Deduplicated, h.Session, time.Since(l.begun)
			}
		})
		op.stdout, op.stderr, op.outcome, op.ended = r.stdout.Bytes(), r.stderr.String(), r.outcome, time.Since(l.begun)
		if slices.Contains(l.ends, r.outcome.GetEnd()) {
			l.excused.Add(1)
		}
	}
	if op.refused = sessionRefusal(err); op.refused == sessionIsBusy && req.Session.GetWait() || op.refused == sessionIsDamaged && !l.damaged {
		op.refused = "" // it is repeated
	}
	if op.refused != "" {
		op.answer = time.Since(l.begun)
	}
	if err != nil && (op.refused == "" || op.refused == sessionIsDamaged) {
		l.refusal(op.key, err)
	}
	return err
}

// refusal checks the error of a request.
func (l *faultLoad) refusal(key string, err error) {
	l.refused.Add(1)
	code := status.Code(err)
	if l.refusesNone {
		l.t.Logf("%s was refused after %v: %v", key, time.Since(l.begun), err)
	}
	if code != codes.Unavailable && !slices.Contains(l.refusals, code) && l.t.Context().Err() == nil {
		l.t.Errorf("%s: %v", key, err)
	}
}

// end waits until each client has the answer to its last request.
func (l *faultLoad) end() {
	l.ended.Store(true)
	l.clients.Wait()
}

// verify compares the answers that the clients got with the records of the daemon that runs now.
func (l *faultLoad) verify(row *faultRow) {
	type place struct {
		tenant int
		key    string
	}
	byKey := map[place]string{}
	read := map[string]*result{}
	for _, op := range l.ops {
		if op.id == "" {
			continue
		}
		at := place{op.tenant, op.key}
		if first := byKey[at]; first != "" && first != op.id {
			row.doubled++
			l.t.Errorf("%s has two executions, %s and %s%s", op.key, first, op.id, l.answersTo(op.tenant, op.key))
		}
		byKey[at] = op.id
		if read[op.id] == nil {
			read[op.id] = l.read(op)
			if n := bytes.Count(read[op.id].stdout.Bytes(), []byte("-")); n > 4 {
				row.doubled++
				l.t.Errorf("%s started more than once: %q", op.id, read[op.id].stdout.String())
			}
		}
		if err := l.compare(op, read[op.id]); err != nil {
			row.lost++
			l.t.Errorf("%s, %s: %v", op.id, op.key, err)
		}
	}
	row.tried += len(byKey)
	if !isLinearizable(l.t, l.histories(), keyModel) {
		row.doubled++
		l.t.Error("no order of the requests explains the answers to their idempotency keys")
	}
	histories := l.sessionHistories(read)
	wantAllKinds(l.t, histories)
	if !isLinearizable(l.t, histories, sessionModel) {
		row.lost++
		l.t.Error("no order of the executions explains the files and versions of the sessions")
	}
}

// answersTo lists the requests with a key.
func (l *faultLoad) answersTo(tenant int, key string) string {
	var b strings.Builder
	for _, op := range l.ops {
		if op.tenant == tenant && op.key == key {
			fmt.Fprintf(&b, "\nclient %d, from %v to %v: %q, deduplicated %v, outcome %v", op.client, op.call, op.answer, op.id, op.deduplicated, op.outcome.GetEnd())
		}
	}
	return b.String()
}

// read returns all that the daemon knows of an execution.
func (l *faultLoad) read(op *faultOp) *result {
	ctx, cancel := context.WithTimeout(l.tenants[op.tenant], patience)
	defer cancel()
	stream, err := l.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: op.id})
	if err == nil {
		var r *result
		r, err = collect(l.t, stream, 0, nil)
		if err == nil {
			return r
		}
		if l.powerless && status.Code(err) == codes.DataLoss {
			r.damaged = true
			return r
		}
	}
	l.t.Errorf("%s: %v", op.id, err)
	return &result{}
}

// compare compares the answers of an execution with the record.
func (l *faultLoad) compare(op *faultOp, now *result) error {
	out, text := now.outcome, now.stdout.Bytes()
	switch {
	case now.damaged:
		return nil // the daemon says that its output is lost
	case out == nil:
		return errors.New("it has no end")
	case l.powerless: // output that the client had may be lost
	case !bytes.HasPrefix(text, op.stdout):
		return fmt.Errorf("its client had %q, and the record has %q", op.stdout, text)
	case op.outcome != nil && op.outcome.End != out.End:
		return fmt.Errorf("its client was told %v, and the record has %v", op.outcome.End, out.End)
	case op.outcome != nil && len(op.stdout) != len(text):
		return fmt.Errorf("its client had all of %q, and the record has %q", op.stdout, text)
	}
	code := int32(0)
	if op.fails() {
		code = failure
	}
	switch {
	case slices.Contains(l.ends, out.End) && l.tenants[op.tenant] != l.spared:
		return nil
	case out.End != pb.ExecutionEnd_EXECUTION_END_EXITED || out.GetExitCode() != code:
		return fmt.Errorf("it ended as %v", out)
	case l.scarce && (out.GetStdout().GetTruncated() || len(out.GetArtifactsRefused()) > 0 || slices.Contains([]pb.SessionUncommitted{commitError, commitUnknown}, out.GetSession().GetUncommitted())):
		return nil
	case op.base != nil:
		made := out.GetSession().GetCommittedVersion()
		if commits := code == 0 || op.req.Session.CommitFailed; commits != (made != 0) || commits && op.req.Session.Version == 0 && made != op.base.Version+1 {
			return fmt.Errorf("it ended with version %d, from version %d: %v", made, op.base.Version, out)
		}
	case !bytes.HasSuffix(text, []byte("\nend\n")) || out.GetArtifactCount() != 1:
		return fmt.Errorf("it succeeded with %q and %d artifacts", text, out.GetArtifactCount())
	}
	return nil
}
