package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxArgumentBytes is the published bound on JSON arguments, in their encoded form: 10 MB,
// decimal. docs/contracts.md has the source.
const MaxArgumentBytes = 10_000_000

// maxArgumentDepth is the maximum depth of nested arguments: Python's own parser gives
// up near 1,000.
const maxArgumentDepth = 500

// An ArgumentError is a set of JSON arguments that can't be passed on. Its texts are the
// published contract's (docs/contracts.md).
type ArgumentError struct {
	Size   int    // of too large ones, else 0
	Reason string // else
}

func (e *ArgumentError) Error() string {
	if e.Size > 0 {
		return fmt.Sprintf("Arguments too large: %d bytes (max 10MB)", e.Size)
	}
	return "Cannot serialize arguments to JSON: " + e.Reason
}

// EncodeArguments turns the text of one JSON object into what Python's json.dumps(x,
// ensure_ascii=False) prints for it: keys in their order, a repeated key keeps its first place
// and last value, whole numbers keep every digit, others are Python's shortest repr. The error
// is an *ArgumentError.
//
// encoding/json can't do that with a map: it sorts the keys, and a float64 loses digits of
// large numbers. So the tokens are read one by one.
func EncodeArguments(text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, &ArgumentError{Reason: "not valid UTF-8"}
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	first, err := dec.Token()
	if err != nil {
		return nil, &ArgumentError{Reason: jsonReason(err)}
	}
	if first != json.Delim('{') {
		return nil, &ArgumentError{Reason: "the arguments are not a JSON object"}
	}
	if HasLoneSurrogate(text) {
		return nil, &ArgumentError{Reason: "a \\u escape is half of a surrogate pair"}
	}
	e := argumentEncoder{dec: dec}
	value, err := e.object(1)
	if err != nil {
		var bad *ArgumentError
		if errors.As(err, &bad) {
			return nil, bad
		}
		return nil, &ArgumentError{Reason: jsonReason(err)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, &ArgumentError{Reason: "the text goes on after the object"}
	}
	if len(value) > MaxArgumentBytes {
		return nil, &ArgumentError{Size: len(value)}
	}
	return value, nil
}

// jsonReason is the decoder's error, without Go's words for an early end.
func jsonReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON text ends too early"
	}
	return err.Error()
}

// An argumentEncoder reads tokens of dec and returns their text as Python prints it. depth
// counts the open objects and arrays, the outermost one too.
type argumentEncoder struct{ dec *json.Decoder }

// object reads on after the opening brace, up to the closing one. A repeated key keeps its first
// place and its last value, as a Python dict does.
// The members are kept until the end of the object, because the value of a repeated key may still
// change. The memory is bounded: the text is a part of a message (message_bytes).
func (e argumentEncoder) object(depth int) ([]byte, error) {
	if depth > maxArgumentDepth {
		return nil, &ArgumentError{Reason: fmt.Sprintf("nested deeper than %d", maxArgumentDepth)}
	}
	type member struct{ key, value []byte }
	var members []member
	index := map[string]int{}
	for e.dec.More() {
		key, err := e.dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := e.value(depth)
		if err != nil {
			return nil, err
		}
		name := key.(string)
		if i, ok := index[name]; ok {
			members[i].value = value
			continue
		}
		index[name] = len(members)
		members = append(members, member{appendPythonString(nil, name), value})
	}
	if _, err := e.dec.Token(); err != nil { // the closing brace
		return nil, err
	}
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(append(append(out, m.key...), ": "...), m.value...)
	}
	return append(out, '}'), nil
}

// array reads on after the opening bracket, up to the closing one.
func (e argumentEncoder) array(depth int) ([]byte, error) {
	if depth > maxArgumentDepth {
		return nil, &ArgumentError{Reason: fmt.Sprintf("nested deeper than %d", maxArgumentDepth)}
	}
	out := []byte{'['}
	for first := true; e.dec.More(); first = false {
		if !first {
			out = append(out, ", "...)
		}
		value, err := e.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, value...)
	}
	if _, err := e.dec.Token(); err != nil { // the closing bracket
		return nil, err
	}
	return append(out, ']'), nil
}

// value reads one value, which stands in an object or array at depth. Only objects and arrays can
// make it deeper.
func (e argumentEncoder) value(depth int) ([]byte, error) {
	token, err := e.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			return e.object(depth + 1)
		}
		return e.array(depth + 1)
	case string:
		return appendPythonString(nil, t), nil
	case json.Number:
		return pythonNumber(string(t))
	case bool:
		return strconv.AppendBool(nil, t), nil
	}
	return []byte("null"), nil
}

// appendPythonString quotes s as CPython's json.encoder.ESCAPE_DCT has it: only
// the quote, the backslash and the control characters below 0x20 are escaped.
func appendPythonString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c == '\f':
			out = append(out, `\f`...)
		case c == '\b':
			out = append(out, `\b`...)
		case c < 0x20:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// pythonNumber prints a JSON number as Python does after reading it: an int if
// it has neither a fraction nor an exponent, else the repr of a float.
func pythonNumber(text string) ([]byte, error) {
	if !strings.ContainsAny(text, ".eE") {
		// CPython refuses to read an int of more digits: sys.int_info.default_max_str_digits.
		if len(strings.TrimPrefix(text, "-")) > 4300 {
			return nil, &ArgumentError{Reason: "a whole number has more than 4300 digits"}
		}
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return nil, &ArgumentError{Reason: "not a number: " + text}
		}
		return n.Append(nil, 10), nil // "-0" is 0 there too
	}
	f, err := strconv.ParseFloat(text, 64)
	if math.IsInf(f, 0) {
		// json.loads turns 1e999 into a float that json.dumps prints as Infinity. That
		// is not JSON, so the program might not be able to read it.
		return nil, &ArgumentError{Reason: "a number is out of the range of a float: " + text}
	}
	if err != nil {
		return nil, &ArgumentError{Reason: err.Error()}
	}
	return pythonFloat(f), nil
}

// pythonFloat is float.__repr__: the shortest digits that read back the same, an
// exponent of at least two digits if it is below -4 or above 15.
func pythonFloat(f float64) []byte {
	exp := strconv.FormatFloat(f, 'e', -1, 64)
	mark := strings.IndexByte(exp, 'e')
	n, _ := strconv.Atoi(exp[mark+1:])
	if n < -4 || n >= 16 {
		return []byte(exp)
	}
	fixed := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(fixed, ".") {
		fixed += ".0"
	}
	return []byte(fixed)
}

// HasLoneSurrogate reports whether a \u escape of valid JSON is half of a surrogate
// pair. The decoder replaces such a half by U+FFFD without an error; Python keeps
// it and then can't encode it as UTF-8.
// It looks for escapes only: in valid JSON a backslash outside of strings can't occur, and an
// escaped backslash is skipped as a pair.
func HasLoneSurrogate(text string) bool {
	high := false // the escape right before was a high half
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			if high {
				return true
			}
			i++
			continue
		}
		if i+5 < len(text) && text[i+1] == 'u' {
			code, err := strconv.ParseUint(text[i+2:i+6], 16, 32)
			low := err == nil && code >= 0xDC00 && code < 0xE000
			if low != high {
				return true
			}
			high = err == nil && code >= 0xD800 && code < 0xDC00
			i += 6
			continue
		}
		if high {
			return true
		}
		i += 2
	}
	return high
}
