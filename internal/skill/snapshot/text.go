package snapshot

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsControl reports whether r could forge a line in a log or on a terminal. Cc are the control
// characters; Zl and Zp are the line and paragraph separators, which some terminals and log
// viewers take for a new line.
func IsControl(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp)
}

// Printable makes text from a skill safe for a message: valid UTF-8, control characters
// escaped, cut after 200 bytes.
func Printable(s string) string {
	const most = 200
	var b strings.Builder
	for i, r := range s {
		switch {
		case i >= most:
			return b.String() + "..."
		case r == utf8.RuneError:
			b.WriteRune(utf8.RuneError)
		case IsControl(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
