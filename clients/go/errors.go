package skillrun

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the domain of every reason that the daemon gives.
const Domain = "skillrun"

// Reason returns the stable reason that the daemon gave for an error, such as
// "SKILL_NOT_FOUND", or "" if the error did not come from it.
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

// A MessageSizeError says that a request is larger than the daemon takes, as far as it
// was not sent in pieces. It was not even read.
type MessageSizeError struct {
	Size, Limit int // in bytes
	err         error
}

func (e *MessageSizeError) Error() string {
	return fmt.Sprintf("the request has %d bytes, the daemon takes %d: pass large data as Files or Stdin, which go in pieces, or raise message_bytes in its config: %v", e.Size, e.Limit, e.err)
}

// Unwrap returns the status that gRPC gave.
func (e *MessageSizeError) Unwrap() error { return e.err }

// sized makes a MessageSizeError of what the daemon says of one, or its gRPC, which
// has no details.
func sized(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() == codes.ResourceExhausted && (Reason(err) == "" || Reason(err) == "MESSAGE_TOO_LARGE") {
		e := &MessageSizeError{err: err}
		if n, _ := fmt.Sscanf(st.Message(), "grpc: received message larger than max (%d vs. %d)", &e.Size, &e.Limit); n == 2 {
			return e
		}
	}
	return err
}

// broken reports whether err may be the connection's fault, so that the same
// call can succeed on another one. The codes that it excludes are answers, and
// what is no status is ours.
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
