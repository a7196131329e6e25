package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "finder", "allowed-tools: Bash", nil)
	d := startDaemonIn(t, dir, "grace: 5s\nlimits: {default: {memory: 128MiB}}\n")
	bounded := func(req *pb.ExecuteRequest, l *pb.ExecutionLimits) *pb.ExecuteRequest {
		req.Limits = l
		return req
	}
	tests := []struct {
		name   string
		req    *pb.ExecuteRequest
		end    pb.ExecutionEnd
		code   int32
		signal string
		check  func(*testing.T, *result)
	}{
		{"exit 0", code("calculator", "print(2 + 2)"), pb.ExecutionEnd_EXECUTION_END_EXITED, 0, "", nil},
		{"exit 3", code("calculator", "import sys; sys.exit(3)"), pb.ExecutionEnd_EXECUTION_END_EXITED, 3, "", nil},
		{"exit 256 wraps", code("calculator", "import sys; sys.exit(256)"), pb.ExecutionEnd_EXECUTION_END_EXITED, 0, "", nil},
		{"exit -1", code("calculator", "import sys; sys.exit(-1)"), pb.ExecutionEnd_EXECUTION_END_EXITED, 255, "", nil},
		{"a failing program has its stderr", code("calculator", "x = 1 / 0"), pb.ExecutionEnd_EXECUTION_END_EXITED, 1, "", func(t *testing.T, r *result) {
			want := "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nZeroDivisionError: division by zero\n"
			if got := r.stderr.String(); got != want {
				t.Errorf("stderr %q, want %q", got, want)
			}
		}},
		{"SIGKILL of itself", code("calculator", "import os; os.kill(os.getpid(), 9)"), pb.ExecutionEnd_EXECUTION_END_SIGNALED, -9, "SIGKILL", nil},
		{"SIGTERM of itself", code("calculator", "import os; os.kill(os.getpid(), 15)"), pb.ExecutionEnd_EXECUTION_END_SIGNALED, -15, "SIGTERM", nil},
		{"abort", code("calculator", "import os; os.abort()"), pb.ExecutionEnd_EXECUTION_END_SIGNALED, -6, "SIGABRT", nil},
		{"segmentation fault", code("calculator", "import ctypes; ctypes.string_at(0)"), pb.ExecutionEnd_EXECUTION_END_SIGNALED, -11, "SIGSEGV", nil},
		{"real-time signal", code("calculator", "import os; os.kill(os.getpid(), 35)"), pb.ExecutionEnd_EXECUTION_END_SIGNALED, -35, "UNKNOWN_SIGNAL_35", nil},
		{"a shell whose child was killed exits by itself", shell("calculator", "bash -c 'kill -9 $$'; exit $?"), pb.ExecutionEnd_EXECUTION_END_EXITED, 137, "", nil},
		{"124 of its own is no timeout", code("calculator", "import sys; sys.stderr.write('Timeout'); sys.exit(124)"), pb.ExecutionEnd_EXECUTION_END_EXITED, 124, "", func(t *testing.T, r *result) {
			if r.outcome.TimedOut {
				t.Error("timed_out is set")
			}
		}},
		{"wall time", wall(code("calculator", "import time\nprint('part')\ntime.sleep(60)"), startsWithin), pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, 124, "", func(t *testing.T, r *result) {
			r.wantStdout(t, "part\n")
			if !r.outcome.TimedOut || r.outcome.Evidence.Deadline != pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL {
				t.Errorf("got %v, want timed_out by the wall deadline", r.outcome)
			}
			if !strings.Contains(r.outcome.Advice, startsWithin.String()) {
				t.Errorf("advice %q does not name the limit", r.outcome.Advice)
			}
		}},
		{"wall time, SIGTERM ignored", wall(code("calculator", "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)"), startsWithin), pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, 124, "", nil},
		{"wall time, SIGTERM answered", wall(code("calculator", "import signal, sys, time\nsignal.signal(15, lambda *a: (print('bye'), sys.exit(0)))\ntime.sleep(60)"), startsWithin), pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, 124, "", func(t *testing.T, r *result) {
			r.wantStdout(t, "bye\n")
		}},
		{"CPU time", bounded(code("calculator", "while True: pass"), &pb.ExecutionLimits{CpuTime: durationpb.New(time.Second)}), pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, 124, "", func(t *testing.T, r *result) {
			if r.outcome.Evidence.Deadline != pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU {
				t.Errorf("got %v, want the CPU deadline", r.outcome.Evidence)
			}
		}},
		{"out of memory", code("calculator", "x = bytearray(1 << 30)"), pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, -9, "SIGKILL", func(t *testing.T, r *result) {
			if r.outcome.Evidence.OomKillCount == 0 || r.outcome.Evidence.OomScope != pb.OomScope_OOM_SCOPE_EXECUTION || !strings.Contains(r.outcome.Advice, "128 MiB") {
				t.Errorf("evidence %v, advice %q", r.outcome.Evidence, r.outcome.Advice)
			}
		}},
		{"refused forks", bounded(shell("calculator", "for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; echo done"), &pb.ExecutionLimits{Processes: 4}), pb.ExecutionEnd_EXECUTION_END_EXITED, -1, "", func(t *testing.T, r *result) {
			if r.outcome.Evidence.PidsMaxCount == 0 {
				t.Errorf("evidence %v, want refused forks", r.outcome.Evidence)
			}
		}},
		{"fork bomb", bounded(shell("calculator", ":(){ :|:& };:; wait; sleep 60"), &pb.ExecutionLimits{Processes: 20, WallTime: durationpb.New(startsWithin)}), pb.ExecutionEnd_EXECUTION_END_UNSPECIFIED, -1, "", func(t *testing.T, r *result) {
			if r.outcome.Evidence.PidsMaxCount == 0 {
				t.Errorf("evidence %v, want refused forks", r.outcome.Evidence)
			}
		}},
		{"a program that is not there", command("finder", "no-such-program x"), pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, -1, "", func(t *testing.T, r *result) {
			if r.outcome.ExitCode != nil || r.outcome.Evidence.SetupStep != "exec" || r.outcome.Advice == "" {
				t.Errorf("got %v, want no exit code, set-up step exec, and advice", r.outcome)
			}
		}},
		{"a working directory that is not there", in(code("calculator", "print(1)"), "no/such"), pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, -1, "", nil},
	}
	t.Run("all", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				if tt.req.Limits.GetWallTime() != nil {
					t.Parallel() // these wait for their deadlines at the same time
				}
				mine := *d
				mine.t = t
				r := mine.run(tt.req)
				o := r.outcome
				if tt.end != pb.ExecutionEnd_EXECUTION_END_UNSPECIFIED && o.End != tt.end {
					t.Fatalf("ended as %v, want %v\nstderr %s", o, tt.end, tail(r.stderr.String(), 1000))
				}
				if tt.code != -1 && o.GetExitCode() != tt.code || o.Signal != tt.signal && tt.end != pb.ExecutionEnd_EXECUTION_END_UNSPECIFIED {
					t.Errorf("exit code %d, signal %q; want %d, %q", o.GetExitCode(), o.Signal, tt.code, tt.signal)
				}
				if tt.check != nil {
					tt.check(t, r)
				}
				if o.SkillDigest == "" || o.Limits.GetMemoryBytes() == 0 || o.Usage == nil {
					t.Errorf("the outcome lacks digest, limits or usage: %v", o)
				}
			})
		}
	})
	d.wantNothingLeft()
}

