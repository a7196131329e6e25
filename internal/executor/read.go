package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
)

// Reading executions. Everything here asks the record, with the caller's tenant: an execution of
// another tenant is ErrNotFound. Only the position in the queue comes from the live run.

// Get returns one execution. The error is ErrNotFound, or ours.
func (x *Executor) Get(ctx context.Context, who permission.Principal, id string) (Execution, error) {
	r, err := x.row(ctx, who, id)
	if err != nil {
		return Execution{}, err
	}
	e := x.toExecution(r)
	if e.Outcome != nil && e.Outcome.Count > 0 {
		e.Outcome.Artifacts, err = x.listed(ctx, who.Tenant, id)
	}
	return e, err
}

// row returns the recorded execution, if it belongs to the caller's tenant; else ErrNotFound,
// so that IDs of other tenants can't be told from unused ones.
func (x *Executor) row(ctx context.Context, who permission.Principal, id string) (record.Execution, error) {
	r, err := x.Record.Get(ctx, who.Tenant, id)
	return r, notFound(err, id)
}

// listed returns the artifacts that an outcome names.
func (x *Executor) listed(ctx context.Context, tenant, id string) ([]Artifact, error) {
	rows, _, err := x.Record.ListArtifacts(ctx, tenant, id, MaxListedArtifacts, "")
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil // removed since its end was read
	}
	if err != nil {
		return nil, fmt.Errorf("execution %s: %w", id, err)
	}
	var out []Artifact
	bytes := 0
	for _, a := range rows {
		if bytes += len(a.Path); bytes > maxListedBytes {
			break
		}
		out = append(out, newArtifact(a.Path, a.SizeBytes, a.SHA256, a.Executable))
	}
	return out, nil
}

// A Filter selects executions. Zero fields select all.
type Filter struct {
	// AllTenants is for operators: not only the caller's tenant.
	AllTenants bool
	Principal  string
	Skill      string
	States     []State
	Ends       []End
	Labels     map[string]string // all of them
	// Created at CreatedAfter or later, and before CreatedBefore.
	CreatedAfter, CreatedBefore time.Time
	OldestFirst                 bool
	// As in record.Filter. PageToken is from an earlier page of the same filter; empty: the first
	// page.
	PageSize  int
	PageToken string
}

// List returns a page of executions without their artifacts, newest first unless f says otherwise,
// and the token of the next page, empty at the end.
// The lists of a tenant take turns. More labels than an execution may have are a *RequestError.
func (x *Executor) List(ctx context.Context, who permission.Principal, f Filter) ([]Execution, string, error) {
	// Each label is a condition of the query, and the database bounds the conditions of a query.
	if len(f.Labels) > MaxLabels {
		return nil, "", &RequestError{"labels", fmt.Sprintf("%d of them; an execution has at most %d", len(f.Labels), MaxLabels)}
	}
	defer x.lists.enter(ctx, who.Tenant)()
	filter := record.Filter{
		Tenant: who.Tenant, AllTenants: f.AllTenants, Principal: f.Principal, Skill: f.Skill, Labels: f.Labels,
		CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore, OldestFirst: f.OldestFirst,
		PageSize: f.PageSize, PageToken: f.PageToken,
	}
	// Records have full names. If no loaded skill has the name, the filter takes the name unchanged.
	if sk, err := x.skillsOf(who).Resolve(f.Skill); err == nil {
		filter.Skill = sk.Name
	}
	for _, s := range f.States {
		filter.States = append(filter.States, toRecordState[s])
	}
	for _, e := range f.Ends {
		filter.Ends = append(filter.Ends, string(e))
	}
	rows, next, err := x.Record.List(ctx, filter)
	if err != nil {
		return nil, "", pageError(err)
	}
	out := make([]Execution, len(rows))
	for i, r := range rows {
		out[i] = x.toExecution(r)
	}
	return out, next, nil
}

// A Follower reads the events of one execution at its own pace.
type Follower struct {
	x          *Executor
	tenant, id string
	r          *record.Reader
}

