package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func start(m *pb.ExecuteRequest) *pb.ExecuteInteractiveRequest {
	return &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: m}}
}

func stdinMessage(data string) *pb.ExecuteInteractiveRequest {
	return &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte(data)}}
}

func chunkMessage(c *pb.FileChunk) *pb.ExecuteInteractiveRequest {
	return &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_FileChunk{FileChunk: c}}
}

func signalMessage(name string) *pb.ExecuteInteractiveRequest {
	return &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Signal{Signal: &pb.SendSignal{Signal: name}}}
}

func closeMessage() *pb.ExecuteInteractiveRequest {
	return &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_CloseStdin{CloseStdin: &pb.CloseStdin{}}}
}

// send sends messages. It ignores the error of a call that has ended: the reader sees it.
func send(t testing.TB, s interactiveClient, messages ...*pb.ExecuteInteractiveRequest) {
	t.Helper()
	for _, m := range messages {
		if err := s.Send(m); err != nil && err != io.EOF {
			t.Fatal(err)
		}
	}
}

// interact opens a stream and sends messages.
func (d *daemon) interact(ctx context.Context, messages ...*pb.ExecuteInteractiveRequest) interactiveClient {
	d.t.Helper()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	send(d.t, s, messages...)
	return s
}

// A dialogue: input arrives while the program runs, and so does output.
func TestInteractive(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/echo.sh")
	m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("from the start\n")}
	s := d.interact(t.Context(), start(m))
	r := readUntil(t, s, nil, "got from the start\n")
	for i := range 5 {
		send(t, s, stdinMessage(fmt.Sprintf("line %d\n", i)))
		r.until(s, func(r *transcript) bool { return strings.Contains(r.stdout, fmt.Sprintf("got line %d\n", i)) })
	}
	send(t, s, closeMessage())
	r.until(s, func(*transcript) bool { return false })
	wantExit(t, r, 0)
	if !strings.HasSuffix(r.stdout, "got line 4\nend of input\n") || !consecutive(r.sequences, 1) {
		t.Errorf("got %q, sequences %v", r.stdout, r.sequences)
	}
}

// Closing the sending side ends standard input and nothing else.
func TestInteractiveHalfClose(t *testing.T) {
	d := startDaemon(t, nil)
	s := d.interact(t.Context(), start(script("scripts/echo.sh")), stdinMessage("last"))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r := readAll(t, s, nil)
	wantExit(t, r, 0)
	if r.stdout != "ready\nend of input\n" && r.stdout != "ready\ngot last\nend of input\n" {
		t.Errorf("got %q", r.stdout)
	}
}

// Standard input is read no faster than the program reads it, and arrives whole.
func TestInteractiveFlowControl(t *testing.T) {
	d := startDaemon(t, nil)
	s := d.interact(t.Context(), start(script("scripts/deaf.sh")))
	r := readUntil(t, s, nil, "ready")
	const pieces, size = 64, 256 << 10
	sent := make(chan error, 1)
	go func() {
		piece := append(bytes.Repeat([]byte{'x'}, size-1), '\n')
		for range pieces {
			if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: piece}}); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	r.until(s, func(*transcript) bool { return false })
	wantExit(t, r, 0)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(r.stdout, fmt.Sprintf("\n%d\n", (pieces-1)*size)) {
		t.Errorf("got %q", r.stdout[max(0, len(r.stdout)-100):])
	}
}

// A program may end without reading its input; the call ends with it.
func TestInteractiveUnreadInput(t *testing.T) {
	d := startDaemon(t, nil)
	s := d.interact(t.Context(), start(script("scripts/hello.sh")))
	go func() {
		for s.Send(stdinMessage(strings.Repeat("x", 1<<20))) == nil {
		}
	}()
	wantExit(t, readAll(t, s, nil), 3)
}

// A signal finds the program even if it was sent before the program ran.
func TestInteractiveSignal(t *testing.T) {
	d := startDaemon(t, func(c *executor.Config, _ *Config) { c.MaxRunning = 1 })
	holder := d.interact(t.Context(), start(script("scripts/echo.sh")))
	readUntil(t, holder, nil, "ready")
	m := code("bash", "exec sleep 600")
	s := d.interact(t.Context(), start(m), signalMessage("SIGTERM"))
	r := &transcript{}
	r.until(s, func(r *transcript) bool { return r.header != nil })
	if err := holder.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	if r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_SIGNALED || r.outcome.GetSignal() != "SIGTERM" {
		t.Errorf("got %v, %v", r.outcome, r.err)
	}
}

