// Package journal keeps an append-only file of entries.
//
// # Theory of operation
//
// A transaction of SQLite takes 0.1 to 0.2 ms, and a short execution changes the
// database four times. Each change must survive the death of the process before its
// caller goes on. So package record appends each change to this file, with one
// pwrite(2), and its caller goes on. A moment later record applies many changes to the
// database in one transaction, and empties the file.
//
//	change -> Append -> acknowledged
//	             |
//	             v  a moment later, many together
//	          transaction { the changes, "applied up to Seq" } -> Reset
//
// The file is a magic, followed by entries. Each entry has a checksum and a sequence
// number, which goes up by one and never starts again. The transaction stores the
// number of its last change. After a crash the database lacks exactly the entries with
// greater numbers.
//
// After the death of the process the file has every entry whose Append returned. It may
// have a part of one more entry, which the checksum reveals, and Recover removes that part.
// After a loss of power the file may have lost anything, because Append does not sync
// it. Recover then takes the entries before the first damaged one. Changes that must
// survive the loss of power go to the database directly.
//
// On a full disk Append fails, and nothing of the entry stays. Reset needs no room.
//
// The process that has a journal open holds flock(2) on the file. The kernel drops the lock when the process
// ends. So if a journal can be locked, no living process writes it, and another process may use its entries.
package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/filelock"
)

// An entry is, little endian:
//
//	 0  uint32  CRC-32C of the bytes from 4 on
//	 4  uint32  length of the data
//	 8  uint64  sequence number
//	16  data
const (
	magic    = "journal 1\n"
	headSize = 16

	// MaxEntry bounds the data of one entry, in bytes.
	MaxEntry = 64 << 20

	// keptBuffer bounds the memory that stays for the next entry, in bytes.
	keptBuffer = 1 << 20
)

// Castagnoli's polynomial has an instruction on amd64 and arm64.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrVersion says that the file is not a journal of this version.
	ErrVersion = errors.New("not a journal of this version")
	// ErrInUse says that another process has the journal open.
	ErrInUse = errors.New("journal is in use")
)

// Journal is an open journal, which no other process can open. Only one goroutine may use it at a time.
type Journal struct {
	f    *os.File
	size int64
	last uint64 // Seq of the last entry
	buf  []byte // memory for the next entry

	dropped int64 // see Dropped
}

// Entry is one entry, as Recover found it.
type Entry struct {
	Seq  uint64
	Data []byte
}

// Lock opens or makes the journal at path, readable by its owner only, and locks it until Close or the death of
// the process. If another process has it open the error is ErrInUse. Call Recover next.
func Lock(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Journal{f: f}, nil
}

// Recover must be called once, before the first Append. It calls found for each entry, in order; an error of found
// ends Recover. New entries continue the numbers of the last entry, or of after if that is greater. A file of
// another version is not changed, and the error is ErrVersion.
func (j *Journal) Recover(after uint64, found func(Entry) error) error {
	j.last = after
	if err := j.recover(found); err != nil {
		return fmt.Errorf("%s: %w", j.f.Name(), err)
	}
	return nil
}

// CheckVersion returns ErrVersion if the file at path is a journal of another version. It takes no lock: the first
// bytes of a journal never change. Nil is the answer for a file without entries, or for none.
func CheckVersion(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(magic))
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if string(head[:n]) != magic[:n] {
		return fmt.Errorf("%s: %w", path, ErrVersion)
	}
	return nil
}

// recover reads all entries, and truncates the file after the last whole one.
func (j *Journal) recover(found func(Entry) error) error {
	fi, err := j.f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("not a regular file but %s", fi.Mode().Type())
	}
	r := bufio.NewReader(j.f)
	head := make([]byte, len(magic))
	switch _, err := io.ReadFull(r, head); {
	case err == io.EOF, err == io.ErrUnexpectedEOF: // new, or cut off before its first entry
		j.dropped = fi.Size()
		return j.f.Truncate(0)
	case err != nil:
		return err
	case string(head) != magic:
		return ErrVersion
	}
	j.size = int64(len(magic))
	var last uint64
	for {
		e, err := read(r, fi.Size()-j.size)
		if err != nil {
			return err
		}
		if e == nil || last > 0 && e.Seq != last+1 {
			break
		}
		last = e.Seq
		j.size += headSize + int64(len(e.Data))
		if err := found(*e); err != nil {
			return err
		}
	}
	j.dropped = fi.Size() - j.size
	if last < j.last {
		return j.Reset() // the next number would leave a gap
	}
	j.last = last
	return j.f.Truncate(j.size)
}

// read returns the next entry, or nil if the remaining left bytes don't begin with a
// whole one.
func read(r io.Reader, left int64) (*Entry, error) {
	var head [headSize]byte
	if left < headSize {
		return nil, nil
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(head[4:])
	if length > MaxEntry || int64(length) > left-headSize {
		return nil, nil
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	if checksum(head[4:], data) != binary.LittleEndian.Uint32(head[:]) {
		return nil, nil
	}
	return &Entry{Seq: binary.LittleEndian.Uint64(head[8:]), Data: data}, nil
}

func checksum(head, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, data)
}

// Append adds an entry. When it returns nil, the kernel has the entry. After an error
// nothing of it is in the file.
func (j *Journal) Append(data []byte) error {
	if len(data) > MaxEntry {
		return fmt.Errorf("%s: entry of %d bytes: more than %d", j.f.Name(), len(data), MaxEntry)
	}
	var head [headSize]byte
	binary.LittleEndian.PutUint32(head[4:], uint32(len(data)))
	binary.LittleEndian.PutUint64(head[8:], j.last+1)
	binary.LittleEndian.PutUint32(head[:], checksum(head[4:], data))
	j.buf = j.buf[:0]
	if j.size == 0 {
		j.buf = append(j.buf, magic...)
	}
	j.buf = append(append(j.buf, head[:]...), data...)
	if _, err := j.f.WriteAt(j.buf, j.size); err != nil {
		// If the truncation fails too, the next entry overwrites the rest.
		return errors.Join(err, j.f.Truncate(j.size))
	}
	j.size += int64(len(j.buf))
	j.last++
	if cap(j.buf) > keptBuffer {
		j.buf = nil
	}
	return nil
}

// Last returns the sequence number of the newest entry ever; 0 before the first one.
func (j *Journal) Last() uint64 { return j.last }

// Dropped returns how many bytes Recover has removed from the end of the file, because no whole entry begins there: a
// part of an entry, or entries after damage.
func (j *Journal) Dropped() int64 { return j.dropped }

// Size returns the size of the file, in bytes.
func (j *Journal) Size() int64 { return j.size }

// Reset removes all entries. Sequence numbers go on. A file that ever had an entry is
// never empty again.
func (j *Journal) Reset() error {
	j.size = min(j.size, int64(len(magic)))
	return j.f.Truncate(j.size)
}

// Close closes and unlocks the file. Entries stay in it.
func (j *Journal) Close() error { return j.f.Close() }
