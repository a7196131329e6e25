package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/durable"
)

// A file of the log is named by its first entry: audit-000000000001.jsonl.
const (
	filePrefix = "audit-"
	fileSuffix = ".jsonl"
	headName   = "head"
	lockName   = "lock"
)

// A logFile is a file of the log.
type logFile struct {
	path  string
	first uint64 // by its name
}

// list returns the files of a directory, the oldest first.
// Other names are ignored: the directory also has the head and the public key.
func list(dir string) ([]logFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []logFile
	for _, e := range entries {
		digits, isOurs := strings.CutPrefix(e.Name(), filePrefix)
		digits, ends := strings.CutSuffix(digits, fileSuffix)
		if first, err := strconv.ParseUint(digits, 10, 64); err == nil && isOurs && ends {
			files = append(files, logFile{filepath.Join(dir, e.Name()), first})
		}
	}
	slices.SortFunc(files, func(a, b logFile) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	return files, nil
}

// filePath returns the path of the file that begins with an entry.
func filePath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%012d%s", filePrefix, first, fileSuffix))
}

// create makes the file that begins with an entry. An empty one can be there after a failure.
// O_APPEND keeps each entry in one piece at the end of the file (open(2)). The sync of the
// directory comes before the first entry, so that no durable entry is in a file that a power cut
// removes.
func create(dir string, first uint64) (*os.File, error) {
	f, err := os.OpenFile(filePath(dir, first), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := durable.SyncDir(dir); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// syncFile is Sync. A file that rotate has synced and closed is no error.
func syncFile(f *os.File) error {
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Open opens the log and continues its chain. It makes the directory and the key if they are missing. If
// the key is damaged, a new log begins, and the old one is kept next to it.
func Open(c Config) (*Log, error) {
	l, err := openLog(c)
	var damaged *damagedKey
	if !errors.As(err, &damaged) || c.Takeover {
		return l, err
	}
	if err := setAside(c); err != nil {
		return nil, errors.Join(damaged, err)
	}
	return openLog(c)
}

// The order matters: the locks keep other daemons out before the key and the end of the chain are
// read, and the start entry is written before any other.
func openLog(c Config) (_ *Log, err error) {
	l := &Log{Config: c, shared: c.Takeover, stop: make(chan struct{}), notes: notes{map[string]int{}, map[noteKey]*Entry{}}}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, f := range []*os.File{l.living, l.dir, l.f} {
				f.Close() // os.ErrInvalid if it is nil
			}
		}
	}()
	if err := l.lock(); err != nil {
		return nil, err
	}
	if l.key, err = openKey(c.KeyFile, c.Dir); err != nil {
		return nil, err
	}
	start, err := l.resume()
	l.leave()
	if err != nil {
		return nil, err
	}
	if err := l.append(start); err != nil {
		return nil, err
	}
	l.done.Go(l.keep)
	return l, nil
}

// resume finds the end of the chain and opens the file in which it continues. It returns the first
// entry of this daemon, which describes the damage, if any. A shared log calls it again when the other daemon has
// written. There are three cases. A new log begins with entry 1. A log with a good last line continues
// there, after an incomplete line was cut off: a daemon that is killed leaves one. A log whose end
// contradicts the copy of the last checkpoint was changed. resume does not repair such a log, so that
// `skillrund audit verify` shows the change.
func (l *Log) resume() (start Entry, err error) {
	start = Entry{Event: Start}
	files, err := list(l.Dir)
	if err != nil {
		return start, err
	}
	var end fileEnd
	for len(files) > 0 {
		last := files[len(files)-1]
		if end, err = readEnd(last.path); err != nil {
			return start, err
		}
		if end.torn > 0 {
			start.Torn, start.Count = end.text, uint64(end.torn)
		}
		if end.whole > 0 {
			break
		}
		// A daemon died between the creation of the file and its first line.
		if err := os.Remove(last.path); err != nil {
			return start, err
		}
		files = files[:len(files)-1]
	}
	head, headHash, headErr := readHead(l.Dir)
	if len(files) == 0 && headErr != nil { // a new log
		l.seq, l.prev = 0, ""
		return start, l.begin()
	}
	e, hash, err := decode(end.line)
	if len(files) > 0 && err == nil && (headErr != nil || head.Seq <= e.Seq) {
		l.seq, l.prev, l.size = e.Seq, hash, end.whole
		if e.Event == Checkpoint {
			l.signed, l.head = e.Seq, append(end.line, '\n')
		}
		if err := l.reopen(files[len(files)-1].path); err != nil {
			return start, err
		}
		if end.torn == 0 {
			return start, nil // Truncate would also free the reserved space
		}
		l.reserved = 0
		return start, l.f.Truncate(end.whole)
	}
	// The end was changed or is missing. The chain continues after the last known checkpoint, in a new
	// file. VerifyDir will find the place.
	l.seq, l.prev = head.Seq, headHash
	if len(files) > 0 && files[len(files)-1].first > l.seq {
		l.seq, l.prev = files[len(files)-1].first, ""
	}
	start.Detail = "the end of the log was changed or is missing"
	l.Log.Error("the end of the audit log was changed or is missing; skillrund audit verify shows the place", "dir", l.Dir)
	return start, l.begin()
}

// begin begins a new file. It writes no checkpoint at the end of the old one.
func (l *Log) begin() error {
	f, err := create(l.Dir, l.seq+1)
	if err != nil {
		return err
	}
	l.f.Close()
	l.f, l.size, l.reserved = f, 0, 0
	return nil
}

// reopen opens the newest file, unless this process has it open. Checkpoint may be about to sync the old file. Closing
// it is safe only because the other process has synced it in rotate.
func (l *Log) reopen(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if l.f != nil && sameFile(l.f, f) {
		return f.Close()
	}
	l.f.Close()
	l.f, l.reserved = f, 0
	return nil
}

// sameFile reports whether two descriptors belong to the same file.
func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// readHead reads the copy of the last checkpoint.
func readHead(dir string) (e Entry, hash string, err error) {
	line, err := os.ReadFile(filepath.Join(dir, headName))
	if err != nil {
		return e, "", err
	}
	return decode(bytes.TrimSuffix(line, []byte("\n")))
}

// A fileEnd is the end of a file.
// All numbers are bytes.
type fileEnd struct {
	line  []byte // the last line, without its newline
	whole int64  // bytes up to the end of that line
	torn  int64  // bytes after it
	text  string // the beginning of these bytes
}

// readEnd reads the last line of a file. If the file's end has no newline within the length of two lines,
// the line is empty.
// Two lines are enough, because append writes no line that is longer than maxLine.
func readEnd(path string) (end fileEnd, err error) {
	f, err := os.Open(path)
	if err != nil {
		return end, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return end, err
	}
	window := make([]byte, min(size, 2*maxLine))
	if _, err := f.ReadAt(window, size-int64(len(window))); err != nil {
		return end, err
	}
	newline := bytes.LastIndexByte(window, '\n')
	if newline < 0 && int64(len(window)) < size {
		return fileEnd{whole: size}, nil
	}
	end.torn = int64(len(window) - newline - 1)
	end.whole = size - end.torn
	end.text = clip(string(window[newline+1:]), maxCommand)
	if newline >= 0 {
		end.line = window[bytes.LastIndexByte(window[:newline], '\n')+1 : newline]
	}
	return end, nil
}

// isMissing reports whether an error is about a file that does not exist. Other errors of a key, such as a lack of
// permission, must not lead to a new key.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
