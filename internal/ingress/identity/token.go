package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/internal/permission"
)

// A token is skillrun_ID_SECRET. The ID finds its row and is not secret. The secret has 130 random
// bits (crypto/rand.Text), too many to guess. So a plain salted hash is enough.
const tokenPrefix = "skillrun_"

const (
	// maxToken is the maximum length of a token of any kind, in bytes. The header of a call has
	// at most 16 KiB.
	maxToken = 8 << 10
	// idLength is the length of a token's ID: 50 random bits. CreateToken looks for an unused ID.
	idLength = 10
	// maxTokenName is the maximum length of Token.Name.
	maxTokenName = 64
)

// A Token is the row of one token. It does not have the token itself.
type Token struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	Name    string    `json:"name"` // the principal is token:NAME
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Salt    []byte    `json:"salt"`
	Hash    []byte    `json:"hash"` // SHA-256 of the salt and the secret
}

// tokens are the rows of a file of tokens.
type tokens struct {
	byID map[string]Token
}

// tokenFile is the form of the file.
type tokenFile struct {
	Tokens []Token `json:"tokens"`
}

// parseTokens returns the parser of a file. A missing or empty file has no tokens.
func parseTokens(path string) func([][]byte) (tokens, error) {
	return func(contents [][]byte) (tokens, error) {
		t := tokens{map[string]Token{}}
		if len(contents[0]) == 0 {
			return t, nil
		}
		list, err := decodeTokens(contents[0])
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		for _, token := range list {
			t.byID[token.ID] = token
		}
		return t, nil
	}
}

// decodeTokens reads a file of tokens. One bad row makes the whole file an error: a mistake in a file that was edited by
// hand must be seen, and not end one token silently.
func decodeTokens(data []byte) ([]Token, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var file tokenFile
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("it is not a file of tokens: %w", err)
	}
	seen := map[string]bool{}
	for _, t := range file.Tokens {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("token %.20q: %w", t.ID, err)
		}
		if seen[t.ID] {
			return nil, fmt.Errorf("token %s is there twice", t.ID)
		}
		seen[t.ID] = true
	}
	return file.Tokens, nil
}

// check returns an error if a row is not complete and valid.
func (t Token) check() error {
	switch {
	case len(t.ID) != idLength:
		return errors.New("the id is not complete")
	case len(t.Salt) < 16 || len(t.Hash) != sha256.Size:
		return errors.New("the hash is not complete")
	case !t.Role.Covers(Read):
		return errors.New("it has no role")
	}
	return errors.Join(CheckTenant(t.Tenant), checkTokenName(t.Name))
}

func checkTokenName(name string) error {
	if name == "" || len(name) > maxTokenName || strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return fmt.Errorf("%.80q can't be the name of a token; write up to %d printable ASCII characters without blanks", name, maxTokenName)
	}
	return nil
}

// hash returns the hash of a secret with this row's salt.
func (t Token) hash(secret string) []byte {
	sum := sha256.Sum256(append(slices.Clone(t.Salt), secret...))
	return sum[:]
}

// bearer identifies a caller by the values of the Authorization header.
func (t *Table) bearer(values []string) (Identity, error) {
	if len(values) != 1 {
		return Identity{}, refuse("the header Authorization has %d values; send one", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return Identity{}, refuse("the header Authorization must be Bearer and a token")
	case len(token) > maxToken:
		return Identity{}, refuse("the token has %d bytes; a token has at most %d", len(token), maxToken)
	case strings.HasPrefix(token, tokenPrefix):
		return t.token(strings.TrimPrefix(token, tokenPrefix))
	case len(t.issuers) == 0:
		return Identity{}, refuse("the token is not one of this daemon; skillrund token create makes one")
	}
	return t.jwt(token)
}

// nobodysToken is compared if the ID of a token is unknown. So the check of an unknown ID takes as long as the
// check of a known one.
var nobodysToken = Token{Salt: make([]byte, 16), Hash: make([]byte, sha256.Size)}

// token identifies a caller by a token without its prefix.
func (t *Table) token(text string) (Identity, error) {
	if t.tokens == nil {
		return Identity{}, refuse("tokens of this form are not accepted: identity.tokens is not set")
	}
	known, _ := t.tokens.Get()
	id, secret, _ := strings.Cut(text, "_")
	row, ok := known.byID[id]
	if !ok {
		row = nobodysToken
	}
	if same := subtle.ConstantTimeCompare(row.hash(secret), row.Hash) == 1; !same || !ok {
		return Identity{}, refuse("the token is unknown, or it was revoked")
	}
	if !row.Expires.IsZero() && !time.Now().Before(row.Expires) {
		return Identity{}, refuse("the token has expired at %s", row.Expires.UTC().Format(time.RFC3339))
	}
	return Identity{permission.Principal{Tenant: row.Tenant, Name: "token:" + row.Name}, row.Role}, nil
}

// CreateToken adds a token to the file at path, which it makes if necessary, and returns the token.
// The file does not have the token, so no later call can return it. CreateToken uses only Tenant, Name,
// Role and Expires of t.
func CreateToken(path string, t Token) (token string, row Token, err error) {
	secret := rand.Text()
	err = changeTokens(path, func(list []Token) ([]Token, error) {
		t.Salt, t.Created = make([]byte, 16), time.Now().UTC().Truncate(time.Second)
		rand.Read(t.Salt) // never fails
		t.Hash = t.hash(secret)
		for t.ID = ""; t.ID == "" || slices.ContainsFunc(list, func(o Token) bool { return o.ID == t.ID }); {
			t.ID = strings.ToLower(rand.Text()[:idLength])
		}
		return append(list, t), t.check()
	})
	if err != nil {
		return "", Token{}, err
	}
	return tokenPrefix + t.ID + "_" + secret, t, nil
}

// ErrNoToken is the error for an ID that no token has.
var ErrNoToken = errors.New("no such token")

// RevokeToken removes a token from the file at path. From then on a daemon that uses the file refuses
// the token.
func RevokeToken(path, id string) error {
	return changeTokens(path, func(list []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(list), func(t Token) bool { return t.ID == id })
		if len(left) == len(list) {
			return nil, fmt.Errorf("%.40q: %w", id, ErrNoToken)
		}
		return left, nil
	})
}

// ListTokens returns the rows of the file at path, in the order in which they were created. It returns
// no rows for a missing file.
func ListTokens(path string) ([]Token, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := decodeTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// changeTokens replaces the file at path, as a whole or not at all. A lock on path.lock makes
// concurrent changes wait for each other.
func changeTokens(path string, change func([]Token) ([]Token, error)) error {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := filelock.Lock(lock, filelock.Exclusive); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	list, err := ListTokens(path)
	if err != nil {
		return err
	}
	if list, err = change(list); err != nil {
		return err
	}
	data, err := json.MarshalIndent(tokenFile{list}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'))
}
