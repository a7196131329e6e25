package skillrun

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fakeSessions is a session service that breaks each stream after most bytes; 0: none.
type fakeSessions struct {
	pb.UnimplementedSessionServiceServer
	most       int
	refuse     error                      // of each upload
	headers    []*pb.PutSessionFileHeader // of the uploads
	content    []byte
	asked      []*pb.GetSessionFileRequest
	sha256     string // of the file in answers; empty: the right one
	executable bool
}

func reasonError(code codes.Code, reason string, meta map[string]string) error {
	st, err := status.New(code, reason).WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: meta})
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func (f *fakeSessions) PutSessionFile(s grpc.ClientStreamingServer[pb.PutSessionFileRequest, pb.PutSessionFileResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	f.headers = append(f.headers, first.GetHeader())
	if f.refuse != nil {
		return f.refuse
	}
	offset := int(first.GetHeader().GetOffsetBytes())
	if offset > len(f.content) {
		return reasonError(codes.OutOfRange, "OFFSET_PAST_END", map[string]string{"sizeBytes": strconv.Itoa(len(f.content))})
	}
	f.content = f.content[:offset]
	for received := 0; ; {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&pb.PutSessionFileResponse{Version: &pb.SessionVersion{Number: 7}})
		}
		if err != nil {
			return err
		}
		f.content = append(f.content, m.GetData()...)
		if received += len(m.GetData()); f.most > 0 && received >= f.most {
			return status.Error(codes.Unavailable, "away")
		}
	}
}

func (f *fakeSessions) GetSessionFile(r *pb.GetSessionFileRequest, s grpc.ServerStreamingServer[pb.GetSessionFileResponse]) error {
	f.asked = append(f.asked, r)
	whole := artifactOf("", f.content)
	file := &pb.SessionFile{SizeBytes: whole.SizeBytes, Sha256: whole.Sha256, Executable: f.executable}
	if f.sha256 != "" {
		file.Sha256 = f.sha256
	}
	rest := f.content[r.GetOffsetBytes():]
	if f.most > 0 {
		rest = rest[:min(f.most, len(rest))]
	}
	if err := s.Send(&pb.GetSessionFileResponse{File: file, Version: 3, OffsetBytes: r.GetOffsetBytes(), Data: rest}); err != nil {
		return err
	}
	if int(r.GetOffsetBytes())+len(rest) < len(f.content) {
		return status.Error(codes.Unavailable, "away")
	}
	return nil
}

func TestPutSessionFile(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	for name, test := range map[string]struct {
		content []byte
		most    int
		calls   int
	}{
		"whole": {large, 0, 1},
		"empty": {nil, 0, 1},
		// After each break the client asks how much has come, and goes on there.
		"broken": {large, 250_000, 7},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSessions{most: test.most}
			v, err := (&fake{sessions: f}).dial(t).PutSessionFile(t.Context(), "s", File{Path: "a/b\xff", Content: test.content, Executable: true})
			if err != nil || v.GetNumber() != 7 || !bytes.Equal(f.content, test.content) {
				t.Fatalf("got %v, %v, %d bytes; want %d", v, err, len(f.content), len(test.content))
			}
			if h := f.headers[0]; string(h.GetRawPath()) != "a/b\xff" || !h.GetExecutable() || h.GetSha256() != artifactOf("", test.content).GetSha256() {
				t.Errorf("header: got %v", h)
			}
			if len(f.headers) != test.calls {
				t.Errorf("got %d calls, want %d: %v", len(f.headers), test.calls, f.headers)
			}
		})
	}
}

// A refusal that stays is not tried again; one that passes is, up to a bound.
func TestRefusedPutSessionFile(t *testing.T) {
	for reason, calls := range map[string]int{"SESSION_QUOTA": 1, "UPLOADS_FULL": 2} {
		f := &fakeSessions{refuse: reasonError(codes.ResourceExhausted, reason, nil)}
		_, err := (&fake{sessions: f}).impatient(t).PutSessionFile(t.Context(), "s", File{Path: "a", Content: []byte("1")})
		if Reason(err) != reason || len(f.headers) != calls {
			t.Errorf("%s: got %v after %d calls, want %d", reason, err, len(f.headers), calls)
		}
	}
	c := (&fake{sessions: &fakeSessions{}}).dial(t)
	for _, file := range []File{{Path: "a", URI: "skill://a/b"}, {Path: "a", Source: t.TempDir()}} {
		if _, err := c.PutSessionFile(t.Context(), "s", file); err == nil {
			t.Errorf("%v: no error", file)
		}
	}
}

func TestGetSessionFile(t *testing.T) {
	f := &fakeSessions{content: []byte("0123456789"), most: 4}
	c := (&fake{sessions: f}).dial(t)
	var got bytes.Buffer
	file, err := c.GetSessionFile(t.Context(), "s", "a", 0, &got)
	if err != nil || got.String() != "0123456789" || file.GetSizeBytes() != 10 {
		t.Fatalf("got %q, %v, %v", got.String(), file, err)
	}
	if len(f.asked) != 3 || f.asked[0].GetVersion() != 0 || f.asked[2].GetVersion() != 3 || f.asked[2].GetOffsetBytes() != 8 {
		t.Errorf("asked %v", f.asked)
	}
	f.sha256 = strings.Repeat("0", 64)
	if _, err := c.GetSessionFile(t.Context(), "s", "a", 0, io.Discard); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// A file of a session is saved as a whole or not at all, and only beneath the folder.
func TestSaveSessionFile(t *testing.T) {
	f := &fakeSessions{content: []byte("0123456789"), most: 4, executable: true}
	c := (&fake{sessions: f}).dial(t)
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if file, err := c.SaveSessionFile(t.Context(), "s", "a", 0, dir, "sub/a"); err != nil || file.GetSizeBytes() != 10 {
		t.Fatalf("got %v, %v", file, err)
	}
	data, err := dir.ReadFile("sub/a")
	info, statErr := dir.Stat("sub/a")
	if string(data) != "0123456789" || err != nil || statErr != nil || info.Mode()&0o100 == 0 {
		t.Errorf("got %q, %v, %v, %v", data, info, err, statErr)
	}
	if _, err := c.SaveSessionFile(t.Context(), "s", "a", 0, dir, "../a"); err == nil {
		t.Error("a path outside the folder: no error")
	}
	f.sha256 = strings.Repeat("0", 64)
	if _, err := c.SaveSessionFile(t.Context(), "s", "a", 0, dir, "sub/b"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if left, err := fs.Glob(dir.FS(), "sub/*"); len(left) != 1 || err != nil {
		t.Errorf("got the files %v, %v", left, err)
	}
}
