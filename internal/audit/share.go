package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
)

// Two processes share a log during a takeover: the earlier one has called Share, and the next one was opened
// with Config.Beside. Their locks, both flock(2), which the kernel releases when a process ends in any way:
//
//   - The directory. Who has it may write. The only process of a log keeps it from Open to Close. Processes
//     that share a log take it for each append, and continue after the entries of the other one (catchUp).
//     Rotation, pruning, and the replacement of the file head are parts of an append, so they have it, too.
//   - The file lock, shared by all processes that have the log open. A plain Open needs it alone for a
//     moment. So it is also refused between two appends, while no process has the directory.
//
// All this costs nothing in a log that is not shared.

// lockPatience is how long Open and Own wait for a killed daemon, whose children hold its descriptors until
// their exec. They try at each lockInterval.
const (
	lockPatience = 3 * time.Second
	lockInterval = 10 * time.Millisecond
)

// lock takes the locks of Open. Both are needed: two chains in one file could not be verified.
func (l *Log) lock() (err error) {
	if l.dir, err = os.Open(l.Dir); err != nil {
		return err
	}
	l.living, err = os.OpenFile(filepath.Join(l.Dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	how := unix.LOCK_EX
	if l.shared {
		how = unix.LOCK_SH
	}
	if err := tryFlock(l.living, how); err != nil {
		return l.foreign(err)
	}
	if err := tryFlock(l.dir, unix.LOCK_EX); err != nil {
		return l.foreign(err)
	}
	return flock(l.living, unix.LOCK_SH)
}

// foreign is the error for a log that another process has.
func (l *Log) foreign(err error) error {
	return fmt.Errorf("%s: another skillrund writes its audit log there; choose another directory: %w", l.Dir, err)
}

// flock calls flock(2), and waits as long as it takes.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tryFlock calls flock(2), and waits for lockPatience.
func tryFlock(f *os.File, how int) error {
	for deadline := time.Now().Add(lockPatience); ; {
		err := flock(f, how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lockInterval)
	}
}

// Share lets one more process write to the log: the one that opens it with Config.Beside. Each entry then
// costs some more system calls, until Own. It does nothing to a log that is shared.
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
	if err := flock(l.dir, unix.LOCK_UN); err != nil {
		return fmt.Errorf("share the audit log: %w", err)
	}
	l.shared = true
	return nil
}

// Own makes this process the only one that writes to the log, after the other one has closed it or has died.
// After an error the log is still shared; the error is also for another process that has it open. Own
// does nothing to a log that is not shared.
func (l *Log) Own() error {
	if l == nil {
		return nil
	}
	for deadline := time.Now().Add(lockPatience); ; {
		err := l.own()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("own the audit log: %w", err)
		}
		if time.Now().After(deadline) {
			return l.foreign(err)
		}
		time.Sleep(lockInterval)
	}
}

// own is Own without patience. Both processes can write between two calls.
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
	err := flock(l.living, unix.LOCK_EX|unix.LOCK_NB)
	if errSH := flock(l.living, unix.LOCK_SH); err == nil {
		err = errSH
	}
	if err != nil {
		l.leave()
		return err
	}
	l.shared = false // and the lock of the directory stays
	return nil
}

// enter makes this process the only one that writes to a shared log, until leave. l.mu is held.
func (l *Log) enter() error {
	if !l.shared {
		return nil
	}
	if err := flock(l.dir, unix.LOCK_EX); err != nil {
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
		_ = flock(l.dir, unix.LOCK_UN) // it cannot fail: the descriptor is open
	}
}

// catchUp continues the chain after the entries of the other process. It is between enter and leave.
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
	// An incomplete line of this process is no damage: its entry counts as lost.
	own := torn && f == l.f && size == l.size
	if found.Count > 0 && !own || found.Detail != "" {
		found.Event = Damage
		l.damage = &found
	}
	return nil
}

// moved reports whether the end of the log is no longer where this process knows it. The other process
// has written to the newest file, has begun the next one, or has removed the newest file: if it was empty, or
// because there are newer ones.
func (l *Log) moved() bool {
	fi, err := l.f.Stat()
	if err != nil || fi.Size() != l.size {
		return true
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink == 0 {
		return true
	}
	// rotate writes nothing to a file that ends with a checkpoint. An empty newest file has this name itself.
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
