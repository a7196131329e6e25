package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/eventtest"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// requestOf returns the request that a command line makes.
func requestOf(t *testing.T, args ...string) *pb.ExecuteRequest {
	t.Helper()
	var request *pb.ExecuteRequest
	f := answers("ListArtifacts", func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		return &pb.ListArtifactsResponse{}, nil
	})
	f.answers["GetExecution"] = counted(0)
	f.execute = func(r *pb.ExecuteRequest, s eventtest.Server) error {
		request = r
		return newRecord().exit(0).send(s, 0, 0)
	}
	if got := f.client(t, nil, args...); got.code != 0 {
		t.Fatalf("%q: got %+v", args, got)
	}
	return request
}

// TestSkillsNamedLikeFlags: "--" makes the next word a name and has no effect on later
// words.
func TestSkillsNamedLikeFlags(t *testing.T) {
	script := &pb.ExecuteRequest_Script{Script: "x.py"}
	tests := []struct {
		args []string
		want *pb.ExecuteRequest
	}{
		{[]string{"--", "-demo", "x.py", "a"}, &pb.ExecuteRequest{Skill: "-demo", Source: script, Args: []string{"a"}}},
		{[]string{"--", "--help", "x.py", "--help"}, &pb.ExecuteRequest{Skill: "--help", Source: script, Args: []string{"--help"}}},
		{[]string{"--dir", "sub", "--", "-demo", "--key", "k", "x.py"}, &pb.ExecuteRequest{Skill: "-demo", Source: script, WorkingDirectory: "sub", IdempotencyKey: "k"}},
		{[]string{"--", "-demo", "-c", "x", "--", "-b"}, &pb.ExecuteRequest{Skill: "-demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "x"}}, Args: []string{"-b"}}},
		{[]string{"--", "-demo", "--", "wc", "-l"}, &pb.ExecuteRequest{Skill: "-demo", Source: &pb.ExecuteRequest_Command{Command: "wc -l"}}},
	}
	for _, test := range tests {
		test.want.Env = map[string]string{}
		if got := requestOf(t, append([]string{"run"}, test.args...)...); !proto.Equal(got, test.want) {
			t.Errorf("%q: got %v\nwant %v", test.args, got, test.want)
		}
	}
}

// TestRunExamplesWork: the help shows nothing that the skills which come with
// skillrun don't have, or don't allow.
func TestRunExamplesWork(t *testing.T) {
	root, err := filepath.Abs("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	skills, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{Roots: skill.Roots(root), Dir: filepath.Join(t.TempDir(), "snapshots"), Owner: skilltest.Owner(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer skills.Close()
	t.Chdir(t.TempDir())
	help := (&fake{}).client(t, nil, "run", "--help").stdout
	sources := map[permission.SourceKind]int{}
	for line := range strings.Lines(help) {
		line, isExample := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  skillrun ")
		if !isExample || strings.HasPrefix(line, "run [flags]") {
			continue
		}
		words := shellWords(t, line)
		for i, word := range words {
			if word == "--file" {
				if err := os.WriteFile(words[i+1], []byte("to do\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		request := requestOf(t, words...)
		sk, err := skills.Resolve(request.GetSkill())
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		source := permission.Source{Kind: permission.Script, Script: request.GetScript()}
		switch {
		case request.GetCommand() != "":
			source = permission.Source{Kind: permission.Command, Command: request.GetCommand()}
		case request.GetCode() != nil:
			source = permission.Source{Kind: permission.Code, Code: request.GetCode().GetText(), Language: "python"}
		default:
			if _, err := sk.Lookup(source.Script); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		sources[source.Kind]++
		if _, err := (permission.Policy{}).Check(permission.Principal{}, sk, source, nil); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if sources[permission.Script] == 0 || sources[permission.Code] == 0 || sources[permission.Command] < 2 {
		t.Errorf("got %v: an example of each kind is missing", sources)
	}
}

// shellWords has a shell take a command line apart.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// A refusal names the same remedy as the tool bash would: another way, or the missing rule.
func TestCheckNamesTheRemedy(t *testing.T) {
	there := answers("CheckCommand", func(r *pb.CheckCommandRequest) (*pb.CheckCommandResponse, error) {
		d := permission.ParseRules([]string{"Bash(echo:*)"}, checkBaseDir).Decide(r.GetCommand())
		return &pb.CheckCommandResponse{Allowed: new(d.Allowed), Reason: d.Reason, MissingRule: d.Missing, Instead: string(d.Instead)}, nil
	})
	for line, test := range map[string]struct{ text, json string }{
		"for f in a b; do echo $f; done": {"write it as code: run --code\n", `,"rule":"","instead":"code"}` + "\n"},
		"cd data && echo a":              {"leave it out, and start in that directory: run --dir\n", `,"rule":"","instead":"working_directory"}` + "\n"},
		"rm x":                           {"allowed-tools would need Bash(rm x:*)\n", `,"rule":"","missingRule":"Bash(rm x:*)"}` + "\n"},
		"source x":                       {"name a program\n", `name a program","rule":""}` + "\n"},
	} {
		for _, by := range [][]string{{"demo"}, {"--allowed-tools", "Bash(echo:*)"}} {
			args := append([]string{"check", "--command", line}, by...)
			if got := there.client(t, nil, args...); got.code != codeRefused || !strings.HasSuffix(got.stdout, test.text) {
				t.Errorf("%q: got %+v, want %q", args, got, test.text)
			}
			if got := there.client(t, nil, append(args, "--json")...); got.code != 0 || !strings.HasSuffix(got.stdout, test.json) {
				t.Errorf("%q: got %+v, want %s", args, got, test.json)
			}
		}
	}
}
