package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
)

// Two processes share a log during a takeover: the earlier process has called Share, and the next process has opened
// the log with Config.Takeover. There are two locks. Both are flock(2), which the kernel releases when a process ends.
//
//   - The lock of the directory is for writing. In a log that is not shared, the only process keeps it from Open to
//     Close. Processes that share a log take it for each append, and continue the chain after the entries of the
//     other process (catchUp). Rotation, pruning, and the replacement of the file head are parts of an append.
//   - The file lock says that a process lives. Each process that has the log open holds it shared. A plain Open needs
//     it exclusively for a moment. So a plain Open is refused even between two appends, when no process holds the
//     lock of the directory.
//
// A log that is not shared makes no system calls for these locks between Open and Close.

// lockPatience bounds how long Open and Own wait for the locks of a killed daemon: its children have copies of its
// descriptors until their exec. Own tries again after each ownInterval.
const (
	lockPatience = 3 * time.Second
	ownInterval  = 10 * time.Millisecond
)

// lock takes both locks for Open. Without them, two daemons would write two chains into one file, and no verification
// could tell them apart.
func (l *Log) lock() (err error) {
	if l.dir, err = os.Open(l.Dir); err != nil {
		return err
	}
	l.living, err = os.OpenFile(filepath.Join(l.Dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	kind := filelock.Exclusive
	if l.shared {
		kind = filelock.Shared
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockPatience, fmt.Errorf("for more than %s", lockPatience))
	defer cancel()
	if err := filelock.Await(ctx, l.living, kind); err != nil {
		return l.foreign(err)
	}
	if err := filelock.Await(ctx, l.dir, filelock.Exclusive); err != nil {
		return l.foreign(err)
	}
	return filelock.Lock(l.living, filelock.Shared)
}

// foreign returns the error for a log that another process has open.
func (l *Log) foreign(err error) error {
	return fmt.Errorf("%s: another skillrund writes its audit log there; stop that one, or choose another audit.dir: %w", l.Dir, err)
}

// Share lets a next process open the log and write to it, too. Until Own, each entry costs some more system calls.
// Share does nothing to a log that is shared already.
func (l *Log) Share() error {
	if l == nil {
		return nil
	}
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared {
		return nil
	}
	if err := filelock.Unlock(l.dir); err != nil {
		return fmt.Errorf("share the audit log: %w", err)
	}
	l.shared = true
	return nil
}

// Own makes this process the only writer of the log, after the other process has closed the log or has died. It is an
// error if the other process still has the log open. After an error the log is still shared. Own does nothing to a log
// that is not shared.
func (l *Log) Own() error {
	if l == nil {
		return nil
	}
	for deadline := time.Now().Add(lockPatience); ; {
		err := l.own()
		if err == nil {
			return nil
		}
		if !errors.Is(err, filelock.ErrHeld) {
			return fmt.Errorf("own the audit log: %w", err)
		}
		if time.Now().After(deadline) {
			return l.foreign(err)
		}
		time.Sleep(ownInterval)
	}
}

// own is one attempt of Own. Between two attempts both processes can write.
func (l *Log) own() error {
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shared {
		return nil
	}
	if err := l.enter(); err != nil {
		return err
	}
	// No plain Open can take the file lock in between and continue: it needs the directory, too.
	err := filelock.Try(l.living, filelock.Exclusive)
	if errSH := filelock.Lock(l.living, filelock.Shared); err == nil {
		err = errSH
	}
	if err != nil {
		l.leave()
		return err
	}
	l.shared = false // this process keeps the lock of the directory
	return nil
}

// enter takes the lock of the directory of a shared log, so that only this process writes until leave. l.mu is held.
func (l *Log) enter() error {
	if !l.shared {
		return nil
	}
	if err := filelock.Lock(l.dir, filelock.Exclusive); err != nil {
		return err
	}
	err := l.catchUp()
	if err != nil {
		l.leave()
	}
	return err
}

// leave lets the other process write to a shared log.
func (l *Log) leave() {
	if l.shared {
		_ = filelock.Unlock(l.dir) // it cannot fail: the descriptor is open
	}
}

// catchUp reads the entries of the other process, so that the next entry continues the chain after them. The caller
// holds the lock of the directory.
func (l *Log) catchUp() error {
	if !l.stale && !l.moved() {
		return nil
	}
	f, size, torn := l.f, l.size, l.dirty && !l.stale
	l.stale = true
	found, err := l.resume()
	if err != nil {
		return err
	}
	l.stale, l.dirty = false, false
	// An incomplete line of this process is no damage: write has counted its entry as lost.
	own := torn && f == l.f && size == l.size
	if found.Count > 0 && !own || found.Detail != "" {
		found.Event = Damage
		l.damage = &found
	}
	return nil
}

// moved reports whether the other process has moved the end of the log. It may have written to the newest file, may
// have begun a next file, or may have removed the newest file that this process knows: an empty file, or an old one.
func (l *Log) moved() bool {
	fi, err := l.f.Stat()
	if err != nil || fi.Size() != l.size {
		return true
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink == 0 {
		return true
	}
	// A rotation adds nothing to a file that ends with a checkpoint, so the size of this file says nothing. The next
	// file has the number l.seq+1 in its name. An empty newest file has this number, too, so it does not count.
	_, err = os.Lstat(filePath(l.Dir, l.seq+1))
	return l.size > 0 && !isMissing(err)
}

// saveShared replaces the file head of a shared log, unless the other process has saved a newer checkpoint.
func (l *Log) saveShared(head []byte, signed uint64) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	if e, _, err := readHead(l.Dir); err == nil && e.Seq >= signed {
		return nil
	}
	return durable.WriteFile(filepath.Join(l.Dir, headName), head)
}
