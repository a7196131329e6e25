package audit

import (
	"errors"

	"golang.org/x/sys/unix"
)

// On a full disk, callers must be able to free room, and each such call needs an entry. So the newest file has blocks
// past its end: fallocate(2) with FALLOC_FL_KEEP_SIZE reserves them without a change of the file's size. An entry that
// frees nothing is refused if it would take from this space.
const (
	// reserveBytes is the space that entries which free nothing leave.
	reserveBytes = 64 << 10
	// reserveStep is how much is reserved at once, so that not each entry needs a system call.
	reserveStep = 128 << 10
	// promiseBytes bounds the entry of a call that frees room. Only texts of maxText that the caller chooses are in it.
	promiseBytes = 8 << 10
)

// frees reports whether the entry may use the reserved space: it is about an allowed call that frees room, or about the
// daemon, which must be able to start. Entries about refused and failed calls may not: callers can cause any number.
func (e *Entry) frees() bool {
	switch e.Event {
	case Start, Stop:
		return true
	case Delete, Purge:
		return e.Decision == Allowed && e.Count == 0
	}
	return e.Frees && e.Decision == Allowed && e.Count == 0
}

// reserve keeps reserveBytes past the end of the newest file. On a file system without fallocate(2) it does nothing.
// l.mu is held.
func (l *Log) reserve() error {
	if l.reserved >= l.size+reserveBytes {
		return nil
	}
	err := unix.Fallocate(int(l.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, l.size, reserveStep)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err == nil {
		l.reserved = l.size + reserveStep
	}
	return err
}

// promise sets space aside for the entry of a call that frees room, while other entries can't be written. It returns
// false if too little is left. l.mu is held.
func (l *Log) promise() bool {
	if l.reserved-l.size-l.promised < promiseBytes {
		return false
	}
	l.promised += promiseBytes
	return true
}
