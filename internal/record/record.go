// Package record keeps executions and their output on disk.
//
// An execution is a row in an SQLite database and a spool. The row says what was
// asked for, where the execution stands and how it ended. The spool is a log of its
// events, to which only complete frames count: the header first, the end last,
// numbered from 1 without a gap. Where the two lie depends on how long the execution
// lives and how much it prints: most are over before either is worth a transaction
// or a file of its own, and until then both are in one file for all, the arena; see
// young.go. Who asks can't tell.
//
// What survives. Everything that a call acknowledged survives the death of the
// process: it was given to the kernel. An execution with an idempotency key, and with
// it the claim of that, also survives the loss of power: it is synced before Create
// returns, and its row holds what is needed to write the spool's first event again.
//
// What a crash can leave, and what Open or Reopen does about it:
//
//   - executions in the arena: they get their rows, and files for their spools;
//   - a frame that was written in part: it is cut off;
//   - an end in the spool that the row does not know: the row is closed;
//   - a row without a spool: the header is written again from the row;
//   - files whose row is gone: they are listed in the database, and removed.
//
// What else can go wrong on a disk stays where it is. A damaged database, or one
// that was lost beside its files, is moved aside with them; a damaged spool is
// read up to the damage, and the end is still in the row; an execution that can't
// be recovered keeps no other from it.
//
// Every question names a tenant, and an execution of another tenant does not
// exist. Inputs, environments and programs are never stored here: Detail and
// Outcome are the caller's to fill, and are not looked into.
package record

import (
	"time"

	"github.com/google/uuid"
)

// State is where an execution stands.
type State int

// The states, in the order in which they are passed through.
const (
	Queued State = iota + 1
	Running
	Ended
)

// Execution is one execution as its row has it.
type Execution struct {
	// ID names it: 1 to 64 of a-z, 0-9 and "-", as NewID makes them.
	ID        string
	Tenant    string
	Principal string
	// Skill and Digest name what runs.
	Skill  string
	Digest string
	// SourceKind and Script say what of the skill runs.
	SourceKind string
	Script     string
	Labels     map[string]string
	// Key is the idempotency key; empty: none. It is the tenant's, and free again
	// when the execution is removed.
	Key string
	// RequestHash is what a request with the same key is compared with.
	RequestHash []byte
	// State, Started, Ended, End, Outcome and LastSeq are the store's: Create
	// ignores them.
	State State
	// Created is the time of the header event. Zero: now.
	Created time.Time
	// Started and Ended are zero until then.
	Started time.Time
	Ended   time.Time
	// Detail is the caller's, set at creation; Outcome at the end.
	Detail  []byte
	Outcome []byte
	// End is how it ended, in the caller's words; empty until then.
	End string
	// LastSeq is the sequence of its newest event.
	LastSeq uint64
}

// Kind is what an event tells.
type Kind uint8

// The kinds. They are written by Create, Log.Started, Log.Append and Log.End.
const (
	KindHeader Kind = iota + 1
	KindStarted
	KindOutput
	KindEnd
)

// Event is one thing that happened to an execution.
type Event struct {
	// Seq counts up by one from 1, the header.
	Seq  uint64
	Time time.Time
	Kind Kind
	// Stream and Offset say of an output where it belongs.
	Stream uint8
	Offset uint64
	// Data is the output's bytes; of other kinds it is the caller's. Of an end it
	// is the outcome.
	Data []byte
	// End is how it ended; only of an end.
	End string

	of *chunk // that Data is a part of; nil: none
}

// Release says that nobody needs Data any more: it is used for what is read next. It is
// for who got the event of a Reader, at most once, and may be left out.
func (e Event) Release() { e.of.release() }

// NewID returns a new name for an execution: a UUID of version 7, so that names
// sort by time and 62 bits of each are random.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// maxID is the longest ID that can be a file's name everywhere, with room.
const maxID = 64

// validID reports whether id may become a file's name.
func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