// A signal counts in the tenant's quota of calls, and the call that starts the execution does not. Beyond the quota
// signals still arrive.
func TestInteractiveSignalsCount(t *testing.T) {
	acme := &tenant.Tenant{Name: "acme", Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}}
	d := startDaemon(t, func(x *executor.Config, c *Config) {
		acme.Policy, acme.Bounds, acme.QueueTimeout = x.Policy, x.Bounds, x.QueueTimeout
		x.Tenants = tenant.New(acme)
		c.Identify = as(identity.Invoke)
	})
	s := d.interact(t.Context(), start(script("scripts/signals.sh", "3")))
	r := readUntil(t, s, nil, "ready")
	if n := d.x.Use(acme).Called; n != 0 {
		t.Errorf("after the start: %d calls, want none", n)
	}
	for range 3 {
		before := strings.Count(r.stdout, "got USR1")
		send(t, s, signalMessage("SIGUSR1"))
		r.until(s, func(r *transcript) bool { return strings.Count(r.stdout, "got USR1") > before })
		if n := d.x.Use(acme).Called; n != 1 {
			t.Errorf("after a signal: %d calls, want 1", n)
		}
	}
	r.until(s, func(*transcript) bool { return false })
	wantExit(t, r, 0)
}

func TestInteractiveUpload(t *testing.T) {
	d := startDaemon(t, nil)
	big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	m := script("scripts/sums.sh", "in/big", "small", "none")
	m.Files = []*pb.InputFile{
		announce("in/big", big), announce("small", "s"), announce("none", ""),
		{Path: "inline", Source: &pb.InputFile_Content{Content: []byte("i")}},
	}
	m.Files[1].Executable = true
	s := d.interact(t.Context(), start(m))
	half := len(big) / 2
	send(t, s,
		chunkMessage(chunk("in/big", 0, big[:half])), chunkMessage(chunk("small", 0, "s")), chunkMessage(chunk("in/big", half, big[half:])))
	r := readAll(t, s, nil)
	wantExit(t, r, 0)
	want := fmt.Sprintf("%d\n%s  -\n1\n%s  -\nexecutable\n0\n%s  -\n", len(big), sum(big), sum("s"), sum(""))
	if r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
	if n := left(t, d.uploads); n != 0 || d.uploads.room() != maxStagedBytes {
		t.Errorf("%d entries left, %d bytes free", n, d.uploads.room())
	}
}

// An error before the header refuses the call. Nothing has run, and no file stays.
func TestInteractiveRefusals(t *testing.T) {
	d := startIdle(t, nil)
	upload := func(content string) *pb.ExecuteRequest {
		m := script("scripts/hello.sh")
		m.Files = []*pb.InputFile{announce("a", content)}
		return m
	}
	unknown := upload("x")
	unknown.Skill = "nope"
	collides := upload("x")
	collides.Files[0].Path = "SKILL.md"
	for _, c := range []struct {
		name     string
		messages []*pb.ExecuteInteractiveRequest
		want     refusal
	}{
		{"nothing", nil, refusal{codes.InvalidArgument, "INVALID_REQUEST", "start"}},
		{"no start", []*pb.ExecuteInteractiveRequest{stdinMessage("x")}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "start"}},
		{"empty message", []*pb.ExecuteInteractiveRequest{{}}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "start"}},
		{"bad start", []*pb.ExecuteInteractiveRequest{start(&pb.ExecuteRequest{Skill: "demo"})}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "source"}},
		{"bad announcement", []*pb.ExecuteInteractiveRequest{start(func() *pb.ExecuteRequest {
			m := upload("x")
			m.Files[0].GetStreamed().Sha256 = "1"
			return m
		}())}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "files[0].streamed.sha256"}},
		{"stdin before the files", []*pb.ExecuteInteractiveRequest{start(upload("x")), stdinMessage("x")}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "message"}},
		{"start before the files", []*pb.ExecuteInteractiveRequest{start(upload("x")), start(upload("x"))}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "message"}},
		{"signal before the files", []*pb.ExecuteInteractiveRequest{start(upload("x")), signalMessage("SIGTERM")}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "message"}},
		{"empty message before the files", []*pb.ExecuteInteractiveRequest{start(upload("x")), {}}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "message"}},
		{"incomplete", []*pb.ExecuteInteractiveRequest{start(upload("xy")), chunkMessage(chunk("a", 0, "x"))}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "file_chunk"}},
		{"gap", []*pb.ExecuteInteractiveRequest{start(upload("xy")), chunkMessage(chunk("a", 1, "y"))}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "file_chunk.offset_bytes"}},
		{"other content", []*pb.ExecuteInteractiveRequest{start(upload("x")), chunkMessage(chunk("a", 0, "y"))}, refusal{codes.DataLoss, "FILE_DIGEST_MISMATCH", ""}},
		{"unknown skill, before the chunks", []*pb.ExecuteInteractiveRequest{start(unknown)}, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""}},
		{"collision with the skill", []*pb.ExecuteInteractiveRequest{start(collides), chunkMessage(chunk("SKILL.md", 0, "x"))}, refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.interact(t.Context(), c.messages...)
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
			r := readAll(t, s, nil)
			if len(r.raw) > 0 {
				t.Fatalf("accepted: %v", r.raw)
			}
			wantRefusal(t, r.err, c.want)
			if n := left(t, d.uploads); n != 0 || d.uploads.room() != maxStagedBytes {
				t.Errorf("%d entries left, %d bytes free", n, d.uploads.room())
			}
		})
	}
}

