// Package record keeps executions and their output on disk.
//
// An execution is a row in an SQLite database, and a spool. The row holds the
// request, the state and the end. The spool is a log of events, numbered from 1
// without a gap: the header first, the end last. A small spool is in the database,
// a large one is a file; see spool.go.
//
// Changes of rows and small spools go to a journal first, and to the database a
// moment later, many in one transaction; see batch.go and package journal. A query
// applies the waiting changes before it asks the database. So no caller sees that
// they waited.
//
// Durability. Everything that a call acknowledged survives the death of the process:
// the kernel has it. An execution with an idempotency key, and the claim of the key,
// also survive the loss of power: Create syncs the row before it returns. From the
// row the spool's first event can be written again. After the disk has lost a write, nothing is acknowledged until
// the next Open; see synced.go.
//
// A crash can leave these, which Open or Reopen repairs:
//
//   - changes in the journal: Open applies them;
//   - a part of a frame, or of a journal entry: it is cut off;
//   - an end in a file that the row does not have: the row is closed;
//   - a row without its file: the header is written again from the row;
//   - files of a removed row: the database lists them, and they are removed.
//
// Damage stays local. A damaged database is moved aside together with the other files
// of the record, and so are files whose database was lost. A damaged spool is readable
// up to the damage, and the row still has the end. An execution that can't be
// recovered does not stop the recovery of others.
//
// One process has a store open. During a takeover two processes have it open; see takeover.go.
//
// Every query names a tenant, and finds no execution of another tenant, but for TenantOf and
// Filter.AllTenants, which are for operators. The content of
// inputs, environments and programs is never stored here. The caller fills Detail and
// Outcome; this package does not read them.
//
// Locks, in the order in which they are taken: Store.sweeping, Log.mu (of several logs only in countAgain),
// batch.flushing, batch.mu, database.writing. Store.mu and ballast.mu are held for moments, and no other lock
// is taken under them. So Append may apply changes while it holds its Log.mu, but nothing
// that applies changes may take a Log.mu.
package record

import (
	"time"

	"github.com/google/uuid"
)

// State is the stage of an execution.
type State int

// The states, in their order.
const (
	Queued State = iota + 1
	Running
	Ended
)

// Execution is one execution, as in its row.
type Execution struct {
	// ID names it: 1 to 64 of a-z, 0-9 and "-", as NewID makes them.
	ID        string
	Tenant    string
	Principal string
	// Skill and Digest name the skill.
	Skill  string
	Digest string
	// SourceKind and Script name the program.
	SourceKind string
	Script     string
	Labels     map[string]string
	// Key is the idempotency key; empty: none. It is unique within the tenant until
	// the execution is removed.
	Key string
	// RequestHash is for the caller, to compare requests with the same key.
	RequestHash []byte
	// Create ignores State, Started, Ended, End, Outcome and LastSeq.
	State State
	// Created is the time of the header event. Zero: now.
	Created time.Time
	// Started and Ended are zero until then.
	Started time.Time
	Ended   time.Time
	// The caller gives Detail to Create, and Outcome to Log.End.
	Detail  []byte
	Outcome []byte
	// End names the kind of end, in the caller's words; empty before the end.
	End string
	// LastSeq is the sequence number of the newest event.
	LastSeq uint64
}

// Kind is the kind of an event.
type Kind uint8

// The kinds, written by Create, Log.Started, Log.Append and Log.End.
const (
	KindHeader Kind = iota + 1
	KindStarted
	KindOutput
	KindEnd
	KindDenied // by Log.Append, as KindOutput, with the caller's data
)

// Event is one event of an execution.
type Event struct {
	// Seq counts up by one from 1, the header.
	Seq  uint64
	Time time.Time
	Kind Kind
	// Stream and Offset, in bytes, locate an output; zero in other events.
	Stream uint8
	Offset uint64
	// Data holds the output, or the caller's data. In an end it is the outcome.
	Data []byte
	// End is the Execution's End; empty in other events.
	End string

	of *chunk // holds Data; nil: none does
}

// Release gives the memory of Data back to the readers. The caller of Reader.Next may
// call it once for each event, and must not use Data afterwards. Without a call the
// garbage collector frees the memory.
func (e Event) Release() { e.of.release() }

// NewID returns a new ID: a UUID of version 7. Such IDs sort by time, and 62 bits
// of each are random.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// maxID is the longest ID, in bytes. It is a file name on every file system.
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