// Follow reads the events of an execution after a sequence number, the stored ones first. The execution
// may have run in an earlier daemon. The caller closes the Follower.
func (x *Executor) Follow(ctx context.Context, who permission.Principal, id string, after uint64) (*Follower, error) {
	r, err := x.Record.Read(ctx, who.Tenant, id, after)
	if err != nil {
		return nil, notFound(err, id)
	}
	return &Follower{x, who.Tenant, id, r}, nil
}

// Next waits for the next event. It returns io.EOF after the outcome. If ctx is done first,
// it returns the error of ctx, and a later Next goes on with the same event. One goroutine at
// a time may call Next.
func (f *Follower) Next(ctx context.Context) (Event, error) {
	r, err := f.r.Next(ctx)
	if err != nil {
		return Event{}, err
	}
	e := Event{ID: f.id, Seq: r.Seq, Time: r.Time}
	switch r.Kind {
	case record.KindHeader:
		e.Header, err = decodeEvent[Header](f.id, r)
	case record.KindStarted:
		e.Started, err = decodeEvent[Started](f.id, r)
	case record.KindOutput:
		e.Output = &Output{Stream: Stream(r.Stream), Offset: r.Offset, Data: r.Data}
		e.release = r.Release
	case record.KindDenied:
		e.Denied, err = decodeEvent[policy.Denial](f.id, r)
	case record.KindEnd:
		if e.Outcome, err = decodeEvent[Outcome](f.id, r); err == nil && e.Outcome.Count > 0 {
			// Without ctx: the outcome has been read from the log and would not
			// come again.
			e.Outcome.Artifacts, err = f.x.listed(context.WithoutCancel(ctx), f.tenant, f.id)
		}
	default:
		err = &CorruptError{ID: f.id, Reason: fmt.Sprintf("event %d has the unknown kind %d", r.Seq, r.Kind)}
	}
	if err != nil {
		return Event{}, fmt.Errorf("execution %s: %w", f.id, err)
	}
	return e, nil
}

// Position returns the present position of the execution in its tenant's queue, or 0 if it does not
// wait for a slot. Position 1 is next. An execution whose Position was 0 once never waits again.
func (f *Follower) Position() int { return f.x.position(f.id) }

// Close frees the Follower's resources.
func (f *Follower) Close() error { return f.r.Close() }

// ReadOutput returns at least most bytes of a stream from an offset on, if the stream has that many now. Else it returns
// what there is, and end is the size of the stream. The reads of a tenant take turns.
func (x *Executor) ReadOutput(ctx context.Context, who permission.Principal, id string, stream Stream, offset int64, most int) (data []byte, end int64, err error) {
	defer x.outputs.enter(ctx, who.Tenant)()
	e, err := x.Get(ctx, who, id)
	if err != nil {
		return nil, 0, err
	}
	events, err := x.Follow(ctx, who, id, 0)
	if err != nil {
		return nil, 0, err
	}
	defer events.Close()
	for seq := uint64(0); seq < e.LastSeq && len(data) < most; {
		next, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		seq = next.Seq
		if out := next.Output; out != nil && out.Stream == stream {
			if end = int64(out.Offset) + int64(len(out.Data)); end > offset {
				data = append(data, out.Data[max(0, offset-int64(out.Offset)):]...)
			}
		}
		next.Release()
	}
	return data, end, nil
}

// Artifacts returns a page of an execution's artifacts, by path, and the token
// of the next one.
func (x *Executor) Artifacts(ctx context.Context, who permission.Principal, id string, pageSize int, pageToken string) ([]Artifact, string, error) {
	rows, next, err := x.Record.ListArtifacts(ctx, who.Tenant, id, pageSize, pageToken)
	if err != nil {
		return nil, "", pageError(notFound(err, id))
	}
	out := make([]Artifact, len(rows))
	for i, a := range rows {
		out[i] = newArtifact(a.Path, a.SizeBytes, a.SHA256, a.Executable)
	}
	return out, next, nil
}

