package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

// announce is a streamed file of some content.
func announce(path, content string) *pb.InputFile {
	return &pb.InputFile{Path: path, Source: &pb.InputFile_Streamed{
		Streamed: &pb.StreamedFile{SizeBytes: uint64(len(content)), Sha256: sum(content)},
	}}
}

func chunk(path string, offset int, data string) *pb.FileChunk {
	return &pb.FileChunk{Path: path, OffsetBytes: uint64(offset), Data: []byte(data)}
}

var uploader = permission.Principal{Tenant: identity.DefaultTenant, Name: "uploader"}

// room is how much may be announced now by callers who have announced nothing.
func (u *uploads) room() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.free
}

func testUploads(t *testing.T) *uploads {
	t.Helper()
	u, err := newUploads(filepath.Join(t.TempDir(), "uploads"))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// left counts the entries in the directory of uploads.
func left(t testing.TB, u *uploads) int {
	t.Helper()
	list, err := os.ReadDir(u.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestUpload(t *testing.T) {
	u := testUploads(t)
	list := []*pb.InputFile{
		{Path: "u", Source: &pb.InputFile_Uri{Uri: "skill://demo/SKILL.md"}}, // no entry of Request.Files
		announce("a", "hello world"),
		{Path: "inline", Source: &pb.InputFile_Content{Content: []byte("x")}},
		announce("b", "xyz"),
		announce("empty", ""),
	}
	up, err := u.open(uploader, list)
	if err != nil {
		t.Fatal(err)
	}
	// Files take turns.
	for i, c := range []*pb.FileChunk{
		chunk("a", 0, "hello"), chunk("b", 0, "x"), chunk("a", 5, " world"), chunk("b", 1, "yz"),
	} {
		if up.open == 0 {
			t.Fatalf("complete before chunk %d", i)
		}
		if err := up.add(c); err != nil {
			t.Fatalf("chunk %d: %v", i, err)
		}
	}
	if up.open != 0 {
		t.Errorf("%d files open, want none", up.open)
	}
	var r executor.Request
	in, err := newFiles(list, true)
	if err != nil {
		t.Fatal(err)
	}
	r.Files = in.Files
	up.fill(&r)
	for i, want := range []string{"hello world", "", "xyz", ""} {
		if i == 1 {
			if r.Files[i].Source != "" {
				t.Errorf("the inline file has a source: %s", r.Files[i].Source)
			}
			continue
		}
		got, err := os.ReadFile(r.Files[i].Source)
		if err != nil || string(got) != want {
			t.Errorf("file %d: got %q, %v; want %q", i, got, err, want)
		}
	}
	if got := u.room(); got != maxStagedBytes-14 {
		t.Errorf("%d bytes free with an upload, want 14 less than %d", got, int64(maxStagedBytes))
	}
	for range 2 {
		if err := up.remove(); err != nil {
			t.Error(err)
		}
	}
	if n := left(t, u); n != 0 || u.room() != maxStagedBytes {
		t.Errorf("%d entries left, %d bytes free", n, u.room())
	}
}

func TestUploadRefusesAnnouncement(t *testing.T) {
	streamed := func(size uint64, sum string) *pb.InputFile {
		return &pb.InputFile{Path: "a", Source: &pb.InputFile_Streamed{Streamed: &pb.StreamedFile{SizeBytes: size, Sha256: sum}}}
	}
	many := make([]*pb.InputFile, maxUploadFiles+1)
	for i := range many {
		many[i] = announce(fmt.Sprint(i), "")
	}
	ok := sum("")
	for _, c := range []struct {
		name, field string
		files       []*pb.InputFile
	}{
		{"no digest", "files[0].streamed.sha256", []*pb.InputFile{streamed(1, "")}},
		{"short digest", "files[0].streamed.sha256", []*pb.InputFile{streamed(1, ok[:62])}},
		{"no hex", "files[0].streamed.sha256", []*pb.InputFile{streamed(1, strings.Repeat("g", 64))}},
		{"too large", "files[0].streamed.size_bytes", []*pb.InputFile{streamed(maxUploadBytes+1, ok)}},
		{"far too large", "files[0].streamed.size_bytes", []*pb.InputFile{streamed(1<<64-1, ok)}},
		{"too large together", "files", []*pb.InputFile{streamed(maxUploadBytes, ok), {Path: "b", Source: streamed(1, ok).Source}}},
		{"twice", "files[1].path", []*pb.InputFile{streamed(1, ok), streamed(2, ok)}},
		{"too many", "files", many},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := testUploads(t)
			_, err := u.open(uploader, c.files)
			bad, ok := errors.AsType[*executor.RequestError](err)
			if !ok || bad.Field != c.field {
				t.Errorf("got %v, want an error about %s", err, c.field)
			}
			if left(t, u) != 0 || u.room() != maxStagedBytes {
				t.Errorf("%d entries left, %d bytes free", left(t, u), u.room())
			}
		})
	}
}

func TestUploadRefusesChunk(t *testing.T) {
	for _, c := range []struct {
		name, field string
		chunks      []*pb.FileChunk
	}{
		{"not announced", "file_chunk.path", []*pb.FileChunk{chunk("b", 0, "x")}},
		{"gap", "file_chunk.offset_bytes", []*pb.FileChunk{chunk("a", 1, "x")}},
		{"overlap", "file_chunk.offset_bytes", []*pb.FileChunk{chunk("a", 0, "he"), chunk("a", 1, "e")}},
		{"huge offset", "file_chunk.offset_bytes", []*pb.FileChunk{{Path: "a", OffsetBytes: 1<<64 - 1, Data: []byte("x")}}},
		{"too long", "file_chunk.data", []*pb.FileChunk{chunk("a", 0, "hello!")}},
		{"after the last", "file_chunk.data", []*pb.FileChunk{chunk("a", 0, "hello"), chunk("a", 5, "!")}},
		{"empty", "file_chunk.data", []*pb.FileChunk{chunk("a", 0, "he"), chunk("a", 2, "")}},
		{"another content", "", []*pb.FileChunk{chunk("a", 0, "hell"), chunk("a", 4, "0")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := testUploads(t)
			up, err := u.open(uploader, []*pb.InputFile{announce("a", "hello")})
			if err != nil {
				t.Fatal(err)
			}
			defer up.remove()
			for i, m := range c.chunks {
				err := up.add(m)
				if last := i == len(c.chunks)-1; !last {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				if c.field == "" {
					if _, ok := errors.AsType[*digestError](err); !ok {
						t.Errorf("got %v, want a digest that differs", err)
					}
					continue
				}
				if bad, ok := errors.AsType[*executor.RequestError](err); !ok || bad.Field != c.field {
					t.Errorf("got %v, want an error about %s", err, c.field)
				}
			}
		})
	}
}

// An empty file has a digest too.
func TestUploadChecksEmptyFile(t *testing.T) {
	u := testUploads(t)
	_, err := u.open(uploader, []*pb.InputFile{{Path: "a", Source: &pb.InputFile_Streamed{Streamed: &pb.StreamedFile{Sha256: sum("x")}}}})
	if _, ok := errors.AsType[*digestError](err); !ok {
		t.Errorf("got %v, want a digest that differs", err)
	}
	if left(t, u) != 0 || u.room() != maxStagedBytes {
		t.Errorf("%d entries left, %d bytes free", left(t, u), u.room())
	}
}

func TestUploadsAreBoundedTogether(t *testing.T) {
	u := testUploads(t)
	var open []*upload
	largest := func(who permission.Principal) error {
		up, err := u.open(who, []*pb.InputFile{{Path: "a", Source: &pb.InputFile_Streamed{
			Streamed: &pb.StreamedFile{SizeBytes: maxUploadBytes, Sha256: sum("")},
		}}})
		if err == nil {
			open = append(open, up)
		}
		return err
	}
	for range maxCallerStagedBytes / maxUploadBytes {
		if err := largest(uploader); err != nil {
			t.Fatal(err)
		}
	}
	other := permission.Principal{Tenant: uploader.Tenant, Name: "another"}
	if err := largest(uploader); err == nil {
		t.Error("one caller has all the room")
	} else if err := largest(other); err != nil {
		t.Errorf("another: %v", err)
	}
	_, err := u.open(other, []*pb.InputFile{announce("a", "x")})
	if full, ok := errors.AsType[*uploadsFullError](err); !ok || full.asked != 1 || full.free != 0 {
		t.Errorf("got %v, want no room", err)
	}
	open[0].remove()
	up, err := u.open(uploader, []*pb.InputFile{announce("a", "x")})
	if err != nil {
		t.Fatalf("after one is removed: %v", err)
	}
	up.remove()
	for _, up := range open {
		up.remove()
	}
	if u.room() != maxStagedBytes || len(u.callers)+len(u.tenants) != 0 {
		t.Errorf("%d bytes are free in the end, and %v and %v are counted", u.room(), u.callers, u.tenants)
	}
}

// Tenants that reserve all that they may, with any number of tokens, leave room for the next tenant.
func TestUploadsLeaveRoomForOtherTenants(t *testing.T) {
	u := testUploads(t)
	for tenant := range 5 {
		got := int64(0)
		for caller := range 8 {
			for n := int64(maxUploadBytes); n >= 1<<20; n /= 2 {
				who := permission.Principal{Tenant: strconv.Itoa(tenant), Name: strconv.Itoa(caller)}
				for u.take(who, n) == nil {
					got += n
				}
			}
		}
		if free := u.room(); got > free+1<<20 || got < free-4<<20 {
			t.Errorf("tenant %d has %d bytes and leaves %d, want about half for the next", tenant, got, free)
		}
	}
	if err := u.take(permission.Principal{Tenant: "quiet"}, 64<<20); err != nil {
		t.Error(err)
	}
}

func TestNewUploadsSweeps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[1]") // characters of a pattern mean nothing
	for _, name := range []string{"upload-1/0", "other/0"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := newUploads(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp(dir, u.prefix)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
		t.Errorf("got %v, %v; want that all are there before the sweep", list, err)
	}
	if err := u.sweep(); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 || list[0].Name() != "other" || list[1].Name() != filepath.Base(own) {
		t.Errorf("got %v, %v; want only what no earlier server has left", list, err)
	}
}
