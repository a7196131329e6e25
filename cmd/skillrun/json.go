package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// printJSON writes a message in the proto's JSON form, fields with a default
// value too, on a line of its own.
func (a *app) printJSON(m proto.Message) error {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	// protojson varies its blanks on purpose; the encoder takes them out.
	return a.printJSONValue(json.RawMessage(data))
}

// printJSONValue writes a value as JSON on a line of its own.
func (a *app) printJSONValue(v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(a.stdout, printableJSON(line.String()))
	return err
}

// printableJSON is printable for JSON: what a terminal could take for more than
// text is written as JSON's own escapes, so that the value stays the same. Outside of
// strings JSON has nothing of the kind but the line's end.
func printableJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
