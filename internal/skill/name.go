package skill

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InvalidNameError says that a name can't be the name of any skill.
type InvalidNameError struct {
	Name   string
	Reason string // "must not contain '/', '\', or '..'", and the like
}

// Error has the published wording.
func (e *InvalidNameError) Error() string {
	return fmt.Sprintf("Invalid skill name: '%s'. Skill names %s", printable(e.Name), e.Reason)
}

// ValidName reports whether a skill can be looked up by name: not empty, without
// '/', '\', "..", control characters and line separators, valid UTF-8, at most 64
// characters (and 255 bytes, since the name is a directory in the sandbox). It is
// wider than the published grammar, which validation checks. Names are compared
// byte by byte: one that only looks like another is another.
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

// isControl reports whether r could forge a line of a log or a terminal.
func isControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp)
}

// printable makes text that a stranger chose fit for a message: no control
// characters, valid UTF-8, not long.
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
