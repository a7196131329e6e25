package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// process starts the client in a separate process.
func (f *fake) process(t *testing.T, args ...string) (cmd *exec.Cmd, stdout *bufio.Reader, stderr *strings.Builder) {
	t.Helper()
	f.serve(t, "unix")
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SKILLRUN_TEST_CLIENT=1", addressVariable+"="+f.address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr = &strings.Builder{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(out), stderr
}

// waitFor reads standard output up to a word of the program.
func waitFor(t *testing.T, stdout *bufio.Reader, want string) {
	t.Helper()
	if got, err := stdout.ReadString('\n'); got != want {
		t.Fatalf("stdout: got %q, %v, want %q", got, err, want)
	}
}

// TestInterruptCancels: the first Ctrl-C cancels, and the rest of the output still comes.
func TestInterruptCancels(t *testing.T) {
	tests := []struct {
		signal syscall.Signal
		code   int
		reason string
	}{{syscall.SIGINT, 130, "interrupted"}, {syscall.SIGTERM, 143, "terminated"}}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			cancelled := make(chan *pb.CancelExecutionRequest, 1)
			r := newRecord().started().stdout("ready\n").stdout("last words\n").outcome(&pb.ExecutionOutcome{
				End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: proto.Int32(0), Evidence: &pb.ExecutionEvidence{CancelledBy: "uid 0", CancelReason: test.reason},
			})
			f := &fake{
				execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
					r.send(s, 0, 3)
					<-cancelled
					return r.send(s, 3, 0)
				},
				answers: map[string]any{"CancelExecution": func(r *pb.CancelExecutionRequest) (*pb.Execution, error) {
					cancelled <- r
					return &pb.Execution{}, nil
				}},
			}
			cmd, stdout, stderr := f.process(t, "run", "demo", "x.py")
			waitFor(t, stdout, "ready\n")
			cmd.Process.Signal(test.signal)
			waitFor(t, stdout, "last words\n")
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Errorf("code: got %d, want %d", got, test.code)
			}
			if got, want := stderr.String(), "skillrun: execution e1: cancelled by uid 0: "+test.reason+"\n"; got != want {
				t.Errorf("stderr: got %q, want %q", got, want)
			}
			if got, want := f.asked[0], (&pb.CancelExecutionRequest{ExecutionId: "e1", Reason: test.reason}); !proto.Equal(got, want) {
				t.Errorf("cancel: got %v, want %v", got, want)
			}
		})
	}
}

// TestSecondInterruptDoesNotWait: the daemon never answers the cancel.
func TestSecondInterruptDoesNotWait(t *testing.T) {
	asked, forever := make(chan struct{}), make(chan struct{})
	defer close(forever)
	f := &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			newRecord().stdout("ready\n").send(s, 0, 0)
			<-forever
			return nil
		},
		answers: map[string]any{"CancelExecution": func(*pb.CancelExecutionRequest) (*pb.Execution, error) {
			close(asked)
			<-forever
			return &pb.Execution{}, nil
		}},
	}
	cmd, stdout, _ := f.process(t, "run", "demo", "x.py")
	waitFor(t, stdout, "ready\n")
	cmd.Process.Signal(os.Interrupt)
	<-asked
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 130; got != want {
		t.Errorf("code: got %d, want %d", got, want)
	}
}

// TestInterruptedAttachLeavesTheExecution: only the following ends.
func TestInterruptedAttachLeavesTheExecution(t *testing.T) {
	f := &fake{attach: func(_ *pb.AttachExecutionRequest, s eventtest.Server) error {
		newRecord().stdout("ready\n").send(s, 0, 0)
		<-s.Context().Done()
		return nil
	}}
	cmd, stdout, stderr := f.process(t, "attach", "e1")
	waitFor(t, stdout, "ready\n")
	cmd.Process.Signal(os.Interrupt)
	io.Copy(io.Discard, stdout)
	cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 130; got != want {
		t.Errorf("code: got %d, want %d", got, want)
	}
	if got := stderr.String(); !strings.Contains(got, "skillrun cancel e1") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr: got %q, want one line that says how to end it", got)
	}
	if len(f.asked) != 0 {
		t.Errorf("asked: got %v, want nothing", f.asked)
	}
}

// TestMainUsesTheProcess runs main itself: its streams, its environment, its
// exit code.
func TestMainUsesTheProcess(t *testing.T) {
	f := newRecord().stdout("hello\n").exit(9).fake()
	cmd, stdout, _ := f.process(t, "run", "demo", "x.py")
	waitFor(t, stdout, "hello\n")
	cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 9; got != want {
		t.Errorf("code: got %d, want %d", got, want)
	}
}

// TestInterruptBeforeTheHeader: nothing is known to cancel yet; the broken stream
// tells the daemon.
func TestInterruptBeforeTheHeader(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		close(asked)
		<-s.Context().Done()
		close(gone)
		return nil
	}}
	cmd, _, stderr := f.process(t, "run", "demo", "x.py")
	<-asked
	cmd.Process.Signal(os.Interrupt)
	<-gone
	cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 130; got != want {
		t.Errorf("code: got %d, want %d", got, want)
	}
	if got, want := stderr.String(), "skillrun: run demo: interrupted\n"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}

// TestInterruptOfAQuestion: every command can be interrupted.
func TestInterruptOfAQuestion(t *testing.T) {
	asked, forever := make(chan struct{}), make(chan struct{})
	defer close(forever)
	f := answers("ListExecutions", func(*pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
		close(asked)
		<-forever
		return &pb.ListExecutionsResponse{}, nil
	})
	cmd, _, stderr := f.process(t, "ps")
	<-asked
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if got, want := cmd.ProcessState.ExitCode(), 130; got != want {
		t.Errorf("code: got %d, want %d", got, want)
	}
	if got, want := stderr.String(), "skillrun: interrupted (Canceled)\n"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}
