package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A jsonError says where a text is not JSON.
type jsonError struct {
	Line, Column int // from 1; Column counts characters
	Reason       string
}

// Error leaves out the line: whoever shows the error writes it behind the name of the file.
func (e *jsonError) Error() string {
	return fmt.Sprintf("column %d: it is not JSON: %s", e.Column, e.Reason)
}

// readJSON is json.Unmarshal for a file of a skill, which may begin with a byte order mark. The error is a *jsonError
// if the text is not JSON.
func readJSON(text []byte, to any) error {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	err := json.Unmarshal(text, to)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		// Offset counts the wrong character, too.
		before := text[:max(0, syntax.Offset-1)]
		return &jsonError{
			Line:   bytes.Count(before, []byte("\n")) + 1,
			Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1,
			Reason: syntax.Error(),
		}
	}
	kind, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case kind.Field == "":
		return fmt.Errorf("it is not a JSON object")
	}
	return fmt.Errorf("%.80q is a JSON %s, which npm does not write there", kind.Field, kind.Value)
}
