package skillrun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

type artifactServer = grpc.ServerStreamingServer[pb.GetArtifactResponse]

func artifactOf(path string, data []byte) *pb.Artifact {
	sum := sha256.Sum256(data)
	return &pb.Artifact{Path: path, SizeBytes: uint64(len(data)), Sha256: hex.EncodeToString(sum[:])}
}

// serveArtifact sends data from the requested offset in pieces of n bytes. It ends the
// stream without an error after most bytes (0: never).
func serveArtifact(data []byte, n, most int) func(*pb.GetArtifactRequest, artifactServer) error {
	return func(r *pb.GetArtifactRequest, s artifactServer) error {
		if r.GetOffsetBytes() > uint64(len(data)) {
			return status.Error(codes.OutOfRange, "past the end")
		}
		first := artifactOf(r.GetPath(), data)
		sent := 0
		for at := int(r.GetOffsetBytes()); at < len(data) || first != nil; at += n {
			if most > 0 && sent >= most {
				return status.Error(codes.Unavailable, "away")
			}
			piece := data[at:min(at+n, len(data))]
			sent += len(piece)
			if err := s.Send(&pb.GetArtifactResponse{Artifact: first, OffsetBytes: uint64(at), Data: piece}); err != nil {
				return err
			}
			first = nil
		}
		return nil
	}
}

func TestDownload(t *testing.T) {
	data := bytes.Repeat([]byte("artifact"), 1000)
	tests := []struct {
		name string
		data []byte
		most int
	}{{"whole", data, 0}, {"resumed", data, 3000}, {"empty", nil, 0}, {"breaks at the very end", data, 8000}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{artifact: serveArtifact(test.data, 1000, test.most)}
			var got bytes.Buffer
			if err := f.dial(t).Download(t.Context(), "e1", artifactOf("out.bin", test.data), &got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), test.data) {
				t.Errorf("got %d bytes, want %d", got.Len(), len(test.data))
			}
		})
	}
}

func TestDownloadDetectsCorruption(t *testing.T) {
	want := []byte("the right bytes")
	tests := map[string]func(*pb.GetArtifactRequest, artifactServer) error{
		"other bytes": serveArtifact([]byte("the wrong bytes"), 4, 0),
		"too many":    serveArtifact([]byte("the right bytes and more"), 4, 0),
		"a gap": func(_ *pb.GetArtifactRequest, s artifactServer) error {
			return s.Send(&pb.GetArtifactResponse{OffsetBytes: 4, Data: want[4:]})
		},
	}
	for name, serve := range tests {
		err := (&fake{artifact: serve}).dial(t).Download(t.Context(), "e1", artifactOf("x", want), &bytes.Buffer{})
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
	short := &fake{artifact: serveArtifact(want[:5], 4, 0)}
	if err := short.impatient(t).Download(t.Context(), "e1", artifactOf("x", want), &bytes.Buffer{}); err == nil {
		t.Error("too few bytes: got nil, want an error")
	}
}

func TestDownloadErrors(t *testing.T) {
	gone := &fake{artifact: func(*pb.GetArtifactRequest, artifactServer) error {
		return refusal(codes.NotFound, "ARTIFACT_NOT_FOUND", "no such artifact")
	}}
	err := gone.dial(t).Download(t.Context(), "e1", artifactOf("x", nil), &bytes.Buffer{})
	if got, want := Reason(err), "ARTIFACT_NOT_FOUND"; got != want {
		t.Errorf("reason: got %q (%v), want %q", got, err, want)
	}
	data := []byte("data")
	err = (&fake{artifact: serveArtifact(data, 2, 0)}).dial(t).Download(t.Context(), "e1", artifactOf("x", data), &brokenWriter{})
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("writer's error: got %v, want it", err)
	}
}

// counted answers Get with an outcome that has n artifacts.
func counted(n uint64) func(*pb.GetExecutionRequest) (*pb.Execution, error) {
	return func(*pb.GetExecutionRequest) (*pb.Execution, error) {
		return &pb.Execution{Outcome: &pb.ExecutionOutcome{ArtifactCount: n}}, nil
	}
}

