// Package identity finds out who calls. A [Table] has every credential that the daemon accepts:
// users of Unix sockets, client certificates, tokens, and JSON Web Tokens of an issuer. Each
// gives an [Identity]: a tenant, a principal and a role. A request never names its own tenant.
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

// A Role is what a caller may do. Each role includes the ones before it.
type Role int

// The zero Role may do nothing.
const (
	None     Role = iota
	Read          // sees skills, executions and their output
	Invoke        // runs and cancels executions
	Admin         // changes what the tenant has, such as its prepared packages
	Operator      // all of the above for the daemon, not for a tenant alone
)

var roleNames = [...]string{"none", "read", "invoke", "admin", "operator"}

// Covers reports whether a caller with role r may do what needs a role. Nobody may do what needs
// None.
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

// MarshalText is for files of tokens.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is for files of tokens and for the configuration.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}

// An Identity is who calls. The zero Identity is nobody.
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
	Err    error    // not nil if the user is not known
}

// Credentials are what a connection and the headers of a call say about the caller.
type Credentials struct {
	// Addr is a [User] on a Unix socket.
	Addr net.Addr
	// TLS is nil if the connection is not encrypted.
	TLS *tls.ConnectionState
	// Session may be nil. Otherwise it belongs to the connection.
	Session *Session
	// Authorization has the values of the header of that name.
	Authorization []string
}

// An Error says why a caller could not be identified. The text is for the caller.
type Error struct {
	Reason string
	// Detail is for the log. It may name addresses that are not the caller's business.
	Detail error
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
