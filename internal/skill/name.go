package skill

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InvalidNameError says that no skill can have the name.
type InvalidNameError struct {
	Name   string
	Reason string // "must not contain '/', '\', or '..'", and the like
}

// Error has the published wording.
func (e *InvalidNameError) Error() string {
	return fmt.Sprintf("Invalid skill name: '%s'. Skill names %s", printable(e.Name), e.Reason)
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
	case strings.ContainsFunc(name, isControl):
		return bad("must not contain control characters")
	case utf8.RuneCountInString(name) > MaxNameRunes || len(name) > maxNameBytes:
		return bad(fmt.Sprintf("must be at most %d characters long", MaxNameRunes))
	case strings.Contains(name, pinMark):
		return bad(fmt.Sprintf("must not contain '%s'", pinMark))
	}
	return nil
}

// isControl reports whether r could forge a line in a log or on a terminal.
func isControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp)
}

// printable makes text from a skill safe for a message: valid UTF-8, control characters
// escaped, cut after 200 bytes.
func printable(s string) string {
	const most = 200
	var b strings.Builder
	for i, r := range s {
		switch {
		case i >= most:
			return b.String() + "..."
		case r == utf8.RuneError:
			b.WriteRune(utf8.RuneError)
		case isControl(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
