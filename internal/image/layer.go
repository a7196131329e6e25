package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// Limits on a layer's stream, apart from the contents of its files.
const (
	// headerBytes is how many bytes of header, padding and long names an archive may have
	// for each file that the image may have.
	// A header has 512 bytes, and PAX or GNU entries for long names come before it. The
	// limit ends an archive of endless headers, which would keep the daemon busy without a
	// file.
	headerBytes = 8 << 10
	// zstdWindow limits the decoder's memory. Encoders use a window of 8 MiB, and of 128
	// MiB with long-distance matching.
	zstdWindow = 128 << 20
	// drainBytes is how much of a bad layer is read to find out whether its digest is
	// wrong.
	drainBytes = 64 << 20
)

// layer unpacks one layer. It reads the layer to the end, so that the digest is checked.
// cancel ends the pull's context when the registry stalls; because() then turns the error
// into that reason. Compressed's reader verifies size and digest at the end of the stream,
// so unpacked files are only trustworthy after a nil error. Until then they lie in a
// directory that no execution sees.
func (s *Store) layer(ctx context.Context, cancel context.CancelCauseFunc, u *unpacker, l v1.Layer) error {
	compressed, err := l.Compressed()
	if err != nil {
		return err
	}
	defer compressed.Close()
	watched := newWatch(compressed, s.stall, func() {
		cancel(fmt.Errorf("the registry sent nothing for %s", s.stall))
	})
	defer watched.stop()
	plain, err := decompress(watched)
	if err != nil {
		return err
	}
	defer plain.Close()
	if err := u.layer(ctx, plain); err != nil {
		// A wrong digest explains the failure better than the unpacker's error.
		// The verifier reports a wrong digest only at the end of the stream.
		if _, rerr := io.Copy(io.Discard, io.LimitReader(watched, drainBytes)); rerr != nil {
			return rerr
		}
		return err
	}
	_, err = io.Copy(io.Discard, watched)
	return err
}

// decompress detects gzip, zstd or an uncompressed archive by the first bytes, because the
// media types of registries and builders are not reliable.
// RFC 1952 (gzip) and RFC 8878 (zstd) have the magic numbers. gzip.Reader reads
// concatenated members as one stream, as some builders write them.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// A watch calls stalled if nothing was read for some time.
// Close of the reader would not end a blocked Read, so stalled cancels the request.
type watch struct {
	r     io.Reader
	timer *time.Timer
	every time.Duration
}

func newWatch(r io.Reader, every time.Duration, stalled func()) *watch {
	return &watch{r: r, every: every, timer: time.AfterFunc(every, stalled)}
}

func (w *watch) Read(p []byte) (int, error) {
	w.timer.Reset(w.every) // only the registry is timed, not the processing of the bytes
	n, err := w.r.Read(p)
	w.timer.Reset(w.every)
	return n, err
}

func (w *watch) stop() { w.timer.Stop() }

// layer unpacks an archive on top of the layers before it.
// added and cleared start empty: a whiteout deletes entries of lower layers only (image-spec,
// layer.md). The caller discards the whole tree after an error.
func (u *unpacker) layer(ctx context.Context, r io.Reader) error {
	u.added, u.cleared = map[pathSum]bool{}, map[pathSum]bool{}
	r = &bounded{r: r, left: &u.raw}
	archive := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		// It has defaults for later entries and is no file (pax(1)); git archive writes one.
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := u.count(); err != nil {
			return err
		}
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
	// An archive may end in any number of zeros.
	_, err := io.Copy(io.Discard, r)
	return err
}

// A bounded reader fails when more than left bytes are read.
// left belongs to the unpacker, so that all layers of an image share one limit. It stops a
// decompression bomb, because it counts decompressed bytes.
type bounded struct {
	r    io.Reader
	left *int64
}

var errTooLarge = errors.New("more bytes than an image may have; see pull.bytes in the configuration")

// Read returns the bytes that are too many, too, with the error. The caller then gives up.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return n, errTooLarge
	}
	return n, err
}
