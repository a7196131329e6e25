package record

import (
	"encoding/binary"
	"sort"
)

const (
	// indexEvery is the distance, in bytes, between the first entries of an index.
	indexEvery = 256 << 10
	// maxIndex bounds the entries. A spool that needs more gets them farther apart.
	maxIndex = 1024
)

// An indexEntry says where in a spool a frame begins.
type indexEntry struct {
	seq uint64 // of the frame
	pos int64  // bytes from the start of the spool
}

// An index is sparse: it lists where some frames of a spool begin, in order. A
// reader that resumes starts at the last entry before the event it wants. The index
// is in memory while the log is open, and in the row afterwards. The zero value
// belongs to an empty spool.
// With entries 256 KiB apart, 1024 of them cover 256 MiB; each time the list is full every
// second entry goes and the distance doubles. So the index of any spool has at most 1024
// entries.
type index struct {
	entries []indexEntry
	every   int64 // least distance of two entries, in bytes; 0: indexEvery
}

// add notes that frame seq begins at pos, if the last entry is far enough away.
func (x *index) add(seq uint64, pos int64) {
	if x.every == 0 {
		x.every = indexEvery
	}
	if n := len(x.entries); n > 0 && pos-x.entries[n-1].pos < x.every {
		return
	}
	if len(x.entries) == maxIndex {
		for i := range maxIndex / 2 {
			x.entries[i] = x.entries[2*i]
		}
		x.entries = x.entries[:maxIndex/2]
		x.every *= 2
	}
	x.entries = append(x.entries, indexEntry{seq, pos})
}

// find returns the last entry that is not after seq, or the spool's beginning.
func (x *index) find(seq uint64) indexEntry {
	i := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].seq > seq })
	if i == 0 {
		return indexEntry{seq: 1, pos: int64(len(spoolMagic))}
	}
	return x.entries[i-1]
}

// encode returns the index for the row: the differences from entry to entry.
func (x *index) encode() []byte {
	b := []byte{}
	var last indexEntry
	for _, e := range x.entries {
		b = binary.AppendUvarint(b, e.seq-last.seq)
		b = binary.AppendUvarint(b, uint64(e.pos-last.pos))
		last = e
	}
	return b
}

// decodeIndex reverses encode. Of damaged bytes it takes the entries before the
// damage: without entries a reader starts at the beginning.
func decodeIndex(b []byte) index {
	var x index
	var last indexEntry
	for len(b) > 0 && len(x.entries) < maxIndex {
		seq, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		pos, k := binary.Uvarint(b[n:])
		if k <= 0 {
			break
		}
		last = indexEntry{last.seq + seq, last.pos + int64(pos)}
		x.entries = append(x.entries, last)
		b = b[n+k:]
	}
	return x
}
