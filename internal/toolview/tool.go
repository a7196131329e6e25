package toolview

import (
	"encoding/json"

	"github.com/skillrun/skillrun/internal/executor"
)

// A Tool is a function tool for a model. Names and schemas of published tools are part of their
// contracts.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON Schema of its arguments, an object.
	Parameters json.RawMessage
	// Output is the JSON Schema of Result.Structured. Nil: results are text only.
	Output json.RawMessage
	// ReadOnly says that the tool runs no program and changes nothing.
	ReadOnly bool
	// NoProgram says that the tool runs no program, although it changes something.
	NoProgram bool
}

// A Result is the answer of a tool to a model.
type Result struct {
	// Content is the result in the contract's text form.
	Content string
	// Structured is the result as a JSON object. Nil: the tool has no such form.
	Structured json.RawMessage
	// IsError says that the call failed; Content says why. A program that exited with 0
	// did not fail, even if its output is truncated.
	IsError bool
	Extras
}

// Extras are the facts about an execution that no published contract has.
type Extras struct {
	// ExecutionID is empty if nothing ran.
	ExecutionID string
	// Artifacts are the first of the program's artifacts.
	Artifacts []executor.Artifact
	// Warnings are the warnings of the execution's header, and about the session of the conversation.
	Warnings []string
	// Session is the session of files that the call has used. Nil: none.
	Session *SessionEnd
}
