package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// Write-behind: while a long spool grows, the kernel is told to write it to the disk,
// and to drop the pages that all readers have passed. Otherwise a lot of output pushes
// other files out of the page cache, and the kernel allocates a new page for each 4 KiB
// of output, which takes longer than filling it. This is only advice to the kernel
// (sync_file_range(2), posix_fadvise(2)). Nobody waits for the disk, and on a slow disk
// the pages just stay longer.
const (
	// longSpool is the size, in bytes, from which a spool is long. As many bytes of
	// it stay in the page cache, however fast the disk is.
	longSpool = 32 << 20
	// behindStep is how many bytes are begun at once.
	behindStep = 4 << 20
	// behindLag is the time for the disk to write a piece, as a number of bytes of
	// later output.
	behindLag = 16 << 20
)

// writeBehind starts a writer of new bytes if there are enough and none runs. l.mu is
// held.
func (l *Log) writeBehind() {
	if l.f == nil || l.writing || l.size < longSpool || l.size-l.begun < behindStep {
		return
	}
	l.writing = true
	l.readers++ // keeps the file open
	go l.writeOut(l.f)
}

// writeOut begins to write new bytes until few are left.
func (l *Log) writeOut(f *os.File) {
	defer l.leave()
	fd := int(f.Fd())
	for {
		from, to, passed, more := l.nextOut()
		if !more {
			return
		}
		_ = unix.SyncFileRange(fd, from, to-from, unix.SYNC_FILE_RANGE_WRITE)
		// Begin earlier again: a page that was not on the disk the last time stayed.
		again := max(0, passed-longSpool)
		if passed > again {
			_ = unix.Fadvise(fd, again, passed-again, unix.FADV_DONTNEED)
		}
	}
}

// nextOut takes the next bytes to write, from the position from to the position to.
// No reader needs the bytes before passed. If more is false the writer ends; the next
// Append starts another.
func (l *Log) nextOut() (from, to, passed int64, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, to = l.begun, l.size
	if to-from < behindStep || l.state != logOpen {
		l.writing = false
		return 0, 0, 0, false
	}
	l.begun, passed = to, from-behindLag
	for r := range l.joined {
		passed = min(passed, r.passed.Load())
	}
	return from, to, passed, true
}
