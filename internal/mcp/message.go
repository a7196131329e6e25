package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skillrun/skillrun/internal/toolview"
)

// maxExactInteger is the limit up to which float64 holds every integer. JSON decoders, the
// SDK's too, read numbers as float64. Above the limit, two different ids could become the
// same.
const maxExactInteger = 1 << 53

// kinds maps fields of params to the first byte of a valid value. For other values the
// SDK's error would name a Go type.
var kinds = map[string]struct {
	first byte
	name  string
}{
	"_meta": {'{', "an object"}, "capabilities": {'{', "an object"}, "clientInfo": {'{', "an object"},
	"name": {'"', "a string"}, "uri": {'"', "a string"}, "cursor": {'"', "a string"}, "protocolVersion": {'"', "a string"},
}

// An envelope has the parts of a message that this package reads itself.
type envelope struct {
	id     json.RawMessage // nil: the message has no id
	method string          // empty: the message is a response
	meta   map[string]json.RawMessage
	uri    string // of the resource that a resources/read names
	// reads: the call only reads, for example a file. It ends soon, and its answer may be large.
	reads bool
}

// isCall reports whether the message is a request, which must be answered.
func (e envelope) isCall() bool { return e.method != "" && e.id != nil }

// needsSession reports whether the call must come after initialize: it is not one of the
// calls before it, and its protocol version has sessions.
func (e envelope) needsSession() bool {
	switch e.method {
	case "initialize", "ping", "server/discover":
		return false
	}
	var version string
	return json.Unmarshal(e.meta["io.modelcontextprotocol/protocolVersion"], &version) != nil || version < perCallVersion
}

// readEnvelope parses a message before the SDK sees it. It reports an invalid message in
// the words of the protocol.
func readEnvelope(body []byte) (e envelope, bad *refusal) {
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case !json.Valid(body):
		return e, &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeParseError, reason: "the message is not valid JSON"}
	case trimmed[0] == '[':
		return e, refuse(http.StatusBadRequest, "batches are not supported (the protocol dropped them in 2025-06-18); send one message at a time")
	case trimmed[0] != '{':
		return e, refuse(http.StatusBadRequest, "the message is not a JSON object")
	}
	fields := object(body)
	if string(fields["jsonrpc"]) != `"2.0"` {
		return e, refuse(http.StatusBadRequest, `not a JSON-RPC message: jsonrpc is not "2.0"`)
	}
	if !null(fields["id"]) {
		e.id = fields["id"]
	}
	// The refusal has the id of the request if the id can be sent back.
	none := func(format string, args ...any) (envelope, *refusal) {
		bad := refuse(http.StatusBadRequest, "not a JSON-RPC message: "+format, args...)
		if e.id != nil && (e.id[0] == '"' || isNumber(e.id)) {
			bad.id = e.id
		}
		return e, bad
	}
	if why := notExact(e.id); why != "" {
		return none("id %s", why)
	}
	method, asked := fields["method"]
	if len(body) > maxSmall && string(method) != `"tools/call"` {
		return none("it is larger than %d bytes; only tools/call may be larger", maxSmall)
	}
	if !asked {
		if fields["result"] == nil && fields["error"] == nil {
			return none("it has no method")
		}
		return e, nil
	}
	if json.Unmarshal(method, &e.method) != nil || e.method == "" {
		return none("method is not a non-empty string")
	}
	if e.id != nil && strings.HasPrefix(e.method, "notifications/") {
		return none("%.80q is a notification, which has no id", e.method)
	}
	params, meta, bad := checkParams(fields["params"])
	if bad != nil {
		bad.id = e.id
		return e, bad
	}
	e.meta = meta
	// Anything but a text was refused above, or is left out.
	switch e.method {
	case "resources/read":
		e.reads = true
		_ = json.Unmarshal(params["uri"], &e.uri)
	case "tools/call":
		var tool string
		_ = json.Unmarshal(params["name"], &tool)
		e.reads = toolview.OnlyReads(tool)
	}
	return e, nil
}

// checkParams checks the types of a request's parameters. It returns their fields, and those of _meta.
func checkParams(params json.RawMessage) (fields, meta map[string]json.RawMessage, bad *refusal) {
	wrong := func(format string, args ...any) (_, _ map[string]json.RawMessage, bad *refusal) {
		return nil, nil, &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, reason: fmt.Sprintf(format, args...)}
	}
	if null(params) {
		return nil, nil, nil
	}
	if params[0] != '{' {
		return wrong("params is not an object")
	}
	fields = object(params)
	for name, kind := range kinds {
		if value := fields[name]; !null(value) && value[0] != kind.first {
			return wrong("params.%s is not %s", name, kind.name)
		}
	}
	if why := notExact(fields["requestId"]); why != "" {
		return nil, nil, refuse(http.StatusBadRequest, "params.requestId %s", why)
	}
	if len(fields["_meta"]) > maxSmall {
		return wrong("params._meta is larger than %d bytes", maxSmall)
	}
	if !null(fields["_meta"]) {
		meta = object(fields["_meta"])
		if why := notExact(meta["progressToken"]); why != "" {
			return nil, nil, refuse(http.StatusBadRequest, "params._meta.progressToken %s", why)
		}
	}
	return fields, meta, nil
}

// notExact says why an id or a token would come back changed. Empty: it would not, or there
// is none.
func notExact(value json.RawMessage) string {
	if null(value) || value[0] == '"' {
		return ""
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n > maxExactInteger || n < -maxExactInteger || strconv.FormatInt(n, 10) != string(value) {
		return fmt.Sprintf("%.40s: use a string, or an integer up to 2^53", value)
	}
	return ""
}

// object decodes a JSON object by keys; if a key is repeated, its last value counts. It
// returns nil if data is not an object.
func object(data []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	return fields
}

// null reports whether a field is missing or null. The protocol treats both alike.
func null(value json.RawMessage) bool { return value == nil || string(value) == "null" }

// isNumber looks at the first byte only: value is valid JSON and not empty.
func isNumber(value json.RawMessage) bool {
	return value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// coded gives an SDK error without a code the code for an invalid request. Such errors are
// about requests at the wrong time, such as a second initialize.
func coded(err error) error {
	if wire := (*jsonrpc.Error)(nil); err == nil || errors.As(err, &wire) && wire.Code != 0 {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
}
