package executor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
)

// An Event is one thing that happened to an execution. Exactly one of the
// pointers is set.
type Event struct {
	ID      string
	Seq     uint64 // from 1, by one
	Time    time.Time
	Header  *Header
	Started *Started
	Output  *Output
	Denied  *policy.Denial
	Outcome *Outcome

	release func() // nil: nothing
}

// Release ends the use of e.Output: its bytes are then reused for other events. Call it at most
// once; a caller may also leave it out, and the garbage collector frees the bytes.
func (e Event) Release() {
	if e.release != nil {
		e.release()
	}
}

// Header is the first event: the accepted request, with the limits in force. The record stores
// Header, Started and Outcome as JSON: another tag would make stored executions unreadable.
type Header struct {
	Skill       string       `json:"skill"`
	SkillDigest string       `json:"skill_digest"`
	Limits      Limits       `json:"limits"`
	Network     *Network     `json:"network,omitempty"` // nil: without a network
	Commands    [][]string   `json:"commands"`          // one list for each simple command, without inline code
	Session     *SessionBase `json:"session,omitempty"` // nil: without a session
	// Warnings are sentences about possible causes of a failure, such as a package of another version
	// than the declared one.
	Warnings []string `json:"warnings,omitempty"`
}

// A Network has the rules of an execution's network; see package policy.
type Network struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny,omitempty"`
	Learn bool     `json:"learn,omitempty"`
}

// newNetwork returns nil for a grant without a network.
func newNetwork(grant permission.Grant) *Network {
	rules := grant.Network()
	if rules == nil {
		return nil
	}
	allow, deny := rules.Strings()
	return &Network{Allow: allow, Deny: deny, Learn: grant.Learns()}
}

// A Summary describes a request, without the content of code, input and environment. The record has it
// as JSON.
type Summary struct {
	Command  string   `json:"command,omitempty"`
	Language string   `json:"language,omitempty"` // of code; empty: python
	Dir      string   `json:"dir,omitempty"`
	Args     []string `json:"args,omitempty"`
	// Names of variables and paths of input files, sorted.
	Env       []string `json:"env,omitempty"`
	SecretEnv []string `json:"secret_env,omitempty"`
	Files     []string `json:"files,omitempty"`
	// Truncated: the lists above are too long for the record. Only their beginning is here.
	Truncated bool `json:"truncated,omitempty"`
}

// maxSummaryBytes bounds the text of a Summary: a page of a listing has many.
const maxSummaryBytes = 16 << 10

// newSummary returns the summary of a request. Its texts are valid UTF-8, so they stay the same in
// JSON.
func newSummary(req Request, source permission.Source) Summary {
	s := Summary{Language: source.Language, Dir: req.Dir}
	room := maxSummaryBytes
	take := func(list []string) (out []string) {
		for _, text := range list {
			if room -= len(text) + 1; room < 0 {
				s.Truncated = true
				return out
			}
			out = append(out, strings.ToValidUTF8(text, "\uFFFD"))
		}
		return out
	}
	if source.Kind == permission.Command {
		s.Command = strings.Join(take([]string{source.Command}), "")
	}
	s.Args = take(req.Args)
	s.Env, s.SecretEnv = take(slices.Sorted(maps.Keys(req.Env))), take(slices.Sorted(maps.Keys(req.SecretEnv)))
	s.Files = take(slices.Sorted(slices.Values(req.inputPaths())))
	return s
}

// Started says that the program runs. Queue is the wait for a slot, Setup the time from there
// to the start of the program.
type Started struct {
	Queue time.Duration `json:"queue"`
	Setup time.Duration `json:"setup"`
}

// Stream names an output stream.
type Stream uint8

const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Output is a piece of the program's output. Data must not be used after Event.Release.
type Output struct {
	Stream Stream
	Offset uint64 // of the first byte of Data in its stream
	Data   []byte
}

// State is the present stage of an execution.
type State string

const (
	Queued  State = "QUEUED"
	Running State = "RUNNING"
	Ended   State = "ENDED"
)

// An Execution is the record of an execution, for readers.
type Execution struct {
	ID                      string
	State                   State
	Tenant, Principal       string
	SourceKind, Script      string
	Labels                  map[string]string
	Created, Started, Ended time.Time // zero: not yet
	Expires                 time.Time // when retention removes it, see record.Store.Expires
	Header                  Header
	Request                 Summary
	LastSeq                 uint64
	Position                int      // in the queue of its tenant, from 1; 0: it does not wait for a slot
	Outcome                 *Outcome // nil until it has ended
}
