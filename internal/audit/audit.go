// Package audit keeps the audit log: each request to the daemon with its caller, the decision and the
// rule that decided, and the end of each execution. The daemon's log (slog) is separate.
//
// Theory of operation. The log is a directory of files, and each line of a file is an [Entry] as JSON.
// Three things show a later change:
//
//   - Each line ends with its SHA-256 and has the SHA-256 of the line before (field prev), also across
//     files. A changed, removed or moved line breaks this chain.
//   - Once a minute, and at the end of each file, an entry is a checkpoint: an Ed25519 signature over
//     the chain up to it. To replace the chain by another, an attacker needs the daemon's key.
//   - The file head has a copy of the last checkpoint. So the end of the log cannot be cut off, except
//     for the entries after the last checkpoint.
//
// A line is written by one write(2) before the caller gets its answer, so it survives SIGKILL of the
// daemon. fsync(2) comes with each checkpoint, so a power cut can take the entries of the last minute.
// If the daemon dies within a write, the next Open removes the incomplete line and notes its bytes in
// an entry. If a write fails, Write returns an *UnavailableError, and the next entry that can be
// written is preceded by one with the number of lost entries. On a full disk, entries about calls that
// free room are written into space that the log has reserved for them; reserve.go has the rules.
//
// During a takeover two daemons write to one chain alternately; share.go has the rules.
//
// Callers can cause refusals, cancels and signals at will. Note writes at most a number of them in
// full each second and counts the others, so that no caller can push older entries out of the log.
package audit

import (
	"crypto/ed25519"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Config configures a Log. Only Takeover, Reason and Changed may be zero.
type Config struct {
	// Dir has the files of the log. Open makes it.
	Dir string
	// KeyFile has the private key of the checkpoints. Open makes it if it is missing.
	KeyFile string
	// FileBytes is the size after which a new file begins. Files is how many files are kept; the oldest
	// are removed.
	FileBytes int64
	Files     int
	// Takeover says that an earlier process has the log open and has called Share. The log is shared
	// until Own. With a damaged key file Open fails, and begins no new log: the earlier process still has the key.
	Takeover bool
	// Reason names the cause of a refusal in one word. Nil: entries have no reason.
	Reason func(error) string
	// Changed is called when entries can no longer be written, and with nil when they can be again. It
	// must not call methods of the Log. Nil: no call.
	Changed func(err error)
	Log     *slog.Logger
}

// A Log writes entries. Make it with Open. Its methods may be called concurrently, also with a nil
// *Log, which writes nothing.
type Log struct {
	Config
	key    ed25519.PrivateKey
	dir    *os.File // locked, except between two appends while the log is shared
	living *os.File // locked; share.go has the locks
	stop   chan struct{}
	done   sync.WaitGroup

	checkpointing sync.Mutex // held by Checkpoint, so that an older head never replaces a newer one

	mu    sync.Mutex // guards the fields below
	f     *os.File   // the newest file
	size  int64
	dirty bool   // bytes of a failed write may follow size
	seq   uint64 // of the last entry
	prev  string // the last entry's hash
	head  []byte // the line of the last checkpoint; nil: not known
	// Sequence numbers of the last checkpoint, and of the one in the file head.
	signed, saved uint64
	lost          uint64 // entries that could not be written, since the last entry
	broken        error  // of the last write; nil: it succeeded
	stats         Stats
	notes         notes

	reserved int64 // the offset up to which the newest file has space; at most size: none is known. See reserve.go
	promised int64 // bytes of this space for entries of calls that run
	scarce   error // why the last append would write only an entry that frees room; nil: it would write any

	shared bool   // another process may write to the log, too
	stale  bool   // catchUp has failed, so seq, prev, size and f may be out of date
	damage *Entry // the damage that catchUp has found, until an entry notes it; nil: none
}

// Stats has numbers since Open.
type Stats struct {
	Entries  uint64 // written
	Failures uint64 // entries and checkpoints that could not be written
	Broken   error  // why entries cannot be written now; nil: they can
}

// An UnavailableError says that an entry could not be written. Its text is for callers, so it does not
// have the cause, which names files of the daemon.
type UnavailableError struct{ err error }

func (e *UnavailableError) Error() string {
	return "the audit log cannot be written, so the daemon accepts nothing that it must record; its operator must make room on the disk of the audit log, or mend it"
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.err }

// Write writes an entry. It returns after the entry is in the file. The error is an *UnavailableError.
func (l *Log) Write(e Entry) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(e)
}

