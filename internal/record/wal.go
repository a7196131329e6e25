package record

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// SQLite takes the frames of a write-ahead log up to the first one with a wrong checksum, and silently forgets the
// rest. After a crash the rest is a transaction that no caller was told of. After damage it may be anything, so Open
// looks for it. See sqlite.org/fileformat2.html, "The Write-Ahead Log".
const (
	walHeader      = 32
	walFrameHeader = 24
	walMagic       = 0x377f0682 // the last bit says whether checksums are of big-endian words
	maxPage        = 64 << 10
)

// forgottenFrames counts the frames of the write-ahead log at path that SQLite would drop although they belong to its
// present round. A missing file has no frames and is no error.
func forgottenFrames(path string) (frames int, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var header [walHeader]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return 0, ignoreEnd(err)
	}
	magic, page := binary.BigEndian.Uint32(header[:]), int64(binary.BigEndian.Uint32(header[8:]))
	order := binary.ByteOrder(binary.LittleEndian)
	if magic&1 != 0 {
		order = binary.BigEndian
	}
	sum := walSum{order: order}
	sum.add(header[:24])
	if magic&^1 != walMagic || page < 512 || page > maxPage || !sum.is(header[24:]) {
		fi, err := f.Stat()
		if err != nil {
			return 0, err
		}
		return int((fi.Size() - walHeader) / (walFrameHeader + 4096)), nil // roughly: the size of a page is in the header
	}
	frame := make([]byte, walFrameHeader+page)
	for whole, first := true, true; ; {
		if _, err := io.ReadFull(f, frame); err != nil {
			return frames, ignoreEnd(err)
		}
		if string(frame[8:16]) != string(header[16:24]) { // of an earlier round, or damaged
			whole, first = false, false
			continue
		}
		sum.add(frame[:8])
		sum.add(frame[walFrameHeader:])
		whole = whole && sum.is(frame[16:24])
		switch {
		case whole:
		case first: // perhaps half of the frame that a crash interrupted
			first = false
		default:
			frames++
		}
	}
}

func ignoreEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// walSum is the checksum of a write-ahead log.
type walSum struct {
	order  binary.ByteOrder // of the words that are summed; the log's magic number says which
	s0, s1 uint32           // the names that fileformat2.html has
}

func (s *walSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		s.s0 += s.order.Uint32(b) + s.s1
		s.s1 += s.order.Uint32(b[4:]) + s.s0
	}
}

func (s *walSum) is(want []byte) bool {
	return s.s0 == binary.BigEndian.Uint32(want) && s.s1 == binary.BigEndian.Uint32(want[4:])
}
