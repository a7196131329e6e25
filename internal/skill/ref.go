package skill

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// AmbiguousError says that a name without a namespace is the name of several skills.
type AmbiguousError struct {
	Name       string
	Candidates []string // the full names, sorted
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the name of several skills; use one of %s", e.Name, strings.Join(e.Candidates, ", "))
}

// ErrNotFound says that no skill with the name is loaded. A *NotFoundError wraps it.
var ErrNotFound = errors.New("skill not found")

// NotFoundError is ErrNotFound with the name.
type NotFoundError struct {
	Name string
	Why  string // why the folder of this name did not load; empty: the caller sees no such folder
}

func (e *NotFoundError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("%q: %v: its folder did not load: %s", e.Name, ErrNotFound, e.Why)
	}
	return fmt.Sprintf("%q: %v", e.Name, ErrNotFound)
}
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// DigestMismatch says that the skill is loaded with another digest than the pinned one.
type DigestMismatch struct{ Name, Want, Have string }

func (e *DigestMismatch) Error() string {
	return fmt.Sprintf("%s: digest mismatch: want %s, have %s", e.Name, e.Want, e.Have)
}

// DamagedError says that a version of a pushed skill has changed on the disk. Another push of the same files repairs it.
// Without a Name, it is the list of the tenant's pushed skills that has changed; then no skill can be used, because a
// shared skill must not take the place of one that can't be read.
type DamagedError struct {
	Name, Digest string
	Err          error
}

func (e *DamagedError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("the list of the tenant's pushed skills is damaged: %v; the operator of the daemon must repair it", e.Err)
	}
	return fmt.Sprintf("skill %s@%s is damaged on the daemon's disk: %v; push it again", e.Name, e.Digest, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// InvalidPinError says that the text after the name in a reference is not a digest.
type InvalidPinError struct{ Name, Digest string }

func (e *InvalidPinError) Error() string {
	return fmt.Sprintf("%s: '%s' is not a digest: want sha256: and 64 lowercase hex digits", e.Name, snapshot.Printable(e.Digest))
}

var digestGrammar = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

// ParseRef splits "name" or "name@sha256:<64 hex digits>". The name may be a full name, see
// [manifest.SplitName]. The digest includes "sha256:". It is empty if the reference is only a name. The error is an
// *manifest.InvalidNameError or an *InvalidPinError.
func ParseRef(ref string) (name, digest string, err error) {
	name, _, pinned := strings.Cut(ref, manifest.PinMark)
	if namespace, _ := manifest.SplitName(name); namespace == "" {
		if err := manifest.ValidName(name); err != nil {
			return "", "", err
		}
	}
	if !pinned {
		return name, "", nil
	}
	digest = ref[len(name)+1:]
	if !digestGrammar.MatchString(digest) {
		return "", "", &InvalidPinError{name, digest}
	}
	return name, digest, nil
}
