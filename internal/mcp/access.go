package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/toolview"
)

// codeDenied is the JSON-RPC error code for a caller who may not send a message. It lies in the
// range of errors that a server defines (JSON-RPC 2.0, section 5.1); the SDK uses others there.
const codeDenied = -32010

// accessTable has the role that each method needs. A method that is not in the table is closed for
// everybody, so a method that the SDK adds is closed until someone opens it here. The SDK itself
// refuses the methods that it does not know.
var accessTable = map[string]identity.Role{
	"initialize":                       identity.Read,
	"ping":                             identity.Read,
	"server/discover":                  identity.Read,
	"notifications/initialized":        identity.Read,
	"notifications/cancelled":          identity.Read,
	"notifications/progress":           identity.Read,
	"notifications/roots/list_changed": identity.Read,
	"logging/setLevel":                 identity.Read,
	"completion/complete":              identity.Read,
	"prompts/list":                     identity.Read,
	"prompts/get":                      identity.Read,
	"resources/list":                   identity.Read,
	"resources/templates/list":         identity.Read,
	"resources/read":                   identity.Read,
	"resources/subscribe":              identity.Read,
	"resources/unsubscribe":            identity.Read,
	"subscriptions/listen":             identity.Read,
	"tools/list":                       identity.Read,
	// A tool that runs a program needs Invoke, see needOf.
	"tools/call": identity.Read,

	methodList:      identity.Read,
	methodGet:       identity.Read,
	methodDirectory: identity.Read,

	methodPublished: identity.Read, // not of MCP
}

// Reasons for the audit log, as in the contract's ErrorReason.
const (
	unidentified = "UNIDENTIFIED"
	roleRequired = "ROLE_REQUIRED"
	saturated    = "SATURATED"
)

// needOf returns the role that a message needs.
func needOf(method string, req sdk.Request) identity.Role {
	if call, ok := req.(*sdk.CallToolRequest); ok && (call.Params == nil || !toolview.OnlyReads(call.Params.Name)) {
		return identity.Invoke
	}
	return accessTable[method]
}

// mayCall returns nil if the caller may send a message with this method that needs a role, else an error and its
// reason.
func (c *caller) mayCall(method string, need identity.Role) (reason string, err error) {
	who := c.Identity
	if c.again != nil {
		now, err := c.again()
		if err != nil {
			return unidentified, &jsonrpc.Error{Code: codeDenied, Message: "not identified: " + err.Error()}
		}
		// The connection is the session of one principal.
		if now.Principal != who.Principal {
			return unidentified, &jsonrpc.Error{Code: codeDenied, Message: "not identified: the credential is another principal's now; connect again"}
		}
		who = now
	}
	if need == identity.None {
		return roleRequired, &jsonrpc.Error{Code: codeDenied, Message: fmt.Sprintf("%.80q: no role may call this method", method)}
	}
	if !who.Role.Covers(need) {
		return roleRequired, &jsonrpc.Error{Code: codeDenied, Message: fmt.Sprintf("%s needs the role %s; %s of tenant %s has %s", method, need, who.Name, who.Tenant, who.Role)}
	}
	return "", nil
}

// mayCall is caller.mayCall, for callers whose tenant exists. It counts the message in the tenant's quota of calls, also
// one that the caller's role refuses, unless the caller is an operator, or the message has no answer: see count.
func (s *Server) mayCall(c *caller, method string, need identity.Role) (reason string, err error) {
	reason, refused := c.mayCall(method, need)
	t, err := s.x.Tenant(c.Principal)
	switch {
	case reason == unidentified:
		return reason, refused
	case err != nil:
		return audit.TenantUnknown, &jsonrpc.Error{Code: codeDenied, Message: err.Error()}
	case c.Role == identity.Operator || strings.HasPrefix(method, "notifications/"):
		return reason, refused
	}
	c.counted.Store(true)
	if err := s.x.EnterCall(c.here, t); err != nil && refused == nil {
		return saturated, &jsonrpc.Error{Code: codeBusy, Message: err.Error()}
	}
	return reason, refused
}

// count counts a message in the quota of calls that mayCall does not count: one without an answer, or one that is refused
// before. It waits as a call does. Beyond the quota the message is only late, since its sender could not repeat it.
func (s *Server) count(ctx context.Context, who identity.Identity) {
	if t, err := s.x.Tenant(who.Principal); err == nil && who.Role != identity.Operator {
		_ = s.x.EnterCall(ctx, t)
	}
}
