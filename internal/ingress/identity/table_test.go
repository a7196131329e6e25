package identity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/permission"
)

func openTable(t *testing.T, c Config) *Table {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	table, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func identified(tenant, name string, role Role) Identity {
	return Identity{permission.Principal{Tenant: tenant, Name: name}, role}
}

// wantIdentity checks what Identify returned: an identity, or a reason that contains a text.
func wantIdentity(t *testing.T, table *Table, c Credentials, want Identity, reason string) {
	t.Helper()
	got, err := table.Identify(c)
	if reason == "" {
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		return
	}
	if err == nil || got != (Identity{}) || !strings.Contains(err.Error(), reason) {
		t.Errorf("got %+v, %v; want an error with %q", got, err, reason)
	}
}

func host(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

func user(uid uint32, groups ...uint32) User {
	return User{Addr: &net.UnixAddr{}, UID: uid, Groups: groups}
}

func TestRoles(t *testing.T) {
	for r := None; r <= Operator; r++ {
		for need := None; need <= Operator; need++ {
			if got, want := r.Covers(need), need != None && r >= need; got != want {
				t.Errorf("%s covers %s: %v", r, need, got)
			}
		}
		if got, err := ParseRole(r.String()); (err == nil) != (r != None) || got != r {
			t.Errorf("%s: got %s, %v", r, got, err)
		}
	}
	if Role(-1).Covers(Read) || Role(9).String() != "role 9" {
		t.Error("a role that does not exist")
	}
}

// Without any credentials the mode of the socket decides, and loopback is enough over TCP.
func TestIdentifyWithoutConfiguration(t *testing.T) {
	table := openTable(t, Config{})
	broken := User{Addr: &net.UnixAddr{}, Err: errors.New("no peer credentials")}
	for _, c := range []struct {
		name   string
		addr   net.Addr
		want   Identity
		reason string
	}{
		{"root", user(0), identified("default", "uid:0", Operator), ""},
		{"a user", user(1234), identified("default", "uid:1234", Operator), ""},
		{"the largest user", user(1<<32 - 1), identified("default", "uid:4294967295", Operator), ""},
		{"an unknown user", broken, Identity{}, "no peer credentials"},
		{"loopback", host("127.0.0.1"), identified("default", "anonymous", Admin), ""},
		{"loopback 6", host("::1"), identified("default", "anonymous", Admin), ""},
		{"mapped loopback", host("::ffff:127.0.0.1"), identified("default", "anonymous", Admin), ""},
		{"another machine", host("192.0.2.1"), Identity{}, "192.0.2.1 is not on this machine, and no credentials are configured"},
		{"every address", host("0.0.0.0"), Identity{}, "is not on this machine"},
		{"a socket without a user", &net.UnixAddr{}, Identity{}, "is not on this machine"},
		{"nothing", nil, Identity{}, "an unknown address is not on this machine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantIdentity(t, table, Credentials{Addr: c.addr}, c.want, c.reason)
			// Without tokens and issuers the daemon ignores a token.
			wantIdentity(t, table, Credentials{Addr: c.addr, Authorization: []string{"Bearer x"}}, c.want, c.reason)
		})
	}
}

func TestIdentifyUsers(t *testing.T) {
	table := openTable(t, Config{Rows: []Row{
		{"uid:1000", "acme", Invoke}, {"gid:2000", "globex", Read}, {"gid:2001", "acme", Admin}, {"uid:1001", "default", Operator},
	}})
	for _, c := range []struct {
		name   string
		user   User
		want   Identity
		reason string
	}{
		{"a user", user(1000), identified("acme", "uid:1000", Invoke), ""},
		{"before the group", user(1000, 2000), identified("acme", "uid:1000", Invoke), ""},
		{"an operator", user(1001), identified("default", "uid:1001", Operator), ""},
		{"a group", user(7, 5, 2000), identified("globex", "uid:7", Read), ""},
		{"the first of two groups", user(7, 2001, 2000), identified("globex", "uid:7", Read), ""},
		{"root", user(0), identified("default", "uid:0", Operator), ""},
		{"the daemon's user", user(uint32(os.Geteuid())), identified("default", fmt.Sprint("uid:", os.Geteuid()), Operator), ""},
		{"nobody", user(7, 5), Identity{}, "uid:7 has no row in identity.callers or in a tenant's callers, and no group of it has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantIdentity(t, table, Credentials{Addr: c.user}, c.want, c.reason)
		})
	}
}

