package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// A spool is spoolMagic and then frames without anything between them. A frame
// is, little endian:
//
//	 0  uint32  CRC-32C of the data, continued over bytes 4 to 35
//	 4  uint32  length of the data
//	 8  uint64  sequence
//	16  int64   nanoseconds since 1970, 0 for no time
//	24  uint64  offset in its stream
//	32  uint8   kind
//	33  uint8   stream
//	34  uint16  zero
//	36  data
//
// The checksum takes the data first so that it is computed before the log is
// locked. A run of zeroes, as a file has after a power loss, is no frame.
const (
	spoolMagic = "spool 1\n"
	frameSize  = 36

	// MaxEventBytes bounds the data of one event.
	MaxEventBytes = 16 << 20
	// MaxOutcomeBytes bounds the outcome given to Log.End: every listing has it.
	MaxOutcomeBytes = 1 << 20
)

// Castagnoli's polynomial has an instruction on amd64 and arm64.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errShort says that there is less than a whole frame; it is the normal end of
// a spool, or a torn one.
var errShort = errors.New("frame is cut short")

// badFrame says why bytes are not a frame.
type badFrame string

func (b badFrame) Error() string { return string(b) }

// putFrame fills in the fixed part of e's frame. sum is the checksum of data.
// The bytes from 4 on must be filled in before the checksum, which covers them.
func putFrame(h *[frameSize]byte, e Event, data []byte, sum uint32) {
	binary.LittleEndian.PutUint32(h[4:], uint32(len(data)))
	binary.LittleEndian.PutUint64(h[8:], e.Seq)
	binary.LittleEndian.PutUint64(h[16:], uint64(nanos(e.Time)))
	binary.LittleEndian.PutUint64(h[24:], e.Offset)
	h[32], h[33], h[34], h[35] = byte(e.Kind), e.Stream, 0, 0
	binary.LittleEndian.PutUint32(h[0:], crc32.Update(sum, castagnoli, h[4:]))
}

// decodeFrame reads the frame at the start of b. The event's data is a part of
// b. size is how long the frame is; with errShort it is how much of it must be
// there to go on, more than len(b). Any other error is a badFrame.
// Lengths are checked before anything is sliced: a file on disk may be damaged anywhere.
func decodeFrame(b []byte) (e Event, size int, err error) {
	if len(b) < frameSize {
		return Event{}, frameSize, errShort
	}
	length := binary.LittleEndian.Uint32(b[4:])
	if length > MaxEventBytes {
		return Event{}, 0, badFrame("frame is too long")
	}
	e = Event{
		Seq:    binary.LittleEndian.Uint64(b[8:]),
		Time:   instant(int64(binary.LittleEndian.Uint64(b[16:]))),
		Offset: binary.LittleEndian.Uint64(b[24:]),
		Kind:   Kind(b[32]),
		Stream: b[33],
	}
	if e.Kind < KindHeader || e.Kind > KindDenied || b[34] != 0 || b[35] != 0 {
		return Event{}, 0, badFrame("frame is of no known kind")
	}
	size = frameSize + int(length)
	if len(b) < size {
		return Event{}, size, errShort
	}
	sum := crc32.Checksum(b[frameSize:size], castagnoli)
	if crc32.Update(sum, castagnoli, b[4:frameSize]) != binary.LittleEndian.Uint32(b) {
		return Event{}, 0, badFrame("frame has the wrong checksum")
	}
	e.Data = b[frameSize:size:size]
	if e.Kind == KindEnd {
		if e.End, e.Data, err = splitEnd(e.Data); err != nil {
			return Event{}, 0, err
		}
	}
	return e, size, nil
}

// joinEnd is the data of an end's frame: how it ended, after a byte with its
// length, and the outcome. With it alone the row can be closed.
func joinEnd(end string, outcome []byte) []byte {
	b := make([]byte, 0, 1+len(end)+len(outcome))
	b = append(b, byte(len(end)))
	b = append(b, end...)
	return append(b, outcome...)
}

// maxEnd is the longest word for an end that its frame has room for.
const maxEnd = math.MaxUint8

// splitEnd is the reverse of joinEnd. outcome shares data.
func splitEnd(data []byte) (end string, outcome []byte, err error) {
	if len(data) == 0 || len(data) < 1+int(data[0]) {
		return "", nil, badFrame("end is cut short")
	}
	n := 1 + int(data[0])
	return string(data[1:n]), data[n:], nil
}
