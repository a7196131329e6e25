package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// token makes and reads the page tokens of one listing. A token holds the end of the
// last page and a hash of the filter. It gives no access: every query names a tenant.
// The hash catches a token that is used with another filter by mistake; it is no protection,
// and 8 bytes are enough.
type token struct {
	asked [8]byte
}

// tokenFor returns the tokens of the listing with these parameters.
func tokenFor(asked ...any) token {
	b, err := json.Marshal(asked)
	if err != nil {
		panic("record: page token: " + err.Error()) // strings, numbers and times only
	}
	sum := sha256.Sum256(b)
	var t token
	copy(t.asked[:], sum[:])
	return t
}

// token returns the tokens of f's listing. The page size may change between pages.
func (f Filter) token() token {
	return tokenFor("executions", f.Tenant, f.AllTenants, f.Principal, f.Skill, f.States, f.Labels, f.Ends,
		nanos(f.CreatedAfter), nanos(f.CreatedBefore), f.OldestFirst)
}

// encodeBytes makes a page token: the hash of the listing that was asked for, then the position
// of the last entry.
func (t token) encodeBytes(last []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(t.asked[:len(t.asked):len(t.asked)], last...))
}

// decodeBytes returns the position in a token. It refuses a token of another listing, which would
// skip entries. A token is no secret and not signed: every page is limited to the caller's tenant
// again.
func (t token) decodeBytes(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < len(t.asked) {
		return nil, &TokenError{Reason: "malformed"}
	}
	if [8]byte(b) != t.asked {
		return nil, &TokenError{Reason: "is of another listing"}
	}
	return b[len(t.asked):], nil
}

// encode and decode are the same for a position that is a number.
func (t token) encode(last int64) string {
	return t.encodeBytes(binary.BigEndian.AppendUint64(nil, uint64(last)))
}

func (t token) decode(s string) (int64, error) {
	b, err := t.decodeBytes(s)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, &TokenError{Reason: "malformed"}
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}
