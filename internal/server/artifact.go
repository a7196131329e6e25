package server

import (
	"context"
	"io"
	"os"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// ListArtifacts returns a page of an ended execution's artifacts, sorted by path; before the end
// the list is empty. A page that is too large for one answer is shorter than asked.
func (c executionCalls) ListArtifacts(ctx context.Context, m *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return nil, err
	}
	size := pageSize(m.GetPageSize(), defaultPage)
	return fittingPage(size, func(size int) (*pb.ListArtifactsResponse, error) {
		list, next, err := c.x.Artifacts(ctx, who, m.GetExecutionId(), size, m.GetPageToken())
		if err != nil {
			return nil, err
		}
		page := &pb.ListArtifactsResponse{NextPageToken: next}
		for _, a := range list {
			page.Artifacts = append(page.Artifacts, fromArtifact(m.GetExecutionId(), a))
		}
		return page, nil
	})
}

// GetArtifact sends one artifact in chunks. raw_path is for a name that is not UTF-8, which a
// string field can't hold. If both are set, raw_path counts. A caller whose stream broke
// continues at offset_bytes; an offset past the end is OUT_OF_RANGE. If retention removes the
// execution during the call, the open file stays readable.
func (c executionCalls) GetArtifact(m *pb.GetArtifactRequest, stream grpc.ServerStreamingServer[pb.GetArtifactResponse]) error {
	path := m.GetPath()
	if len(m.GetRawPath()) > 0 {
		path = string(m.GetRawPath())
	}
	if path == "" {
		return invalid("path", "missing")
	}
	ctx := stream.Context()
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return err
	}
	file, a, err := c.x.OpenArtifact(ctx, who, m.GetExecutionId(), path)
	if err != nil {
		return err
	}
	defer file.Close()
	artifact := fromArtifact(m.GetExecutionId(), a)
	return sendChunks(file, a.SizeBytes, m.GetOffsetBytes(), func(offset uint64, data []byte) error {
		r := &pb.GetArtifactResponse{Artifact: artifact, OffsetBytes: offset, Data: data}
		artifact = nil // only in the first message
		return stream.Send(r)
	})
}

// sendChunks sends a file of a known size from an offset: at least one message,
// without data if the offset is the end. It does not close the file.
func sendChunks(file *os.File, size int64, offset uint64, send func(offset uint64, data []byte) error) error {
	if offset > uint64(size) {
		return &offsetError{size: size, offset: offset}
	}
	// The size comes from the record or the snapshot. If the file is shorter, ReadFull fails
	// below, and the caller gets an internal error after the chunks before it.
	if _, err := file.Seek(int64(offset), io.SeekStart); err != nil {
		return err
	}
	// The first message goes out even without data: it has the description of the file.
	for first := true; ; first = false {
		// A new one each time: gRPC may still hold the last.
		buf := make([]byte, min(chunkBytes, uint64(size)-offset))
		n, err := io.ReadFull(file, buf)
		if err != nil {
			return err
		}
		if n > 0 || first {
			if err := send(offset, buf); err != nil {
				return err
			}
		}
		if offset += uint64(n); offset == uint64(size) {
			return nil
		}
	}
}
