package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// An Event is the kind of an entry.
type Event string

// Events of callers and executions.
const (
	Execute      Event = "execute"      // a request for an execution
	Duplicate    Event = "duplicate"    // the execution of an earlier request with the same idempotency key was returned
	Connections  Event = "connections"  // connections of a running execution have ended
	End          Event = "end"          // an execution has ended
	Cancel       Event = "cancel"       // an execution was asked to end
	Signal       Event = "signal"       // a signal was sent to an execution
	Delete       Event = "delete"       // an execution's record, or versions of a skill, were removed
	Push         Event = "push"         // a skill was pushed
	Prepare      Event = "prepare"      // packages of a skill were prepared
	Purge        Event = "purge"        // all data of a removed tenant was removed; Detail names it
	Call         Event = "call"         // another call, or a call that the executor did not see
	Unidentified Event = "unidentified" // a caller could not be identified
)

// Events of the log.
const (
	Start      Event = "start"      // a daemon opened the log
	Stop       Event = "stop"       // the daemon closed the log
	Damage     Event = "damage"     // a daemon found the end of a shared log damaged, because the other daemon has died
	Lost       Event = "lost"       // entries could not be written
	Pruned     Event = "pruned"     // old files are removed
	Checkpoint Event = "checkpoint" // a signature over everything before
)

// A Decision is the answer to a caller.
type Decision string

// Decisions.
const (
	Allowed Decision = "allowed"
	Refused Decision = "refused"
)

// An Entry is one line of the log. The Log sets the fields Seq, Prev, Time and Signature. Empty
// fields are left out.
type Entry struct {
	Seq   uint64    `json:"seq"`
	Prev  string    `json:"prev"` // hash of the entry before; empty: the first entry
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`

	Tenant    string `json:"tenant,omitempty"`
	Principal string `json:"principal,omitempty"` // the caller's name, such as token:ci; docs/tenants.md has the forms
	Address   string `json:"address,omitempty"`   // without the port; uid:N on a Unix socket
	Method    string `json:"method,omitempty"`
	Execution string `json:"execution,omitempty"` // its ID
	Skill     string `json:"skill,omitempty"`     // name@digest; as the caller wrote it if the request was refused
	Source    string `json:"source,omitempty"`    // script, code or command
	Script    string `json:"script,omitempty"`
	Command   string `json:"command,omitempty"`

	Decision Decision `json:"decision,omitempty"`
	Rule     string   `json:"rule,omitempty"`    // the rule that allowed it
	Learn    bool     `json:"learn,omitempty"`   // the network learns: it is open to every public address
	Missing  string   `json:"missing,omitempty"` // the rule or the role that would have allowed it
	Reason   string   `json:"reason,omitempty"`  // of a refusal, as in the contract's ErrorReason
	Detail   string   `json:"detail,omitempty"`  // one sentence

	End      string `json:"end,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	By       string `json:"by,omitempty"`  // who cancelled
	Why      string `json:"why,omitempty"` // the reason of a cancel

	Network *Network `json:"network,omitempty"` // Connections, End; nil: the execution had none

	Count     uint64 `json:"count,omitempty"`   // how many like this one the entry stands for; 0: it is about itself
	Through   uint64 `json:"through,omitempty"` // Pruned: the last removed entry
	Torn      string `json:"torn,omitempty"`    // Start, Damage: the beginning of a line that a dead daemon left incomplete; Count has its bytes
	Signature []byte `json:"signature,omitempty"`

	// Frees says that the call removes data, so that it must work on a full disk. Delete and Purge need no Frees.
	Frees bool `json:"-"`
}

// A Network has the connections and refusals of an execution.
type Network struct {
	Denied      int64        `json:"denied,omitempty"` // how often something was refused
	Count       int64        `json:"count,omitempty"`  // of connections
	Sent        int64        `json:"sent,omitempty"`   // bytes, of all connections
	Received    int64        `json:"received,omitempty"`
	Incomplete  bool         `json:"incomplete,omitempty"`  // a network helper died: the connections that it carried then are missing
	Connections []Connection `json:"connections,omitempty"` // End: the first ones; Connections: of the first ones, those without an entry
}

// A Connection is one that was allowed.
type Connection struct {
	Start    time.Time `json:"start"`
	Seconds  float64   `json:"seconds"`
	Protocol string    `json:"protocol"`
	To       string    `json:"to"` // address and port
	Name     string    `json:"name,omitempty"`
	Sent     int64     `json:"sent"`
	Received int64     `json:"received"`
	// The names of the credentials of its requests, with commas between them.
	Credentials string `json:"credentials,omitempty"`
	Error       string `json:"error,omitempty"` // why the destination was not reached, or why the first data was refused
}

// Bounds on an entry, in bytes.
const (
	maxText    = 256  // of a name
	maxCommand = 2048 // of a command line or a sentence
	maxLine    = 64 << 10
)

// bound cuts the texts that callers choose.
// It is called before the hash is computed, so that the hash is over the stored line.
func (e *Entry) bound() {
	for _, s := range []*string{&e.Tenant, &e.Principal, &e.Address, &e.Method, &e.Execution, &e.Skill, &e.Script, &e.Missing, &e.Reason, &e.End, &e.Signal, &e.By} {
		*s = clip(*s, maxText)
	}
	for _, s := range []*string{&e.Command, &e.Rule, &e.Detail, &e.Why, &e.Torn} {
		*s = clip(*s, maxCommand)
	}
}

// clip cuts a text, and marks the cut.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

// The end of a line: the hash of the line without this end, as one more member of the object.
const (
	hashBegins = `,"hash":"`
	hashEnds   = `"}`
	hashDigits = 2 * sha256.Size
)

// encode returns the line of an entry, and its hash.
// The hash is the last member of the object. So a reader without this package checks a line by its
// text alone: it cuts the member off, closes the brace, and computes SHA-256.
func (e *Entry) encode() (line []byte, hash string) {
	e.bound()
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot happen: texts, numbers and a time of this century
	}
	hash = sum(body)
	line = append(body[:len(body)-1], hashBegins+hash+hashEnds+"\n"...)
	return line, hash
}

func sum(body []byte) string {
	h := sha256.Sum256(body)
	return hex.EncodeToString(h[:])
}

// errChanged says that a line is not as it was written.
var errChanged = errors.New("the line was changed: it does not have the hash of its content")

// decode reads a line without its newline, and checks its hash.
// The hash is compared before the JSON is parsed: the parser sees only lines that a daemon has
// written, or that someone wrote with a right hash.
func decode(line []byte) (e Entry, hash string, err error) {
	at := len(line) - len(hashBegins) - hashDigits - len(hashEnds)
	if at < 0 || !bytes.HasPrefix(line[at:], []byte(hashBegins)) || !bytes.HasSuffix(line, []byte(hashEnds)) {
		return e, "", errChanged
	}
	hash = string(line[at+len(hashBegins) : len(line)-len(hashEnds)])
	body := append(bytes.Clone(line[:at]), '}')
	if sum(body) != hash || json.Unmarshal(body, &e) != nil {
		return e, "", errChanged
	}
	return e, hash, nil
}

// signed returns the text that a checkpoint signs. Prev stands for all entries before.
// The first line keeps the signature from being valid for anything else that the key might sign.
func (e *Entry) signed() []byte {
	return fmt.Appendf(nil, "skillrun audit checkpoint\n%d\n%s\n%s\n", e.Seq, e.Time.Format(time.RFC3339Nano), e.Prev)
}
