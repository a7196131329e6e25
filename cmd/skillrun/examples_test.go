package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const examples = "../../examples/python"

// python runs an example against f.
func (f *fake) python(t *testing.T, script string, args ...string) result {
	t.Helper()
	if f.address == "" {
		f.serve(t, "unix")
	}
	client, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", append([]string{filepath.Join(examples, script)}, args...)...)
	cmd.Env = append(os.Environ(), addressVariable+"="+f.address, "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestPythonExamples(t *testing.T) {
	t.Run("run_skill", func(t *testing.T) {
		var request *pb.ExecuteRequest
		r := newRecord().started().stdout("a").stderr("b\n").stdout("c\n").outcome(&pb.ExecutionOutcome{
			End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(3), Advice: "try harder", Usage: &pb.ExecutionUsage{MemoryPeakBytes: 5 << 20},
		})
		f := r.fake()
		f.execute = func(q *pb.ExecuteRequest, s eventtest.Server) error {
			request = q
			return r.send(s, 0, 0)
		}
		got := f.python(t, "run_skill.py", "demo", "scripts/x.py", "a b")
		if want := (result{3, "ac\n", "b\n[exited, exit code 3, 0.000 s, 5 MiB] try harder\n"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		want := &pb.ExecuteRequest{
			Skill: "demo", Source: &pb.ExecuteRequest_Script{Script: "scripts/x.py"}, Args: []string{"a b"},
			OnDisconnect: pb.OnDisconnect_ON_DISCONNECT_CONTINUE, IdempotencyKey: request.GetIdempotencyKey(),
		}
		if want.IdempotencyKey == "" {
			t.Error("no idempotency key: the client can't send it again")
		}
		if !proto.Equal(request, want) {
			t.Errorf("request: got %v, want %v", request, want)
		}
	})

	t.Run("run_skill attaches again", func(t *testing.T) {
		r := newRecord().started().stdout("one ").stdout("two ").stdout("three").exit(0)
		f := r.fake()
		f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			r.send(s, 0, 3)
			return refusal(codes.Unavailable, "DRAINING", "going away")
		}
		got := f.python(t, "run_skill.py", "demo", "x.py")
		if got.code != 0 || got.stdout != "one two three" {
			t.Errorf("got %+v, want all of the output once", got)
		}
	})

	t.Run("run_skill refused", func(t *testing.T) {
		f := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error {
			return refusal(codes.NotFound, "SKILL_NOT_FOUND", "resolve nobody: skill not found")
		}}
		got := f.python(t, "run_skill.py", "nobody", "x.py")
		if want := (result{125, "", "run_skill: SKILL_NOT_FOUND: resolve nobody: skill not found\n"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})

	t.Run("talk", func(t *testing.T) {
		got := (&fake{interactive: asks}).python(t, "talk.py", "20", "22")
		if got.code != 0 || got.stdout != "first?\nsecond?\nthird?\n20,22" {
			t.Errorf("got %+v, want two answers and an end", got)
		}
	})
}

// asks is a program with three questions: each comes after the answer to the one
// before.
func asks(s eventtest.Interactive) error {
	if m, err := s.Recv(); err != nil || m.GetStart().GetCode().GetText() == "" {
		return fmt.Errorf("start: %v, %v", m, err)
	}
	r := newRecord().started()
	if err := r.send(s, 0, 0); err != nil {
		return err
	}
	var answers []string
	for _, question := range []string{"first", "second", "third"} {
		r.stdout(question + "?").stdout("\n") // a question may come in two pieces
		if err := r.send(s, uint64(len(r.events))-2, 0); err != nil {
			return err
		}
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if m.GetCloseStdin() != nil {
			break
		}
		answers = append(answers, strings.TrimSuffix(string(m.GetStdin()), "\n"))
	}
	r.stdout(strings.Join(answers, ",")).exit(0)
	return r.send(s, uint64(len(r.events))-2, 0)
}

// TestExamplesNameWhatThereIs: every method and message that the grpcurl page
// names is in the contract.
func TestExamplesNameWhatThereIs(t *testing.T) {
	page, err := os.ReadFile("../../examples/grpcurl.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, file := range []interface{ Path() string }{pb.File_skillrun_v1_execution_proto, pb.File_skillrun_v1_skill_proto, pb.File_skillrun_v1_system_proto} {
		source, err := os.ReadFile(filepath.Join("../../proto", file.Path()))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`(?m)^(?:service|message) (\w+)|^  rpc (\w+)`).FindAllStringSubmatch(string(source), -1) {
			known[name[1]+name[2]] = true
		}
	}
	names := regexp.MustCompile(`skillrun\.v1\.(\w+)(?:/(\w+))?`).FindAllStringSubmatch(string(page), -1)
	if len(names) < 10 {
		t.Fatalf("got %d names, want more than 10: is the page still there?", len(names))
	}
	for _, name := range names {
		if !known[name[1]] || name[2] != "" && !known[name[2]] {
			t.Errorf("%s: not in the contract", name[0])
		}
	}
}
