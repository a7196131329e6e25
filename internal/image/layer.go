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

// Bounds of a layer's stream beside its files.
const (
	// headerBytes is what an archive may have beside contents for each file that the
	// image may have: its header, padding and long names.
	headerBytes = 8 << 10
	// zstdWindow bounds the decoder's memory; encoders take 8 MiB and, if told to
	// look far, 128.
	zstdWindow = 128 << 20
	// drainBytes is how much of a bad layer is read to see whether its digest is bad.
	drainBytes = 64 << 20
)

// layer unpacks one layer. All of it is read, so that its digest is checked.
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
		// That its bytes are not those of its digest says more than what they mean.
		if _, rerr := io.Copy(io.Discard, io.LimitReader(watched, drainBytes)); rerr != nil {
			return rerr
		}
		return err
	}
	_, err = io.Copy(io.Discard, watched)
	return err
}

// decompress reads what is compressed with gzip, zstd or nothing, by its first
// bytes: registries and builders say it wrong.
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

// A watch calls stalled when nothing was read for a while.
type watch struct {
	r     io.Reader
	timer *time.Timer
	every time.Duration
}

func newWatch(r io.Reader, every time.Duration, stalled func()) *watch {
	return &watch{r: r, every: every, timer: time.AfterFunc(every, stalled)}
}

func (w *watch) Read(p []byte) (int, error) {
	w.timer.Reset(w.every) // what is done with the bytes may take its time
	n, err := w.r.Read(p)
	w.timer.Reset(w.every)
	return n, err
}

func (w *watch) stop() { w.timer.Stop() }

// layer unpacks an archive over the layers before it.
func (u *unpacker) layer(ctx context.Context, r io.Reader) error {
	u.added = map[pathSum]bool{}
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
	// Archives end in zeros, as many as somebody likes.
	_, err := io.Copy(io.Discard, r)
	return err
}

// A bounded fails when more is read than is left.
type bounded struct {
	r    io.Reader
	left *int64
}

var errTooLarge = errors.New("more bytes than an image may have; see pull.bytes in the configuration")

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return n, errTooLarge
	}
	return n, err
}
