package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// joinGroup helps a user without permission to open the socket. listen.unix_group of the daemon's configuration
// names the group.
const joinGroup = "your user may not open the socket; join its group, by default with sudo usermod -aG skillrun $USER, and log in again"

// explain returns one line: the failure, its cause, and a remedy. Without the daemon's details
// the error comes from gRPC itself: no daemon, or one that does not know the call. The parts of
// the line: the object (which execution or skill), the cause, and in parentheses the reason and
// remedies. The reason is stable, so scripts may search for it. The result is printable.
func (a *app) explain(err error) string {
	st, ok := status.FromError(err)
	if !ok {
		return printable(err.Error())
	}
	if why := skillrun.NoToken(err); why != "" {
		return printable(a.connection.tokenWord() + why)
	}
	// cause and object begin with the outermost text and get better ones if err wraps the status.
	cause := st.Proto().GetMessage()
	object := ""
	if inner := innermost(err); inner != nil {
		// The wrapped error prints as "execution x: rpc error: code = ... desc = ...".
		object = strings.TrimSuffix(err.Error(), inner.Error())
		cause = status.Convert(inner).Message()
		if strings.HasPrefix(cause, object) {
			object = "" // the daemon names it too
		}
	}
	if large := (*skillrun.MessageSizeError)(nil); errors.As(err, &large) {
		object = strings.TrimSuffix(err.Error(), large.Error())
		cause = fmt.Sprintf("the request has %d bytes, the daemon accepts %d: pass large data by --file or standard input, or raise message_bytes in the daemon's configuration", large.Size, large.Limit)
	}
	d := detailsOf(st)
	vain := (*waitError)(nil)
	if errors.As(err, &vain) {
		d.notes = append(d.notes, vain.remedy)
	}
	// No reason: the answer is gRPC's own, not the daemon's.
	if d.reason == "" {
		switch st.Code() {
		case codes.Unavailable:
			help := strings.Join(append([]string{connectHelp(cause)}, d.notes...), "; ")
			return printable(fmt.Sprintf("%sdaemon at %s: %s (%s)", object, a.at(), connectCause(cause), help))
		case codes.Unimplemented:
			return printable(fmt.Sprintf("%sdaemon at %s: %s (it is older than this client, %s: update it)", object, a.at(), cause, version))
		}
	}
	if text, ok := limitText(d); ok {
		cause = text
	} else {
		for _, path := range d.fields {
			cause = fieldText(cause, path, cmp.Or(a.words[path], wordOf(path)))
		}
		if len(d.fields) == 0 {
			cause = beginningText(cause)
		}
	}
	if d.reason == "SESSION_BUSY" && a.waitedForSession > 0 {
		d.notes = append(d.notes, fmt.Sprintf("waited for --queue-timeout %s; a longer one waits longer", a.waitedForSession))
	}
	notes := slices.DeleteFunc(slices.Clone(d.notes), func(note string) bool { return strings.Contains(cause, note) })
	if hint := cmp.Or(a.advice[d.reason], hint(d, cause)); hint != "" {
		notes = append(notes, hint)
	}
	name := d.reason
	if name == "" {
		name = st.Code().String()
	}
	return printable(fmt.Sprintf("%s%s (%s)", object, cause, strings.Join(append([]string{name}, notes...), "; ")))
}

// innermost returns the error in err that is a status itself. status.FromError also accepts an
// error that wraps one, but its message then has the text of the wrapping too.
func innermost(err error) error {
	for err != nil {
		if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
			return err
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return nil
		}
		err = u.Unwrap()
	}
	return nil
}

