package identity

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
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
			f.checked(p, false, time.Now())
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
			f.checked(p, true, time.Now())
		}
		if len(f.good) != maxGood {
			t.Errorf("%d good credentials are kept, want %d", len(f.good), maxGood)
		}
	})
}
