package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes foreign text safe for one line of a terminal. It escapes control
// characters, which could move the cursor or hide text, marks that change the direction of
// writing, and bytes that are not UTF-8.
func printable(s string) string { return escape(s, "") }

// printableText is printable for text of several lines.
func printableText(s string) string { return escape(s, "\n\t") }

// escape does not change the characters in keep. It decodes by hand, because range over a
// string gives the same rune for U+FFFD and for a byte that is not UTF-8 (width 1 tells them
// apart).
func escape(s, keep string) string {
	var b strings.Builder
	for i, width := 0, 0; i < len(s); i += width {
		var r rune
		r, width = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