// connectCause cuts gRPC's own words around the cause of a connection that
// failed. A message in another form is not changed: grpc-go promises no form of its messages.
func connectCause(message string) string {
	for _, c := range []struct{ words, cause string }{
		{"looked like an HTTP/1.1 header", "it answers in HTTP/1.1, which gRPC does not use"},
		{"produced zero addresses", "its host is not found"},
		{"received prior goaway", "the daemon stopped, or handed over to another one, before it answered"},
	} {
		if strings.Contains(message, c.words) {
			return c.cause
		}
	}
	for _, before := range []string{"Error while dialing: ", "authentication handshake failed: ", `connection error: desc = "`} {
		if _, after, ok := strings.Cut(message, before); ok {
			return "cannot reach it: " + strings.TrimSuffix(after, `"`)
		}
	}
	return message
}

// connectHelp says what to do about a connection that failed, from the words of the operating system, of crypto/tls and
// of gRPC.
func connectHelp(message string) string {
	for _, h := range []struct{ words, help string }{
		{"permission denied", joinGroup},
		{"received prior goaway", "run the command again"},
		{"signed by unknown authority", "--tls-ca FILE has the authority of the daemon's certificate"},
		{"cannot validate certificate for", "use a name that the daemon's certificate has, as the address or as --tls-server-name"},
		{"certificate is valid for", "use a name that the daemon's certificate has, as the address or as --tls-server-name"},
		{"first record does not look like a TLS handshake", "the daemon has no TLS at this address: leave out --tls and --tls-ca"},
		{"no application protocol", "this address is not for gRPC; the one of listen.mcp_tcp is for skillrun mcp"},
		{"looked like an HTTP/1.1 header", "is it the address for MCP or for metrics? --address takes the one for gRPC"},
		{"produced zero addresses", "check the name in the address"},
		{"error reading server preface", "if the daemon has TLS at this address, add --tls-ca FILE, or --tls"},
	} {
		if strings.Contains(message, h.words) {
			return h.help
		}
	}
	return "is skillrund running? skillrun doctor says more"
}

// details are the typed parts of the daemon's error.
type details struct {
	reason   string
	metadata map[string]string
	// Paths of the request's fields, as the contract names them.
	fields []string
	// Remedies in the words of this command.
	notes []string
}

// detailsOf reads the details of google.rpc. An ErrorInfo of another domain is not the
// daemon's: a proxy may have made it.
func detailsOf(st *status.Status) details {
	var d details
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == skillrun.Domain {
				d.reason, d.metadata = detail.GetReason(), detail.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				d.fields = append(d.fields, v.GetField())
			}
		case *errdetails.RetryInfo:
			d.notes = append(d.notes, "try again in "+detail.GetRetryDelay().AsDuration().Round(time.Millisecond).String())
		}
	}
	return d
}

// hint says what to do about an error, where its reason tells and its text, the
// cause, doesn't.
func hint(d details, cause string) string {
	// A value that the cause names already is not said twice.
	value := func(format, key string) string {
		if v := d.metadata[key]; v != "" && !strings.Contains(cause, v) {
			return fmt.Sprintf(format, v)
		}
		return ""
	}
	switch d.reason {
	case "SKILL_NOT_FOUND":
		return "'skillrun skills' lists what there is"
	case "SKILL_FILE_NOT_FOUND":
		return "'skillrun skills NAME' lists the scripts of a skill"
	case "EXECUTION_NOT_FOUND":
		return "'skillrun ps --all' lists what there is"
	case "SESSION_NOT_FOUND":
		switch { // the reason is the same for a session, a version and a file
		case strings.HasPrefix(cause, "path "):
			return "'skillrun session show SESSION' lists the files"
		case strings.Contains(cause, ": version "):
			return "'skillrun session versions SESSION' lists the versions"
		}
		return "'skillrun session ls' lists what there is"
	case "COMMAND_NOT_ALLOWED":
		if remedy := remedyText("", d.metadata["instead"]); remedy != "" {
			return remedy
		}
		return value("allowed-tools would need %s", "missingRule")
	case "DIGEST_MISMATCH":
		return value("it is %s now", "currentDigest")
	case "IDEMPOTENCY_KEY_REUSED":
		return value("it belongs to execution %s", "executionId")
	}
	return ""
}
