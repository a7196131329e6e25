package download

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
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

// A packument is the document of a package. npm ignores the fields that are left out here.
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
	limited := &io.LimitedReader{R: body, N: maxPageBytes + 1}
	text, err := io.ReadAll(limited)
	switch {
	case err != nil:
		return r.fail(err)
	case limited.N == 0:
		return r.fail(fmt.Errorf("the document of %s is longer than %d bytes", name, int64(maxPageBytes)))
	}
	var p packument
	if err := json.Unmarshal(text, &p); err != nil {
		return r.fail(fmt.Errorf("the document of %s is not that of a package: %w", name, err))
	}
	if p, err = r.rewrite(name, p, answer.Request.URL); err != nil {
		return r.fail(err)
	}
	return p.response()
}

// response answers with a document.
func (p packument) response() Response {
	text, err := json.Marshal(p)
	if err != nil {
		return status(http.StatusBadGateway)
	}
	return Response{http.StatusOK, "application/vnd.npm.install-v1+json", int64(len(text)), io.NopCloser(bytes.NewReader(text))}
}

// rewrite returns a document in which each file is one of the build's server, by its number. A
// version without a usable file is left out.
// The sandbox learns numbers, not URLs: whatever npm asks for, the daemon fetches only files that a
// document of the configured registry has named.
func (r registry) rewrite(name string, p packument, at *url.URL) (packument, error) {
	var links []link
	var dists []dist
	var versions []string
	for version, fields := range p.Versions {
		var d dist
		if json.Unmarshal(fields["dist"], &d) != nil || d.Integrity == "" && d.Shasum == "" || manifest.CheckNodePackage(name, version) != nil {
			continue
		}
		u, err := at.Parse(d.Tarball)
		if err != nil || d.Tarball == "" || u.Scheme != "https" && u.Scheme != "http" || len(d.Tarball) > maxLinkText {
			continue
		}
		u.User, u.Fragment = nil, ""
		if err := r.takeText(len(d.Tarball) + len(version)); err != nil {
			return packument{}, err
		}
		links = append(links, link{url: u.String(), name: path.Base(name) + "-" + version + ".tgz"})
		dists, versions = append(dists, d), append(versions, version)
	}
	first, err := r.keep(links)
	if err != nil {
		return packument{}, err
	}
	kept := map[string]map[string]json.RawMessage{}
	for i, version := range versions {
		dists[i].Tarball = fmt.Sprintf("http://127.0.0.1:%d/file/%d/%s", RegistryPort, first+i, links[i].name)
		fields := p.Versions[version]
		if fields["dist"], err = json.Marshal(dists[i]); err != nil {
			return packument{}, err
		}
		kept[version] = fields
	}
	// npm needs "latest", and a tag must lead to a version.
	for tag, version := range p.Tags {
		if !slices.Contains(versions, version) {
			delete(p.Tags, tag)
		}
	}
	return packument{name, p.Tags, kept}, nil
}
