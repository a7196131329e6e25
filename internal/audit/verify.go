package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A Report says what Verify has read.
// It is also filled up to the fault if the verification fails.
type Report struct {
	Files       int
	First, Last uint64 // entries
	Checkpoints int
	// The last checkpoint. Entries after it have no signature yet.
	Signed   uint64
	SignedAt time.Time
	// Torn is the number of bytes of an incomplete last line: a daemon is writing it, or died while it
	// wrote it.
	Torn int
}

// A Fault is the first place at which the log is not as it was written. Line 0 is the file as a whole.
type Fault struct {
	File   string
	Line   int
	Reason string
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Reason)
}

// VerifyDir verifies the log in a directory, from its beginning or from the files that were pruned, to
// its signed end. head is the file with the last known checkpoint; empty: the one in dir. A nil key is
// the public key in dir.
// It only reads, so it may run while a daemon writes to the log. For a proof against someone with
// write access to dir, give a key and a head that were kept elsewhere.
func VerifyDir(dir, head string, key ed25519.PublicKey) (Report, error) {
	if key == nil {
		text, err := os.ReadFile(filepath.Join(dir, publicName))
		if err != nil {
			return Report{}, err
		}
		if key, err = ParsePublicKey(text); err != nil {
			return Report{}, fmt.Errorf("%s: %w", filepath.Join(dir, publicName), err)
		}
	}
	if head == "" {
		head = filepath.Join(dir, headName)
	}
	// Before the files: a running daemon writes on.
	line, err := os.ReadFile(head)
	if err != nil && !isMissing(err) {
		return Report{}, err
	}
	files, err := list(dir)
	if err != nil {
		return Report{}, err
	}
	if len(files) == 0 && line == nil {
		return Report{}, fmt.Errorf("%s: no audit log", dir)
	}
	v := verifier{key: key}
	if line != nil {
		if v.head, v.headHash, err = decode(bytes.TrimSuffix(line, []byte("\n"))); err != nil || !v.signed(&v.head) {
			return Report{}, &Fault{head, 0, "the copy of the last checkpoint was changed, or another key signed it"}
		}
	}
	for _, f := range files {
		if err := v.file(f.path); err != nil {
			return v.Report, err
		}
	}
	return v.Report, v.whole(dir, head)
}

// VerifyFiles verifies files that follow each other. The log may have had files before and after.
func VerifyFiles(paths []string, key ed25519.PublicKey) (Report, error) {
	v := verifier{key: key}
	for _, path := range paths {
		if err := v.file(path); err != nil {
			return v.Report, err
		}
	}
	return v.Report, nil
}

// A verifier reads a log from its beginning.
// It needs memory for one line only, however large the log is.
type verifier struct {
	Report
	key      ed25519.PublicKey
	head     Entry // zero: not known
	headHash string
	prev     string
	pruned   uint64 // the last entry that the log itself says was removed
	before   string // file and line of the last entry
}

// whole checks what no single line shows: that neither the beginning nor the end is missing.
// The chain alone can't show this: a log that is cut at either end is a valid chain.
func (v *verifier) whole(dir, head string) error {
	switch {
	case v.head.Seq > v.Last:
		return &Fault{dir, 0, fmt.Sprintf("the log ends with entry %d; entries %d to %d are missing, which the checkpoint in %s has signed", v.Last, v.Last+1, v.head.Seq, head)}
	case v.First > 1 && v.pruned < v.First-1:
		return &Fault{dir, 0, fmt.Sprintf("the log begins with entry %d; entries %d to %d are missing, and the daemon did not remove them", v.First, v.pruned+1, v.First-1)}
	case v.head.Seq == 0 && v.Checkpoints > 0:
		return &Fault{head, 0, "the copy of the last checkpoint is missing, so entries may be missing at the end of the log"}
	}
	return nil
}

// file reads one file.
func (v *verifier) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	v.Files++
	if v.Torn > 0 {
		return &Fault{v.before, 0, "the line after this one is incomplete, but other entries follow"}
	}
	r := bufio.NewReaderSize(f, maxLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			v.Torn = len(line)
			return nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return &Fault{path, n, errChanged.Error()}
		}
		if err != nil {
			return err
		}
		if err := v.line(path, n, line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// line checks one line against the lines before.
// A changed line is found when the next line has another hash of it, and at the latest by the
// signature of the next checkpoint. So the fault names the line before.
func (v *verifier) line(path string, n int, line []byte) error {
	fault := func(format string, args ...any) error { return &Fault{path, n, fmt.Sprintf(format, args...)} }
	e, hash, err := decode(line)
	if err != nil {
		return fault("%v", err)
	}
	switch {
	case v.Last == 0 && e.Seq == 1 && e.Prev != "":
		return fault("the line was changed: the first entry follows no other")
	case v.Last == 0: // the first line that is read
		v.First = e.Seq
	case e.Seq > v.Last+1:
		return fault("entry %d follows entry %d: entries %d to %d are missing or were moved", e.Seq, v.Last, v.Last+1, e.Seq-1)
	case e.Seq <= v.Last:
		return fault("entry %d follows entry %d: it was moved or repeated", e.Seq, v.Last)
	case e.Prev != v.prev:
		return &Fault{v.before, 0, fmt.Sprintf("entry %d was changed: entry %d has another hash of it", v.Last, e.Seq)}
	}
	if e.Event == Checkpoint {
		if !v.signed(&e) {
			return fault("the checkpoint has no valid signature: another key signed it, or entries after entry %d were changed", v.Signed)
		}
		v.Checkpoints++
		v.Signed, v.SignedAt = e.Seq, e.Time
	}
	if e.Seq == v.head.Seq && hash != v.headHash {
		return fault("entry %d is not the checkpoint of which a copy was kept", e.Seq)
	}
	v.pruned = max(v.pruned, e.Through)
	v.Last, v.prev, v.before = e.Seq, hash, fmt.Sprintf("%s:%d", path, n)
	return nil
}

// signed reports whether the key has signed a checkpoint.
func (v *verifier) signed(e *Entry) bool {
	return e.Event == Checkpoint && ed25519.Verify(v.key, e.signed(), e.Signature)
}
