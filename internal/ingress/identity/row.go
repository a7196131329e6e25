package identity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Row gives a tenant and a role to one caller, or to several.
type Row struct {
	// Caller is one of
	//
	//	uid:N            a user of a Unix socket
	//	gid:N            the users of a group
	//	subject:NAME     a certificate with this subject, in the form of RFC 2253
	//	spiffe://DOMAIN/PATH    a certificate with this SPIFFE ID; /* at the end stands for
	//	                        everything beneath
	Caller string
	Tenant string
	Role   Role
}

// Prefixes of Row.Caller.
const (
	prefixUID     = "uid:"
	prefixGID     = "gid:"
	prefixSubject = "subject:"
	prefixSPIFFE  = "spiffe://"
)

// CheckCaller returns why a text can't be a Row.Caller, or nil.
func CheckCaller(caller string) error {
	for _, prefix := range []string{prefixUID, prefixGID} {
		if number, ok := strings.CutPrefix(caller, prefix); ok {
			if _, err := strconv.ParseUint(number, 10, 32); err != nil || strconv.Itoa(must(number)) != number {
				return fmt.Errorf("%.80q: %.40q is not a number; write %s1000", caller, number, prefix)
			}
			return nil
		}
	}
	if name, ok := strings.CutPrefix(caller, prefixSubject); ok {
		if name == "" {
			return errors.New("subject: names nobody; write subject:CN=NAME, as openssl x509 -noout -subject -nameopt RFC2253 prints it")
		}
		return nil
	}
	if strings.HasPrefix(caller, prefixSPIFFE) {
		if _, err := trustDomainOf(caller); err != nil {
			return fmt.Errorf("%.80q: %w", caller, err)
		}
		return nil
	}
	return fmt.Errorf("%.80q is no caller; write uid:N, gid:N, subject:CN=NAME or spiffe://DOMAIN/PATH", caller)
}

// Covers reports whether the first Row.Caller covers the second: they are equal, or the first is a pattern of SPIFFE IDs
// that matches the second.
func Covers(caller, other string) bool {
	if caller == other {
		return true
	}
	prefix, pattern := strings.CutSuffix(caller, "*")
	return pattern && strings.HasPrefix(caller, prefixSPIFFE) && strings.HasPrefix(other, prefix)
}

// Patterns returns the patterns that cover a Row.Caller, without the caller itself. Only SPIFFE IDs have patterns.
func Patterns(caller string) (list []string) {
	if !strings.HasPrefix(caller, prefixSPIFFE) {
		return nil
	}
	for prefix := strings.TrimSuffix(caller, "/*"); ; {
		cut := strings.LastIndexByte(prefix, '/')
		if cut < len(prefixSPIFFE) {
			return list
		}
		prefix = prefix[:cut]
		list = append(list, prefix+"/*")
	}
}

// must returns a number that ParseUint has accepted.
func must(number string) int {
	n, _ := strconv.Atoi(number)
	return n
}

// trustDomainOf returns the trust domain of a caller that is a SPIFFE ID or a pattern of them.
func trustDomainOf(caller string) (spiffeid.TrustDomain, error) {
	id, err := spiffeid.FromString(strings.TrimSuffix(caller, "/*"))
	return id.TrustDomain(), err
}

// TrustDomain returns the trust domain of a Row.Caller, or "" if it is not a SPIFFE ID.
func TrustDomain(caller string) string {
	if domain, err := trustDomainOf(caller); strings.HasPrefix(caller, prefixSPIFFE) && err == nil {
		return domain.Name()
	}
	return ""
}

// IsCertificate reports whether a Row.Caller is identified by a certificate's subject.
func IsSubject(caller string) bool { return strings.HasPrefix(caller, prefixSubject) }

// CheckTrustDomain returns why a text can't be a trust domain, or nil.
func CheckTrustDomain(name string) error {
	if _, err := spiffeid.TrustDomainFromString(name); err != nil || strings.Contains(name, "/") {
		return fmt.Errorf("%.80q is not a trust domain; write a name such as example.org", name)
	}
	return nil
}

// lookup finds the row of a name. An exact row comes before patterns, and a longer pattern before
// a shorter one.
func lookup(rows map[string]Row, name string) (Row, bool) {
	if r, ok := rows[name]; ok {
		return r, true
	}
	if !strings.HasPrefix(name, prefixSPIFFE) {
		return Row{}, false
	}
	for prefix := name; ; {
		cut := strings.LastIndexByte(prefix, '/')
		if cut < len(prefixSPIFFE) {
			return Row{}, false
		}
		prefix = prefix[:cut]
		if r, ok := rows[prefix+"/*"]; ok {
			return r, true
		}
	}
}
