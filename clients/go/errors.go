package skillrun

import (
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
