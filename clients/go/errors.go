package skillrun

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the ErrorInfo domain of the daemon's errors.
const Domain = "skillrun"

// Reason returns the stable reason of an error from the daemon, such as "SKILL_NOT_FOUND",
// or "" for other errors. The daemon sends it as an ErrorInfo detail (google.rpc), so err may be
// any gRPC error, also a wrapped one. Programs should compare the reason, not the message.
func Reason(err error) string {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return ""
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason()
		}
	}
	return ""
}

// A MessageSizeError says that the request message is larger than the daemon accepts.
// Nothing ran. Files and standard input that are sent in pieces do not count.
type MessageSizeError struct {
	Size, Limit int // in bytes
	err         error
}

func (e *MessageSizeError) Error() string {
	return fmt.Sprintf("the request has %d bytes, the daemon accepts %d: pass large data as Files or Stdin, which are sent in pieces, or raise message_bytes in the daemon's configuration: %v", e.Size, e.Limit, e.err)
}

// Unwrap returns gRPC's status error.
func (e *MessageSizeError) Unwrap() error { return e.err }

// sized converts the error for a message that is too large into a MessageSizeError. The
// error comes from the daemon or, without details, from the daemon's gRPC library.
func sized(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.ResourceExhausted && (Reason(err) == "" || Reason(err) == "MESSAGE_TOO_LARGE") {
		e := &MessageSizeError{err: err}
		if n, _ := fmt.Sscanf(st.Message(), "grpc: received message larger than max (%d vs. %d)", &e.Size, &e.Limit); n == 2 {
			return e
		}
	}
	return err
}

// MayHaveStarted reports whether err, an error of Start or Run, leaves open whether the program has started: the
// request was sent, and the stream or ctx ended before the daemon's answer. If Start sent the request several times, one
// such try is enough. Execution is nil then. With the same IdempotencyKey the command may be sent again: its program
// never runs twice.
func MayHaveStarted(err error) bool { return errors.As(err, new(*startError)) }

// A startError is the last error of a request that a daemon may have accepted in one of the tries.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// unanswered reports whether err does not say what the daemon did with a request.
func unanswered(err error) bool {
	// ResourceExhausted is gRPC's answer to a message that is too large.
	return Reason(err) == "" && broken(err) && status.Code(err) != codes.ResourceExhausted
}

// broken reports whether err may be caused by the connection, so that the call can succeed
// on another one. The codes in the list are answers of the daemon. An error without a
// status comes from this side.
func broken(err error) bool {
	st, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch st.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.Unauthenticated:
		return false
	}
	return true
}
