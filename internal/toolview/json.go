package toolview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// dumps encodes v as Python's json.dumps(v) does: with ", " and ": " as separators and
// everything but printable ASCII as \uXXXX. Fields keep the order of their struct. Floats
// in v must have the type [float], not float64.
func dumps(v any) json.RawMessage {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("toolview: " + err.Error()) // v has fixed types of this package, so this is a bug
	}
	in := bytes.TrimSuffix(plain.Bytes(), []byte("\n"))
	out := make([]byte, 0, len(in)+len(in)/8)
	quoted := false
	for i := 0; i < len(in); {
		switch c := in[i]; {
		case c == '"':
			quoted = !quoted
			out = append(out, c)
		// A comma or colon outside of a string is a separator. Python puts a blank after each.
		case !quoted && (c == ',' || c == ':'):
			out = append(out, c, ' ')
		case c == '\\': // encoding/json escapes as Python does
			out = append(out, c, in[i+1])
			i++
		// Python escapes DEL (0x7f) too: ensure_ascii keeps only " " to "~".
		case c < 0x7f:
			out = append(out, c)
		default:
			r, size := utf8.DecodeRune(in[i:])
			out = appendEscaped(out, r)
			i += size - 1
		}
		i++
	}
	return out
}

// appendEscaped writes a character as \uXXXX, or as a surrogate pair above U+FFFF, as Python's
// json.encoder does with ensure_ascii.
func appendEscaped(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// A float is encoded as in Python: 2.0, not 2.
type float float64

// MarshalJSON returns Python's float.__repr__ for numbers from 0.0001 to below 1e16, and
// Go's encoding for others.
func (f float) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(f), 'f', -1, 64)
	if !bytes.ContainsRune([]byte(text), '.') {
		text += ".0"
	}
	return []byte(text), nil
}
