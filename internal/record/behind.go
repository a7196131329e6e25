package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// A spool that gets long is written to the disk as it grows, and what all who read it
// have behind them leaves the page cache. Otherwise much output would push out what
// others need, and each page of it be a new one, which costs more than to fill it. It
// is nothing but advice to the kernel: nobody waits for the disk, and where the disk
// is slower than the program, pages stay for as long as they would have.
const (
	// longSpool is from where on a spool is long. So much of it stays in the page
	// cache, too, however fast the disk.
	longSpool = 32 << 20
	// behindStep is how much is begun at once.
	behindStep = 4 << 20
	// behindLag is how long the disk has for a piece, in bytes of output, before its
	// pages are looked at.
	behindLag = 16 << 20
)

// writeBehind sees to it that somebody begins to write what is new. l.mu is held.
func (l *Log) writeBehind() {
	if l.f == nil || l.behind || l.size < longSpool || l.size-l.begun < behindStep {
		return
	}
	l.behind = true
	l.readers++ // keeps the file open
	go l.writeOut(l.f)
}

// writeOut begins to write what is new, until that is little.
func (l *Log) writeOut(f *os.File) {
	defer l.leaveReader()
	fd := int(f.Fd())
	for {
		from, to, passed, more := l.nextOut()
		if !more {
			return
		}
		_ = unix.SyncFileRange(fd, from, to-from, unix.SYNC_FILE_RANGE_WRITE)
		// Pages that were not on the disk the last time get another chance.
		again := max(0, passed-longSpool)
		if passed > again {
			_ = unix.Fadvise(fd, again, passed-again, unix.FADV_DONTNEED)
		}
	}
}

// nextOut takes what is to be written next. Nobody needs what is before passed. more is
// false if it is left to who adds to it.
func (l *Log) nextOut() (from, to, passed int64, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, to = l.begun, l.size
	if to-from < behindStep || l.state != logOpen {
		l.behind = false
		return 0, 0, 0, false
	}
	l.begun, passed = to, from-behindLag
	for r := range l.joined {
		passed = min(passed, r.passed.Load())
	}
	return from, to, passed, true
}
