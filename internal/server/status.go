package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo.
const errorDomain = "skillrun"

// A status travels in HTTP/2 trailers, of which some clients take no more than 8 KiB, encoded.
// The message is in them twice: percent-encoded as grpc-message, and in base64 within the
// details as grpc-status-details-bin. The limits are in bytes, before the encoding.
const (
	maxStatusText  = 1000
	maxStatusField = 200
	// Findings of one skill. skillrun validate lists all.
	maxStatusFindings = 8
)

// An executionError is an internal error about one execution.
type executionError struct {
	id  string
	err error
}

func (e *executionError) Error() string { return "execution " + e.id + ": " + e.err.Error() }
func (e *executionError) Unwrap() error { return e.err }

// answer turns a call's error into a status. It logs internal errors; nothing else does.
func (s *Server) answer(ctx context.Context, c *call, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err // gRPC's own, of a stream
	}
	if ofCaller(ctx, err) {
		s.count(cancelled)
		return status.FromContextError(ctx.Err()).Err()
	}
	if v, ok := classify(err); ok {
		s.count(reasonName(v.reason))
		if v.log {
			s.log.Error(v.message, "reference", c.reference, "method", c.method, "err", err)
		}
		return v.status().Err()
	}
	s.count(internal)
	var id string
	if e, ok := errors.AsType[*executionError](err); ok {
		id = e.id
	}
	s.log.Error("internal error", "reference", c.reference, "method", c.method, "execution", id, "err", err)
	return internalError(c.reference, id)
}

// count tells Config.Failed of an error.
func (s *Server) count(reason string) {
	if s.failed != nil {
		s.failed(reason)
	}
}

// Reason names the cause of an error as the contract's list of reasons does. It is CANCELLED if a
// context has ended, and INTERNAL for any other error that is not in the table. Reasons lists the
// words.
func Reason(err error) string {
	if v, ok := classify(err); ok {
		return reasonName(v.reason)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cancelled
	}
	return internal
}

// Reasons returns every word that Reason returns.
func Reasons() []string {
	all := []string{cancelled}
	for n := range pb.ErrorReason_name {
		if r := pb.ErrorReason(n); r != pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
			all = append(all, reasonName(r))
		}
	}
	return all
}

// cancelled is the reason of a call that its caller ended; internal is the reason of an error that is not in
// the table.
const cancelled = "CANCELLED"

var internal = reasonName(pb.ErrorReason_ERROR_REASON_INTERNAL)

// Explain returns an error's text for a caller who does not speak gRPC: the message of its
// status. It logs an internal error.
func (s *Server) Explain(err error) string {
	c := &call{method: "mcp", reference: newReference()}
	return status.Convert(s.answer(context.Background(), c, err)).Message()
}

// internalError names the line of the log with the cause, and not the cause. The id is empty
// if the error is about no execution.
func internalError(reference, id string) error {
	v := verdict{code: codes.Internal, reason: pb.ErrorReason_ERROR_REASON_INTERNAL, metadata: map[string]string{"reference": reference}}
	v.message = "internal error (reference " + reference + ")"
	if id != "" {
		v.message = "internal error (execution " + id + ")"
		v.metadata["executionId"] = id
	}
	return v.status().Err()
}

// violationsOf returns the findings with their file and line as the field.
func violationsOf(findings []manifest.Finding) *errdetails.BadRequest {
	out := &errdetails.BadRequest{}
	for _, f := range findings[:min(len(findings), maxStatusFindings)] {
		at := f.File
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		out.FieldViolations = append(out.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: clip(at, maxStatusField), Description: clip(f.Message, maxStatusField), Reason: f.Rule,
		})
	}
	return out
}

// status puts a verdict into gRPC's form, with the details of google.rpc that fit.
func (v verdict) status() *status.Status {
	message := clip(v.message, maxStatusText)
	info := &errdetails.ErrorInfo{Reason: reasonName(v.reason), Domain: errorDomain, Metadata: map[string]string{}}
	for key, value := range v.metadata {
		if value != "" {
			info.Metadata[key] = clip(value, maxStatusField)
		}
	}
	details := []protoadapt.MessageV1{info}
	if v.field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: v.field, Description: clip(v.message, maxStatusField)},
		}})
	}
	if len(v.findings) > 0 {
		details = append(details, violationsOf(v.findings))
	}
	if v.quota != "" {
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: v.quota, Description: clip(v.message, maxStatusField), QuotaId: v.quotaKey, QuotaValue: v.quotaValue},
		}})
	}
	if v.retry > 0 {
		retry := v.retry
		if v.spread {
			retry += rand.N(v.retry / 2)
		}
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	st := status.New(v.code, message)
	if full, err := st.WithDetails(details...); err == nil {
		return full
	}
	return st // a detail that can't be encoded must not hide the error
}

// reasonName returns a reason as the contract wants it in an ErrorInfo.
func reasonName(r pb.ErrorReason) string { return strings.TrimPrefix(r.String(), "ERROR_REASON_") }

// text makes bytes from elsewhere fit for a string field, which must be UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// texts is text for each element. The result is never nil.
func texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

// clip is text of at most limit bytes.
func clip(s string, limit int) string {
	s = text(s)
	if len(s) <= limit {
		return s
	}
	const more = "..."
	cut := limit - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