func TestArtifactPages(t *testing.T) {
	f := &fake{get: counted(4), list: func(r *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		switch r.GetPageToken() {
		case "":
			return &pb.ListArtifactsResponse{Artifacts: []*pb.Artifact{{Path: "a"}, {Path: "b"}}, NextPageToken: "2"}, nil
		case "2":
			return &pb.ListArtifactsResponse{Artifacts: []*pb.Artifact{{Path: "c"}}, NextPageToken: "3"}, nil
		}
		return nil, status.Error(codes.Unavailable, "away")
	}}
	c := f.impatient(t)
	var got []string
	for a, err := range c.Artifacts(t.Context(), "e1") {
		if err != nil {
			got = append(got, status.Code(err).String())
			continue
		}
		got = append(got, a.GetPath())
	}
	if got, want := strings.Join(got, " "), "a b c Unavailable"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for a := range c.Artifacts(t.Context(), "e1") {
		if a.GetPath() == "b" {
			break // fetches no further page
		}
	}
}

// A list that repeats itself ends after as many artifacts as the outcome has.
func TestMoreArtifactsThanTheOutcomeHas(t *testing.T) {
	c := (&fake{get: counted(3), list: func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		return &pb.ListArtifactsResponse{Artifacts: []*pb.Artifact{{Path: "a"}, {Path: "b"}}, NextPageToken: "again"}, nil
	}}).dial(t)
	n := 0
	var err error
	for _, err = range c.Artifacts(t.Context(), "e1") {
		if n++; err == nil && n > 3 {
			t.Fatalf("artifact %d of 3", n)
		}
	}
	if !errors.Is(err, errMoreArtifacts) {
		t.Errorf("got %v, want %v", err, errMoreArtifacts)
	}
	c = (&fake{list: func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		t.Error("a list of what is not known")
		return nil, nil
	}}).dial(t)
	for _, err = range c.Artifacts(t.Context(), "e1") {
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("without an outcome: got %v, want the error of Get", err)
	}
}

// A list that ends too early is an error after its last artifact.
func TestFewerArtifactsThanTheOutcomeHas(t *testing.T) {
	c := (&fake{get: counted(3), list: func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		return &pb.ListArtifactsResponse{Artifacts: []*pb.Artifact{{Path: "a"}, {Path: "b"}}}, nil
	}}).dial(t)
	n := 0
	var err error
	for _, err = range c.Artifacts(t.Context(), "e1") {
		n++
	}
	if n != 3 || !errors.Is(err, errFewerArtifacts) {
		t.Errorf("got %d entries, the last with %v; want 2 artifacts and %v", n, err, errFewerArtifacts)
	}
}

// A list of empty pages without a last one ends.
func TestArtifactPagesWithoutEnd(t *testing.T) {
	c := (&fake{get: counted(1), list: func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		return &pb.ListArtifactsResponse{NextPageToken: "more"}, nil
	}}).dial(t)
	var err error
	for _, err = range c.Artifacts(t.Context(), "e1") {
	}
	if !errors.Is(err, errEmptyPage) {
		t.Errorf("got %v, want %v", err, errEmptyPage)
	}
}

func TestSave(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	data := []byte("#!/bin/sh\n")
	c := (&fake{artifact: serveArtifact(data, 4, 0)}).dial(t)
	tests := []struct {
		path, raw, want string
	}{
		{"out.txt", "", "out.txt"},
		{"a/b/c.txt", "", "a/b/c.txt"},
		{"bad\ufffd", "bad\xff", "bad\xff"},
		{"../up", "", ""},
		{"a/../../up", "", ""},
		{"/abs", "", ""},
		{"link/x", "", ""},
		{"", "", ""},
	}
	for _, test := range tests {
		a := artifactOf(test.path, data)
		a.RawPath = []byte(test.raw)
		a.Executable = true
		var copied bytes.Buffer
		err := c.Save(t.Context(), "e1", a, root, &copied)
		if test.want == "" {
			if err == nil {
				t.Errorf("%q: got nil, want an error", test.path)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.path, err)
			continue
		}
		if !bytes.Equal(copied.Bytes(), data) {
			t.Errorf("%q: the other writer got %q, want %q", test.path, copied.Bytes(), data)
		}
		got, err := os.ReadFile(filepath.Join(dir, test.want))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q: got %q, %v, want %q", test.path, got, err, data)
		}
		if info, err := os.Stat(filepath.Join(dir, test.want)); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%q: got mode %v, %v, want executable", test.path, info.Mode(), err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside: got %v, want only the folder itself", entries)
	}
}

func TestSaveKeepsTheOldFileUnlessTheNewOneIsRight(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := (&fake{artifact: serveArtifact([]byte("evil"), 4, 0)}).dial(t)
	if err := c.Save(t.Context(), "e1", artifactOf("x", []byte("good")), root); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	var names []string
	fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if got, want := strings.Join(names, " "), ". x"; got != want {
		t.Errorf("files: got %q, want %q", got, want)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "x")); string(got) != "old" {
		t.Errorf("got %q, want %q", got, "old")
	}
}
