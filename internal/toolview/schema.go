package toolview

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// schema is the part of JSON Schema that the tools' parameters use. A test checks that
// no tool uses more.
type schema struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"` // of an object; nil: any properties
	Required    []string          `json:"required"`
	Additional  *bool             `json:"additionalProperties"`
	Items       *schema           `json:"items"`
	MaxItems    *int              `json:"maxItems"`
	MaxLength   *int              `json:"maxLength"` // in characters
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
}

// A mismatch says which value does not fit a schema, and why.
type mismatch struct{ field, reason string }

// check returns a value without the optional fields that are null. field is the name of the
// value; it is empty for the arguments of a call. check does not change objects whose schema names no
// properties.
// Only the first mismatch is reported, in the order of the names: a model corrects one thing at a
// time.
func (s schema) check(field string, value json.RawMessage) (json.RawMessage, *mismatch) {
	switch {
	case s.Properties != nil:
		return s.checkObject(field, value)
	case s.Items != nil:
		return s.checkArray(field, value)
	}
	if reason := s.refuse(value); reason != "" {
		return nil, &mismatch{field, reason}
	}
	return value, nil
}

// checkObject checks an object with known properties. Of a repeated key the last value counts.
func (s schema) checkObject(field string, value json.RawMessage) (json.RawMessage, *mismatch) {
	fields, err := members(value)
	if err != nil && field != "" {
		return nil, &mismatch{field, fmt.Sprintf("is %s; give an object with %s", err, s.fieldList())}
	}
	if err != nil {
		return nil, &mismatch{field, fmt.Sprintf("the arguments are %s; give one JSON object with %s", err, s.fieldList())}
	}
	within := func(name string) string { return strings.TrimPrefix(field+"."+name, ".") }
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p, known := s.Properties[name]
		if !known {
			return nil, &mismatch{field, fmt.Sprintf("no field %.80q; it takes %s", name, s.fieldList())}
		}
		if string(fields[name]) == "null" && !slices.Contains(s.Required, name) {
			delete(fields, name)
			continue
		}
		// Each argument of the call is checked once, as text, so nested values need no further check.
		if field == "" && executor.HasLoneSurrogate(string(fields[name])) {
			return nil, &mismatch{name, "a \\u escape is half of a surrogate pair: give both halves, or another character"}
		}
		checked, bad := p.check(within(name), fields[name])
		if bad != nil {
			return nil, bad
		}
		fields[name] = checked
	}
	for _, name := range s.Required {
		if _, ok := fields[name]; !ok {
			return nil, &mismatch{within(name), "is required: " + s.Properties[name].Description}
		}
	}
	return encoded(fields), nil
}

// checkArray checks every item of an array.
func (s schema) checkArray(field string, value json.RawMessage) (json.RawMessage, *mismatch) {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil || items == nil {
		return nil, &mismatch{field, "must be of the type array"}
	}
	if s.MaxItems != nil && len(items) > *s.MaxItems {
		return nil, &mismatch{field, fmt.Sprintf("has %d items; at most %d are allowed", len(items), *s.MaxItems)}
	}
	for i, item := range items {
		checked, bad := s.Items.check(fmt.Sprintf("%s[%d]", field, i), item)
		if bad != nil {
			return nil, bad
		}
		items[i] = checked
	}
	return encoded(items), nil
}

// encoded is JSON of parts that were JSON.
func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("toolview: " + err.Error()) // each part was decoded before
	}
	return text
}

// refuse returns the reason why a value does not fit this schema. Empty: it fits. It compares numbers as
// float64. Above 2^53 a float64 does not tell two integers apart, so larger numbers are not integers
// here.
func (s schema) refuse(value json.RawMessage) string {
	var got any
	if err := json.Unmarshal(value, &got); err != nil {
		return "has a number that is too large"
	}
	ok := false
	switch v := got.(type) {
	case string:
		if ok = s.Type == "string"; ok && s.MaxLength != nil && utf8.RuneCountInString(v) > *s.MaxLength {
			return fmt.Sprintf("has more than %d characters", *s.MaxLength)
		}
	case map[string]any:
		ok = s.Type == "object"
	case float64:
		ok = s.Type == "number" || s.Type == "integer" && v == math.Trunc(v) && math.Abs(v) < 1<<53
		switch {
		case !ok:
		case s.Minimum != nil && v < *s.Minimum:
			return fmt.Sprintf("must be at least %v", *s.Minimum)
		case s.Maximum != nil && v > *s.Maximum:
			return fmt.Sprintf("must be at most %v", *s.Maximum)
		}
	}
	if !ok {
		return fmt.Sprintf("must be of the type %s", s.Type)
	}
	return ""
}

// fieldList lists the fields of an object, required ones first.
func (s schema) fieldList() string {
	list := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			list = append(list, name+" (optional)")
		}
	}
	return strings.Join(list, ", ")
}
