package identity

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func bearer(values ...string) Credentials {
	c := Credentials{Addr: host("192.0.2.1")}
	for _, v := range values {
		c.Authorization = append(c.Authorization, "Bearer "+v)
	}
	return c
}

func createToken(t *testing.T, path string, row Token) (token, id string) {
	t.Helper()
	token, row, err := CreateToken(path, row)
	if err != nil {
		t.Fatal(err)
	}
	return token, row.ID
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	synctest.Test(t, func(t *testing.T) {
		table := openTable(t, Config{Tokens: path})
		wantIdentity(t, table, bearer("skillrun_aaaaaaaaaa_B"), Identity{}, "unknown, or it was revoked")
		first, id := createToken(t, path, Token{Tenant: "acme", Name: "ci", Role: Invoke, Expires: time.Now().Add(time.Hour)})
		second, _ := createToken(t, path, Token{Tenant: "acme", Name: "ci-2", Role: Read})
		other, _ := createToken(t, path, Token{Tenant: "globex", Name: "ci", Role: Operator})
		wantIdentity(t, table, bearer(first), identified("acme", "token:ci", Invoke), "")
		wantIdentity(t, table, bearer(second), identified("acme", "token:ci-2", Read), "")
		wantIdentity(t, table, bearer(other), identified("globex", "token:ci", Operator), "")
		lower := Credentials{Addr: user(0), Authorization: []string{"bearer " + second}}
		wantIdentity(t, table, lower, identified("acme", "token:ci-2", Read), "")
		// If the token is not valid, another credential does not help.
		wantIdentity(t, table, Credentials{Addr: user(0), Authorization: []string{"Bearer " + first + "x"}}, Identity{}, "unknown, or it was revoked")

		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, secret, _ := strings.Cut(strings.TrimPrefix(first, tokenPrefix), "_")
		if bytes.Contains(data, []byte(secret)) || len(secret) < 26 {
			t.Errorf("the file has the secret %q:\n%s", secret, data)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v; want mode 0600", info.Mode(), err)
		}

		time.Sleep(time.Hour)
		wantIdentity(t, table, bearer(first), Identity{}, "the token has expired at")
		wantIdentity(t, table, bearer(second), identified("acme", "token:ci-2", Read), "")
		if err := RevokeToken(path, id); err != nil {
			t.Fatal(err)
		}
		wantIdentity(t, table, bearer(first), Identity{}, "unknown, or it was revoked")
		if err := RevokeToken(path, id); !errors.Is(err, ErrNoToken) {
			t.Errorf("revoked twice: got %v", err)
		}
		list, err := ListTokens(path)
		if err != nil || len(list) != 2 || list[0].Name != "ci-2" || list[1].Tenant != "globex" {
			t.Errorf("got %+v, %v", list, err)
		}
	})
}

func TestTokensThatAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	token, id := createToken(t, path, Token{Tenant: "acme", Name: "ci", Role: Invoke})
	table := openTable(t, Config{Tokens: path})
	secret := strings.TrimPrefix(token, tokenPrefix+id+"_")
	for _, c := range []struct {
		name, value, want string
	}{
		{"no scheme", token, "must be Bearer and a token"},
		{"another scheme", "Basic " + token, "must be Bearer and a token"},
		{"nothing", "Bearer ", "must be Bearer and a token"},
		{"empty", "", "must be Bearer and a token"},
		{"too long", "Bearer " + strings.Repeat("x", maxToken+1), "the token has 8193 bytes; a token has at most 8192"},
		{"too long, of this daemon", "Bearer " + token + strings.Repeat("x", maxToken), "a token has at most 8192"},
		{"of something else", "Bearer hunter2", "is not one of this daemon; skillrund token create makes one"},
		{"a JSON Web Token", "Bearer a.b.c", "is not one of this daemon"},
		{"without a secret", "Bearer " + tokenPrefix + id, "unknown, or it was revoked"},
		{"an empty secret", "Bearer " + tokenPrefix + id + "_", "unknown, or it was revoked"},
		{"an empty ID", "Bearer " + tokenPrefix + "_" + secret, "unknown, or it was revoked"},
		{"another secret", "Bearer " + tokenPrefix + id + "_" + strings.ToLower(secret), "unknown, or it was revoked"},
		{"a longer secret", "Bearer " + token + "_x", "unknown, or it was revoked"},
		{"a blank more", "Bearer  " + token, "is not one of this daemon"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := table.Identify(Credentials{Addr: host("127.0.0.1"), Authorization: []string{c.value}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
	wantIdentity(t, table, bearer(token, token), Identity{}, "the header Authorization has 2 values; send one")
}

func TestCreateTokenChecksItsRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	for want, row := range map[string]Token{
		"is not a name of a tenant":    {Tenant: "No", Name: "a", Role: Read},
		"can't be the name of a token": {Tenant: "a", Name: "two words", Role: Read},
		`"" can't be the name of a`:    {Tenant: "a", Role: Read},
		"it has no role":               {Tenant: "a", Name: "a"},
	} {
		if _, _, err := CreateToken(path, row); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if list, err := ListTokens(path); err != nil || len(list) > 0 {
		t.Errorf("got %v, %v; want no token", list, err)
	}
}

// Changes at the same time don't lose each other.
func TestTokensChangeAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, row, err := CreateToken(path, Token{Tenant: "a", Name: "a", Role: Read})
			if err == nil {
				_, _, err = CreateToken(path, Token{Tenant: "a", Name: "b", Role: Read})
			}
			if err == nil {
				err = RevokeToken(path, row.ID)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := ListTokens(path)
	if err != nil || len(list) != 20 || slices.ContainsFunc(list, func(t Token) bool { return t.Name != "b" }) {
		t.Errorf("%d tokens, %v; want 20", len(list), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 2 { // the file and its lock
		t.Errorf("got %v, %v", left, err)
	}
}

func TestDamagedFileOfTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	token, id := createToken(t, path, Token{Tenant: "acme", Name: "ci", Role: Invoke})
	table := openTable(t, Config{Tokens: path})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"not JSON":      {"{", "<"},
		"unknown field": {`"role"`, `"rolle"`},
		"a role":        {`"invoke"`, `"root"`},
		"no salt":       {`"salt": "`, `"salt": "", "x": "`},
		"short hash":    {`"hash": "`, `"hash": "AAAA`},
		"a tenant":      {`"acme"`, `"../acme"`},
		"an id":         {`"` + id + `"`, `"short"`},
		"twice":         {`"tokens": [`, `"tokens": [` + strings.TrimSuffix(strings.TrimSpace(strings.SplitN(string(good), "[", 2)[1]), "]\n}") + ","},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(good), change[0], change[1], 1)
			if bad == string(good) {
				t.Fatal("nothing changed")
			}
			if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ListTokens(path); err == nil {
				t.Error("the list has no error")
			}
			if _, _, err := CreateToken(path, Token{Tenant: "a", Name: "a", Role: Read}); err == nil {
				t.Error("a damaged file was replaced")
			}
			if _, err := Open(Config{Tokens: path, Log: table.log}); err == nil {
				t.Error("a daemon starts with it")
			}
			// A daemon that runs keeps the last good file.
			wantIdentity(t, table, bearer(token), identified("acme", "token:ci", Invoke), "")
		})
	}
}
