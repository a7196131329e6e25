package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// endlessSessions is the session service of a daemon whose lists have no end. Each page has the same number of entries.
type endlessSessions struct {
	pb.UnimplementedSessionServiceServer
	entries int
}

func (s endlessSessions) ListSessions(context.Context, *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	return &pb.ListSessionsResponse{NextPageToken: "more", Sessions: make([]*pb.Session, s.entries)}, nil
}

func (s endlessSessions) ListSessionFiles(context.Context, *pb.ListSessionFilesRequest) (*pb.ListSessionFilesResponse, error) {
	return &pb.ListSessionFilesResponse{NextPageToken: "more", Files: make([]*pb.SessionFile, s.entries)}, nil
}

// GetSessionFile sends without end.
func (s endlessSessions) GetSessionFile(_ *pb.GetSessionFileRequest, stream grpc.ServerStreamingServer[pb.GetSessionFileResponse]) error {
	m := &pb.GetSessionFileResponse{File: &pb.SessionFile{SizeBytes: 1 << 40, Sha256: strings.Repeat("0", 64)}, Version: 1}
	for {
		m.Data = make([]byte, 1000)
		if err := stream.Send(m); err != nil {
			return err
		}
		m = &pb.GetSessionFileResponse{OffsetBytes: m.OffsetBytes + 1000}
	}
}

// A list ends with an error if the daemon sends empty pages without end.
func TestEmptyPagesWithoutEnd(t *testing.T) {
	for name, list := range map[string]struct {
		answer any
		args   []string
	}{
		"ListTenants": {func(*pb.ListTenantsRequest) (*pb.ListTenantsResponse, error) {
			return &pb.ListTenantsResponse{NextPageToken: "more"}, nil
		}, []string{"tenants"}},
		"ListExecutions": {func(*pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
			return &pb.ListExecutionsResponse{NextPageToken: "more"}, nil
		}, []string{"ps"}},
	} {
		for _, args := range [][]string{list.args, append([]string{"--json"}, list.args...)} {
			f := &fake{answers: map[string]any{name: list.answer}}
			if got := f.client(t, nil, args...); got.code != codeFailed || !strings.Contains(got.stderr, errEmptyPage.Error()) {
				t.Errorf("%v: got %d, %.300s", args, got.code, got.stderr)
			}
		}
	}
}

// Neither a list nor a file of a daemon that does not end fills memory or disk.
func TestSessionsWithoutEnd(t *testing.T) {
	for entries, want := range map[int]string{
		0:             errEmptyPage.Error(),
		maxRows/2 + 1: fmt.Sprintf("more than %d entries", maxRows),
	} {
		f := &fake{sessions: endlessSessions{entries: entries}}
		for _, args := range [][]string{{"session", "ls"}, {"session", "show", "s"}} {
			if got := f.client(t, nil, args...); got.code == 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("%v with %d entries: got %d, %.300s", args, entries, got.code, got.stderr)
			}
		}
	}
	dir := t.TempDir()
	f := &fake{sessions: endlessSessions{}}
	for _, to := range []string{filepath.Join(dir, "f"), "-"} {
		if got := f.client(t, nil, "session", "cp", "--max-size", "64k", "s:f", to); got.code == 0 || !strings.Contains(got.stderr, "larger than 64 KiB; set --max-size") || len(got.stdout) > 64<<10 {
			t.Errorf("%s: got %d, %d bytes, %.300s", to, got.code, len(got.stdout), got.stderr)
		}
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
}
