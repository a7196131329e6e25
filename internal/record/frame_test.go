package record

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"testing"
	"time"
)

// frame is e as bytes.
func frame(e Event) []byte {
	data := e.Data
	if e.Kind == KindEnd {
		data = joinEnd(e.End, e.Data)
	}
	var head [frameSize]byte
	putFrame(&head, e, data, crc32.Checksum(data, castagnoli))
	return append(head[:], data...)
}

func TestFrame(t *testing.T) {
	for _, want := range []Event{
		{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header")},
		{Seq: math.MaxUint64, Time: time.Unix(0, math.MinInt64).UTC(), Kind: KindOutput, Stream: 255, Offset: math.MaxUint64, Data: []byte{}},
		{Seq: 7, Time: start, Kind: KindOutput, Stream: 1, Offset: 3, Data: bytes.Repeat([]byte{0}, 70_000)},
		{Seq: 9, Time: start, Kind: KindEnd, End: "EXITED", Data: []byte("{}")},
		{Seq: 9, Time: start, Kind: KindEnd, End: string(bytes.Repeat([]byte("e"), maxEnd)), Data: []byte{}},
	} {
		b := frame(want)
		got, size, err := decodeFrame(append(b, "what follows"...))
		if err != nil || size != len(b) || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %d, %v\nwant %+v", got, size, err, want)
		}
		// Of less it asks for more, and for no more than there is.
		for n := range min(len(b), 100) {
			_, need, err := decodeFrame(b[:n])
			if err != errShort || need <= n || need > len(b) {
				t.Fatalf("of %d bytes: got %d, %v", n, need, err)
			}
		}
	}
}

// Any flipped bit is noticed.
func TestFrameChecksum(t *testing.T) {
	good := frame(Event{Seq: 3, Time: start, Kind: KindOutput, Stream: 1, Offset: 5, Data: []byte("data")})
	for bit := range len(good) * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if e, _, err := decodeFrame(b); err == nil {
			t.Errorf("bit %d: got %+v", bit, e)
		}
	}
}

func TestFrameRefuses(t *testing.T) {
	long := frame(Event{Seq: 1, Time: start, Kind: KindOutput, Data: make([]byte, MaxEventBytes+1)})
	noEnd := frame(Event{Seq: 1, Time: start, Kind: KindOutput, Data: []byte{5, 'x'}})
	reseal(noEnd, KindEnd)
	empty := frame(Event{Seq: 1, Time: start, Kind: KindOutput})
	reseal(empty, KindEnd)
	unknown := frame(Event{Seq: 1, Time: start, Kind: KindDenied + 1})
	for name, b := range map[string][]byte{
		"zeroes": make([]byte, 1000), "long": long, "end's word is cut": noEnd, "end without a word": empty, "unknown kind": unknown,
	} {
		e, _, err := decodeFrame(b)
		if _, ok := errors.AsType[badFrame](err); !ok {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
	}
}

// reseal changes the kind of a frame and corrects its checksum.
func reseal(b []byte, kind Kind) {
	e, _, err := decodeFrame(b)
	if err != nil {
		panic(err)
	}
	e.Kind = kind
	var head [frameSize]byte
	putFrame(&head, e, e.Data, crc32.Checksum(e.Data, castagnoli))
	copy(b, head[:])
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, frameSize))
	f.Add(frame(Event{Seq: 1, Time: start, Kind: KindHeader, Data: []byte("header")}))
	f.Add(frame(Event{Seq: 2, Time: start, Kind: KindEnd, End: "EXITED", Data: []byte("{}")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// What isn't sealed never gets past the checksum: seal it.
		for _, b := range [][]byte{b, sealed(b)} {
			e, size, err := decodeFrame(b)
			switch {
			case err == errShort:
				if size <= len(b) || size > frameSize+MaxEventBytes {
					t.Errorf("asks for %d of %d bytes", size, len(b))
				}
			case err != nil:
			case size > len(b) || size < frameSize || !bytes.Equal(frame(e), b[:size]):
				t.Errorf("%x became %+v", b, e)
			}
		}
	})
}

// sealed gives bytes the length and the checksum of a frame.
func sealed(b []byte) []byte {
	if len(b) < frameSize {
		return b
	}
	b = bytes.Clone(b)
	data := b[frameSize:]
	b[4], b[5], b[6], b[7] = byte(len(data)), byte(len(data)>>8), byte(len(data)>>16), byte(len(data)>>24)
	sum := crc32.Update(crc32.Checksum(data, castagnoli), castagnoli, b[4:frameSize])
	b[0], b[1], b[2], b[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	return b
}

func TestIndex(t *testing.T) {
	var m index
	if got, want := m.find(5), (indexEntry{1, int64(len(spoolMagic))}); got != want {
		t.Errorf("empty: got %v, want %v", got, want)
	}
	// Like a spool of 4 GiB in frames of 60,000 bytes.
	const step = 60_000
	at := func(seq uint64) int64 { return int64(len(spoolMagic)) + int64(seq-1)*step }
	const frames = 4 << 30 / step
	for seq := uint64(1); seq <= frames; seq++ {
		m.add(seq, at(seq))
		if len(m.entries) > maxIndex {
			t.Fatalf("%d index", len(m.entries))
		}
	}
	decoded := decodeIndex(m.encode())
	if !reflect.DeepEqual(decoded.entries, m.entries) {
		t.Error("the row's index are others")
	}
	for _, seq := range []uint64{0, 1, 2, 3, 100, 5000, frames / 2, frames - 1, frames, frames + 1000} {
		got := decoded.find(seq)
		if got.seq > max(seq, 1) || got.pos != at(got.seq) {
			t.Errorf("%d: got %v", seq, got)
		}
		// Never far away: the distance doubles with the size, at most.
		if away := at(min(seq, frames)) - got.pos; seq > 0 && away > 4*(4<<30)/maxIndex {
			t.Errorf("%d: %d bytes away", seq, away)
		}
	}
}

func FuzzDecodeIndex(f *testing.F) {
	var m index
	m.add(1, 8)
	m.add(9, 1<<20)
	f.Add(m.encode())
	f.Add(bytes.Repeat([]byte{0xff}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := decodeIndex(b)
		m.find(math.MaxUint64)
		if len(m.entries) > maxIndex {
			t.Errorf("%d index", len(m.entries))
		}
	})
}
