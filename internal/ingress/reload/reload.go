// Package reload keeps the parsed contents of files, and reads the files again after they have
// changed: certificates, authorities, tokens.
package reload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxBytes bounds a file, so that a wrong path does not fill the memory.
const maxBytes = 16 << 20

// Files is the parsed content of one or more files. Its methods may be called concurrently.
type Files[T any] struct {
	what     string // for the log
	paths    []string
	parse    func(contents [][]byte) (T, error)
	optional bool
	log      *slog.Logger

	mu         sync.Mutex // guards the fields below
	seen       []stamp    // of the contents that were parsed last, with or without success
	failure    string     // the error that the log has; empty after a Get that finds the files as seen
	value      T
	generation int // grows with each new value
}

// stamp tells versions of a file apart. An editor replaces a file (another inode) or writes into
// it (another time). A missing file has the zero stamp.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Duration // since 1970, as the kernel counts it; any write and rename changes it
}

// Open reads files and returns them parsed. parse gets the contents in the order of paths. what
// names the files in the log. A later change that parse refuses is logged, and the last good value
// stays. It also stays while a file cannot be read.
func Open[T any](log *slog.Logger, what string, parse func([][]byte) (T, error), paths ...string) (*Files[T], error) {
	return open(&Files[T]{what: what, paths: paths, parse: parse, log: log})
}

// OpenOptional is like Open, but a file that is not there counts as empty.
func OpenOptional[T any](log *slog.Logger, what string, parse func([][]byte) (T, error), paths ...string) (*Files[T], error) {
	return open(&Files[T]{what: what, paths: paths, parse: parse, log: log, optional: true})
}

func open[T any](f *Files[T]) (*Files[T], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps, err := f.stamps()
	if err != nil {
		return nil, err
	}
	return f, f.read(stamps)
}

// Get returns the current value and its generation, which differs from the generation of every
// other value. It asks the kernel about each file, which takes about a microsecond, so a change
// takes effect with the next call. If a file cannot be read, for example because the process has no descriptor left,
// each further call tries again.
func (f *Files[T]) Get() (value T, generation int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps, err := f.stamps()
	if slices.Equal(stamps, f.seen) {
		f.failure = "" // an error that comes again is logged again
		return f.value, f.generation
	}
	if err == nil {
		err = f.read(stamps)
	}
	if err == nil {
		f.log.Info("file reloaded", "what", f.what)
	} else if err.Error() != f.failure { // the first of several attempts with the same result
		f.failure = err.Error()
		f.log.Error("file not reloaded; the last good version stays in force", "what", f.what, "err", err)
	}
	return f.value, f.generation
}

// stamps returns a stamp for each file. After an error the stamps of the files with errors are
// zero.
func (f *Files[T]) stamps() ([]stamp, error) {
	stamps := make([]stamp, len(f.paths))
	var errs []error
	for i, path := range f.paths {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if f.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, &fs.PathError{Op: "stat", Path: path, Err: err})
			continue
		}
		stamps[i] = stamp{uint64(st.Dev), st.Ino, st.Size, time.Duration(st.Ctim.Nano())}
	}
	return stamps, errors.Join(errs...)
}

// read reads and parses the files. The caller holds f.mu. The stamps are older than the content:
// if a file changes in between, the next Get reads it again. An error of reading may end without a change of the file,
// so only contents that parse has seen count as seen.
func (f *Files[T]) read(stamps []stamp) error {
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		if stamps[i] == (stamp{}) {
			continue
		}
		var err error
		if contents[i], err = readFile(path); err != nil {
			return err
		}
	}
	f.seen, f.failure = stamps, ""
	value, err := f.parse(contents)
	if err != nil {
		return err
	}
	f.value = value
	f.generation++
	return nil
}

// readFile reads a regular file of at most maxBytes. O_NONBLOCK: opening a FIFO would wait for a
// writer. If the file grows during the read, its stamp changes, and the next Get reads it again.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
	}
	return io.ReadAll(io.LimitReader(file, maxBytes))
}
