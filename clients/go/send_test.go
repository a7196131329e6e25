package skillrun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// receiveFiles receives the files that the start message announces, and checks size and
// SHA-256 as the daemon does.
func receiveFiles(s eventtest.Interactive) (start *pb.ExecuteRequest, files map[string][]byte, err error) {
	first, err := s.Recv()
	if err != nil {
		return nil, nil, err
	}
	start = first.GetStart()
	files = map[string][]byte{}
	var missing uint64
	for _, f := range start.GetFiles() {
		missing += f.GetStreamed().GetSizeBytes()
	}
	for missing > 0 {
		m, err := s.Recv()
		if err != nil {
			return nil, nil, err
		}
		chunk := m.GetFileChunk()
		if chunk == nil || chunk.GetOffsetBytes() != uint64(len(files[chunk.GetPath()])) {
			return nil, nil, status.Errorf(codes.InvalidArgument, "not the next chunk: %T", m.GetMessage())
		}
		files[chunk.GetPath()] = append(files[chunk.GetPath()], chunk.GetData()...)
		missing -= uint64(len(chunk.GetData()))
	}
	for _, f := range start.GetFiles() {
		if f.GetStreamed() == nil {
			continue
		}
		sum := sha256.Sum256(files[f.GetPath()])
		if hex.EncodeToString(sum[:]) != f.GetStreamed().GetSha256() {
			return nil, nil, refusal(codes.DataLoss, "CHECKSUM_MISMATCH", f.GetPath())
		}
	}
	return start, files, nil
}

// echo acts as a program that prints each piece of its input.
func echo(s eventtest.Interactive) error {
	r := newRecord()
	if _, _, err := receiveFiles(s); err != nil {
		return err
	}
	if err := r.started().send(s, 0, 0); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err == io.EOF || m.GetCloseStdin() != nil {
			r.exit(0)
			return r.send(s, uint64(len(r.events))-1, 0)
		}
		if err != nil {
			return err
		}
		r.stdout(string(m.GetStdin()))
		if err := r.send(s, uint64(len(r.events))-1, 0); err != nil {
			return err
		}
	}
}

// TestStdinArrivesWhileTheProgramRuns writes each line only after the answer to the line
// before has arrived.
func TestStdinArrivesWhileTheProgramRuns(t *testing.T) {
	in, w := io.Pipe()
	out, stdout := io.Pipe()
	cmd := (&fake{interactive: echo}).dial(t).Script("demo", "x.py")
	cmd.Stdin, cmd.Stdout = in, stdout
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		want := fmt.Sprintf("line %d\n", i)
		io.WriteString(w, want)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	w.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStdinIsByteIdentical(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := bytes.Repeat(all, 12_345) // 3 MB, more than inlineBytes
	c := (&fake{interactive: echo}).dial(t)
	for name, r := range map[string]io.Reader{"known length": bytes.NewReader(want), "stream": io.MultiReader(bytes.NewReader(want))} {
		cmd := c.Script("demo", "x.py")
		cmd.Stdin = r
		got, err := cmd.Output(t.Context())
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
}

func TestStdinOfAProgramThatDoesNotRead(t *testing.T) {
	f := &fake{interactive: func(s eventtest.Interactive) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		return newRecord().stdout("done").exit(0).send(s, 0, 0)
	}}
	in, w := io.Pipe() // no writer, so the Read never returns
	defer w.Close()
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Stdin = in
	if out, err := cmd.Output(t.Context()); err != nil || string(out) != "done" {
		t.Errorf("got %q, %v, want %q", out, err, "done")
	}
}

func TestStdinReadError(t *testing.T) {
	cmd := (&fake{interactive: echo}).dial(t).Script("demo", "x.py")
	cmd.Stdin = io.MultiReader(strings.NewReader("some"), errReader{})
	out, err := cmd.Output(t.Context())
	if got, want := fmt.Sprint(err), "stdin: bad sector"; got != want || string(out) != "some" {
		t.Errorf("got %q, %q, want %q, %q", out, got, "some", want)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("bad sector") }

// TestStdinLostWithTheConnection has a program that succeeds although its input was cut
// off. Only the client can know that.
func TestStdinLostWithTheConnection(t *testing.T) {
	in, w := io.Pipe()
	defer w.Close()
	r := newRecord().started().stdout("sum of half the numbers").exit(0)
	f := r.serve()
	f.interactive = func(s eventtest.Interactive) error {
		r.send(s, 0, 2)
		if _, err := s.Recv(); err != nil {
			return err
		}
		if m, err := s.Recv(); err != nil || string(m.GetStdin()) != "half" {
			return fmt.Errorf("stdin: got %v, %v", m, err)
		}
		f.cut()
		return nil
	}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Stdin = in
	go io.WriteString(w, "half")
	out, err := cmd.Output(t.Context())
	if got, want := fmt.Sprint(err), "stdin: the connection broke before all input was sent"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(out), "sum of half the numbers"; got != want {
		t.Errorf("stdout: got %q, want %q", got, want)
	}
}

// TestStdinWithAKey: all of the input is in the request, whatever the reader, and is sent
// again with it. Only files follow.
func TestStdinWithAKey(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcde\n"), keyedBytes/16)
	tests := []struct {
		name  string
		stdin io.Reader
		files []File
		want  []byte
	}{
		{"stream", io.MultiReader(strings.NewReader("all of it")), nil, []byte("all of it")},
		{"known length", bytes.NewReader(large), nil, large},
		{"empty", io.MultiReader(), nil, nil},
		{"with files", io.MultiReader(bytes.NewReader(large)), []File{{Path: "in", Content: []byte("x")}}, large},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []byte
			first := true
			f := &fake{}
			take := func(start *pb.ExecuteRequest, s eventtest.Server) error {
				if first {
					first = false
					f.cut()
					<-s.Context().Done()
					return nil
				}
				got = start.GetStdinBytes()
				for _, event := range newRecord().exit(0).events {
					s.Send(event)
				}
				return nil
			}
			f.execute = func(start *pb.ExecuteRequest, s eventtest.Server) error {
				return take(start, s)
			}
			f.interactive = func(s eventtest.Interactive) error {
				start, files, err := receiveFiles(s)
				if err != nil {
					return err
				}
				if m, err := s.Recv(); err != io.EOF || string(files["in"]) != "x" {
					t.Errorf("after the files %q: got %v, want the end", files, m)
				}
				return take(start, s.Server)
			}
			f.limit = keyedBytes + inlineBytes
			cmd := f.dial(t).Script("demo", "x.py")
			cmd.Stdin, cmd.Files, cmd.IdempotencyKey = test.stdin, test.files, "k"
			if err := cmd.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, test.want) {
				t.Errorf("got %d bytes, want %d", len(got), len(test.want))
			}
		})
	}
}

