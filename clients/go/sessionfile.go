package skillrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// GetSessionFile writes a file of a session to w, and checks its size and SHA-256. version 0 is the newest.
// path may have any bytes. If the stream breaks, GetSessionFile goes on in the same version. The error is
// [ErrCorrupt] if the bytes are wrong. After any error w may have received some or all of the bytes.
func (c *Client) GetSessionFile(ctx context.Context, session, path string, version uint32, w io.Writer) (*pb.SessionFile, error) {
	d := newDownload(fmt.Sprintf("session %s: file %q", session, path), nil, w)
	request := &pb.GetSessionFileRequest{SessionId: session, Version: version}
	request.Path, request.RawPath = splitPath(path)
	var file *pb.SessionFile
	err := d.all(ctx, c.patience, func() error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		request.OffsetBytes = d.at
		s, err := c.sessions.GetSessionFile(ctx, request)
		if err != nil {
			return err
		}
		for first := true; ; first = false {
			piece, err := s.Recv()
			if err == io.EOF {
				return d.ended()
			}
			if err != nil {
				return err
			}
			if first && file == nil {
				file, request.Version = piece.GetFile(), piece.GetVersion()
				d.artifact = &pb.Artifact{SizeBytes: file.GetSizeBytes(), Sha256: file.GetSha256()}
			}
			if err := d.take(piece); err != nil {
				d.failed = true
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// PutSessionFile uploads a file to a session, which makes a version, and returns the version. If the
// newest version has the same file, PutSessionFile returns that version. If the stream breaks, it goes on
// where it broke. f.URI must be empty.
func (c *Client) PutSessionFile(ctx context.Context, session string, f File) (*pb.SessionVersion, error) {
	if f.URI != "" {
		return nil, errors.New("the file of a session cannot have a URI")
	}
	u, err := f.open()
	if err != nil {
		return nil, err
	}
	defer u.close()
	if err := u.hash(); err != nil {
		return nil, err
	}
	header := &pb.PutSessionFileHeader{SessionId: session, SizeBytes: uint64(u.size), Sha256: u.sha256, Executable: f.Executable}
	header.Path, header.RawPath = splitPath(f.Path)
	var t tries // since the last byte that has come
	for reached := uint64(0); ; {
		v, err := c.putOnce(ctx, u, header)
		if err == nil {
			return v, nil
		}
		if at, ok := receivedOf(err); ok && at < header.OffsetBytes {
			if at > reached {
				t = tries{}
			}
			header.OffsetBytes, reached = at, at
			continue
		}
		if !mayResume(err) || !c.patience.wait(ctx, &t, err) {
			return nil, fmt.Errorf("session %s: file %q: %w", session, f.Path, err)
		}
		header.OffsetBytes = header.SizeBytes // asks how much has come
	}
}

// putOnce sends the file from the header's offset on.
func (c *Client) putOnce(ctx context.Context, u *upload, header *pb.PutSessionFileHeader) (*pb.SessionVersion, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.sessions.PutSessionFile(ctx)
	if err != nil {
		return nil, err
	}
	err = s.Send(&pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Header{Header: header}})
	if err == nil {
		err = u.sendFrom(int64(header.OffsetBytes), func(_ int64, data []byte) error {
			return s.Send(&pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Data{Data: data}})
		})
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the daemon has ended the stream, and CloseAndRecv says why
		return nil, err
	}
	r, err := s.CloseAndRecv()
	return r.GetVersion(), err
}

// receivedOf returns how much of a file the daemon has, if err says that.
func receivedOf(err error) (uint64, bool) {
	if Reason(err) != "OFFSET_PAST_END" {
		return 0, false
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			at, err := strconv.ParseUint(info.GetMetadata()["sizeBytes"], 10, 63)
			return at, err == nil
		}
	}
	return 0, false
}

// mayResume reports whether an upload can succeed later. Most refusals of the daemon stay.
func mayResume(err error) bool {
	switch Reason(err) {
	case "", "UPLOADS_FULL", "DRAINING":
		return broken(err)
	}
	return false
}

// splitPath returns a path as the fields path and raw_path.
func splitPath(path string) (text string, raw []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return "", []byte(path)
}
