// Package wellknown reads and writes published indexes of agent skills, as docs/well-known-uri.mdx of
// agentskills/agentskills defines them (schema 0.2.0). A [Client] fetches an index and its artifacts,
// verifies digests, and unpacks archives. [EncodeIndex] and [WriteArchive] are for servers.
//
// To a client, an index and its archives are untrusted. A Client takes https only, follows redirects within one
// host, bounds every size, and refuses links in archives, which the definition allows inside a skill.
//
// A digest in an index proves that an artifact is the one that the index names. It does not prove the
// author of the index. Against later changes, skillrun skills add keeps the digests of the first time in a lock file.
package wellknown

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

const (
	// Path is where a host publishes its index.
	Path = "/.well-known/agent-skills/index.json"
	// Schema is the only version of an index that this package knows.
	Schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"

	maxArtifactBytes = 64 << 20
	maxRedirects     = 5
	fetchTime        = 5 * time.Minute
)

// Types of entries.
const (
	TypeSkillMD = "skill-md"
	TypeArchive = "archive"
)

// An Entry is a skill of an index.
type Entry struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
	URL         string `json:"url"`
	Digest      string `json:"digest"`
	Version     string `json:"version,omitempty"`
}

// An Index is a parsed index.
type Index struct {
	URL     string  // of the index itself
	Skills  []Entry // of known types, with absolute URLs
	Skipped []string
}

var digestGrammar = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

// IndexURL returns the URL of the index that a user means: of a host, or of an index, whose path ends
// in .json.
func IndexURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return "", fmt.Errorf("%q: want https://HOST, or the https URL of an index.json, without a user name", text)
	}
	// A query could carry a secret into the lock file. The definition knows no queries.
	u.RawQuery, u.Fragment = "", ""
	if strings.Trim(u.Path, "/") == "" {
		u.Path = Path
	}
	if path.Ext(u.Path) != ".json" {
		return "", fmt.Errorf("%q: want https://HOST, whose index is at %s, or the URL of another index.json", text, Path)
	}
	return u.String(), nil
}

// parse reads an index. An entry with a mistake is an error, because its meaning would be a guess. An entry
// of an unknown type is skipped, as the definition says.
func parse(data []byte, at string) (*Index, error) {
	var raw struct {
		Schema string  `json:"$schema"`
		Skills []Entry `json:"skills"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%s: not an index: %w", at, err)
	}
	if raw.Schema != Schema {
		return nil, fmt.Errorf("%s: its $schema is %q, and only %s is known", at, raw.Schema, Schema)
	}
	base, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	index, seen := &Index{URL: at}, map[string]bool{}
	for i, e := range raw.Skills {
		if e.Type != TypeSkillMD && e.Type != TypeArchive {
			index.Skipped = append(index.Skipped, fmt.Sprintf("%s (type %q)", e.Name, e.Type))
			continue
		}
		// A relative URL is relative to the index (RFC 3986, section 5).
		u, err := base.Parse(e.URL)
		switch {
		case e.Name == "" || seen[e.Name]:
			return nil, fmt.Errorf("%s: skills[%d]: the name %q is empty or comes twice", at, i, e.Name)
		case !digestGrammar.MatchString(e.Digest):
			return nil, fmt.Errorf("%s: skill %q: its digest is not sha256: and 64 lowercase hex digits", at, e.Name)
		case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
			return nil, fmt.Errorf("%s: skill %q: its url is not an https URL", at, e.Name)
		}
		seen[e.Name], e.URL = true, u.String()
		index.Skills = append(index.Skills, e)
	}
	return index, nil
}

// ErrUnauthorized says that a host wants a token, or another one.
var ErrUnauthorized = errors.New("401 Unauthorized")

// A Client fetches. The zero Client trusts the certificates of the system.
type Client struct {
	Transport http.RoundTripper // nil: http.DefaultTransport
	// Token is a bearer token for Host, which is written as in URLs, HOST or HOST:PORT. No other host
	// gets the token. Empty: no token.
	Token, Host string
}

// Index fetches an index.
// at is a URL from IndexURL. The index has no signature; the host and TLS are the only proof of its
// origin.
func (c Client) Index(ctx context.Context, at string) (*Index, error) {
	data, _, err := c.get(ctx, at, MaxIndexBytes)
	if err != nil {
		return nil, err
	}
	return parse(data, at)
}

// Fetch downloads the artifact of an entry, verifies its digest, and writes the skill's files to dir, an
// existing empty directory.
func (c Client) Fetch(ctx context.Context, e Entry, dir string) error {
	data, contentType, err := c.get(ctx, e.URL, maxArtifactBytes)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != e.Digest {
		return fmt.Errorf("skill %q: %s has the digest sha256:%x, and the index says %s; nothing was installed", e.Name, e.URL, sum, e.Digest)
	}
	if err := unpack(e, contentType, data, dir); err != nil {
		return fmt.Errorf("skill %q: %s: %w", e.Name, e.URL, err)
	}
	return nil
}

// get returns a document of at most most bytes, and its media type.
// fetchTime bounds the whole call, the body included, so a slow host can't hold the caller up.
func (c Client) get(ctx context.Context, at string, most int64) (data []byte, contentType string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, "", err
	}
	host := request.URL.Host
	if c.Token != "" && request.URL.Scheme == "https" && host == c.Host {
		// net/http repeats the header after a redirect; the check below keeps redirects within the host.
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := &http.Client{Transport: c.Transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case r.URL.Scheme != "https" || r.URL.Host != host:
			return fmt.Errorf("redirects to %s://%s; only redirects within %s are followed", r.URL.Scheme, r.URL.Host, host)
		case len(via) > maxRedirects:
			return errors.New("redirects too often")
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		return nil, "", fmt.Errorf("%s: %w", at, ErrUnauthorized)
	}
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%s: %s", at, response.Status)
	}
	// One byte more than the bound tells a document that is too long from one that just fits.
	data, err = io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", at, err)
	}
	if int64(len(data)) > most {
		return nil, "", fmt.Errorf("%s: has more than %d bytes", at, most)
	}
	// Without a valid Content-Type the name of the file decides (formatOf).
	contentType, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type"))
	return data, contentType, nil
}
