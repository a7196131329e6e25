package server

import (
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A putBench is a daemon with a session.
type putBench struct {
	*daemon
	c  pb.SessionServiceClient
	id string
}

func newPutBench(t *testing.T) *putBench {
	t.Helper()
	needRoot(t)
	d := startIdle(t, nil)
	b := &putBench{daemon: d, c: pb.NewSessionServiceClient(d.conn)}
	made, err := b.c.CreateSession(t.Context(), &pb.CreateSessionRequest{MaxBytes: 10 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.id = made.Session.SessionId
	return b
}

func (b *putBench) header(path, content string) *pb.PutSessionFileHeader {
	return &pb.PutSessionFileHeader{SessionId: b.id, Path: path, SizeBytes: uint64(len(content)), Sha256: sum(content)}
}

func putData(data string) *pb.PutSessionFileRequest {
	return &pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Data{Data: []byte(data)}}
}

func putHeader(h *pb.PutSessionFileHeader) *pb.PutSessionFileRequest {
	return &pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Header{Header: h}}
}

// put sends messages and returns the number of the version.
func (b *putBench) put(h *pb.PutSessionFileHeader, more ...*pb.PutSessionFileRequest) (uint32, error) {
	b.t.Helper()
	stream, err := b.c.PutSessionFile(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range append([]*pb.PutSessionFileRequest{putHeader(h)}, more...) {
		if stream.Send(m) != nil {
			break // CloseAndRecv has the reason
		}
	}
	r, err := stream.CloseAndRecv()
	return r.GetVersion().GetNumber(), err
}

func (b *putBench) want(path, content string) {
	b.t.Helper()
	data, _, err := readSessionFile(b.t, b.c, &pb.GetSessionFileRequest{SessionId: b.id, Path: path})
	if string(data) != content || err != nil {
		b.t.Errorf("%s: got %d bytes, %v; want %d", path, len(data), err, len(content))
	}
}

// wantNothing checks that no upload is left.
func (b *putBench) wantNothing() {
	b.t.Helper()
	if n := left(b.t, b.uploads); n != 0 || b.uploads.room() != maxStagedBytes {
		b.t.Errorf("%d uploads are left, %d bytes are free", n, b.uploads.room())
	}
}

func TestPutSessionFile(t *testing.T) {
	b := newPutBench(t)
	large := strings.Repeat("0123456789", 300_000)
	for _, step := range []struct {
		header  *pb.PutSessionFileHeader
		data    []*pb.PutSessionFileRequest
		version uint32
	}{
		{b.header("dir/large", large), []*pb.PutSessionFileRequest{putData(large[:1<<20]), putData(large[1<<20:])}, 1},
		{b.header("empty", ""), nil, 2},
		{b.header("dir/large", large), []*pb.PutSessionFileRequest{putData(large)}, 2}, // as it is
		{b.header("empty", "no more"), []*pb.PutSessionFileRequest{putData("no more")}, 3},
	} {
		if got, err := b.put(step.header, step.data...); got != step.version || err != nil {
			t.Errorf("%s: got version %d, %v; want %d", step.header.Path, got, err, step.version)
		}
	}
	raw := b.header("ignored", "1")
	raw.RawPath, raw.Executable = []byte("b\xff"), true
	if _, err := b.put(raw, putData("1")); err != nil {
		t.Error(err)
	}
	b.want("dir/large", large)
	b.want("empty", "no more")
	list, err := b.c.ListSessionFiles(t.Context(), &pb.ListSessionFilesRequest{SessionId: b.id})
	if err != nil || len(list.Files) != 3 || string(list.Files[0].RawPath) != "b\xff" || !list.Files[0].Executable || list.Files[1].Executable {
		t.Errorf("files: %v, %v", list, err)
	}
	versions, err := b.c.ListSessionVersions(t.Context(), &pb.ListSessionVersionsRequest{SessionId: b.id})
	if err != nil || !strings.HasPrefix(versions.GetVersions()[0].GetCommittedBy(), "upload by ") {
		t.Errorf("versions: %v, %v", versions, err)
	}
	b.wantNothing()
}

// A refused upload changes nothing, and nothing of it stays.
func TestRefusedPuts(t *testing.T) {
	b := newPutBench(t)
	b.commit(b.id, map[string]string{"dir/a": "1"})
	edit := func(path string, change func(h *pb.PutSessionFileHeader)) *pb.PutSessionFileHeader {
		h := b.header(path, "22")
		change(h)
		return h
	}
	other, err := b.x.Sessions.Create("other", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		header *pb.PutSessionFileHeader
		data   []*pb.PutSessionFileRequest
		code   codes.Code
		reason string
	}{
		"no header":      {nil, nil, codes.InvalidArgument, "INVALID_REQUEST"},
		"two headers":    {b.header("b", "22"), []*pb.PutSessionFileRequest{putData("2"), putHeader(b.header("b", "22"))}, codes.InvalidArgument, "INVALID_REQUEST"},
		"no message":     {b.header("b", "22"), []*pb.PutSessionFileRequest{putData("2"), {}}, codes.InvalidArgument, "INVALID_REQUEST"},
		"too much":       {b.header("b", "22"), []*pb.PutSessionFileRequest{putData("2"), putData("23")}, codes.InvalidArgument, "INVALID_REQUEST"},
		"too little":     {b.header("b", "22"), nil, codes.InvalidArgument, "INVALID_REQUEST"},
		"empty data":     {b.header("b", "22"), []*pb.PutSessionFileRequest{putData(""), putData("22")}, codes.InvalidArgument, "INVALID_REQUEST"},
		"other bytes":    {b.header("b", "22"), []*pb.PutSessionFileRequest{putData("23")}, codes.DataLoss, "FILE_DIGEST_MISMATCH"},
		"no hash":        {edit("b", func(h *pb.PutSessionFileHeader) { h.Sha256 = "22" }), nil, codes.InvalidArgument, "INVALID_REQUEST"},
		"large":          {edit("b", func(h *pb.PutSessionFileHeader) { h.SizeBytes = maxUploadBytes + 1 }), nil, codes.InvalidArgument, "INVALID_REQUEST"},
		"over quota":     {edit("b", func(h *pb.PutSessionFileHeader) { h.SizeBytes = 10<<20 + 1 }), nil, codes.ResourceExhausted, "SESSION_QUOTA"},
		"past the end":   {edit("b", func(h *pb.PutSessionFileHeader) { h.OffsetBytes = 1 }), nil, codes.OutOfRange, "OFFSET_PAST_END"},
		"far away":       {edit("b", func(h *pb.PutSessionFileHeader) { h.OffsetBytes = math.MaxUint64 }), nil, codes.OutOfRange, "OFFSET_PAST_END"},
		"no path":        {b.header("", "22"), nil, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"absolute":       {b.header("/b", "22"), nil, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"parent":         {b.header("../session.json", "22"), nil, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"NUL":            {b.header("b\x00", "22"), nil, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"a directory":    {b.header("dir", "22"), []*pb.PutSessionFileRequest{putData("22")}, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"in a file":      {b.header("dir/a/b", "22"), []*pb.PutSessionFileRequest{putData("22")}, codes.InvalidArgument, "INVALID_INPUT_FILE"},
		"no session":     {edit("b", func(h *pb.PutSessionFileHeader) { h.SessionId = "x" }), nil, codes.NotFound, "SESSION_NOT_FOUND"},
		"other's":        {edit("b", func(h *pb.PutSessionFileHeader) { h.SessionId = other.ID }), nil, codes.NotFound, "SESSION_NOT_FOUND"},
		"no such upload": {edit("b", func(h *pb.PutSessionFileHeader) { h.OffsetBytes = 2 }), nil, codes.OutOfRange, "OFFSET_PAST_END"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.put(test.header, test.data...)
			b.refusedWith(err, test.code, test.reason)
			b.wantNothing()
		})
	}
	versions, err := b.c.ListSessionVersions(t.Context(), &pb.ListSessionVersionsRequest{SessionId: b.id})
	if err != nil || len(versions.Versions) != 1 {
		t.Errorf("versions: %v, %v", versions, err)
	}
}

// upload returns the bytes of the only upload and whether a call works on it.
func (b *putBench) upload() (received int64, active bool) {
	b.uploads.mu.Lock()
	defer b.uploads.mu.Unlock()
	for _, p := range b.uploads.puts {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.received, p.active
	}
	return -1, false
}

func (b *putBench) await(what string, is func() bool) {
	b.t.Helper()
	for late := time.After(time.Minute); !is(); runtime.Gosched() {
		select {
		case <-late:
			b.t.Fatal(what)
		default:
		}
	}
}

// breakOff begins an upload, and breaks the stream when the daemon has the data.
func (b *putBench) breakOff(h *pb.PutSessionFileHeader, data string) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	stream, err := b.c.PutSessionFile(ctx)
	if err == nil {
		err = errors.Join(stream.Send(putHeader(h)), stream.Send(putData(data)))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.await("the daemon does not get the data", func() bool { n, _ := b.upload(); return n == int64(len(data)) })
	_, err = b.put(h)
	b.refusedWith(err, codes.ResourceExhausted, "UPLOADS_FULL") // the same upload
	cancel()
	b.await("the broken call does not end", func() bool { _, active := b.upload(); return !active })
}

// at returns the header of an upload that goes on at an offset.
func at(h *pb.PutSessionFileHeader, offset int) *pb.PutSessionFileHeader {
	h.OffsetBytes = uint64(offset)
	return h
}

func TestPutGoesOn(t *testing.T) {
	b := newPutBench(t)
	b.breakOff(b.header("f", "0123456789"), "0123")
	_, err := b.put(at(b.header("f", "0123456789"), 10))
	b.refusedWith(err, codes.OutOfRange, "OFFSET_PAST_END")
	if got, st := refused(t, err); got.field != "header.offset_bytes" || st.Details()[0].(*errdetails.ErrorInfo).GetMetadata()["sizeBytes"] != "4" {
		t.Errorf("got %v, %v", got, st)
	}
	// Another file, or another caller's bytes, are not used.
	_, err = b.put(at(b.header("g", "0123456789"), 4))
	b.refusedWith(err, codes.OutOfRange, "OFFSET_PAST_END")

	// The session is busy at the end: nothing is sent again.
	w, err := b.x.Sessions.Acquire(t.Context(), "default", b.id, session.Use{By: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.put(at(b.header("f", "0123456789"), 3), putData("3456789"))
	b.refusedWith(err, codes.FailedPrecondition, "SESSION_BUSY")
	w.Release()
	if v, err := b.put(at(b.header("f", "0123456789"), 10)); v != 1 || err != nil {
		t.Errorf("got version %d, %v", v, err)
	}
	b.want("f", "0123456789")
	b.wantNothing()

	// Offset 0 starts anew.
	b.breakOff(b.header("f", "abc"), "xy")
	if v, err := b.put(b.header("f", "abc"), putData("abc")); v != 2 || err != nil {
		t.Errorf("got version %d, %v", v, err)
	}
	b.wantNothing()
}

// A daemon that drains takes no new upload, finishes those under way, and does not wait for one that gets no bytes.
func TestPutWhileDraining(t *testing.T) {
	b := newPutBench(t)
	begin := func(path string) grpc.ClientStreamingClient[pb.PutSessionFileRequest, pb.PutSessionFileResponse] {
		stream, err := b.c.PutSessionFile(t.Context())
		if err == nil {
			err = stream.Send(putHeader(b.header(path, "0123")))
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	underWay, stuck := begin("f"), begin("stuck")
	b.await("the uploads do not begin", func() bool {
		b.uploads.mu.Lock()
		defer b.uploads.mu.Unlock()
		return len(b.uploads.puts) == 2
	})
	b.x.Drain(t.Context(), t.Context())
	_, err := b.put(b.header("g", "1"), putData("1"))
	b.refusedWith(err, codes.Unavailable, "DRAINING")
	if err := underWay.Send(putData("0123")); err != nil {
		t.Fatal(err)
	}
	if r, err := underWay.CloseAndRecv(); r.GetVersion().GetNumber() != 1 || err != nil {
		t.Errorf("the upload under way: got %v, %v", r, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	b.Stop(ended)
	if _, err := stuck.CloseAndRecv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the upload without bytes: got %v", err)
	}
	b.await("the upload without bytes stays", func() bool { n, _ := b.upload(); return n < 0 })
}

func TestStopRemovesBrokenPuts(t *testing.T) {
	b := newPutBench(t)
	b.breakOff(b.header("f", "abc"), "a")
	b.Stop(t.Context())
	if n, _ := b.upload(); n >= 0 {
		t.Errorf("an upload of %d bytes is left", n)
	}
}

// The purge of a tenant removes its broken uploads. One that is under way goes when its stream breaks.
func TestPurgeRemovesPuts(t *testing.T) {
	u := testUploads(t)
	begin := func(tenant, path string) (putKey, *put) {
		t.Helper()
		key := putKey{who: permission.Principal{Tenant: tenant, Name: "x"}, size: 2, path: path}
		p, err := u.beginPut(key)
		if err == nil {
			err = p.add(0, []byte("x"), 2)
		}
		if err != nil {
			t.Fatal(err)
		}
		return key, p
	}
	end := func(key putKey, p *put) {
		t.Helper()
		if err := u.endPut(key, p, true); err != nil {
			t.Error(err)
		}
	}
	end(begin("gone", "broken"))
	end(begin("other", "broken"))
	key, p := begin("gone", "under way")
	u.dropPuts("gone")
	if n := left(t, u); n != 2 {
		t.Errorf("%d uploads are left; want that of the other tenant and the one under way", n)
	}
	end(key, p)
	if n := left(t, u); n != 1 || u.tenantPuts("other") != 1 {
		t.Errorf("%d uploads are left; want that of the other tenant", n)
	}
	u.dropPuts("")
}

// Broken uploads of a tenant make room for a new one, the oldest first, and no upload that is under way.
func TestBrokenPutsMakeRoom(t *testing.T) {
	u := testUploads(t)
	keys := make([]putKey, maxTenantPuts)
	for i := range keys {
		keys[i] = putKey{who: uploader, size: maxCallerStagedBytes / maxTenantPuts, path: strconv.Itoa(i)}
		p, err := u.beginPut(keys[i])
		if err == nil && i > 0 { // the first stays under way
			err = errors.Join(p.add(0, []byte("x"), 2), u.endPut(keys[i], p, true))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, size := range []int64{1, maxCallerStagedBytes / maxTenantPuts * 3} { // by number, then by bytes
		key := putKey{who: uploader, size: size, path: "new" + strconv.Itoa(i)}
		if _, err := u.beginPut(key); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	for i, key := range keys {
		if there := u.puts[key] != nil; there != (i == 0 || i > 4) {
			t.Errorf("upload %d is there: %v", i, there)
		}
	}
	if _, err := u.beginPut(keys[0]); err == nil || u.puts[keys[5]] == nil {
		t.Errorf("the same upload twice: %v", err)
	}
	u.dropPuts("")
}

// A broken upload is removed when nobody resumes it, or another server starts.
func TestBrokenPutExpires(t *testing.T) {
	b := newPutBench(t)
	b.breakOff(b.header("f", "abc"), "a")
	b.uploads.mu.Lock()
	puts := maps.Clone(b.uploads.puts)
	b.uploads.mu.Unlock()
	for key, p := range puts {
		b.uploads.expirePut(key, p)
		b.uploads.expirePut(key, p) // once
	}
	b.wantNothing()
	b.breakOff(b.header("f", "abc"), "a")
	mustSweep := func(u *uploads, want int) {
		t.Helper()
		if err := u.sweep(); err != nil || left(t, u) != want {
			t.Errorf("%d uploads are left, %v, want %d", left(t, u), err, want)
		}
	}
	mustSweep(b.uploads, 1) // its own: the caller may go on
	u, err := newUploads(b.uploads.dir)
	if err != nil {
		t.Fatal(err)
	}
	mustSweep(u, 0)
}

func TestTenantPuts(t *testing.T) {
	u := testUploads(t)
	puts := map[putKey]*put{}
	for i := range maxTenantPuts {
		key := putKey{who: uploader, size: 1, path: strconv.Itoa(i)}
		p, err := u.beginPut(key)
		if err != nil {
			t.Fatal(err)
		}
		puts[key] = p
	}
	_, err := u.beginPut(putKey{who: uploader, size: 1})
	if _, ok := errors.AsType[*putsFullError](err); !ok {
		t.Errorf("got %v, want a *putsFullError", err)
	}
	other := permission.Principal{Tenant: "other", Name: "x"}
	if _, err = u.beginPut(putKey{who: other, size: maxStagedBytes}); err == nil || u.tenantPuts("other") != 0 {
		t.Errorf("more than there is room for: %v", err)
	}
	for key, p := range puts {
		if err := u.endPut(key, p, true); err != nil { // empty, so it is not kept
			t.Error(err)
		}
		if err := p.add(0, []byte("x"), 1); !errors.Is(err, errBrokeOff) {
			t.Errorf("data after the end: %v", err)
		}
	}
	if left(t, u) != 0 || u.room() != maxStagedBytes || len(u.puts) != 0 {
		t.Errorf("%d are left, %d bytes free", left(t, u), u.room())
	}
}
