package toolview

import (
	"encoding/json"

	"github.com/skillrun/skillrun/internal/executor"
)

// A Tool is a function tool for a model.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON Schema of its arguments, an object.
	Parameters json.RawMessage
	// Output is the JSON Schema of Result.Structured. Nil: the result is text only.
	Output json.RawMessage
	// ReadOnly says that it runs no program and changes nothing.
	ReadOnly bool
}

// A Result is what a model gets for one call of a tool.
type Result struct {
	// Content is the result as its contract prints it.
	Content string
	// Structured is the same as a JSON object. Nil: the tool has none.
	Structured json.RawMessage
	// IsError says that the call failed; Content says why. A program that ended well and
	// printed more than Content has did not fail.
	IsError bool
	// ExecutionID is empty if nothing ran.
	ExecutionID string
	// Artifacts are the first files that the program left.
	Artifacts []executor.Artifact
}
