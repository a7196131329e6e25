package skillrun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// ErrCorrupt means that an artifact's bytes do not match its SHA-256 or size.
var ErrCorrupt = errors.New("corrupt")

// Errors of a daemon whose list would have no end, or does not have the outcome's artifacts.
var (
	errEmptyPage      = errors.New("protocol: a page without entries is not the last one")
	errMoreArtifacts  = errors.New("protocol: the daemon lists more artifacts than the outcome has")
	errFewerArtifacts = errors.New("protocol: the daemon lists fewer artifacts than the outcome has")
)

// Artifacts yields the artifacts of an ended execution, sorted by path. It fetches them
// page by page. It yields as many as the outcome has: a caller may save each of them, so a list
// without an end would fill the disk, and from a shorter list files would be missing. After the
// first error the loop ends.
func (c *Client) Artifacts(ctx context.Context, id string) iter.Seq2[*pb.Artifact, error] {
	return func(yield func(*pb.Artifact, error) bool) {
		answer, err := c.executions.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: id})
		if err != nil {
			yield(nil, err)
			return
		}
		left := answer.GetExecution().GetOutcome().GetArtifactCount()
		request := &pb.ListArtifactsRequest{ExecutionId: id, PageSize: 1000}
		for {
			page, err := c.executions.ListArtifacts(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, a := range page.GetArtifacts() {
				if left == 0 {
					yield(nil, errMoreArtifacts)
					return
				}
				left--
				if !yield(a, nil) {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				if left > 0 {
					yield(nil, errFewerArtifacts)
				}
				return
			}
			if len(page.GetArtifacts()) == 0 {
				yield(nil, errEmptyPage)
				return
			}
			request.PageToken = page.GetNextPageToken()
		}
	}
}

// Download writes an artifact, which comes from Artifacts or an outcome, to w, and checks
// its size and SHA-256. If the stream breaks, Download continues where it broke. The error
// is [ErrCorrupt] if the bytes are wrong. After any error w may have received some or all
// of the bytes, so keep them only if the error is nil.
func (c *Client) Download(ctx context.Context, id string, a *pb.Artifact, w io.Writer) error {
	d := newDownload(fmt.Sprintf("artifact %q", a.GetPath()), a, w)
	request := &pb.GetArtifactRequest{ExecutionId: id, Path: a.GetPath(), RawPath: a.GetRawPath()}
	return d.all(ctx, c.patience, func() error {
		request.OffsetBytes = d.at
		return d.receive(ctx, c.executions, request)
	})
}

// all calls receive until all bytes are there, and checks their SHA-256.
func (d *download) all(ctx context.Context, p patience, receive func() error) error {
	// A stream that ends after the last byte has brought all of them: its error changes nothing, and the
	// SHA-256 decides.
	for t := (tries{}); ; {
		before := d.at
		err := receive()
		if err == nil || !d.failed && d.at == d.artifact.GetSizeBytes() && d.at > 0 {
			break
		}
		if d.at > before {
			t = tries{}
		}
		if d.failed || !broken(err) || !p.wait(ctx, &t, err) {
			return fmt.Errorf("%s: %w", d.what, err)
		}
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != d.artifact.GetSha256() {
		return fmt.Errorf("%s: %w: its SHA-256 is %s, not %s", d.what, ErrCorrupt, got, d.artifact.GetSha256())
	}
	return nil
}

// A download is the state of one Download. It goes on from one stream to the next.
type download struct {
	what     string       // for errors
	artifact *pb.Artifact // as the daemon listed it: the size and SHA-256 that the bytes must have
	w        io.Writer
	sum      hash.Hash // of the bytes, over all streams
	at       uint64    // bytes received
	failed   bool      // for a reason that a new stream cannot change
}

func newDownload(what string, a *pb.Artifact, w io.Writer) *download {
	return &download{what: what, artifact: a, w: w, sum: sha256.New()}
}

// receive reads the stream until all bytes are there or the stream breaks. It returns nil at the
// end of a complete stream. It ends the stream in any case.
func (d *download) receive(ctx context.Context, c pb.ExecutionServiceClient, request *pb.GetArtifactRequest) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s, err := c.GetArtifact(ctx, request)
	if err != nil {
		return err
	}
	for {
		piece, err := s.Recv()
		if err == io.EOF {
			return d.ended()
		}
		if err != nil {
			return err
		}
		if err := d.take(piece); err != nil {
			d.failed = true
			return err
		}
	}
}

// ended returns an error if a stream has ended before the file.
func (d *download) ended() error {
	if d.at < d.artifact.GetSizeBytes() {
		return status.Errorf(codes.Unavailable, "the stream ended at %d of %d bytes", d.at, d.artifact.GetSizeBytes())
	}
	return nil
}

// take checks the offset and total size of a piece before it writes the piece.
func (d *download) take(piece interface {
	GetOffsetBytes() uint64
	GetData() []byte
}) error {
	if len(piece.GetData()) == 0 {
		return nil
	}
	if piece.GetOffsetBytes() != d.at {
		return fmt.Errorf("%w: a piece at %d follows byte %d", ErrCorrupt, piece.GetOffsetBytes(), d.at)
	}
	if d.at+uint64(len(piece.GetData())) > d.artifact.GetSizeBytes() {
		return fmt.Errorf("%w: the file is larger than %d bytes", ErrCorrupt, d.artifact.GetSizeBytes())
	}
	if _, err := d.w.Write(piece.GetData()); err != nil {
		return err
	}
	d.sum.Write(piece.GetData())
	d.at += uint64(len(piece.GetData()))
	return nil
}
