package skillrun

import (
	"io"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A Cmd is an execution that is being prepared. Make it with [Client.Script],
// [Client.Code] or [Client.Command], set its fields, then call Run, Start,
// Output or CombinedOutput, once. The fields must not change after that.
type Cmd struct {
	// Skill is the skill's name, or name@sha256:<64 hex digits> to pin it.
	Skill string

	// Stdin is the program's standard input. Nil: empty.
	//
	// A *bytes.Buffer, *bytes.Reader or *strings.Reader of up to 1 MiB goes with
	// the request. Anything else is read by a goroutine while the program runs;
	// Wait does not wait for a Read that is blocked when the program has ended,
	// so the reader must not be used again after it. With an IdempotencyKey it is
	// read to its end before anything is sent, and may have up to 15 MiB.
	Stdin io.Reader

	// JSONArguments is the text of a JSON object that the program finds on its
	// standard input, before what Stdin has. Empty: none.
	JSONArguments string

	// Stdout and Stderr take what the program prints, byte for byte. Nil: it is
	// dropped. Both are written from one goroutine, so they may be the same
	// writer. After an error of a writer the rest of its stream is dropped, the
	// program runs on, and Wait returns the error if the program succeeded.
	Stdout io.Writer
	Stderr io.Writer

	// Env is added to the program's fixed environment. SecretEnv too; the daemon
	// never prints, logs or stores its values. Nil: nothing is added.
	Env       map[string]string
	SecretEnv map[string]string

	// Dir is where the program starts, relative to /workspace. Empty: there.
	Dir string

	// Files are put into /workspace before the program starts.
	Files []File

	// Limits bound the execution. Zero: what skill, tenant and daemon say.
	Limits Limits

	// Network says whether the program has network. Nil: as the skill says.
	Network *bool

	// Labels are for finding the execution again.
	Labels map[string]string

	// IdempotencyKey makes the same request with the same key the same
	// execution. Only with a key is a request sent again after a connection
	// broke before the daemon answered. Empty: none.
	IdempotencyKey string

	// OnDisconnect says what the daemon does when the connection is lost. Zero:
	// it cancels the execution. A context that ends is no lost connection: it
	// cancels always.
	OnDisconnect pb.OnDisconnect

	// QueueTimeout is how long to wait for a free slot. Zero: the daemon's.
	QueueTimeout time.Duration

	// OnEvent, if set, is called with every event, in order and from one
	// goroutine, before its output is written.
	OnEvent func(*pb.ExecutionEvent)

	// OnUpload, if set, is called as files that go in chunks are sent, with the bytes
	// of all of them that were, and that there are. It is called from one goroutine,
	// before the program starts, and counts anew if the request is sent again.
	OnUpload func(sent, total int64)

	// Execution is the running or ended execution. Nil until Start succeeded.
	Execution *Execution

	client  *Client
	source  source
	started bool
}

// source sets what to run in a request.
type source func(*pb.ExecuteRequest)

// Script runs a file of the skill, such as "scripts/extract.py".
func (c *Client) Script(skill, script string, args ...string) *Cmd {
	return &Cmd{Skill: skill, client: c, source: func(r *pb.ExecuteRequest) {
		r.Source = &pb.ExecuteRequest_Script{Script: script}
		r.Args = args
	}}
}

// Code runs a program given as text, in the skill's environment. The language
// is python, bash, sh, node, ruby or perl; empty means python.
func (c *Client) Code(skill, language, text string, args ...string) *Cmd {
	return &Cmd{Skill: skill, client: c, source: func(r *pb.ExecuteRequest) {
		r.Source = &pb.ExecuteRequest_Code{Code: &pb.Code{Text: text, Language: language}}
		r.Args = args
	}}
}

// Command runs a command line that the skill's allowed-tools cover. No shell
// sees it.
func (c *Client) Command(skill, line string) *Cmd {
	return &Cmd{Skill: skill, client: c, source: func(r *pb.ExecuteRequest) {
		r.Source = &pb.ExecuteRequest_Command{Command: line}
	}}
}
