package permission

// A Plan is what a checked command line runs: steps in order, each a pipeline.
// Its shape is that of a sandbox's program.
type Plan []Step

// A Step is one pipeline and the condition on which it runs.
type Step struct {
	When     When
	Pipeline []SimpleCommand
}

// When says on what a step depends. The status of a pipeline is that of its
// last command; a step that didn't run leaves the status as it was.
type When int

// Always runs a step whatever came before (";"), IfSucceeded if the step that
// ran last exited with 0 ("&&"), IfFailed if it did not ("||").
const (
	Always When = iota
	IfSucceeded
	IfFailed
)

// A SimpleCommand is one program with its arguments.
type SimpleCommand struct {
	// Args are the words after quote removal, at least one, none with a NUL.
	Args []string
	// Globs are those of Args that are patterns of file names, in their order,
	// never the first. What they match takes their place when the command runs.
	Globs []Glob
	// Env are assignments in front of the command, "NAME=value", added to the
	// environment of this program alone.
	Env []string
	// Redirects apply in order, after the pipes of the pipeline.
	Redirects []Redirect
	// PipeStderr sends stderr into the pipe behind this command too ("|&"). It
	// takes effect after Redirects, as in bash.
	PipeStderr bool
}

// A Glob is an argument with an unquoted *, ? or [...].
type Glob struct {
	Arg     int    // index in Args
	Pattern string // Args[Arg], with a backslash before what was quoted and would be special
}

// A Redirect changes one file descriptor of a command.
type Redirect struct {
	// FD is the descriptor, 0 to 9.
	FD   int
	Kind RedirectKind
	// Path is for Read, Write and Append: relative, without "..", or /dev/null.
	Path string
	// From is for Dup: the descriptor that FD becomes a copy of. It is 0, 1 or 2,
	// or was opened by an earlier redirect of the same command.
	From int
	// Text is for Text: what the descriptor reads.
	Text string
}

// RedirectKind says what a descriptor becomes.
type RedirectKind int

// Read opens a file for reading; Write creates or truncates it; Append creates
// it or writes at its end; Dup copies a descriptor; Text is a here-document.
const (
	Read RedirectKind = iota
	Write
	Append
	Dup
	Text
)

// Commands returns the argument vectors of p in order, patterns of file names as
// they are written.
func (p Plan) Commands() [][]string {
	var all [][]string
	for _, c := range p.commands() {
		all = append(all, c.Args)
	}
	return all
}

func (p Plan) commands() []SimpleCommand {
	var all []SimpleCommand
	for _, step := range p {
		all = append(all, step.Pipeline...)
	}
	return all
}
