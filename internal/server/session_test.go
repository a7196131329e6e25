package server

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// commit makes a version of a session without an execution.
func (d *daemon) commit(id string, files map[string]string) {
	d.t.Helper()
	w, err := d.x.Sessions.Acquire(d.t.Context(), "default", id, session.Use{By: "the test"})
	if err != nil {
		d.t.Fatal(err)
	}
	defer w.Release()
	if err := w.Open(0); err != nil {
		d.t.Fatal(err)
	}
	var c session.Change
	dir := d.t.TempDir()
	for path, content := range files {
		source := filepath.Join(dir, fmt.Sprint(len(c.Files)))
		if err := os.WriteFile(source, []byte(content), 0o600); err != nil {
			d.t.Fatal(err)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
		c.Files = append(c.Files, session.NewFile{File: session.File{Path: path, SizeBytes: int64(len(content)), SHA256: sum}, Source: source})
	}
	if _, err := w.Commit(c); err != nil {
		d.t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files of sessions to another user")
	}
}

func TestSessions(t *testing.T) {
	needRoot(t)
	d := startIdle(t, nil)
	c, ctx := pb.NewSessionServiceClient(d.conn), t.Context()
	labels := map[string]string{"k": "v"}
	made, err := c.CreateSession(ctx, &pb.CreateSessionRequest{
		Labels: labels, IdleTtl: durationpb.New(time.Hour), Ttl: durationpb.New(2 * time.Hour), MaxBytes: 1 << 20, MaxFiles: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Session.SessionId
	got, err := c.GetSession(ctx, &pb.GetSessionRequest{SessionId: id})
	if err != nil || !proto.Equal(got.Session, made.Session) || got.Session.MaxFiles != 100 || got.Session.Newest != nil ||
		got.Session.ExpireTime.AsTime().Sub(got.Session.LastUseTime.AsTime()) != time.Hour {
		t.Errorf("get: %v, %v", got, err)
	}
	for range 2 {
		if _, err := c.CreateSession(ctx, &pb.CreateSessionRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	page := &pb.ListSessionsRequest{PageSize: 2}
	for {
		list, err := c.ListSessions(ctx, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Sessions {
			ids = append(ids, s.SessionId)
		}
		if page.PageToken = list.NextPageToken; page.PageToken == "" {
			break
		}
	}
	if len(ids) != 3 || ids[0] != id {
		t.Errorf("list: %v", ids)
	}
	for _, token := range []string{"0", "../", id, "YQ"} {
		_, err := c.ListSessions(ctx, &pb.ListSessionsRequest{PageToken: token})
		wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
	}
	list, err := c.ListSessions(ctx, &pb.ListSessionsRequest{Labels: labels})
	if err != nil || len(list.Sessions) != 1 {
		t.Errorf("with a label: %v, %v", list, err)
	}
	up, err := c.UpdateSession(ctx, &pb.UpdateSessionRequest{SessionId: id, Ttl: durationpb.New(time.Hour), Labels: &pb.SessionLabels{}})
	if err != nil || len(up.Session.Labels) != 0 || up.Session.Ttl.AsDuration() != time.Hour || up.Session.IdleTtl.AsDuration() != time.Hour {
		t.Errorf("update: %v, %v", up, err)
	}
	if _, err := c.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: id}); err != nil {
		t.Error(err)
	}
	_, err = c.GetSession(ctx, &pb.GetSessionRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
}

// refusedWith checks code and reason of an error.
func (d *daemon) refusedWith(err error, code codes.Code, reason string) {
	d.t.Helper()
	if got, _ := refused(d.t, err); got.code != code || got.reason != reason {
		d.t.Errorf("got %v, want %s %s", err, code, reason)
	}
}

func TestSessionFiles(t *testing.T) {
	needRoot(t)
	d := startIdle(t, nil)
	c, ctx := pb.NewSessionServiceClient(d.conn), t.Context()
	made, err := c.CreateSession(ctx, &pb.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Session.SessionId
	empty, err := c.ListSessionFiles(ctx, &pb.ListSessionFilesRequest{SessionId: id})
	if err != nil || len(empty.Files) != 0 || empty.Version != 0 {
		t.Errorf("empty: %v, %v", empty, err)
	}
	large := strings.Repeat("0123456789", 300_000)
	d.commit(id, map[string]string{"a": "1", "b/c": "22", "b\xff": "333", "large": large})

	// All pages are of the version of the first one.
	var paths []string
	page := &pb.ListSessionFilesRequest{SessionId: id, PageSize: 2}
	for {
		list, err := c.ListSessionFiles(ctx, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list.Files {
			paths = append(paths, f.Path+string(f.RawPath))
		}
		if list.Version != 1 {
			t.Errorf("version %d", list.Version)
		}
		if page.PageToken = list.NextPageToken; page.PageToken == "" {
			break
		}
		d.commit(id, map[string]string{"aa": fmt.Sprint(len(paths))})
	}
	if want := []string{"a", "b/c", "b\ufffdb\xff", "large"}; !slices.Equal(paths, want) {
		t.Errorf("files: got %q, want %q", paths, want)
	}
	other, err := c.CreateSession(ctx, &pb.CreateSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	d.commit(other.Session.SessionId, map[string]string{"a": "1", "b": "2"})
	ofOther, err := c.ListSessionFiles(ctx, &pb.ListSessionFilesRequest{SessionId: other.Session.SessionId, PageSize: 1})
	if err != nil || ofOther.NextPageToken == "" {
		t.Fatalf("the other session: %v, %v", ofOther, err)
	}
	for _, token := range []string{"x", ofOther.NextPageToken} {
		_, err = c.ListSessionFiles(ctx, &pb.ListSessionFilesRequest{SessionId: id, PageToken: token})
		d.refusedWith(err, codes.InvalidArgument, "INVALID_REQUEST")
	}

	versions, err := c.ListSessionVersions(ctx, &pb.ListSessionVersionsRequest{SessionId: id})
	if err != nil || len(versions.Versions) != 2 || versions.Versions[0].Number != 2 || versions.Versions[1].FileCount != 4 || versions.Versions[1].CommittedBy != "the test" {
		t.Errorf("versions: %v, %v", versions, err)
	}

	for _, offset := range []int{0, 7, 2 << 20, len(large)} {
		data, first, err := readSessionFile(t, c, &pb.GetSessionFileRequest{SessionId: id, Path: "large", OffsetBytes: uint64(offset)})
		if err != nil || string(data) != large[offset:] || first.File.Sha256 != fmt.Sprintf("%x", sha256.Sum256([]byte(large))) || first.Version != 2 {
			t.Errorf("offset %d: %d bytes, %v, %v", offset, len(data), first, err)
		}
	}
	data, _, err := readSessionFile(t, c, &pb.GetSessionFileRequest{SessionId: id, RawPath: []byte("b\xff"), Version: 1})
	if string(data) != "333" || err != nil {
		t.Errorf("raw path: %q, %v", data, err)
	}
	for _, test := range []struct {
		m      *pb.GetSessionFileRequest
		code   codes.Code
		reason string
	}{
		{&pb.GetSessionFileRequest{SessionId: id}, codes.InvalidArgument, "INVALID_REQUEST"},
		{&pb.GetSessionFileRequest{SessionId: id, Path: "b"}, codes.NotFound, "SESSION_NOT_FOUND"},
		{&pb.GetSessionFileRequest{SessionId: id, Path: "aa", Version: 1}, codes.NotFound, "SESSION_NOT_FOUND"},
		{&pb.GetSessionFileRequest{SessionId: id, Path: "a", Version: 9}, codes.NotFound, "SESSION_NOT_FOUND"},
		{&pb.GetSessionFileRequest{SessionId: id, Path: "../session.json"}, codes.NotFound, "SESSION_NOT_FOUND"},
		{&pb.GetSessionFileRequest{SessionId: id, Path: "a", OffsetBytes: 2}, codes.OutOfRange, "OFFSET_PAST_END"},
		{&pb.GetSessionFileRequest{SessionId: "x", Path: "a"}, codes.NotFound, "SESSION_NOT_FOUND"},
	} {
		_, _, err := readSessionFile(t, c, test.m)
		d.refusedWith(err, test.code, test.reason)
	}
}

func readSessionFile(t testing.TB, c pb.SessionServiceClient, m *pb.GetSessionFileRequest) ([]byte, *pb.GetSessionFileResponse, error) {
	t.Helper()
	stream, err := c.GetSessionFile(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	var first *pb.GetSessionFileResponse
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data.Bytes(), first, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if first == nil {
			first = r
		} else if r.File != nil || r.OffsetBytes != m.OffsetBytes+uint64(data.Len()) {
			t.Errorf("a later message: file %v, offset %d", r.File, r.OffsetBytes)
		}
		data.Write(r.Data)
	}
}

// A session of another tenant does not exist, for any call.
func TestSessionOfOtherTenant(t *testing.T) {
	needRoot(t)
	d := startIdle(t, nil)
	c, ctx := pb.NewSessionServiceClient(d.conn), t.Context()
	other, err := d.x.Sessions.Create("other", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	id := other.ID
	_, err = c.GetSession(ctx, &pb.GetSessionRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	_, err = c.UpdateSession(ctx, &pb.UpdateSessionRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	_, err = c.DeleteSession(ctx, &pb.DeleteSessionRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	_, err = c.ListSessionVersions(ctx, &pb.ListSessionVersionsRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	_, err = c.ListSessionFiles(ctx, &pb.ListSessionFilesRequest{SessionId: id})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	_, _, err = readSessionFile(t, c, &pb.GetSessionFileRequest{SessionId: id, Path: "a"})
	d.refusedWith(err, codes.NotFound, "SESSION_NOT_FOUND")
	list, err := c.ListSessions(ctx, &pb.ListSessionsRequest{})
	if err != nil || len(list.Sessions) != 0 {
		t.Errorf("list: %v, %v", list, err)
	}
}

// Each field of a session's outcome has its place in the contract.
func TestSessionMessages(t *testing.T) {
	base := executor.SessionBase{ID: "s", Version: 2}
	got := fromSessionOutcome(&executor.SessionOutcome{
		SessionBase: base, Committed: 3, Added: 4, Changed: 5, Deleted: 6, WrittenBytes: 7, Files: 8, Bytes: 9,
		Uncommitted: executor.OverQuota, Reason: "r",
	})
	want := &pb.SessionResult{
		SessionId: "s", BaseVersion: 2, CommittedVersion: 3, FilesAdded: 4, FilesChanged: 5, FilesDeleted: 6, WrittenBytes: 7,
		FileCount: 8, SizeBytes: 9, Uncommitted: pb.SessionUncommitted_SESSION_UNCOMMITTED_OVER_QUOTA, Reason: "r",
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := fromSessionBase(&base); got.SessionId != "s" || got.Version != 2 || fromSessionBase(nil) != nil || fromSessionOutcome(nil) != nil {
		t.Errorf("got %v", got)
	}
	for _, u := range []executor.Uncommitted{executor.NotSucceeded, executor.NotCollected, executor.OverQuota, executor.CommitError, executor.CommitUnknown} {
		if uncommittedNumbers[u] == 0 {
			t.Errorf("%s has no number", u)
		}
	}
	use := newSessionUse(&pb.SessionUse{SessionId: "s", Version: 2, Wait: true, CommitFailed: true})
	if *use != (executor.SessionUse{ID: "s", Version: 2, Wait: true, CommitFailed: true}) || newSessionUse(nil) != nil {
		t.Errorf("got %+v", use)
	}
}