func in(req *pb.ExecuteRequest, dir string) *pb.ExecuteRequest {
	req.WorkingDirectory = dir
	return req
}

func TestUsageIsMeasured(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	r := d.run(code("calculator", "import time\nx = bytearray(64 << 20)\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"))
	r.wantExit(t, 0)
	u := r.outcome.Usage
	if cpu := u.CpuUser.AsDuration() + u.CpuSystem.AsDuration(); cpu < 300*time.Millisecond {
		t.Errorf("CPU %s, used 300ms", cpu)
	}
	if u.MemoryPeakBytes < 64<<20 {
		t.Errorf("memory peak %d, used 64 MiB", u.MemoryPeakBytes)
	}
	if u.WallTime.AsDuration() < 300*time.Millisecond || u.SetupTime.AsDuration() <= 0 {
		t.Errorf("usage %v", u)
	}
}

// All processes end with the main process. The answer does not wait for a child that holds
// stdout open.
func TestBackgroundChildrenEnd(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for name, req := range map[string]*pb.ExecuteRequest{
		"child":       code("calculator", "import subprocess\nsubprocess.Popen(['sleep', '3600'])\nprint('done')"),
		"new session": code("calculator", "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '3600'])\nprint('done')"),
		"daemon":      shell("calculator", "(setsid bash -c 'sleep 3600' &) ; nohup sleep 3600 & echo done"),
	} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			r := d.run(req)
			r.wantExit(t, 0)
			r.wantStdout(t, "done\n")
		})
	}
	d.t = t
	d.wantNothingLeft()
}