// write is Write. l.mu is held.
func (l *Log) write(e Entry) error {
	err := l.append(e)
	if err != nil {
		l.lost++
		l.stats.Failures++
		l.report(err)
		return &UnavailableError{err}
	}
	l.report(l.scarce)
	return nil
}

// report logs a change between working and not working, and calls Changed.
func (l *Log) report(err error) {
	was := l.broken
	l.broken = err
	if (was == nil) == (err == nil) {
		return
	}
	if err != nil {
		l.Log.Error("the audit log cannot be written; executions are refused until it can be", "err", err)
	} else {
		l.Log.Info("the audit log can be written again")
	}
	if l.Changed != nil {
		l.Changed(err)
	}
}

// append writes an entry, and before it, if necessary, the number of lost entries. If a full file can't be ended or the
// reserved space can't be kept, it writes only an entry that frees room.
func (l *Log) append(e Entry) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	l.makeRoom()
	if l.scarce != nil && !e.frees() {
		return l.scarce
	}
	if err := l.putLost(); err != nil {
		return err
	}
	return l.put(e)
}

// makeRoom ends a full file, reserves space, and sets scarce. The caller is between enter and leave.
func (l *Log) makeRoom() {
	l.scarce = nil
	if l.size >= l.FileBytes {
		l.scarce = l.rotate()
	}
	if err := l.reserve(); l.scarce == nil {
		l.scarce = err
	}
}

// putLost writes the number of lost entries, if there are any. The caller is between enter and leave.
func (l *Log) putLost() error {
	if l.lost == 0 {
		return nil
	}
	if err := l.put(Entry{Event: Lost, Count: l.lost}); err != nil {
		return err
	}
	l.lost = 0
	return nil
}

// retry finds out whether entries can be written again, and notes the lost ones.
func (l *Log) retry() error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	if l.makeRoom(); l.scarce != nil {
		return l.scarce
	}
	return l.putLost()
}

// put writes one line at the end of the newest file. While the log is shared, the caller is between enter
// and leave.
func (l *Log) put(e Entry) error {
	if l.dirty {
		if err := l.f.Truncate(l.size); err != nil {
			return err
		}
		l.dirty, l.reserved = false, 0
	}
	if found := l.damage; found != nil {
		l.damage = nil
		if err := l.put(*found); err != nil {
			l.damage = found
			return err
		}
	}
	e.Seq, e.Prev, e.Time = l.seq+1, l.prev, time.Now().UTC()
	if e.Event == Checkpoint {
		e.Signature = ed25519.Sign(l.key, e.signed())
	}
	line, hash := e.encode()
	if _, err := l.f.Write(line); err != nil {
		// A part of the line may be there.
		l.dirty = l.f.Truncate(l.size) != nil
		l.reserved = 0
		return err
	}
	l.size += int64(len(line))
	l.seq, l.prev = e.Seq, hash
	l.stats.Entries++
	if e.Event == Checkpoint {
		l.signed, l.head = e.Seq, line
	}
	return nil
}

// Stats returns the numbers of the log.
func (l *Log) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Broken = l.broken
	return s
}

// Close writes a last entry and a last checkpoint.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	close(l.stop)
	l.done.Wait()
	l.flush()
	err := l.Write(Entry{Event: Stop})
	if err == nil {
		err = l.Checkpoint()
	}
	l.f.Close()
	l.dir.Close()
	l.living.Close()
	return err
}
