package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// randomRecord is 4 MB on two streams, in chunks of any size.
func randomRecord() (r *record, stdout, stderr string) {
	random := rand.NewChaCha8([32]byte{1})
	r = newRecord().started()
	var out, err bytes.Buffer
	for out.Len()+err.Len() < 4<<20 {
		chunk := make([]byte, 1+random.Uint64()%60_000)
		random.Read(chunk)
		if random.Uint64()%2 == 0 {
			out.Write(chunk)
			r.stdout(string(chunk))
		} else {
			err.Write(chunk)
			r.stderr(string(chunk))
		}
	}
	return r.exit(0), out.String(), err.String()
}

func TestRunIsByteIdentical(t *testing.T) {
	r, stdout, stderr := randomRecord()
	got := r.fake().client(t, nil, "run", "demo", "x.py")
	if got.code != 0 || got.stdout != stdout || got.stderr != stderr {
		t.Errorf("got code %d, %d and %d bytes, want 0, %d and %d, the same", got.code, len(got.stdout), len(got.stderr), len(stdout), len(stderr))
	}
}

// TestReadersGetTheSameBytes attaches several at once, each cut off at a place of
// its own.
func TestReadersGetTheSameBytes(t *testing.T) {
	r, stdout, stderr := randomRecord()
	f := r.fake()
	f.attach = func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
		after := a.GetAfterSequence()
		upTo := min(after+7+after%5, uint64(len(r.events)))
		if err := r.send(s, after, upTo); err != nil || upTo == uint64(len(r.events)) {
			return err
		}
		return status.Error(codes.Unavailable, "away")
	}
	f.serve(t, "unix")
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			var gotOut, gotErr bytes.Buffer
			code := run(t.Context(), []string{"--address", f.address, "attach", "e1"}, nil, &gotOut, &gotErr)
			if code != 0 || gotOut.String() != stdout || gotErr.String() != stderr {
				t.Errorf("got code %d, %d and %d bytes, want 0, %d and %d, the same", code, gotOut.Len(), gotErr.Len(), len(stdout), len(stderr))
			}
		})
	}
	readers.Wait()
}

// TestJSONHasEachEventOnce although the stream breaks after each one.
func TestJSONHasEachEventOnce(t *testing.T) {
	r := newRecord().started().stdout("a").stdout("b").exit(0)
	f := r.fake()
	f.attach = func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
		s.Send(&pb.ExecutionEvent{ExecutionId: "e1", Sequence: a.GetAfterSequence(), Event: &pb.ExecutionEvent_Keepalive{Keepalive: &pb.ExecutionKeepalive{}}})
		if err := r.send(s, a.GetAfterSequence(), a.GetAfterSequence()+1); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "away")
	}
	got := f.client(t, nil, "attach", "--json", "e1")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("got %+v", got)
	}
	for i := range r.events {
		if n := strings.Count(got.stdout, fmt.Sprintf(`"sequence":"%d","time"`, i+1)); n != 1 {
			t.Errorf("event %d: got %d times, want once", i+1, n)
		}
	}
}

// TestDeduplicatedRunIsSaidSo with -v, because the output comes from another call.
func TestDeduplicatedRunIsSaidSo(t *testing.T) {
	r := newRecord().stdout("x").exit(0)
	r.events[0].GetHeader().Deduplicated = true
	got := r.fake().client(t, nil, "-v", "run", "--key", "k", "demo", "x.py")
	if got.code != 0 || got.stdout != "x" || !strings.Contains(got.stderr, "its key was used before") {
		t.Errorf("got %+v", got)
	}
}

// TestStdinOfARealFile is passed whole, and so is an empty one.
func TestStdinOfARealFile(t *testing.T) {
	for _, want := range []string{"", "a\x00b", strings.Repeat("0123456789", 50_000)} {
		path := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if got := (&fake{interactive: echo}).client(t, file, "run", "demo", "x.py"); got.code != 0 || got.stdout != want {
			t.Errorf("got code %d and %d bytes, want 0 and %d", got.code, len(got.stdout), len(want))
		}
	}
}

// TestStdinAfterArguments: with -i the JSON comes first and then the stream.
func TestStdinAfterArguments(t *testing.T) {
	var start *pb.ExecuteRequest
	var behind string
	f := &fake{interactive: func(s eventtest.Interactive) error {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		start = m.GetStart()
		r := newRecord()
		if err := r.send(s, 0, 0); err != nil {
			return err
		}
		for {
			m, err := s.Recv()
			if err == io.EOF || m.GetCloseStdin() != nil {
				break
			}
			if err != nil {
				return err
			}
			behind += string(m.GetStdin())
		}
		return r.exit(0).send(s, 1, 0)
	}}
	got := f.client(t, strings.NewReader("more"), "run", "-i", "--args", `{"a":1}`, "demo", "x.py")
	if got.code != 0 || start.GetJsonArguments() != `{"a":1}` || behind != "more" {
		t.Errorf("got %+v with %v and %q", got, start, behind)
	}
}

// TestArtifactsWithOddNames: bytes that are no UTF-8 keep, and a name that leads
// out of the folder is refused.
func TestArtifactsWithOddNames(t *testing.T) {
	f := newRecord().exit(0).fake().withArtifacts(map[string]string{"x": "data"})
	list := f.answers["ListArtifacts"].(func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error))
	var change func(*pb.Artifact)
	f.answers["ListArtifacts"] = func(r *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		page, err := list(r)
		change(page.Artifacts[0])
		return page, err
	}
	send := f.artifact
	f.artifact = func(r *pb.GetArtifactRequest, s artifactServer) error {
		r.Path = "x"
		return send(r, s)
	}
	dir := filepath.Join(t.TempDir(), "in")
	change = func(a *pb.Artifact) { a.Path, a.RawPath = "\ufffd", []byte("\xfe") }
	if got := f.client(t, nil, "-v", "run", "-o", dir, "demo", "x.py"); got.code != 0 || !strings.Contains(got.stderr, `saved \xfe`) {
		t.Errorf("raw name: got %+v", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "\xfe")); string(got) != "data" {
		t.Errorf("raw name: got %q, %v, want %q", got, err, "data")
	}
	for _, path := range []string{"../out", "/tmp/out", "a/../../out"} {
		change = func(a *pb.Artifact) { a.Path, a.RawPath = path, nil }
		if got := f.client(t, nil, "artifacts", "-o", dir, "e1"); got.code != 125 || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: got %+v, want 125 and one line", path, got)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
		t.Errorf("beside the folder: got %v, want nothing", entries)
	}
}
