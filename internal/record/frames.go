package record

import (
	"fmt"
	"io"
)

// frames reads one frame after the other from a spool.
// It has one reader and no lock. Events point into buf, which next never changes again.
type frames struct {
	f   io.ReaderAt
	pos int64  // of the next frame in the file
	buf []byte // bytes from pos on that were read already
	of  *chunk // holds buf; nil: none does
}

// next returns the frame at r.pos. The file counts as limit bytes long: the error is
// io.EOF if it ends before the frame, and errShort if it ends within the frame.
func (r *frames) next(limit int64) (Event, error) {
	for {
		e, size, err := decodeFrame(r.buf)
		if err == nil {
			r.buf = r.buf[size:]
			r.pos += int64(size)
			r.of.hold()
			e.of = r.of
			return e, nil
		}
		if err != errShort {
			return Event{}, err
		}
		if r.pos == limit {
			return Event{}, io.EOF
		}
		if r.pos+int64(size) > limit {
			return Event{}, errShort
		}
		if err := r.fill(size, limit); err != nil {
			return Event{}, err
		}
	}
}

// fill reads on until buf has at least need bytes. It takes another buffer each time,
// because events share the old one.
func (r *frames) fill(need int, limit int64) error {
	buf, of := newBytes(int(min(int64(max(need, chunkBytes)), limit-r.pos)))
	have := copy(buf, r.buf)
	n, err := r.f.ReadAt(buf[have:], r.pos+int64(have))
	if err == io.EOF && have+n < need {
		return badFrame(fmt.Sprintf("file ends %d bytes early", len(buf)-have-n))
	}
	if err != nil && err != io.EOF {
		return err
	}
	r.drop()
	r.buf, r.of = buf[:have+n], of
	return nil
}

// drop forgets the bytes that no event has.
func (r *frames) drop() {
	r.of.release()
	r.buf, r.of = nil, nil
}
