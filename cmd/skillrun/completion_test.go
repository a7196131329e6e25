package main

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The hidden command __complete answers a shell: one word a line, a tab and its
// description. The last line is ":" with the shell's own completion (4: no files, 0: files,
// 16: folders).
func TestCompletion(t *testing.T) {
	f := newRecord().fake().withArtifacts(map[string]string{"chart.png": "12345", "out/data.csv": "", "bad\x1b[0m": "x",
		// A program chose these to be run by a shell, or to be a flag.
		"$(id)": "x", "`id`": "x", "a;id": "x", "two words": "x", "~": "x", "--address=evil:1": "x", "-o": "x", "=id": "x", "größe": "x"})
	f.serve(t, "unix")
	f.answers["ListSkills"] = func(*pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
		return &pb.ListSkillsResponse{Skills: []*pb.SkillSummary{{Name: "calculator", Description: "Adds\nnumbers."}, {Name: "csv"}}}, nil
	}
	f.answers["GetSkill"] = func(r *pb.GetSkillRequest) (*pb.Skill, error) {
		if r.GetSkill() != "calculator" {
			return nil, status.Error(codes.NotFound, "no")
		}
		return &pb.Skill{Scripts: []*pb.SkillScript{{Path: "scripts/calc.py", Description: "Calculates."}, {Path: "scripts/sum.sh"}}}, nil
	}
	all := []*pb.Execution{
		{ExecutionId: "e2", Skill: "csv", State: pb.ExecutionState_EXECUTION_STATE_RUNNING},
		{ExecutionId: "e1", Skill: "calculator", Script: "scripts/calc.py", State: pb.ExecutionState_EXECUTION_STATE_ENDED,
			Outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(0)}},
	}
	f.answers["ListExecutions"] = func(r *pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
		var some []*pb.Execution
		for _, e := range all {
			if len(r.GetStates()) == 0 || slices.Contains(r.GetStates(), e.GetState()) {
				some = append(some, e)
			}
		}
		return &pb.ListExecutionsResponse{Executions: some}, nil
	}
	f.answers["ListSessions"] = func(*pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
		return &pb.ListSessionsResponse{Sessions: []*pb.Session{{SessionId: "s1"}, {SessionId: "s2", Newest: &pb.SessionVersion{Number: 3}}}}, nil
	}
	const noFiles, files, folders, failed = ":4", ":0", ":16", ":1"
	for _, test := range []struct {
		line string // its last word is the one that is completed
		want string // the words, without descriptions
		then string
	}{
		{"run ", "calculator csv", noFiles},
		{"run cal", "calculator csv", noFiles}, // the shell filters
		{"run calculator ", "scripts/calc.py scripts/sum.sh", noFiles},
		{"run --timeout 5s calculator ", "scripts/calc.py scripts/sum.sh", noFiles},
		{"run calculator --timeout 5s -q ", "scripts/calc.py scripts/sum.sh", noFiles},
		{"run calculator scripts/calc.py ", "", files},
		{"run calculator -- cat ", "", files},
		{"run nobody ", "", failed},
		{"run --language ", "python bash sh node ruby perl", noFiles},
		{"run calculator --language ", "python bash sh node ruby perl", noFiles},
		{"run calculator -q --detach ", "scripts/calc.py scripts/sum.sh", noFiles},
		{"run calculator -l ", "python bash sh node ruby perl", noFiles},
		{"run calculator --file ", "", files},
		{"run calculator scripts/calc.py --language ", "", files},
		{"run --on-disconnect ", "cancel continue", noFiles},
		{"run --file ", "", files},
		{"run --artifacts ", "", folders},
		{"run --memory ", "", noFiles},
		{"run --on", "--on-disconnect", noFiles},
		{"show ", "e2 e1", noFiles},
		{"show e1 ", "", noFiles},
		{"attach ", "e2 e1", noFiles},
		{"cancel ", "e2", noFiles},
		{"cancel e2 ", "", noFiles},
		{"signal ", "e2", noFiles},
		{"signal e2 ", "HUP INT QUIT TERM KILL USR1 USR2 CONT STOP WINCH", noFiles},
		{"signal e2 INT ", "", noFiles},
		{"artifacts ", "e2 e1", noFiles},
		{"artifacts e1 ", "chart.png größe out/data.csv", noFiles},
		{"artifacts e1 chart.png ", "größe out/data.csv", noFiles},
		{"skills ", "add rm versions calculator csv", noFiles},
		{"skills csv ", "", noFiles},
		{"activate ", "calculator csv", noFiles},
		{"check ", "calculator csv", noFiles},
		{"session show ", "s1 s2", noFiles},
		{"session show s1 ", "", noFiles},
		{"session rm s1 ", "s2", noFiles},
		{"session create --max-bytes ", "", noFiles},
		{"session run ", "s1 s2", noFiles},
		{"session run s1 ", "calculator csv", noFiles},
		{"session run s1 calculator ", "scripts/calc.py scripts/sum.sh", noFiles},
		{"session run s1 calculator scripts/calc.py ", "", files},
		{"run --session ", "s1 s2", noFiles},
		{"run calculator --session ", "s1 s2", noFiles},
		{"ps --skill ", "calculator csv", noFiles},
		{"ps --end ", "exited signaled timed-out oom-killed cancelled daemon-lost setup-failed", noFiles},
	} {
		t.Run(test.line, func(t *testing.T) {
			got := f.client(t, nil, append([]string{"__complete"}, strings.Split(test.line, " ")...)...)
			lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
			var words []string
			for _, line := range lines[:len(lines)-1] {
				word, what, _ := strings.Cut(line, "\t")
				words = append(words, word)
				if printable(what) != what {
					t.Errorf("description %q", what)
				}
			}
			if text := strings.Join(words, " "); got.code != 0 || text != test.want || lines[len(lines)-1] != test.then {
				t.Errorf("got %q and %q (exit code %d)\nwant %q and %q", text, lines[len(lines)-1], got.code, test.want, test.then)
			}
		})
	}
}

// Without a daemon there are no words, and no noise in the user's line.
func TestCompletionWithoutDaemon(t *testing.T) {
	f := &fake{address: "unix:///nowhere/s.sock"}
	for _, line := range []string{"run ", "run calculator ", "show ", "artifacts e1 "} {
		got := f.client(t, nil, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if got.stdout != ":1\n" {
			t.Errorf("%q: got %q, want no words", line, got.stdout)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_skillrun", "zsh": "#compdef skillrun", "fish": "complete -c skillrun"} {
		if got := (&fake{address: "unix:///nowhere/s.sock"}).client(t, nil, "completion", shell); got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: exit code %d, no %q in it: %s", shell, got.code, want, got.stderr)
		}
	}
}
