package toolview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
)

// An ArgumentsError says which argument of a call does not fit the tool's schema, and
// which value would.
type ArgumentsError struct {
	Tool   string
	Field  string // empty: the arguments as a whole
	Reason string
}

func (e *ArgumentsError) Error() string {
	if e.Field == "" {
		return e.Tool + ": " + e.Reason
	}
	return fmt.Sprintf("%s: %s: %s", e.Tool, e.Field, e.Reason)
}

// schema is the part of JSON Schema that the tools' parameters use. A test checks that
// no tool uses more.
type schema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional *bool               `json:"additionalProperties"`
}

// property is the schema of one argument.
type property struct {
	Type        string   `json:"type"`
	Description string   `json:"description"`
	Minimum     *float64 `json:"minimum"`
	Maximum     *float64 `json:"maximum"`
}

// checkArguments checks the arguments of a call against the tool's schema: an object
// with all required fields, no unknown ones, and values of the right types. It drops
// optional fields that are null, because models send null for "not set". The result has
// no null at the top level. Models read the error and try again, so it names the field and the
// values that fit.
func checkArguments(t Tool, arguments json.RawMessage) (json.RawMessage, error) {
	bad := func(field, format string, args ...any) error {
		return &ArgumentsError{Tool: t.Name, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	var s schema
	if err := json.Unmarshal(t.Parameters, &s); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t.Name, err)
	}
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	fields, err := members(arguments)
	if err != nil {
		return nil, bad("", "the arguments are %s; give one JSON object with %s", err, fieldList(s))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p, known := s.Properties[name]
		if !known {
			return nil, bad("", "no field %.80q; it takes %s", name, fieldList(s))
		}
		if string(fields[name]) == "null" && !slices.Contains(s.Required, name) {
			delete(fields, name)
			continue
		}
		if executor.HasLoneSurrogate(string(fields[name])) {
			return nil, bad(name, "a \\u escape is half of a surrogate pair: give both halves, or another character")
		}
		if reason := p.refuse(fields[name]); reason != "" {
			return nil, bad(name, "%s", reason)
		}
	}
	for _, name := range s.Required {
		if _, ok := fields[name]; !ok {
			return nil, bad(name, "is required: %s", s.Properties[name].Description)
		}
	}
	return json.Marshal(fields)
}

// members reads one JSON object. If a key is repeated, its last value counts (encoding/json).
func members(text []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var fields map[string]json.RawMessage
	if err := dec.Decode(&fields); err != nil {
		if errors.As(err, new(*json.UnmarshalTypeError)) {
			return nil, errors.New("not a JSON object")
		}
		return nil, errors.New("not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	if fields == nil { // the text was null
		return nil, errors.New("not a JSON object")
	}
	return fields, nil
}

// fieldList lists the fields of a schema, required ones first.
func fieldList(s schema) string {
	if len(s.Properties) == 0 {
		return "no fields"
	}
	list := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			list = append(list, name+" (optional)")
		}
	}
	return strings.Join(list, ", ")
}

// refuse says why a value does not fit this property. Empty: it fits. A number is compared as a
// float64; above 2^53 that would not tell two integers apart, so larger ones are not integers
// here.
func (p property) refuse(value json.RawMessage) string {
	var got any
	if err := json.Unmarshal(value, &got); err != nil {
		return "has a number that is too large"
	}
	ok := false
	switch v := got.(type) {
	case string:
		ok = p.Type == "string"
	case map[string]any:
		ok = p.Type == "object"
	case float64:
		ok = p.Type == "number" || p.Type == "integer" && v == math.Trunc(v) && math.Abs(v) < 1<<53
		switch {
		case !ok:
		case p.Minimum != nil && v < *p.Minimum:
			return fmt.Sprintf("must be at least %v", *p.Minimum)
		case p.Maximum != nil && v > *p.Maximum:
			return fmt.Sprintf("must be at most %v", *p.Maximum)
		}
	}
	if !ok {
		return fmt.Sprintf("must be of the type %s", p.Type)
	}
	return ""
}

// decode unmarshals checked arguments.
func decode[T any](c call) (T, error) {
	var v T
	if err := json.Unmarshal(c.arguments, &v); err != nil {
		return v, fmt.Errorf("checked arguments: %w", err)
	}
	return v, nil
}

// seconds converts a schema's number of seconds to a duration.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
