package main

import (
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A skill without allowed-tools may run its own scripts by command lines, and nothing else, unless
// the configuration says otherwise.
func TestWithoutAllowedTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		runs         []string
		refused      []string
	}{
		{"default", "", []string{"python scripts/own.py a", "python3 {baseDir}/scripts/own.py a", "bash scripts/own.sh a", "sh /workspace/scripts/own.sh a | python -u scripts/own.py a", "python tools/own.py a"}, []string{"echo a", "python -c 1", "python mine.py"}},
		{"nothing", "without_allowed_tools: nothing\n", nil, []string{"python scripts/own.py a", "echo a"}},
		{"rules", "without_allowed_tools: ['Bash(echo:*)']\n", []string{"echo a"}, []string{"python scripts/own.py a"}},
		{"both", "without_allowed_tools: [scripts, 'Bash(echo:*)']\n", []string{"echo a && python scripts/own.py a"}, []string{"ls"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			files := map[string]string{"scripts/own.py": "import sys\nprint(sys.argv[1])", "scripts/own.sh": "echo $1", "tools/own.py": "import sys\nprint(sys.argv[1])"}
			writeSkill(t, dir, "own", "", files)
			writeSkill(t, dir, "listed", "allowed-tools: Bash(true)", files)
			d := startDaemonIn(t, dir, c.config)
			for _, line := range c.runs {
				r, _, err := d.executeCommand(&pb.ExecuteCommandRequest{Skill: "own", Command: line})
				if err != nil || !r.GetSuccess() || !strings.HasSuffix(r.GetStdout(), "a\n") {
					t.Errorf("%s: %v, %v", line, r, err)
				}
				listed, _, err := d.executeCommand(&pb.ExecuteCommandRequest{Skill: "listed", Command: line})
				if err != nil || !strings.HasPrefix(listed.GetError(), "Command not allowed by skill permissions: ") {
					t.Errorf("%s of a skill with allowed-tools: %v, %v", line, listed, err)
				}
			}
			for _, line := range c.refused {
				r, id, err := d.executeCommand(&pb.ExecuteCommandRequest{
					Skill: "own", Command: line, Files: []*pb.InputFile{{Path: "mine.py", Source: &pb.InputFile_Content{}}},
				})
				if err != nil || id != "" || !strings.Contains(r.GetError(), "the skill has no allowed-tools") {
					t.Errorf("%s: %v, %v", line, r, err)
				}
			}
			if len(c.runs) > 0 && c.name != "rules" {
				from := func(dir, line, file string) (*pb.ExecuteCommandResponse, error) {
					r, _, err := d.executeCommand(&pb.ExecuteCommandRequest{
						Skill: "own", Command: line, WorkingDir: dir,
						Files: []*pb.InputFile{{Path: file, Source: &pb.InputFile_Content{Content: []byte("print('mine')")}}},
					})
					return r, err
				}
				if r, err := from("scripts", "python own.py a", "in.csv"); err != nil || r.GetStdout() != "a\n" {
					t.Errorf("in the directory of the script: %v, %v", r, err)
				}
				// Files of the request: one at the script's path in another working directory, and one in
				// the script's directory.
				if r, err := from("x", "python scripts/own.py a", "x/scripts/own.py"); err != nil || !strings.Contains(r.GetError(), "is not covered") {
					t.Errorf("a file in place of the script: %v, %v", r, err)
				}
				for _, at := range []string{"scripts", "tools"} {
					if _, err := from(at, "python own.py a", at+"/sys.py"); errorInfo(err)["reason"] != "INVALID_INPUT_FILE" {
						t.Errorf("a file beside the script in %s: %v", at, err)
					}
				}
			}
		})
	}
}
