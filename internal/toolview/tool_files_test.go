package toolview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
)

// printArgs prints its arguments and the file in.txt.
const printArgs = "import sys\nprint(sys.argv[1:], open('in.txt').read())"

// Every tool that runs a program takes files, and arguments where there is a script.
func TestToolsTakeArgsAndFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil,
		skillText{name: "calc", frontMatter: "allowed-tools: Bash(cat:*)", files: map[string]string{"scripts/args.py": printArgs}}.withVenv(t),
		skillText{name: "other", files: map[string]string{"notes/a b.txt": "of another skill"}},
	)
	const (
		args = `"args": ["--n", "a b", "", "é"]`
		want = `['--n', 'a b', '', 'é']`
	)
	inline, _ := json.Marshal(printArgs)
	for _, tt := range []struct{ name, tool, arguments, want string }{
		{"script", "run_skill_script", `"skill": "calc", "script_path": "scripts/args.py", ` + args, want},
		{"code in a venv", "run_python_script", `"skill_name": "calc", "script": ` + string(inline) + `, ` + args, want},
		{"code", "RunPython", `"code": ` + string(inline) + `, ` + args, want},
		{"command", "bash", `"skill": "calc", "command": "cat in.txt"`, ""},
	} {
		for _, source := range []struct{ name, file, want string }{
			{"text", `"text": "as text"`, "as text"},
			{"base64", `"base64": "AGJpbmFyeQ=="`, "\x00binary"},
			{"uri", `"text": null, "uri": "skill://other/notes/a%20b.txt"`, "of another skill"},
		} {
			t.Run(tt.name+" with a file as "+source.name, func(t *testing.T) {
				r := b.toolCall(tt.tool, `{`+tt.arguments+`, "files": [{"path": "in.txt", `+source.file+`}]}`)
				x := b.outcome(r.ExecutionID)
				if got, want := strings.TrimSpace(b.stdout(r.ExecutionID)), strings.TrimSpace(tt.want+" "+source.want); r.IsError || got != want || x.Count != 0 {
					t.Errorf("got %q, %d artifacts, %s; want %q", got, x.Count, r.Content, want)
				}
			})
		}
	}
}

// stdout returns the standard output of an execution.
func (b *bench) stdout(id string) string {
	b.t.Helper()
	events, err := b.x.Follow(b.t.Context(), b.who, id, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer events.Close()
	var out strings.Builder
	for {
		e, err := events.Next(b.t.Context())
		if err != nil {
			return out.String()
		}
		if e.Output != nil && e.Output.Stream == executor.Stdout {
			out.Write(e.Output.Data)
		}
	}
}

// RunPython runs a file of the call, in a directory of the call.
func TestRunPythonToolRunsAFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.toolCall("RunPython", `{"scriptPath": "job/main.py", "workingDirectory": "data", "args": ["x"], "files": [
		{"path": "job/main.py", "text": "import helper, os, sys\nprint(helper.N, sys.argv, open('in.csv').read(), os.getcwd())"},
		{"path": "/workspace/job/helper.py", "text": "N = 7"}, {"path": "data/in.csv", "text": "a,b"}]}`)
	if want := "Stdout:\n7 ['/workspace/job/main.py', 'x'] a,b /workspace/data\n\nStderr:\n"; r.Content != want || r.IsError {
		t.Errorf("got %q, want %q", r.Content, want)
	}
	r = b.toolCall("RunPython", `{"scriptPath": "main.py", "files": [{"path": "main.py", "uri": "skill://`+BuiltInSkill+`/SKILL.md"}]}`)
	if !r.IsError || !strings.Contains(r.Content, "SyntaxError") && !strings.Contains(r.Content, "invalid syntax") {
		t.Errorf("a resource as the script: %q", r.Content)
	}
}

