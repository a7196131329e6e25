package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The script prints the next number only after the client has received the last one. If
// output were not live, the test would not end.
func TestOutputIsLive(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.ExecuteInteractive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start := code("calculator", "for i in range(5):\n print(i)\n input()")
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if bytes.HasSuffix(e.GetOutput().GetData(), []byte("\n")) {
			if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil && err != io.EOF {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "0\n1\n2\n3\n4\n")
}

func TestLargeOutput(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	for _, tt := range []struct {
		name             string
		total, limit     int64
		delivered        int64
		truncated, wants bool
	}{
		{"10 MiB, all of it", 10 << 20, 0, 10 << 20, false, true},
		{"one byte more", 10<<20 + 1, 0, 10 << 20, true, true},
		{"100 MiB, limit raised", 100 << 20, 200 << 20, 100 << 20, false, true},
		{"100 MiB, cut at 10", 100 << 20, 0, 10 << 20, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			// Not calculator, which may run for 10 s only.
			req := code("data-analysis", fmt.Sprintf("import sys\nn=%d\nb=bytes(range(256))*4096\nwhile n:\n c=b[:n]\n sys.stdout.buffer.write(c)\n n-=len(c)\nsys.stderr.write('done')", tt.total))
			if tt.limit > 0 {
				req.Limits = &pb.ExecutionLimits{OutputBytes: uint64(tt.limit)}
			}
			r := d.run(req)
			r.wantExit(t, 0)
			want := bytes.Repeat(bytes.Repeat([]byte(alphabet()), 4096), 101)[:tt.delivered]
			if sha256.Sum256(r.stdout.Bytes()) != sha256.Sum256(want) {
				t.Errorf("%d bytes of stdout are not the first %d that were printed", r.stdout.Len(), tt.delivered)
			}
			o := r.outcome.Stdout
			if o.Truncated != tt.truncated || o.DeliveredBytes != uint64(tt.delivered) || o.TotalBytes != uint64(tt.total) {
				t.Errorf("got %v", o)
			}
			if r.stderr.String() != "done" || r.outcome.Stderr.Truncated {
				t.Errorf("stderr %q, %v: the other stream must not suffer", r.stderr.String(), r.outcome.Stderr)
			}
		})
	}
	t.Run("endless", func(t *testing.T) {
		d.t = t
		r := d.run(wall(shell("calculator", "yes"), startsWithin))
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.stdout.Len() != 10<<20 || !r.outcome.Stdout.Truncated {
			t.Errorf("%v, %d bytes, %v; want TIMED_OUT with 10 MiB delivered", r.outcome.End, r.stdout.Len(), r.outcome.Stdout)
		}
	})
}

func alphabet() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// A client that stops reading slows neither the script nor another client.
func TestReaderThatStops(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := code("calculator", "import sys\nfor i in range(8 << 10): sys.stdout.buffer.write(b'x' * 1024)")
	req.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	stopped, err := d.runs.Execute(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	header, err := stopped.Recv() // the client reads nothing after this
	if err != nil {
		t.Fatal(err)
	}
	r := d.attach(header.ExecutionId, 0)
	r.wantExit(t, 0)
	if r.stdout.Len() != 8<<20 {
		t.Errorf("the other reader got %d bytes, want %d", r.stdout.Len(), 8<<20)
	}
}

func (d *running) attach(id string, after uint64) *result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*patience)
	defer cancel()
	s, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id, AfterSequence: after})
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := collect(d.t, s, after, nil)
	if err != nil {
		d.t.Fatalf("attach after %d: %v", after, err)
	}
	return r
}

func TestAttachResumesByteForByte(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	whole := d.run(shell("calculator", "for i in $(seq 300); do echo line $i; echo err $i >&2; done; exit 4"))
	last := uint64(len(whole.events))
	for _, after := range []uint64{0, 1, 2, last / 2, last - 1, last} {
		if after == last {
			// No event follows the outcome.
			s, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: whole.id, AfterSequence: after})
			if err != nil {
				t.Fatal(err)
			}
			if e, err := s.Recv(); err != io.EOF {
				t.Errorf("after the last event: got %v, %v; want io.EOF", e, err)
			}
			continue
		}
		r := d.attach(whole.id, after)
		if len(r.events) != int(last-after) {
			t.Errorf("after %d: %d events, want %d", after, len(r.events), last-after)
		}
		var stdout bytes.Buffer
		for _, e := range whole.events[after:] {
			if o := e.GetOutput(); o.GetStream() == pb.OutputStream_OUTPUT_STREAM_STDOUT {
				stdout.Write(o.Data)
			}
		}
		if !bytes.Equal(r.stdout.Bytes(), stdout.Bytes()) {
			t.Errorf("after %d: stdout differs", after)
		}
		r.wantExit(t, 4)
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	const loop = "echo ready; while [ ! -e go ]; do sleep 0.02; done"
	begin := func(t *testing.T, policy pb.OnDisconnect, text string) string {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // on return the call is cancelled, which looks like a disconnect
		req := shell("calculator", text)
		req.OnDisconnect = policy
		s, err := d.runs.Execute(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.GetOutput() != nil {
				return e.ExecutionId
			}
		}
	}
	t.Run("cancels", func(t *testing.T) {
		d.t = t
		r := d.attach(begin(t, pb.OnDisconnect_ON_DISCONNECT_UNSPECIFIED, loop), 0)
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.outcome.Evidence.CancelledBy != "disconnect" {
			t.Errorf("got %v, want CANCELLED by disconnect", r.outcome)
		}
	})
	t.Run("continues", func(t *testing.T) {
		d.t = t
		id := begin(t, pb.OnDisconnect_ON_DISCONNECT_CONTINUE, "trap 'echo told; exit 0' USR1; echo ready; while :; do sleep 0.02; done")
		if _, err := d.runs.SignalExecution(t.Context(), &pb.SignalExecutionRequest{ExecutionId: id, Signal: "SIGUSR1"}); err != nil {
			t.Fatal(err)
		}
		r := d.attach(id, 0)
		r.wantExit(t, 0)
		if !strings.HasPrefix(r.stdout.String(), "ready\n") {
			t.Errorf("stdout %q", r.stdout.String())
		}
	})
}

func TestKeepalive(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "keepalive: 1s\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, shell("calculator", "trap 'exit 0' USR1; while :; do sleep 0.02; done"))
	if err != nil {
		t.Fatal(err)
	}
	keepalives := 0
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if k := e.GetKeepalive(); k != nil && k.State == pb.ExecutionState_EXECUTION_STATE_RUNNING {
			if keepalives++; keepalives == 3 {
				d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: e.ExecutionId, Signal: "SIGUSR1"})
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	d := startDaemonIn(t, dir, "")
	req := code("calculator", "import uuid; print(uuid.uuid4())")
	req.IdempotencyKey = "once-only"
	first := d.run(req)
	second := d.run(req)
	if second.id != first.id || second.stdout.String() != first.stdout.String() || !second.header.Deduplicated || first.header.Deduplicated {
		t.Errorf("the same request ran twice: %s %q, %s %q", first.id, first.stdout.String(), second.id, second.stdout.String())
	}
	other := code("calculator", "print(2)")
	other.IdempotencyKey = "once-only"
	_, err := d.try(other)
	wantStatus(t, err, "AlreadyExists", "IDEMPOTENCY_KEY_REUSED")

	d.kill()
	d = startDaemonIn(t, dir, "")
	if third := d.run(req); third.id != first.id {
		t.Errorf("the key did not survive the daemon: %s, want %s", third.id, first.id)
	}
}
