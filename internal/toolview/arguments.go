package toolview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
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

// checkArguments checks the arguments of a call against the tool's schema: an object
// with all required fields, no unknown ones, and values of the right types. It drops
// optional fields that are null, because models send null for "not set". Models read the error
// and try again, so it names the field and the values that fit.
func checkArguments(t Tool, arguments json.RawMessage) (json.RawMessage, error) {
	var s schema
	if err := json.Unmarshal(t.Parameters, &s); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", t.Name, err)
	}
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	checked, bad := s.check("", arguments)
	if bad != nil {
		return nil, &ArgumentsError{Tool: t.Name, Field: bad.field, Reason: bad.reason}
	}
	return checked, nil
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

// decode unmarshals checked arguments.
func decode[T any](c call) (T, error) {
	var v T
	if err := json.Unmarshal(c.Arguments, &v); err != nil {
		return v, fmt.Errorf("checked arguments: %w", err)
	}
	return v, nil
}

// seconds converts a schema's number of seconds to a duration.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