// After the header a message that does not belong there cancels the execution,
// and the stream still ends with an outcome.
func TestInteractiveProtocol(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		name     string
		script   string
		messages []*pb.ExecuteInteractiveRequest
		reason   string
	}{
		// A program that reads must not find the end of its input instead.
		{"second start", "scripts/echo.sh", []*pb.ExecuteInteractiveRequest{start(script("scripts/hello.sh"))}, "start after the start"},
		{"chunk", "scripts/echo.sh", []*pb.ExecuteInteractiveRequest{chunkMessage(chunk("a", 0, "x"))}, "file_chunk after the start"},
		{"empty", "scripts/echo.sh", []*pb.ExecuteInteractiveRequest{{}}, "an empty message"},
		{"unknown signal", "scripts/echo.sh", []*pb.ExecuteInteractiveRequest{signalMessage("SIGFOO")}, `signal: "SIGFOO"`},
		{"stdin after its end", "scripts/forever.sh", []*pb.ExecuteInteractiveRequest{closeMessage(), stdinMessage("x")}, "stdin: comes after close_stdin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.interact(t.Context(), start(script(c.script)))
			r := readUntil(t, s, nil, "ready")
			send(t, s, c.messages...)
			r.until(s, func(*transcript) bool { return false })
			if r.err != nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
				t.Fatalf("got %v, %v", r.outcome, r.err)
			}
			if ev := r.outcome.Evidence; ev.CancelledBy == "disconnect" || !strings.HasPrefix(ev.CancelReason, "protocol: ") || !strings.Contains(ev.CancelReason, c.reason) {
				t.Errorf("cancelled by %q: %q", ev.CancelledBy, ev.CancelReason)
			}
		})
	}
}

// A caller that goes away is handled as the request says. With "continue" the
// program finds the end of its input; without, it must not take the broken stream
// for that.
func TestInteractiveDisconnect(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		policy pb.OnDisconnect
		end    pb.ExecutionEnd
		stdout string
	}{
		{pb.OnDisconnect_ON_DISCONNECT_CANCEL, pb.ExecutionEnd_EXECUTION_END_CANCELLED, "got x\n"},
		{pb.OnDisconnect_ON_DISCONNECT_CONTINUE, pb.ExecutionEnd_EXECUTION_END_EXITED, "got x\nend of input\n"},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := script("scripts/echo.sh")
			m.OnDisconnect = c.policy
			s := d.interact(ctx, start(m), stdinMessage("x\n"))
			r := readUntil(t, s, nil, "got x\n")
			cancel()
			after := d.ended(r.id)
			if after.outcome.End != c.end || !strings.HasSuffix(after.stdout, c.stdout) {
				t.Errorf("got %v, %q", after.outcome, after.stdout)
			}
		})
	}
}

// A caller that disconnects during an upload leaves no files.
func TestInteractiveDisconnectDuringUpload(t *testing.T) {
	d := startIdle(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	m := script("scripts/hello.sh")
	m.Files = []*pb.InputFile{announce("a", "xy")}
	s := d.interact(ctx, start(m), chunkMessage(chunk("a", 0, "x")))
	cancel()
	readAll(t, s, nil)
	d.Stop(context.Background()) // every call is over
	if n := left(t, d.uploads); n != 0 || d.uploads.room() != maxStagedBytes {
		t.Errorf("%d entries left, %d bytes free", n, d.uploads.room())
	}
}

// A key makes a request comparable only if it is complete in its first message:
// standard input can't be streamed with one.
func TestInteractiveWithKey(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/echo.sh")
	m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("from the start\n")}
	m.IdempotencyKey = "once"
	first := readAll(t, d.interact(t.Context(), start(m), closeMessage()), nil)
	wantExit(t, first, 0)
	if again := readAll(t, d.interact(t.Context(), start(m)), nil); again.id != first.id || !again.header.Deduplicated {
		t.Errorf("the same request ran again: %s, want %s", again.id, first.id)
	}
	m.IdempotencyKey = "other"
	r := readAll(t, d.interact(t.Context(), start(m), stdinMessage("more")), nil)
	if e := r.outcome.GetEvidence(); r.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_CANCELLED && !strings.Contains(e.GetCancelReason(), "idempotency_key") {
		t.Errorf("cancelled because of %q", e.GetCancelReason())
	}
	if strings.Contains(r.stdout, "more") {
		t.Error("the program read what was streamed")
	}
}
