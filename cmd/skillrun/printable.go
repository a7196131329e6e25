package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// printable makes foreign text safe for one line of a terminal. It escapes control
// characters, which could move the cursor or hide text, marks that change the direction of
// writing, and bytes that are not UTF-8.
func printable(s string) string { return escape(s, "") }

// printableText is printable for text of several lines.
func printableText(s string) string { return escape(s, "\n\t") }

// pieces writes foreign text that comes in pieces: to a terminal as printableText, and to a file unchanged.
type pieces struct {
	to io.Writer
	// rest has the beginning of a character whose other bytes come with the next piece: of stdout, and of stderr.
	rest [2][]byte
}

// write writes a piece of output. A nil piece is empty.
func (p *pieces) write(o *pb.OutputChunk) error {
	if !terminal(p.to) {
		_, err := p.to.Write(o.GetData())
		return err
	}
	rest := &p.rest[0]
	if o.GetStream() == pb.OutputStream_OUTPUT_STREAM_STDERR {
		rest = &p.rest[1]
	}
	data := append(*rest, o.GetData()...)
	end := len(data)
	for at := len(data) - 1; at >= 0 && at > len(data)-utf8.UTFMax; at-- {
		if utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				end = at
			}
			break
		}
	}
	*rest = data[end:]
	_, err := io.WriteString(p.to, printableText(string(data[:end])))
	return err
}

// flush writes what write has kept. It ignores an error of to, for which there is no other place.
func (p *pieces) flush() {
	for i, rest := range p.rest {
		io.WriteString(p.to, printableText(string(rest)))
		p.rest[i] = nil
	}
}

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
