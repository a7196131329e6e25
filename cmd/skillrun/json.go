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

// printJSON writes a message on one line in protobuf's JSON form. Fields with a default
// value are included. Scripts get the same keys in every answer: 0, false and empty lists are
// printed, too.
func (a *app) printJSON(m proto.Message) error {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	// protojson varies its blanks on purpose; the encoder takes them out.
	return a.printJSONValue(json.RawMessage(data))
}

// printJSONValue writes a value as one line of JSON. The line is written by one Write, so that
// lines of several processes on one pipe stay whole up to PIPE_BUF bytes (pipe(7)).
func (a *app) printJSONValue(v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	// The escapes of <, > and & are for JSON within HTML; on a terminal they only hide the text.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(a.stdout, printableJSON(line.String()))
	return err
}

// printableJSON is printable for JSON: it writes characters that could control a terminal
// as JSON's escapes, so that the value stays the same. Outside of strings, JSON has no such
// character but the line's end.
func printableJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b.WriteRune(r)
		// JSON has escapes of four digits only, so such a character takes a surrogate pair (RFC
		// 8259, section 7).
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
