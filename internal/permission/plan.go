package permission

// A Plan is a checked command line: steps in order, each a pipeline. It has the same shape
// as a program of package sandbox.
type Plan []Step

// A Step is one pipeline and the condition on which it runs.
type Step struct {
	When     When
	Pipeline []SimpleCommand
}

// When is the condition of a step. It refers to the status of the step that ran last, which
// is the exit status of the last command of that step's pipeline.
type When int

// Always runs a step in any case (";"). IfSucceeded runs it if the last status is 0 ("&&"),
// IfFailed if it is not ("||").
const (
	Always When = iota
	IfSucceeded
	IfFailed
)

// A SimpleCommand is one program with its arguments.
type SimpleCommand struct {
	// Args are the words after quote removal: at least one, none with a NUL.
	Args []string
	// Globs are the arguments that are patterns of file names, in order. Args[0] is never
	// one. The matches replace the argument when the command runs.
	Globs []Glob
	// Env has "NAME=value" for each assignment in front of the command, and the variables
	// that a rule adds. They apply to this program only.
	Env []string
	// Redirects apply in order, after the pipes of the pipeline.
	Redirects []Redirect
	// PipeStderr also sends stderr into the pipe after this command ("|&"). As in bash, it
	// takes effect after Redirects.
	PipeStderr bool
}

// A Glob is an argument with an unquoted *, ? or [...].
type Glob struct {
	Arg     int    // index in Args
	Pattern string // Args[Arg], with a backslash before each quoted special character
}

// A Redirect changes one file descriptor of a command.
type Redirect struct {
	// FD is the descriptor to change, 0 to 9.
	FD   int
	Kind RedirectKind
	// Path is for Read, Write and Append. It is relative and has no "..", or it is
	// /dev/null.
	Path string
	// From is for Dup: FD becomes a copy of it. It is 0, 1 or 2, or an earlier redirect of
	// the same command has opened it.
	From int
	// Text is for Text: the content that FD reads.
	Text string
}

// RedirectKind is the new state of a descriptor.
type RedirectKind int

// Read opens a file for reading. Write creates or truncates it. Append creates it or writes
// at its end. Dup copies a descriptor. Text is a here-document.
const (
	Read RedirectKind = iota
	Write
	Append
	Dup
	Text
)

// Commands returns the arguments of every command in order. Patterns of file names are as
// written.
func (p Plan) Commands() [][]string {
	var all [][]string
	for _, c := range p.commands() {
		all = append(all, c.Args)
	}
	return all
}

// commands returns every simple command, in the order in which the line has them.
func (p Plan) commands() []SimpleCommand {
	var all []SimpleCommand
	for _, step := range p {
		all = append(all, step.Pipeline...)
	}
	return all
}
