// Package identity identifies callers by their credentials. A [Table] has every credential that the
// daemon accepts: users of Unix sockets, client certificates, tokens, and JSON Web Tokens of an issuer.
// A valid credential gives an [Identity]: a tenant, a principal and a role. A request never names its
// own tenant.
//
// Theory of operation. Each credential leads to the name of a caller (uid:1000, spiffe://..., the
// issuer and subject of a token), and a [Row] gives the name its tenant and role. Tokens of the daemon
// and of issuers can bring tenant and role themselves. Nothing is kept between two calls: the files of
// tokens and authorities are looked at for each call (package reload), so a revoked token and a removed
// authority count at once, also on open connections. Only the keys of an issuer come from the network;
// they are fetched once and kept. In doubt a credential is refused: an [Error] has a reason for the
// caller, and a detail for the log alone.
//
// No error and no line of the log has a secret: not a token, not a part of one, and not a hash.
package identity

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
)

// DefaultTenant is the tenant of callers for whom the configuration names no other.
const DefaultTenant = "default"

// A Role is a set of permissions of a caller. Each role includes the roles before it.
type Role int

// The zero Role, None, has no permission.
const (
	None     Role = iota
	Read          // sees skills, executions and their output
	Invoke        // runs, cancels and deletes executions
	Admin         // changes a tenant's environments: prepares the packages of skills
	Operator      // makes the calls that concern the daemon and all tenants
)

var roleNames = [...]string{"none", "read", "invoke", "admin", "operator"}

// Covers reports whether a caller with role r may make a call that needs the role need. If need is
// None, no caller may.
func (r Role) Covers(need Role) bool { return need > None && r >= need }

func (r Role) String() string {
	if r < None || r > Operator {
		return fmt.Sprintf("role %d", int(r))
	}
	return roleNames[r]
}

// ParseRole returns the role of a word: read, invoke, admin or operator.
func ParseRole(word string) (Role, error) {
	for r := Read; r <= Operator; r++ {
		if roleNames[r] == word {
			return r, nil
		}
	}
	return None, fmt.Errorf("%q is not a role; write read, invoke, admin or operator", word)
}

// MarshalText writes a role into a file of tokens.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role from a file of tokens or from the configuration.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}

// An Identity is the principal and the role of a caller. The zero Identity belongs to no caller.
type Identity struct {
	permission.Principal
	Role Role
}

// A User is the remote address of a connection over a Unix socket: the user who connected.
// The process id is not kept, because another process may have it by now.
type User struct {
	net.Addr
	UID    uint32
	Groups []uint32 // the process's group and its supplementary groups
	Err    error    // not nil if the kernel did not say the user
}

// Credentials are the credentials of a call: its connection's credentials, and its header
// Authorization.
type Credentials struct {
	// Addr is a [User] on a Unix socket.
	Addr net.Addr
	// TLS is nil if the connection is not encrypted.
	TLS *tls.ConnectionState
	// Session belongs to the connection. It may be nil.
	Session *Session
	// Authorization has the values of the header of that name.
	Authorization []string
}

// An Error says why a caller could not be identified. The text is for the caller.
type Error struct {
	Reason string
	// Detail is for the log only, because it may name addresses that the caller must not see.
	Detail error
	// unchecked says that the credential was not checked, so it may be valid.
	unchecked bool
}

func (e *Error) Error() string { return e.Reason }

// Unwrap returns the detail.
func (e *Error) Unwrap() error { return e.Detail }

func refuse(format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}

// maxTenant is the maximum length of a tenant's name.
const maxTenant = 64

// CheckTenant returns why a text can't be the name of a tenant, or nil.
func CheckTenant(name string) error {
	if name == "" || len(name) > maxTenant || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(name, "-") != name {
		return fmt.Errorf("%.80q is not a name of a tenant; write up to %d of a-z, 0-9 and '-', with no '-' at an end", name, maxTenant)
	}
	return nil
}
