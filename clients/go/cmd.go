package skillrun

import (
	"io"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A Cmd is an execution to be started. Create it with [Client.Script], [Client.Code] or
// [Client.Command], set its fields, and call Run, Start, Output or CombinedOutput once. The
// fields must not change after that.
type Cmd struct {
	// Skill is the skill's name, or name@sha256:<64 hex digits> to pin it.
	Skill string

	// Stdin is the program's standard input. Nil: empty.
	//
	// If Stdin is a *bytes.Buffer, *bytes.Reader or *strings.Reader of up to 1 MiB, its
	// content is part of the request. Any other reader is read by a goroutine while the
	// program runs. Wait does not wait for a Read that is still blocked when the program
	// has ended, so do not use the reader again. With an IdempotencyKey, Stdin is read to
	// its end before anything is sent, and may have up to 15 MiB.
	Stdin io.Reader

	// JSONArguments is the text of a JSON object. The program reads it from its standard
	// input, before the content of Stdin. Empty: none.
	JSONArguments string

	// Stdout and Stderr receive the program's output, byte for byte. Nil: the output is
	// dropped. One goroutine writes to both, so they may be the same writer. After a write
	// error the rest of the stream is dropped and the program runs on; Wait returns the
	// error if the program succeeded.
	Stdout io.Writer
	Stderr io.Writer

	// Env and SecretEnv are added to the program's fixed environment. The daemon never
	// prints, logs or stores the values of SecretEnv. Nil: nothing is added.
	Env       map[string]string
	SecretEnv map[string]string

	// Dir is the program's working directory, relative to /workspace. Empty: /workspace.
	Dir string

	// Files are put into /workspace before the program starts.
	Files []File

	// Limits of the execution. A zero field means the limit of the skill, the tenant or the
	// daemon.
	Limits Limits

	// Network has rules that narrow the daemon's rules for the program's network: a connection must be
	// allowed by both. Nil: the skill and the daemon decide. See NoNetwork.
	Network *Network

	// Session keeps files between executions. Nil: none.
	Session *Session

	// Labels help to find the execution later.
	Labels map[string]string

	// IdempotencyKey makes requests safe to repeat: the same request with the same key is
	// the same execution. If a connection breaks before the daemon has answered, only a
	// request with a key is sent again. Empty: no key.
	IdempotencyKey string

	// OnDisconnect says what the daemon does if the connection is lost. Zero: it cancels
	// the execution. The end of a context is not a lost connection; it always cancels.
	OnDisconnect pb.OnDisconnect

	// QueueTimeout is how long to wait for a free slot. Zero: the daemon's default.
	QueueTimeout time.Duration

	// OnEvent, if not nil, is called with every event in order, from one goroutine, before
	// the event's output is written.
	OnEvent func(*pb.ExecutionEvent)

	// OnUpload, if not nil, is called while files are sent in chunks. sent and total are
	// bytes of all these files. It is called from one goroutine, before the program starts.
	// If the request is sent again, it counts from 0 again.
	OnUpload func(sent, total int64)

	// Execution is the running or ended execution. It is nil until Start has succeeded.
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
		r.Source = &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: text, Language: language}}
		r.Args = args
	}}
}

// Command runs a command line that the skill's allowed-tools cover. No shell interprets it.
func (c *Client) Command(skill, line string) *Cmd {
	return &Cmd{Skill: skill, client: c, source: func(r *pb.ExecuteRequest) {
		r.Source = &pb.ExecuteRequest_Command{Command: line}
	}}
}