// If a credential for TCP is configured, a loopback address alone does not identify a caller.
func TestLoopbackIsNoCredential(t *testing.T) {
	table := openTable(t, Config{Tokens: t.TempDir() + "/tokens"})
	wantIdentity(t, table, Credentials{Addr: host("127.0.0.1")}, Identity{}, "no credential was sent; send a token (Authorization: Bearer)")
	wantIdentity(t, table, Credentials{Addr: user(5)}, identified("default", "uid:5", Operator), "")
}

func TestCheckCaller(t *testing.T) {
	for caller, want := range map[string]string{
		"uid:0": "", "gid:4294967295": "", "subject:CN=a,O=b": "", "spiffe://example.org/a/b": "", "spiffe://example.org/*": "", "spiffe://example.org/a/*": "",
		"uid:":                   "is not a number; write uid:1000",
		"uid:-1":                 "is not a number",
		"uid:007":                "is not a number",
		"gid:4294967296":         "is not a number; write gid:1000",
		"subject:":               "names nobody",
		"spiffe://":              "trust domain is missing",
		"spiffe://Example.org/a": "trust domain characters",
		"spiffe://e.org/a*":      "path segment characters",
		"spiffe://e.org/*/a":     "path segment characters",
		"alice":                  "is no caller; write uid:N, gid:N, subject:CN=NAME or spiffe://DOMAIN/PATH",
		"":                       "is no caller",
	} {
		err := CheckCaller(caller)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", caller, err, want)
		}
	}
	if _, err := Open(Config{Rows: []Row{{Caller: "alice"}}}); err == nil {
		t.Error("a table has a row of nobody")
	}
}

func TestCheckTenant(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "acme-2": true, strings.Repeat("a", 64): true, "": false, "-a": false, "a-": false, "A": false, "a b": false, "../a": false, strings.Repeat("a", 65): false} {
		if err := CheckTenant(name); (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// The log has a line at once, and later one line for all callers of a second. No line has a secret.
func TestFailuresAreCounted(t *testing.T) {
	path := t.TempDir() + "/tokens"
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		table := openTable(t, Config{Tokens: path, Log: slog.New(slog.NewTextHandler(&logs, nil))})
		try := func(n int) {
			for range n {
				if _, err := table.Identify(Credentials{Addr: host("192.0.2.1"), Authorization: []string{"Bearer skillrun_abcdefghij_SECRET"}}); err == nil {
					t.Fatal("no error")
				}
			}
		}
		try(3)
		if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "count=1 last_from=192.0.2.1") || !strings.Contains(got, "unknown, or it was revoked") {
			t.Errorf("got %q, want one line", got)
		}
		time.Sleep(logInterval - time.Nanosecond)
		try(1)
		time.Sleep(time.Nanosecond)
		try(1)
		if got := logs.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "count=4") {
			t.Errorf("got %q, want a second line of 4", got)
		}
		if strings.Contains(logs.String(), "SECRET") {
			t.Error("the log has the token")
		}
	})
}

// A reload of the rows takes effect with the next call, also for a certificate that was identified before.
func TestRowsAreReplaced(t *testing.T) {
	a := certtest.NewAuthority(t, "authority")
	table := openTable(t, Config{
		Rows:        []Row{{"uid:1000", "acme", Read}, {"subject:CN=agent", "acme", Read}},
		Authorities: a.WriteRoots(filepath.Join(t.TempDir(), "ca.crt")),
	})
	agent := presented(t, a.Client("agent", nil))
	if got, err := table.Identify(agent); err != nil || got.Tenant != "acme" {
		t.Errorf("got %+v, %v", got, err)
	}
	user := Credentials{Addr: User{UID: 1000}}
	if got, err := table.Identify(user); err != nil || got.Tenant != "acme" {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := table.SetRows([]Row{{"bob", "acme", Read}}); err == nil {
		t.Error("a wrong row is accepted")
	}
	if got, err := table.Identify(user); err != nil || got.Tenant != "acme" {
		t.Errorf("after an error: got %+v, %v", got, err)
	}
	if err := table.SetRows([]Row{{"uid:1001", "acme", Read}}); err != nil {
		t.Fatal(err)
	}
	if got, err := table.Identify(user); err == nil {
		t.Errorf("a caller without a row is %+v", got)
	}
	if got, err := table.Identify(agent); err == nil {
		t.Errorf("a certificate without a row is %+v", got)
	}
}
