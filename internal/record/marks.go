package record

import (
	"encoding/binary"
	"sort"
)

const (
	// markEvery is how far apart, in bytes, a spool's first marks are.
	markEvery = 256 << 10
	// maxMarks bounds them: a spool that needs more gets them farther apart.
	maxMarks = 1024
)

// mark says where in a spool a frame begins.
type mark struct {
	seq uint64
	pos int64
}

// marks is a sparse index of a spool: where some of its frames begin, in order.
// A reader that resumes begins at the last one before what it wants. It is kept
// in memory while the log is open and in the row afterwards. The zero value is
// that of an empty spool.
type marks struct {
	at    []mark
	every int64
}

// add notes that frame seq begins at pos, if the last mark is far enough away.
func (m *marks) add(seq uint64, pos int64) {
	if m.every == 0 {
		m.every = markEvery
	}
	if n := len(m.at); n > 0 && pos-m.at[n-1].pos < m.every {
		return
	}
	if len(m.at) == maxMarks {
		for i := range maxMarks / 2 {
			m.at[i] = m.at[2*i]
		}
		m.at = m.at[:maxMarks/2]
		m.every *= 2
	}
	m.at = append(m.at, mark{seq, pos})
}

// find returns the last mark that is not after seq, or the spool's beginning.
func (m *marks) find(seq uint64) mark {
	i := sort.Search(len(m.at), func(i int) bool { return m.at[i].seq > seq })
	if i == 0 {
		return mark{seq: 1, pos: int64(len(spoolMagic))}
	}
	return m.at[i-1]
}

// encode returns m for the row: the differences from mark to mark.
func (m *marks) encode() []byte {
	var b []byte
	var last mark
	for _, k := range m.at {
		b = binary.AppendUvarint(b, k.seq-last.seq)
		b = binary.AppendUvarint(b, uint64(k.pos-last.pos))
		last = k
	}
	return b
}

// decodeMarks is the reverse of encode. Of bytes that are none it takes what it
// can: without marks a reader begins at the beginning.
func decodeMarks(b []byte) marks {
	var m marks
	var last mark
	for len(b) > 0 && len(m.at) < maxMarks {
		seq, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		pos, k := binary.Uvarint(b[n:])
		if k <= 0 {
			break
		}
		last = mark{last.seq + seq, last.pos + int64(pos)}
		m.at = append(m.at, last)
		b = b[n+k:]
	}
	return m
}
