package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxExactInteger is the largest integer up to which every one is a float64, which
// is what a number becomes on its way through JSON decoders, the SDK's too. Above
// it, two ids of a client could become one.
const maxExactInteger = 1 << 53

// kinds are what fields of params begin with. The SDK would say of others which Go
// type it could not fill.
var kinds = map[string]struct {
	first byte
	name  string
}{
	"_meta": {'{', "an object"}, "capabilities": {'{', "an object"}, "clientInfo": {'{', "an object"},
	"name": {'"', "a string"}, "uri": {'"', "a string"}, "cursor": {'"', "a string"}, "protocolVersion": {'"', "a string"},
}

// An envelope is what this package itself reads of a message.
type envelope struct {
	id     json.RawMessage // nil: there is none
	method string          // empty: a response
	meta   map[string]json.RawMessage
}

// isCall reports whether somebody waits for an answer.
func (e envelope) isCall() bool { return e.method != "" && e.id != nil }

// needsSession reports whether a call of a version with sessions has to come after
// initialize.
func (e envelope) needsSession() bool {
	switch e.method {
	case "initialize", "ping", "server/discover":
		return false
	}
	var version string
	return json.Unmarshal(e.meta["io.modelcontextprotocol/protocolVersion"], &version) != nil || version < perCallVersion
}

// readEnvelope says what of a message is none, in words of the protocol, before the
// SDK sees it.
func readEnvelope(body []byte) (e envelope, bad *refusal) {
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case !json.Valid(body):
		return e, &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeParseError, reason: "the message is not valid JSON"}
	case trimmed[0] == '[':
		return e, refuse(http.StatusBadRequest, "batches are not taken (the protocol dropped them in 2025-06-18); send one message at a time")
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
	// An answer to whoever waits for it, if that can be said.
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
		return none("it is larger than %d bytes, which only tools/call may be", maxSmall)
	}
	if !asked {
		if fields["result"] == nil && fields["error"] == nil {
			return none("it has no method")
		}
		return e, nil
	}
	if json.Unmarshal(method, &e.method) != nil || e.method == "" {
		return none("method is not the name of one")
	}
	if e.meta, bad = checkParams(fields["params"]); bad != nil {
		bad.id = e.id
	}
	return e, bad
}

// checkParams looks at what a request says of itself, and returns its _meta.
func checkParams(params json.RawMessage) (meta map[string]json.RawMessage, bad *refusal) {
	wrong := func(format string, args ...any) (map[string]json.RawMessage, *refusal) {
		return nil, &refusal{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, reason: fmt.Sprintf(format, args...)}
	}
	if null(params) {
		return nil, nil
	}
	if params[0] != '{' {
		return wrong("params is not an object")
	}
	fields := object(params)
	for name, kind := range kinds {
		if value := fields[name]; !null(value) && value[0] != kind.first {
			return wrong("params.%s is not %s", name, kind.name)
		}
	}
	if why := notExact(fields["requestId"]); why != "" {
		return nil, refuse(http.StatusBadRequest, "params.requestId %s", why)
	}
	if len(fields["_meta"]) > maxSmall {
		return wrong("params._meta is larger than %d bytes", maxSmall)
	}
	if meta := fields["_meta"]; !null(meta) {
		fields = object(meta)
		if why := notExact(fields["progressToken"]); why != "" {
			return nil, refuse(http.StatusBadRequest, "params._meta.progressToken %s", why)
		}
		return fields, nil
	}
	return nil, nil
}

// notExact says why an id or a token would not come back as it is. Empty: it would,
// or there is none.
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

// object is a JSON object by its keys, of which the last one counts. Nil: it is none.
func object(data []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	return fields
}

func null(value json.RawMessage) bool { return value == nil || string(value) == "null" }

func isNumber(value json.RawMessage) bool {
	return value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// coded gives an error of the SDK that has no code the one of a request that can't
// be at this point, such as a second initialize.
func coded(err error) error {
	if wire := (*jsonrpc.Error)(nil); err == nil || errors.As(err, &wire) && wire.Code != 0 {
		return err
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
}