// TestStdinThatAKeyCannotHave: the client refuses these before it sends anything.
func TestStdinThatAKeyCannotHave(t *testing.T) {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	tests := []struct {
		name  string
		stdin io.Reader
		json  string
		want  string
	}{
		{"too large", zeros, "", "run demo: stdin: an idempotency key needs an input of at most 15 MiB"},
		{"a byte too large", bytes.NewReader(make([]byte, keyedBytes+1)), "", "run demo: stdin: an idempotency key needs an input of at most 15 MiB"},
		{"unreadable", errReader{}, "", "run demo: stdin: bad sector"},
		{"after arguments", strings.NewReader("x"), "{}", "run demo: stdin: not allowed after JSON arguments if there is an idempotency key"},
	}
	for _, test := range tests {
		cmd := (&fake{}).dial(t).Script("demo", "x.py") // the fake would answer UNIMPLEMENTED
		cmd.Stdin, cmd.JSONArguments, cmd.IdempotencyKey = test.stdin, test.json, "k"
		if got := fmt.Sprint(cmd.Run(t.Context())); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEndOfContextEndsTheReadingForAKey(t *testing.T) {
	in, w := io.Pipe()
	defer w.Close()
	ctx, end := context.WithCancel(t.Context())
	cmd := (&fake{}).dial(t).Script("demo", "x.py")
	cmd.Stdin, cmd.IdempotencyKey = in, "k"
	go func() {
		io.WriteString(w, "it is being read")
		end()
	}()
	if err := cmd.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// TestTooLargeForTheDaemon: the message is not sent again, because it would be too large
// again.
func TestTooLargeForTheDaemon(t *testing.T) {
	c := (&fake{limit: 1 << 20}).dial(t)
	c.patience.OnWait = func(err error) { t.Errorf("it waits after %v", err) }
	cmd := c.Script("demo", "x.py")
	cmd.Stdin, cmd.IdempotencyKey = bytes.NewReader(make([]byte, 2<<20)), "k"
	err := cmd.Run(t.Context())
	if got, want := status.Code(err), codes.ResourceExhausted; got != want {
		t.Errorf("code: got %v, want %v", got, want)
	}
	if large := (*MessageSizeError)(nil); !errors.As(err, &large) || large.Size <= 2<<20 || large.Limit != 1<<20 || !strings.Contains(err.Error(), "message_bytes") {
		t.Errorf("got %v, want a MessageSizeError", err)
	}
}

func TestFilesGoInlineOrInChunks(t *testing.T) {
	dir := t.TempDir()
	large := bytes.Repeat([]byte("0123456789"), 70_000) // 2.7 chunks
	small := []byte("small")
	source := filepath.Join(dir, "large")
	if err := os.WriteFile(source, large, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	var start *pb.ExecuteRequest
	var streamed map[string][]byte
	f.interactive = func(s eventtest.Interactive) error {
		var err error
		if start, streamed, err = receiveFiles(s); err != nil {
			return err
		}
		if m, err := s.Recv(); err != io.EOF {
			t.Errorf("after the files: got %v, want the end", m)
		}
		return newRecord().exit(0).send(s, 0, 0)
	}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Files = []File{
		{Path: "a", Source: source},                   // 700 kB fits
		{Path: "b", Source: source, Executable: true}, // with it, this one does not
		{Path: "c", Content: small},
		{Path: "d", Content: large},
		{Path: "e"},
	}
	var last, calls int64
	cmd.OnUpload = func(sent, total int64) {
		if want := int64(2 * len(large)); sent <= last || total != want {
			t.Errorf("upload: %d of %d after %d, want more, of %d", sent, total, last, want)
		}
		last = sent
		calls++
	}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last != int64(2*len(large)) || calls != 6 {
		t.Errorf("upload: ended at %d after %d calls, want %d after 6", last, calls, 2*len(large))
	}
	want := map[string][]byte{"a": large, "b": large, "c": small, "d": large, "e": {}}
	chunked := map[string]bool{"b": true, "d": true}
	for _, in := range start.GetFiles() {
		got := in.GetContent()
		if chunked[in.GetPath()] {
			got = streamed[in.GetPath()]
		}
		if (in.GetStreamed() != nil) != chunked[in.GetPath()] || !bytes.Equal(got, want[in.GetPath()]) {
			t.Errorf("%s: got %d bytes, streamed %v, want %d, %v", in.GetPath(), len(got), in.GetStreamed() != nil, len(want[in.GetPath()]), chunked[in.GetPath()])
		}
		if got, want := in.GetExecutable(), in.GetPath() == "b"; got != want {
			t.Errorf("%s: got executable %v, want %v", in.GetPath(), got, want)
		}
	}
}

func TestFilesThatCannotBeSent(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ name, source, want string }{
		{"missing", filepath.Join(dir, "none"), "no such file"},
		{"directory", dir, "not a regular file"},
	}
	for _, test := range tests {
		cmd := (&fake{}).dial(t).Script("demo", "x.py")
		cmd.Files = []File{{Path: "in", Source: test.source}}
		if err := cmd.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

// TestFileShrinksWhileItIsSent truncates the file after the request has announced it.
func TestFileShrinksWhileItIsSent(t *testing.T) {
	source := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(source, make([]byte, inlineBytes+8*chunkBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{interactive: func(s eventtest.Interactive) error {
		_, _, err := receiveFiles(s)
		return err
	}}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Files = []File{{Path: "in", Source: source}}
	call, err := cmd.call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer call.close()
	if err := os.Truncate(source, 10); err != nil {
		t.Fatal(err)
	}
	cmd.IdempotencyKey = "k" // not sent again in spite of the key
	_, err = cmd.client.open(t.Context(), newLifetime(t.Context()), call)
	if got, want := fmt.Sprint(err), fmt.Sprintf("file in: it became shorter than %d bytes during the read", inlineBytes+8*chunkBytes); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFileThatChangedIsRefused(t *testing.T) {
	source := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(source, make([]byte, inlineBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{interactive: func(s eventtest.Interactive) error {
		_, _, err := receiveFiles(s)
		return err
	}}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Files = []File{{Path: "in", Source: source}}
	call, err := cmd.call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer call.close()
	if err := os.WriteFile(source, bytes.Repeat([]byte{1}, inlineBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = cmd.client.open(t.Context(), newLifetime(t.Context()), call)
	if got, want := status.Code(err), codes.DataLoss; got != want {
		t.Errorf("code: got %v (%v), want %v", got, err, want)
	}
}

// TestDetachWaitsForTheFiles: the program starts only when the files have arrived.
func TestDetachWaitsForTheFiles(t *testing.T) {
	arrived := false
	f := &fake{interactive: func(s eventtest.Interactive) error {
		r := newRecord().started()
		if err := r.send(s, 0, 1); err != nil { // the header comes first
			return err
		}
		if _, _, err := receiveFiles(s); err != nil {
			return err
		}
		arrived = true
		r.send(s, 1, 0)
		<-s.Context().Done()
		return nil
	}}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	cmd.Files = []File{{Path: "in", Content: make([]byte, 3<<20)}}
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Execution.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !arrived {
		t.Error("detached before the file had arrived")
	}
}