func TestCancel(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "concurrency: {running: 1}\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	running, err := d.runs.Execute(ctx, shell("calculator", "trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	var queuedID string
	r, err := collect(t, running, 0, func(e *pb.ExecutionEvent) {
		if string(e.GetOutput().GetData()) != "ready\n" {
			return
		}
		// The only slot is taken, so the next execution waits. It is cancelled while it waits.
		s, err := d.runs.Execute(ctx, code("calculator", "print(1)"))
		if err != nil {
			t.Fatal(err)
		}
		header, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		queuedID = header.ExecutionId
		if _, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: queuedID, Reason: "changed my mind"}); err != nil {
			t.Fatal(err)
		}
		q, err := collect(t, s, 1, nil)
		if err != nil || q.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || q.outcome.ExitCode != nil || len(q.events) != 1 {
			t.Errorf("queued: got %v, %v; want CANCELLED and no program", q.outcome, err)
		}
		go func() {
			if _, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId, Reason: "enough"}); err != nil {
				t.Error(err)
			}
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.outcome.GetExitCode() != 9 || r.outcome.Evidence.CancelReason != "enough" || !strings.HasPrefix(r.outcome.Evidence.CancelledBy, "uid:") {
		t.Errorf("running: got %v, want CANCELLED by a uid, exit code 9", r.outcome)
	}
	r.wantStdout(t, "ready\nterm\n")

	again, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: r.id})
	if err != nil || again.Outcome.GetEvidence().GetCancelReason() != "enough" {
		t.Errorf("cancelling an ended one: got %v, %v; want what it was", again, err)
	}
	d.wantNothingLeft()
}

func TestCancelGraceEndsInKill(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, shell("calculator", "trap '' TERM; echo ready; while :; do sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if e.GetOutput() != nil {
			go d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId, Grace: durationpb.New(50 * time.Millisecond)})
		}
	})
	if err != nil || r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.outcome.Signal != "SIGKILL" {
		t.Errorf("got %v, %v; want CANCELLED by SIGKILL", r.outcome, err)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, shell("calculator", "trap 'echo one; exit 0' USR1; echo ready; while :; do sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if string(e.GetOutput().GetData()) == "ready\n" {
			if _, err := d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: e.ExecutionId, Signal: "SIGUSR1"}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantExit(t, 0)
	r.wantStdout(t, "ready\none\n")
	_, err = d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: r.id, Signal: "SIGUSR1"})
	wantStatus(t, err, "FailedPrecondition", "NOT_RUNNING")
}

func TestQueueTimeUp(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "concurrency: {running: 1, queued: 1}\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, shell("calculator", "echo ready; sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if e.GetOutput() == nil {
			return
		}
		waiting := code("calculator", "print(1)")
		waiting.QueueTimeout = durationpb.New(100 * time.Millisecond)
		r := d.run(waiting)
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.outcome.Evidence.Deadline != pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE || len(r.events) != 2 {
			t.Errorf("got %v, want the queue deadline", r.outcome)
		}
		// One execution waits, so the queue is full and the next one is refused.
		q, err := d.runs.Execute(ctx, code("calculator", "print(1)"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Recv(); err != nil {
			t.Fatal(err)
		}
		_, err = d.try(code("calculator", "print(1)"))
		wantStatus(t, err, "ResourceExhausted", "SATURATED")
		go d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId})
		if r, err := collect(t, q, 1, nil); err != nil || r.outcome.End != pb.ExecutionEnd_EXECUTION_END_EXITED {
			t.Errorf("who waited in line: %v, %v", r, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Of twenty executions at once, each has its own output only.
func TestExecutionsAtOnceAreIndependent(t *testing.T) {
	t.Parallel()
	d := startHostile(t, "")
	done := make(chan error)
	const n = 20
	for i := range n {
		go func() {
			// Twenty Pythons at once may need minutes while other tests run.
			r, err := d.try(wall(code("hostile", fmt.Sprintf("print(%d * 3)", i)), patience))
			if want := fmt.Sprintln(i * 3); err == nil && r.stdout.String() != want {
				err = fmt.Errorf("stdout %q, want %q: %v", r.stdout.String(), want, r.outcome)
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	d.wantNothingLeft()
}
