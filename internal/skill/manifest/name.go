package manifest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// PinMark separates name and digest in a reference to a skill. No name has it.
const PinMark = "@sha256:"

// InvalidNameError says that no skill can have the name.
type InvalidNameError struct {
	Name   string
	Reason string // "must not contain '/', '\', or '..'", and the like
}

// Error has the published wording. Tools pass it to models, so it does not name the daemon.
func (e *InvalidNameError) Error() string {
	return fmt.Sprintf("Invalid skill name: '%s'. Skill names %s", snapshot.Printable(e.Name), e.Reason)
}

// ValidName reports whether a skill can be looked up by name. A name is valid UTF-8, not
// empty, at most 64 characters long (and 255 bytes, since it names a directory in the
// sandbox), and has no '/', '\', "..", control characters or line separators. The
// published grammar, which validation checks, is narrower. Names are compared byte by
// byte, so names that only look alike are different.
//
// The error is an *InvalidNameError.
func ValidName(name string) error {
	bad := func(reason string) error { return &InvalidNameError{name, reason} }
	switch {
	case name == "":
		return bad("must not be empty")
	case strings.ContainsAny(name, `/\`) || strings.Contains(name, ".."):
		return bad(`must not contain '/', '\', or '..'`)
	case name == ".":
		return bad("must not be '.'")
	case !utf8.ValidString(name):
		return bad("must be valid UTF-8")
	case strings.ContainsFunc(name, snapshot.IsControl):
		return bad("must not contain control characters")
	case utf8.RuneCountInString(name) > MaxNameRunes || len(name) > maxNameBytes:
		return bad(fmt.Sprintf("must be at most %d characters long", MaxNameRunes))
	case strings.Contains(name, PinMark):
		return bad(fmt.Sprintf("must not contain '%s'", PinMark))
	}
	return nil
}

// SplitName splits a full name. A skill's full name is its name, or "namespace/name" if its root has a
// namespace. namespace is empty if the text is not of the second form.
func SplitName(full string) (namespace, name string) {
	namespace, name, ok := strings.Cut(full, "/")
	if !ok || !PublishedName(namespace) || ValidName(name) != nil {
		return "", full
	}
	return namespace, name
}

// publishedName is the grammar of the Agent Skills specification for the field name: lowercase
// letters, digits and single hyphens.
var publishedName = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// PublishedName reports whether a name keeps the Agent Skills specification, which is narrower than
// ValidName.
func PublishedName(name string) bool {
	return len(name) <= MaxNameRunes && publishedName.MatchString(name)
}