// A result lists the files that its program wrote. The next call takes one by its uri.
func TestResultsListArtifacts(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "calc", frontMatter: "allowed-tools: Bash(cp:*)", files: map[string]string{
		"in.txt": "x", "w.py": "open('out é.txt', 'w').write('three')",
	}}.withVenv(t))
	const code = `open('out é.txt', 'w').write('three')`
	for _, tt := range []struct{ tool, arguments string }{
		{"run_skill_script", `{"skill": "calc", "script_path": "w.py"}`},
		{"run_python_script", `{"skill_name": "calc", "script": "` + code + `"}`},
		{"RunPython", `{"code": "` + code + `"}`},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			r := b.toolCall(tt.tool, tt.arguments)
			uri := "execution://" + r.ExecutionID + "/artifacts/out%20%C3%A9.txt"
			want := `"artifacts": [{"path": "out \u00e9.txt", "size_bytes": 5, "uri": "` + uri + `"}]}`
			if tt.tool == "RunPython" {
				want = "\n[It wrote out é.txt, 5 bytes: " + uri + "]"
			}
			if r.IsError || !strings.HasSuffix(r.Content, want) {
				t.Errorf("got %s, want %s", r.Content, want)
			}
			next := b.toolCall("bash", `{"skill": "calc", "command": "cp copy.txt again.txt", "files": [{"path": "copy.txt", "uri": "`+uri+`"}]}`)
			if next.IsError || b.artifact(next.ExecutionID, "again.txt") != "three" {
				t.Errorf("the next call: %s", next.Content)
			}
			theirs, err := b.Call(t.Context(), ToolCall{
				Who: permission.Principal{Tenant: "other"}, Tool: "bash",
				Arguments: json.RawMessage(`{"skill": "calc", "command": "cp c d", "files": [{"path": "c", "uri": "` + uri + `"}]}`),
			})
			if want := uri + ": execution not found"; err != nil || !theirs.IsError || !strings.Contains(theirs.Content, want) {
				t.Errorf("of another tenant: %s, %v; want %s", theirs.Content, err, want)
			}
		})
	}
}

// A resource that cannot be copied, and a file that may not have its path, are refusals that name
// the file.
func TestToolFilesAreRefused(t *testing.T) {
	t.Parallel()
	b := newIdleBench(t, nil, skillText{name: "calc", frontMatter: "allowed-tools: Bash(cat:*)", files: map[string]string{"in.txt": "x", "out.md": "-> ../../x"}})
	for _, tt := range []struct{ file, want string }{
		{`"path": "in.txt", "text": ""`, `input \"in.txt\": the skill has a file or directory there`},
		{`"path": "../x", "text": ""`, `input \"../x\": the path has the component \"..\"`},
		{`"path": "x", "uri": "https://example.com/x"`, `input \"x\": https://example.com/x: want skill://NAME/PATH, session://ID/PATH or execution://ID/artifacts/PATH`},
		{`"path": "x", "uri": "skill://calc/in.txt?offset=1"`, `want skill://NAME/PATH`},
		{`"path": "x", "uri": "execution://e/stdout"`, `want skill://NAME/PATH`},
		{`"path": "x", "uri": "execution://e/artifacts/y"`, `execution://e/artifacts/y: execution not found`},
		{`"path": "x", "uri": "skill://nobody/y"`, `skill://nobody/y: \"nobody\": skill not found`},
		{`"path": "x", "uri": "skill://calc/none"`, `skill://calc/none: none: not found in the skill`},
		{`"path": "x", "uri": "skill://calc/out.md"`, `skill://calc/out.md: out.md: escapes the skill`},
		{`"path": "scripts/x.py", "uri": "skill://calc/none"`, `none: not found`},
		{`"path": ".git/config", "uri": "skill://calc/in.txt"`, `files in .git can make git run any command`},
	} {
		t.Run(tt.file, func(t *testing.T) {
			r := b.toolCall("bash", `{"skill": "calc", "command": "cat x", "files": [{`+tt.file+`}]}`)
			if !r.IsError || r.ExecutionID != "" || !strings.Contains(r.Content, tt.want) {
				t.Errorf("got %s, want %s", r.Content, tt.want)
			}
		})
	}
}

// A list of artifacts is bounded, and says how many artifacts it leaves out.
func TestExtrasAreBounded(t *testing.T) {
	t.Parallel()
	var list []executor.Artifact
	for i := range 150 {
		list = append(list, executor.Artifact{Path: fmt.Sprintf("f%d", i)})
	}
	if e := (Extras{ExecutionID: "id", Artifacts: list}).list(); len(e.Artifacts) != maxListedArtifacts || e.LeftOut != 50 {
		t.Errorf("%d listed, %d left out", len(e.Artifacts), e.LeftOut)
	}
	for i := range list {
		list[i].Path = strings.Repeat("é", 2000)
	}
	e := Extras{ExecutionID: "id", Artifacts: list, Warnings: []string{"careful"}}.list()
	if len(e.Artifacts) != 4 || e.LeftOut != 146 {
		t.Errorf("%d listed, %d left out", len(e.Artifacts), e.LeftOut)
	}
	if text := e.text(); !strings.HasPrefix(text, "\n[Warning: careful]\n[It wrote é") || !strings.HasSuffix(text, "\n[It wrote 146 more files.]") {
		t.Errorf("%.100s ... %s", text, text[len(text)-40:])
	}
}
