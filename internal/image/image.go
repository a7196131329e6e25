// Package image brings root file systems for sandboxes from OCI registries: it
// pulls what a digest names and unpacks it once, whole or not at all, into a
// directory of the state that is called after the digest.
//
// It is a package of its own because it alone speaks to registries, which takes a
// library, and because what it reads is a stranger's from the first byte to the
// last. Nothing is believed of a manifest, a layer or an archive: the digest holds
// them to what the operator wrote down (pull.go), bounds hold their size (layer.go),
// and no entry is written but beneath the directory that is made for it (unpack.go).
// It runs when a daemon starts; executions only mount what is there.
package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Credentials say who a registry is told that it talks to.
type Credentials string

// The kinds of credentials.
const (
	// None is nobody.
	None Credentials = "none"
	// Docker is what the docker configuration of the daemon's user has for the
	// registry: $DOCKER_CONFIG/config.json or ~/.docker/config.json, with the
	// credential helpers that it names.
	Docker Credentials = "docker"
)

// A Source is what to pull.
type Source struct {
	Reference   string // registry/repository@sha256:...
	Credentials Credentials
}

// UnpinnedError: a reference without a digest names another image tomorrow.
type UnpinnedError struct {
	Reference string
	Pinned    string // the same with the digest that it has now; empty: it could not be asked for
	Err       error  // why not
}

func (e *UnpinnedError) Error() string {
	if e.Pinned != "" {
		return fmt.Sprintf("%q has no digest, so it could be another image tomorrow; write: %s", e.Reference, e.Pinned)
	}
	return fmt.Sprintf("%q has no digest, so it could be another image tomorrow; write: %s@sha256:<digest> (the registry could not be asked for it: %v)", e.Reference, e.Reference, e.Err)
}

func (e *UnpinnedError) Unwrap() error { return e.Err }

// A PullError is an image that could not be had.
type PullError struct {
	Reference string
	Err       error
}

func (e *PullError) Error() string {
	text := fmt.Sprintf("image %s: %v", e.Reference, e.Err)
	var refused *transport.Error
	if errors.As(e.Err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
		text += "; if it is not public, set credentials: docker, and log in with docker login as the user that the daemon runs as"
	}
	return text
}

func (e *PullError) Unwrap() error { return e.Err }

// Check reports what is wrong with the form of a source. A reference without a
// digest has a good form: Pinned refuses it.
func (s Source) Check() error {
	if s.Credentials != None && s.Credentials != Docker {
		return fmt.Errorf("credentials: %q; must be none or docker", s.Credentials)
	}
	if _, err := name.ParseReference(s.Reference); err != nil {
		return fmt.Errorf("image: %q is no reference, write it as registry/repository@sha256:<digest>", s.Reference)
	}
	return nil
}

// askPatience bounds the question for a digest that somebody left out.
const askPatience = 10 * time.Second

// Pinned returns an *UnpinnedError for a reference without a digest. It asks the
// registry for the line to write.
func (s Source) Pinned(ctx context.Context) error {
	ref, err := name.ParseReference(s.Reference)
	if err != nil {
		return err
	}
	if _, ok := ref.(name.Digest); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	unpinned := &UnpinnedError{Reference: s.Reference}
	if d, err := remote.Head(ref, s.options(ctx, newTransport())...); err != nil {
		unpinned.Err = err
	} else {
		unpinned.Pinned = s.Reference + "@" + d.Digest.String()
	}
	return unpinned
}

// Digest is what the reference is pinned to, "sha256:..."; empty: nothing.
func (s Source) Digest() string {
	d, err := name.NewDigest(s.Reference)
	if err != nil {
		return ""
	}
	return d.DigestStr()
}

// headerPatience is how long a registry may think before it answers.
const headerPatience = 30 * time.Second

func newTransport() *http.Transport {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = headerPatience
	return t
}

func (s Source) options(ctx context.Context, t http.RoundTripper) []remote.Option {
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(t), remote.WithPlatform(thisPlatform), remote.WithJobs(1), remote.WithUserAgent("skillrund")}
	if s.Credentials == Docker {
		options = append(options, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	return options
}
