package main

import (
	"context"
	"io"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A line arrives while the script waits for a signal, which the test sends when it has the
// line. The first run is of a started Python, the last one of a forked one.
func TestLinesArriveAtOnce(t *testing.T) {
	t.Parallel()
	const text = `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def wait(): signal.sigwait([signal.SIGUSR1])
print(os.getppid()); wait()
print("two", "words"); wait()
sys.stdout.write("first half, "); sys.stdout.write("second half\n"); wait()
sys.stdout.buffer.write(b"bytes\n"); wait()
sys.stdout.buffer.write(memoryview(b"view\n")); wait()
sys.stderr.write("error\n"); wait()
sys.stdout.write("end")
`
	dir := newDir(t)
	writeSkill(t, dir, "lines", "", map[string]string{"scripts/a.py": text})
	d := startDaemonIn(t, dir, "python: system\n")
	until(t, "it is never forked", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := d.runs.Execute(ctx, script("lines", "scripts/a.py"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			if !strings.HasSuffix(string(e.GetOutput().GetData()), "\n") {
				return
			}
			if _, err := d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: e.ExecutionId, Signal: "SIGUSR1"}); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.wantExit(t, 0)
		parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
		if want := "two words\nfirst half, second half\nbytes\nview\nend"; rest != want || r.stderr.String() != "error\n" {
			t.Errorf("with the parent %s stdout %q, stderr %q", parent, rest, r.stderr.String())
		}
		return parent == "0"
	})
}

// A prompt without the end of a line arrives before the script waits for the answer.
func TestPromptsArriveBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	const text = `import os, sys
print(os.getppid())
answers = []
sys.stdout.write("1? "); answers.append(sys.stdin.readline())
sys.stdout.write("2? "); answers.append(next(sys.stdin))
answers.append(input("3? ") + "\n")
sys.stdout.write("4? "); answers.append(sys.stdin.buffer.readline().decode())
sys.stdout.write("5? "); answers.append(sys.stdin.read())
print(answers)
`
	dir := newDir(t)
	writeSkill(t, dir, "prompts", "", nil)
	d := startDaemonIn(t, dir, "python: system\n")
	until(t, "it is never forked", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := d.runs.ExecuteInteractive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: code("prompts", text)}}); err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
			data := string(e.GetOutput().GetData())
			if !strings.HasSuffix(data, "? ") {
				return
			}
			if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("a\n")}}); err != nil && err != io.EOF {
				t.Error(err)
			}
			if strings.HasSuffix(data, "5? ") {
				if err := s.CloseSend(); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.wantExit(t, 0)
		parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
		if want := "1? 2? 3? 4? 5? ['a\\n', 'a\\n', 'a\\n', 'a\\n', 'a\\n']\n"; rest != want {
			t.Errorf("with the parent %s got %q, want %q", parent, rest, want)
		}
		return parent == "0"
	})
}

// A request or a script chooses another buffering. os.write shows what Python still holds.
func TestBufferingIsChosen(t *testing.T) {
	t.Parallel()
	const report = "import os, sys; print(os.getppid(), flush=True)\n"
	const half = report + "sys.stdout.write('half '); os.write(1, b'direct\\n')"
	const line = report + "print('line'); os.write(1, b'direct\\n')"
	const own = report + "sys.stdout.reconfigure(line_buffering=False, write_through=False)\nprint('line'); os.write(1, b'direct\\n')"
	dir := newDir(t)
	writeSkill(t, dir, "buffering", "", nil)
	d := startDaemonIn(t, dir, "python: system\n")
	for _, tt := range []struct {
		name, text      string
		env             map[string]string
		started, forked string
	}{
		{"lines", line, nil, "line\ndirect\n", "line\ndirect\n"},
		{"half a line", half, nil, "half direct\n", "direct\nhalf "},
		{"1", half, map[string]string{"PYTHONUNBUFFERED": "1"}, "half direct\n", "half direct\n"},
		{"0", line, map[string]string{"PYTHONUNBUFFERED": "0"}, "direct\nline\n", "direct\nline\n"},
		{"empty", line, map[string]string{"PYTHONUNBUFFERED": ""}, "direct\nline\n", "direct\nline\n"},
		{"the script's choice", own, nil, "direct\nline\n", "direct\nline\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			until(t, "it is never forked", func() bool {
				req := code("buffering", tt.text)
				req.Env = tt.env
				r := d.run(req)
				r.wantExit(t, 0)
				parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
				want := tt.started
				if parent == "0" {
					want = tt.forked
				}
				if rest != want {
					t.Errorf("with the parent %s got %q, want %q", parent, rest, want)
				}
				return parent == "0"
			})
		})
	}
	t.Run("refused", func(t *testing.T) {
		d.t = t
		req := code("buffering", line)
		req.Env = map[string]string{"PYTHONUNBUFFERED": "x"}
		_, err := d.try(req)
		wantStatus(t, err, "InvalidArgument", "ENV_NOT_ALLOWED")
	})
}
