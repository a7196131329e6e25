package executor_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
)

// The sessions and files that tools make have entries in the audit log with the caller. Nothing happens
// that the log does not have.
func TestSessionFilesAreAudited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files of sessions to another user")
	}
	b := newSessionBench(t, nil)
	dir := t.TempDir()
	log, err := audit.Open(audit.Config{Dir: dir, KeyFile: filepath.Join(dir, "key"), FileBytes: 1 << 20, Files: 2, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b.Executor.Audit = log
	ctx := audit.WithCaller(t.Context(), &audit.Caller{Address: "uid:7", Method: "tools/call write_file"})
	made, err := b.Executor.CreateSession(ctx, b.who, session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.Executor.PutSessionFile(ctx, b.who, made.ID, "dir/a", []byte("content"))
	if err != nil || v.Number != 1 || v.Files != 1 {
		t.Errorf("got %+v, %v", v, err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "audit-000000000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, `"method":"tools/call write_file"`) && strings.Contains(line, `"address":"uid:7"`) && strings.Contains(line, `"decision":"allowed"`) {
			entries++
		}
	}
	if entries != 2 {
		t.Errorf("%d entries, want 2:\n%s", entries, data)
	}
	// The log is closed, so it takes no entry.
	if _, err := b.Executor.PutSessionFile(ctx, b.who, made.ID, "dir/b", nil); err == nil {
		t.Error("a file without an entry")
	}
	if _, err := b.Executor.CreateSession(ctx, b.who, session.Settings{}); err == nil {
		t.Error("a session without an entry")
	}
	f, file, err := b.Executor.OpenSessionFile(b.who, made.ID, "dir/a")
	if err != nil || file.SizeBytes != 7 {
		t.Fatalf("got %+v, %v", file, err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); string(got) != "content" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	other := permission.Principal{Tenant: "other", Name: "x"}
	for _, path := range []string{"dir/b", "dir", "../a"} {
		if _, _, err := b.Executor.OpenSessionFile(b.who, made.ID, path); !errors.Is(err, executor.ErrNoSessionFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, _, err := b.Executor.OpenSessionFile(other, made.ID, "dir/a"); !errors.Is(err, executor.ErrNoSessionFile) {
		t.Errorf("of another tenant: %v", err)
	}
	if staged, err := os.ReadDir(b.StagingDir); err != nil || len(staged) != 0 {
		t.Errorf("staged: %v, %v", staged, err)
	}
}

// A request reads the list of a session's files once, however many of them it takes and however it spells their URIs:
// a list has thousands of files. So all are of the version that was the newest at first, while that version is kept.
func TestResourcesOfASessionAreOfOneVersion(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files of sessions to another user")
	}
	b := newSessionBench(t, nil)
	other, err := b.sessions.Create(b.who.Tenant, session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id, path, content string) {
		t.Helper()
		if _, err := b.Executor.PutSessionFile(t.Context(), b.who, id, path, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"a", "b", "c"} {
		put(b.id, path, "old "+path)
		put(other.ID, path, "other "+path)
	}
	req := executor.Request{Principal: b.who}
	for _, uri := range []string{
		"session://" + b.id + "/a", "session://" + other.ID + "/a", "session://%" + fmt.Sprintf("%x", b.id[:1]) + b.id[1:] + "/b",
		"session://" + other.ID + "/b", "session:///" + b.id + "/c",
	} {
		req.Resources = append(req.Resources, executor.Resource{Path: fmt.Sprint(len(req.Resources)), URI: uri})
	}
	want := []string{"old a", "other a", "old b", "other b", "old c"}
	for _, in := range b.Executor.Inputs(t.Context(), req) {
		f, err := in.Open()
		if err != nil {
			t.Fatalf("%s: %v", in.Path, err)
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if at, _ := strconv.Atoi(in.Path); string(data) != want[at] {
			t.Errorf("%s has %q, want %q", req.Resources[at].URI, data, want[at])
		}
		if in.Path == "0" {
			put(b.id, "b", "new b")
			put(b.id, "c", "new c")
		}
	}
}
