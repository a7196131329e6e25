// Package image pulls root file systems for sandboxes from OCI registries. Each image is
// pinned by digest and unpacked once, completely or not at all, into a directory of the
// state that is named after the digest. Start with [Store] and [Source].
//
// Images are untrusted input. The digest ties manifest and layers to the operator's
// configuration (pull.go). Limits bound the size of layers (layer.go). No entry is written
// outside the image's directory (unpack.go).
//
// Only this package talks to registries. It does so when a daemon starts; executions only
// mount the unpacked images.
//
// Order of calls, all by cmd/skillrund at its start: Open, Get for each configured image,
// Prune. After a takeover, Adopt comes when the earlier daemon has ended. Close comes at the
// daemon's end. No execution waits for any of these calls, so there are no deadlines of callers
// and no locks between goroutines: one goroutine at a time uses a Store.
//
// On disk, in Config.Dir: ALGORITHM-HEX-ARCHITECTURE is an image, with rootfs and the file
// reference in it. The same name with .lock is the file that users of the image lock. new-*
// is incomplete. lock serializes the processes that add or remove images.
package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Credentials is the kind of credentials that a registry gets.
type Credentials string

// The kinds of credentials.
const (
	// None sends no credentials, which is enough for public images.
	None Credentials = "none"
	// Docker sends the credentials for the registry from the Docker configuration of the
	// daemon's user: $DOCKER_CONFIG/config.json or ~/.docker/config.json, and the credential
	// helpers that it names.
	Docker Credentials = "docker"
)

// A Source says which image to pull, and with which credentials.
type Source struct {
	Reference   string // registry/repository@sha256:...
	Credentials Credentials
}

// UnpinnedError refuses a reference without a digest, which may mean another image
// tomorrow.
type UnpinnedError struct {
	Reference string
	Pinned    string // the reference with its current digest; empty: the registry did not tell
	Err       error  // why Pinned is empty
}

func (e *UnpinnedError) Error() string {
	if e.Pinned != "" {
		return fmt.Sprintf("%q has no digest, so it could be another image tomorrow; write: %s", e.Reference, e.Pinned)
	}
	return fmt.Sprintf("%q has no digest, so it could be another image tomorrow; write: %s@sha256:<digest> (the registry could not be asked for it: %v)", e.Reference, e.Reference, e.Err)
}

func (e *UnpinnedError) Unwrap() error { return e.Err }

// A PullError says that an image could not be pulled.
type PullError struct {
	Reference string
	Dir       string // the directory of all images
	Err       error
}

// Error adds the remedy for the two usual causes: no right to pull, and a full disk.
func (e *PullError) Error() string {
	text := fmt.Sprintf("image %s: %v", e.Reference, e.Err)
	var refused *transport.Error
	if errors.As(e.Err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
		text += "; if it is not public, set credentials: docker, and log in with docker login as the user that the daemon runs as"
	}
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		text += "; make room in " + e.Dir + ", or set state_dir to a directory on a larger disk, and start the daemon again"
	}
	return text
}

func (e *PullError) Unwrap() error { return e.Err }

// Check reports an error in the form of the reference. It accepts one without a digest,
// which Pinned refuses.
func (s Source) Check() error {
	if _, err := name.ParseReference(s.Reference); err != nil {
		return fmt.Errorf("%q is not a valid reference; write registry/repository@sha256:<digest>", s.Reference)
	}
	return nil
}

// askPatience limits the request for the digest of an unpinned reference. The answer only
// makes an error more helpful, so a slow registry must not hold up the daemon's refusal.
const askPatience = 10 * time.Second

// Pinned returns an *UnpinnedError for a reference without a digest. It asks the registry
// for the current digest, so that the error can show the line to write.
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

// Digest returns the digest of the reference, "sha256:...", or "" without one.
// For an index of several platforms it is the digest of the index, not of the image in it.
func (s Source) Digest() string {
	d, err := name.NewDigest(s.Reference)
	if err != nil {
		return ""
	}
	return d.DigestStr()
}

// headerPatience is how long a registry may take until its response header. The time for the
// body is limited by stallPatience and the caller's context.
const headerPatience = 30 * time.Second

// A clone, because the default transport is a variable that all of its users share.
func newTransport() *http.Transport {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = headerPatience
	return t
}

// options returns the options of every request to the registry. authn.DefaultKeychain reads the docker
// configuration of the daemon's user.
func (s Source) options(ctx context.Context, t http.RoundTripper) []remote.Option {
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(t), remote.WithPlatform(thisPlatform), remote.WithJobs(1), remote.WithUserAgent("skillrund")}
	if s.Credentials == Docker {
		options = append(options, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	return options
}
