package executor

import "context"

// Types of the sandbox's side of an Executor, for tests in other packages.
type (
	StartFunc = startFunc
	Process   = process
)

// SetStart puts another in the place of the sandbox.
func (x *Executor) SetStart(start StartFunc) { x.start = start }

// Inputs returns the resources of a request.
func (x *Executor) Inputs(ctx context.Context, req Request) []Input { return x.resources(ctx, req) }
