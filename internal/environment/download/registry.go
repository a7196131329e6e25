package download

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// RegistryPort is the port at which npm in a build finds the registry, on the build's loopback.
const RegistryPort = 4873

// A registry is a Fetcher that speaks the protocol of npm's clients
// (github.com/npm/registry, docs/REGISTRY-API.md): documents of packages, and the files that they
// name.
type registry struct{ *Fetcher }

// packagePath matches what npm asks for: /left, /@scope%2fright.
var packagePath = lazyregexp.New(`^/([^/?#]+)$`)

// get answers one request of npm, as Fetcher.Get does for pip.
// npm asks for more, such as audits and its own updates. It gets a 404 for these and goes on.
func (r registry) get(ctx context.Context, at string) Response {
	if m := packagePath.FindStringSubmatch(at); m != nil {
		name, err := url.PathUnescape(m[1])
		if err != nil || manifest.CheckNodePackage(name, "") != nil {
			return status(http.StatusNotFound)
		}
		return r.document(ctx, name)
	}
	if m := filePath.FindStringSubmatch(at); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return r.file(ctx, n, m[2])
		}
	}
	return status(http.StatusNotFound)
}

// A packument is the document of a package that localRegistry makes.
type packument struct {
	Name     string                                `json:"name"`
	Tags     map[string]string                     `json:"dist-tags"`
	Versions map[string]map[string]json.RawMessage `json:"versions"`
}

// A dist says where the file of a version is, and what its hash is.
type dist struct {
	Tarball   string `json:"tarball"`
	Integrity string `json:"integrity,omitempty"`
	Shasum    string `json:"shasum,omitempty"`
}

// document answers a request for a package. A name that the registry doesn't have is a plain 404.
// The slash of a scope is escaped in the path, as registries expect. A 404 must stay one: npm tries
// optional packages that do not exist.
func (r registry) document(ctx context.Context, name string) Response {
	u, err := url.Parse(r.index.String() + strings.ReplaceAll(name, "/", "%2f"))
	if err != nil {
		return r.fail(err)
	}
	// The short form is enough for an installation (docs/responses/package-metadata.md).
	answer, body, err := r.open(ctx, u, "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8")
	if err != nil {
		return r.fail(err)
	}
	defer body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return status(http.StatusNotFound)
	case http.StatusUnauthorized, http.StatusForbidden:
		return r.fail(fmt.Errorf("it refuses the credentials, or needs some (%s)", answer.Status))
	default:
		return r.fail(fmt.Errorf("it answered %s", answer.Status))
	}
	a := r.newAnswer(ctx)
	if err := r.readDocument(name, body, answer.Request.URL, a); err != nil {
		a.Close()
		return r.fail(err)
	}
	return Response{http.StatusOK, documentType, a.length(), a}
}

const documentType = "application/vnd.npm.install-v1+json"

// response answers with a document.
func (p packument) response() Response {
	text, err := json.Marshal(p)
	if err != nil {
		return status(http.StatusBadGateway)
	}
	return Response{http.StatusOK, documentType, int64(len(text)), io.NopCloser(bytes.NewReader(text))}
}