// Delete removes an ended execution: its record, its output and its artifacts. Its idempotency key
// is free again. The error is a *NotFoundError, a *NotEndedError, or ours.
func (x *Executor) Delete(ctx context.Context, who permission.Principal, id string) error {
	// First check that the execution exists, so that deletions of made-up ids don't fill the audit log.
	if _, err := x.row(ctx, who, id); err != nil {
		x.Audit.NoteRefusal(entryOf(ctx, audit.Delete, who, id), err)
		return err
	}
	return x.audited(entryOf(ctx, audit.Delete, who, id), func() error {
		err := x.Record.Remove(ctx, who.Tenant, id)
		if errors.Is(err, record.ErrNotEnded) {
			return &NotEndedError{id}
		}
		return notFound(err, id)
	})
}

// OpenArtifact opens the content of one artifact. path is its exact name.
func (x *Executor) OpenArtifact(ctx context.Context, who permission.Principal, id, path string) (*os.File, Artifact, error) {
	if _, err := x.row(ctx, who, id); err != nil {
		return nil, Artifact{}, err
	}
	f, a, err := x.Record.OpenArtifact(ctx, who.Tenant, id, path)
	if errors.Is(err, record.ErrNotFound) {
		return nil, Artifact{}, &NoArtifactError{id, path}
	}
	if err != nil {
		return nil, Artifact{}, err
	}
	return f, newArtifact(a.Path, a.SizeBytes, a.SHA256, a.Executable), nil
}

var toRecordState = map[State]record.State{
	Queued: record.Queued, Running: record.Running, Ended: record.Ended,
}

var fromRecordState = map[record.State]State{
	record.Queued: Queued, record.Running: Running, record.Ended: Ended,
}

// toExecution reads a row. It logs damaged parts and leaves them out: one bad row must not hide the
// others.
func (x *Executor) toExecution(r record.Execution) Execution {
	e := Execution{
		ID: r.ID, State: fromRecordState[r.State], Tenant: r.Tenant, Principal: r.Principal,
		SourceKind: r.SourceKind, Script: r.Script, Labels: r.Labels,
		Created: r.Created, Started: r.Started, Ended: r.Ended, LastSeq: r.LastSeq,
		Expires: x.Record.Expires(r.Ended),
	}
	d := x.detail(r)
	e.Header, e.Request = d.Header, d.Request
	if e.State == Queued {
		e.Position = x.position(e.ID)
	}
	if r.State == record.Ended {
		var err error
		if e.Outcome, err = decode[Outcome](r.Outcome); err != nil {
			x.Log.Error("outcome is damaged", "execution", r.ID, "err", err)
			e.Outcome = &Outcome{End: End(r.End), SkillDigest: r.Digest}
		}
	}
	return e
}

// A detail is the part of an execution that has no columns in its row: the header's JSON, with the
// request's summary in it.
type detail struct {
	Header
	Request Summary `json:"request"`
}

// detail reads the detail from a row. If the detail is damaged, it logs that and returns one from the
// row's columns.
func (x *Executor) detail(r record.Execution) detail {
	d, err := decode[detail](r.Detail)
	if err != nil {
		x.Log.Error("header is damaged", "execution", r.ID, "err", err)
		return detail{Header: Header{Skill: r.Skill, SkillDigest: r.Digest}}
	}
	return *d
}

func decode[T any](data []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(data, v)
}

// decodeEvent reads the data of an event. The header and the outcome of an execution come from its row, which has no
// checksum.
func decodeEvent[T any](id string, e record.Event) (*T, error) {
	v, err := decode[T](e.Data)
	if err != nil {
		return nil, &CorruptError{ID: id, Reason: fmt.Sprintf("event %d: %v", e.Seq, err)}
	}
	return v, nil
}

// notFound turns the record's error about the execution id into a *NotFoundError.
func notFound(err error, id string) error {
	if errors.Is(err, record.ErrNotFound) {
		return &NotFoundError{id}
	}
	return err
}

// pageError turns the record's error about a page token into a *RequestError.
func pageError(err error) error {
	var bad *record.TokenError
	if errors.As(err, &bad) {
		return &RequestError{"page_token", "not one of this list; start again without it"}
	}
	return err
}
