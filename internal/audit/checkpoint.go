package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// checkpointInterval is the time between two checkpoints: at most the entries of this time have no signature, and
// a power cut can take them. flushInterval is the time for which Note counts.
const (
	checkpointInterval = time.Minute
	flushInterval      = time.Second
)

// sign writes a checkpoint, unless the last entry is one.
// l.mu is held, as in put, rotate and prune.
func (l *Log) sign() error {
	if l.signed == l.seq {
		return nil
	}
	return l.put(Entry{Event: Checkpoint})
}

// rotate ends the newest file with a checkpoint and begins another file. After an error the old file
// stays in use.
// The checkpoint and the sync come first, so a file that is complete is also signed and on the
// disk.
func (l *Log) rotate() error {
	if err := l.sign(); err != nil {
		return err
	}
	if err := l.f.Sync(); err != nil {
		return err
	}
	path, size := l.f.Name(), l.size
	if err := l.begin(); err != nil {
		return err
	}
	if err := os.Truncate(path, size); err != nil {
		l.Log.Error("the reserved space of an old file of the audit log was not freed", "err", err)
	}
	if err := l.prune(); err != nil {
		l.Log.Error("old files of the audit log were not removed", "err", err)
	}
	return nil
}

// prune removes the oldest files. An entry on the disk says so first: without it, Verify reports that the log's
// beginning is missing. Without the sync, a power cut could take the entry and not the removal.
func (l *Log) prune() error {
	files, err := list(l.Dir)
	if err != nil || len(files) <= l.Files {
		return err
	}
	old := files[:len(files)-l.Files]
	if err := l.put(Entry{Event: Pruned, Through: files[len(old)].first - 1}); err != nil {
		return err
	}
	if err := l.f.Sync(); err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f.path); err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint signs the entries so far, brings them to the disk and then replaces the file head. It does
// nothing if nothing was written since the last one.
// The sync and the file head take time on a slow disk, so they run without l.mu: callers write on.
// Entries that come after the signature wait for the next checkpoint. In a shared log, the file head is replaced
// under the lock of the directory, because the other process may have written a newer head.
func (l *Log) Checkpoint() error {
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.mu.Lock()
	if l.saved == l.seq {
		l.mu.Unlock()
		return nil
	}
	err := l.enter()
	if err == nil {
		err = l.sign()
		l.leave()
	}
	f, head, signed, shared := l.f, l.head, l.signed, l.shared
	l.mu.Unlock()
	if err == nil {
		err = syncFile(f)
	}
	if err == nil && !shared {
		err = durable.WriteFile(filepath.Join(l.Dir, headName), head)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && shared {
		err = l.saveShared(head, signed)
	}
	if err != nil {
		l.stats.Failures++
		return fmt.Errorf("checkpoint of the audit log: %w", err)
	}
	l.saved = signed
	return nil
}

// keep writes counts and checkpoints until Close.
func (l *Log) keep() {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	next := time.Now() // the first checkpoint comes at once
	for {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(checkpointInterval)
			if err := l.Checkpoint(); err != nil {
				l.Log.Error("no checkpoint in the audit log; the daemon tries again in a minute", "err", err)
			}
		}
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.flush()
		}
	}
}
