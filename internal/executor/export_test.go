package executor

// What a sandbox is to an Executor, for tests from outside.
type (
	StartFunc = startFunc
	Process   = process
)

// SetStart puts another in the place of the sandbox.
func (x *Executor) SetStart(start StartFunc) { x.start = start }
