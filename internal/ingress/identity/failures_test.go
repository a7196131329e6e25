package identity

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/permission"
)

// If an address sends bad tokens without a pause, only some are checked. At the same time a token that was good before
// still works, and so do tokens from other addresses. The IPv6 addresses of one network count as one address.
func TestBadCredentialsAreBounded(t *testing.T) {
	issuer := certtest.NewIssuer(t)
	table := openTable(t, Config{Issuers: []Issuer{{URL: issuer.URL, Audience: "skillrun", Tenant: "acme", Role: Read}}})
	bearer := func(ip, token string) Credentials {
		return Credentials{Addr: host(ip), Authorization: []string{"Bearer " + token}}
	}
	good, fresh, bad := issuer.Sign(nil), issuer.Sign(map[string]any{"jti": "2"}), issuer.Sign(map[string]any{"aud": "another"})
	if _, err := table.Identify(bearer("2001:db8::1", good)); err != nil {
		t.Fatal(err)
	}
	const refusedUnchecked = "too many credentials"
	checked := 0
	for i := range 3 * failureBurst {
		_, err := table.Identify(bearer(fmt.Sprintf("2001:db8::%x", i+1), bad))
		if err == nil {
			t.Fatal("a bad token is accepted")
		}
		if !strings.Contains(err.Error(), refusedUnchecked) {
			checked++
		}
	}
	if checked < failureBurst || checked > 2*failureBurst { // some come back in the time that this takes
		t.Errorf("%d of %d were checked, want about %d", checked, 3*failureBurst, failureBurst)
	}
	for range failureBurst { // whatever has come back
		table.Identify(bearer("2001:db8::5", bad))
	}
	if _, err := table.Identify(bearer("2001:db8::2", good)); err != nil {
		t.Errorf("a token that was good before, from the same network: %v", err)
	}
	if _, err := table.Identify(bearer("2001:db8:0:1::2", fresh)); err != nil {
		t.Errorf("from another network: %v", err)
	}
}

// While an issuer is down, its callers do not use up the checks of their address.
func TestIssuerDownIsNoFailure(t *testing.T) {
	issuer := certtest.NewIssuer(t)
	issuer.SetDown(true)
	table := openTable(t, Config{Issuers: []Issuer{{URL: issuer.URL, Audience: "skillrun", Tenant: "acme", Role: Read}}})
	for range 2 * failureBurst {
		_, err := table.Identify(Credentials{Addr: host("192.0.2.1"), Authorization: []string{"Bearer " + issuer.Sign(nil)}})
		if err == nil || strings.Contains(err.Error(), "too many credentials") {
			t.Fatalf("got %v", err)
		}
	}
}

// The time brings checks back, and the memory for hashes is bounded.
func TestFailuresForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures()
		p := proof{peer: "192.0.2.1"}
		for range failureBurst {
			f.invalid(p, time.Now())
		}
		if f.mayCheck(p, time.Now()) {
			t.Error("more than the burst may be checked")
		}
		time.Sleep(time.Second)
		if !f.mayCheck(p, time.Now()) {
			t.Error("a second brings nothing back")
		}
		for i := range 2 * maxGood {
			p.hash[0], p.hash[1], p.hash[2] = byte(i), byte(i>>8), byte(i>>16)
			f.valid(p, permission.Principal{Tenant: "acme", Name: fmt.Sprint(i)})
		}
		if len(f.good) != maxGood {
			t.Errorf("%d good credentials are kept, want %d", len(f.good), maxGood)
		}
	})
}

// Neither a principal with any number of valid credentials, nor a tenant with any number of such principals, makes the
// daemon forget the credentials of others.
func TestValidCredentialsOfOthersStay(t *testing.T) {
	f := newFailures()
	used := uint32(0)
	add := func(tenant, name string) proof {
		used++
		p := proof{peer: "192.0.2.1"}
		binary.LittleEndian.PutUint32(p.hash[:], used)
		f.valid(p, permission.Principal{Tenant: tenant, Name: name})
		return p
	}
	honest := []proof{add("acme", "a"), add("acme", "b"), add("globex", "a"), add("globex", "a")}
	for range 2 * maxGood {
		add("acme", "many")
	}
	other := add("acme", "c")
	for i := range 2 * maxGood {
		add("evil", fmt.Sprint(i))
	}
	for range failureBurst {
		f.invalid(proof{peer: "192.0.2.1"}, time.Unix(1, 0))
	}
	for i, p := range append(honest, other) {
		if !f.mayCheck(p, time.Unix(1, 0)) {
			t.Errorf("credential %d is forgotten", i)
		}
	}
	// The counts follow: after the end of all credentials nothing is left.
	for hash := range f.good {
		f.invalid(proof{hash: hash}, time.Unix(1, 0))
	}
	if len(f.good) != 0 || len(f.counts) != 0 {
		t.Errorf("%d credentials and %d tenants are left", len(f.good), len(f.counts))
	}
}
