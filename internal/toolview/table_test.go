package toolview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// The definition of the document "Tool Contract: run_python_script", except for the
// description, which is different here because the file system is.
func TestContractRunPythonScriptDefinition(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "properties": {"skill_name": {"type": "string", "description": "Name of the skill whose venv to use"}, "script": {"type": "string", "description": "Python code to execute"}`
	tool := runPythonScriptTool.Tool
	want := `{"type": "function", "function": {"name": "run_python_script", "description": "` + tool.Description + `", "parameters": ` + schema
	got := string(tool.Definition())
	own, ok := strings.CutSuffix(strings.TrimPrefix(got, want), `}, "required": ["skill_name", "script"]}}}`)
	if !strings.HasPrefix(got, want) || !ok {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// The rest are optional additions.
	var added map[string]any
	if err := json.Unmarshal([]byte("{"+strings.TrimPrefix(own, ", ")+"}"), &added); err != nil || len(added) != 3 || added["args"] == nil || added["files"] == nil || added["session"] == nil {
		t.Errorf("added %v, %v", added, err)
	}
	if strings.Contains(tool.Description, "full filesystem access") {
		t.Error("the description has promises that do not hold here")
	}
}

// Models see the same tools in the same order, and calls are checked against every part of
// the schemas.
func TestTools(t *testing.T) {
	t.Parallel()
	var names []string
	for _, tool := range New(Config{}).Tools() {
		names = append(names, tool.Name)
		if tool.Description == "" {
			t.Errorf("%s: empty description", tool.Name)
		}
		// A keyword that schema does not have would not be checked, so it must not be used.
		dec := json.NewDecoder(bytes.NewReader(tool.Parameters))
		dec.DisallowUnknownFields()
		var s schema
		if err := dec.Decode(&s); err != nil || s.Type != "object" {
			t.Errorf("%s: parameters: %v", tool.Name, err)
		}
		for _, name := range s.Required {
			if _, ok := s.Properties[name]; !ok {
				t.Errorf("%s: requires the unknown property %s", tool.Name, name)
			}
		}
		for name, p := range s.Properties {
			switch p.Type {
			case "string", "number", "integer", "object", "array":
			default:
				t.Errorf("%s: %s has the type %q, which checkArguments does not know", tool.Name, name, p.Type)
			}
			if p.Description == "" {
				t.Errorf("%s: %s has no description", tool.Name, name)
			}
		}
		for _, text := range []json.RawMessage{tool.Parameters, tool.Output} {
			if text != nil {
				resolve(t, text)
			}
		}
	}
	if got, want := strings.Join(names, " "), "list_skills activate_skill read_skill_file run_skill_script bash check_command run_python_script RunPython write_file read_file list_files"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func resolve(t *testing.T, text json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// toolCall calls a tool and checks the result against the tool's output schema.
func (b *bench) toolCall(name, arguments string) Result {
	b.t.Helper()
	r, err := b.Call(b.t.Context(), ToolCall{Who: b.who, Tool: name, Arguments: json.RawMessage(arguments), Conversation: b.conversation})
	if err != nil {
		b.t.Fatalf("%s: %v", name, err)
	}
	for _, tool := range b.Tools() {
		if tool.Name != name {
			continue
		}
		if (tool.Output == nil || r.IsError && r.Structured == nil) != (r.Structured == nil) {
			b.t.Errorf("%s: structured %s, though its schema is %s", name, r.Structured, tool.Output)
		}
		if r.Structured != nil {
			var v any
			if err := json.Unmarshal(r.Structured, &v); err != nil {
				b.t.Fatal(err)
			}
			if err := resolve(b.t, tool.Output).Validate(v); err != nil {
				b.t.Errorf("%s: %s: %v", name, r.Structured, err)
			}
		}
	}
	return r
}

// Each tool, and the text that a model gets.
func TestCall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", DefaultReadBytes/2) + "end"
	b := newBench(t, nil,
		skillText{name: "calc", frontMatter: "allowed-tools: Bash(echo:*), Bash(yes:*)", files: map[string]string{
			"scripts/sum.py":   "import json, sys\nprint(sum(json.load(sys.stdin)['n']))",
			"scripts/big.sh":   "head -c 300000 /dev/zero | tr '\\0' x",
			"references/r.md":  "# R\n",
			"references/long":  long,
			"assets/image.png": "\x89PNG\x00\xff",
			"link.md":          "-> references/r.md",
			"out.md":           "-> ../../x",
		}}.withVenv(t),
		skillText{name: "hidden", frontMatter: "disable-model-invocation: true"}.withVenv(t),
	)
	digest := func(name string) string {
		sk, err := b.skills.Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		return sk.Digest
	}
	for _, tt := range []struct {
		tool, arguments string
		want            string // a text that ends in "..." is only the beginning
		isError         bool
	}{
		{"list_skills", ``, `{"skills": [{"name": "calc", "description": "A skill of a test."}]}`, false},
		{"activate_skill", `{"skill": "calc"}`, "The files of skill \"calc\" are in /skills/calc.\n\nUse /skills/calc.", false},
		{"activate_skill", `{"skill": "nobody"}`, `There is no skill "nobody". list_skills has the names of all skills.`, true},
		{"activate_skill", `{"skill": "a/b"}`, `Invalid skill name: 'a/b'. Skill names must not contain '/', '\', or '..'`, true},
		{"activate_skill", `{"skill": "hidden"}`, "The files of skill \"hidden\" are in /skills/hidden...", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/r.md"}`, "# R\n", false},
		{"read_skill_file", `{"skill": "calc", "path": "link.md", "offset": 2, "limit": null}`, "R\n", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/long"}`, long[:DefaultReadBytes] + "\n[65536 of 65539 bytes; continue with offset 65536]", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/long", "offset": 65536}`, "end", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/long", "limit": 5}`, "éé\n[4 of 65539 bytes; continue with offset 4]", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/r.md", "offset": 4}`, "", false},
		{"read_skill_file", `{"skill": "calc", "path": "references/r.md", "offset": 5}`, "references/r.md has 4 bytes; offset 5 is past its end", true},
		{"read_skill_file", `{"skill": "calc", "path": "assets/image.png"}`, "assets/image.png is not UTF-8 text at byte 0 (the file has 6 bytes); let a script of the skill read it", true},
		{"read_skill_file", `{"skill": "calc", "path": "out.md"}`, "out.md: escapes the skill...", true},
		{"read_skill_file", `{"skill": "calc", "path": "/skills/calc/references/r.md"}`, "# R\n", false},
		{"read_skill_file", `{"skill": "calc", "path": "{baseDir}/references/r.md"}`, "# R\n", false},
		{"read_skill_file", `{"skill": "calc", "path": "{baseDir}/../other/r.md"}`, "/skills/calc/../other/r.md: lies outside of the skill; give a path relative to the skill, or beneath its own folder", true},
		{"read_skill_file", `{"skill": "calc", "path": "/etc/passwd"}`, "/etc/passwd: lies outside of the skill...", true},
		{"read_skill_file", `{"skill": "calc", "path": "none"}`, "none: not found in the skill", true},
		{"read_skill_file", `{"skill": "nobody", "path": "x"}`, `There is no skill "nobody"...`, true},
		{"run_skill_script", `{"skill": "calc", "script_path": "scripts/sum.py", "arguments": {"n": [1, 2]}, "timeout": 20}`, `{"exit_code": 0, "stdout": "3\n", "stderr": "", "execution_time_ms": ...`, false},
		{"run_skill_script", `{"skill": "calc", "script_path": "scripts/sum.py"}`, `{"exit_code": 1, "stdout": "", "stderr": "Traceback...`, true},
		{"run_skill_script", `{"skill": "calc", "script_path": "../x.py"}`, `{"error": "PathSecurityError: Script path escapes skill directory: ../x.py"}`, true},
		{"run_skill_script", `{"skill": "nobody", "script_path": "x"}`, `{"error": "\"nobody\": skill not found"}`, true},
		{"bash", `{"skill": "calc", "command": "echo a b"}`, `{"success": true, "exit_code": 0, "stdout": "a b\n", "stderr": "", "execution_time": ...`, false},
		{"bash", `{"skill": "calc", "command": "rm x"}`, `{"success": false, "exit_code": -1, "stdout": "", "stderr": "", "execution_time": 0.0, "command": "rm x", "error": "Command not allowed...`, true},
		{"bash", `{"skill": "nobody", "command": "echo"}`, `{"error": "\"nobody\": skill not found"}`, true},
		{"run_python_script", `{"skill_name": "calc", "script": "print(2 + 2)"}`, `{"skill_name": "calc", "stdout": "4\n", "stderr": "", "returncode": 0, "timed_out": false}`, false},
		{"run_python_script", `{"skill_name": "hidden", "script": "print(1)"}`, `{"skill_name": "hidden", "stdout": "1\n", ...`, false},
		{"run_python_script", `{"skill_name": "calc", "script": "1/0"}`, `{"skill_name": "calc", "stdout": "", "stderr": "Traceback...`, true},
		{"run_python_script", `{"skill_name": "nobody", "script": "1"}`, `{"error": "Skill 'nobody' not found in skills folder"}`, true},
		{"RunPython", `{"code": "print(1)", "scriptPath": null}`, "Stdout:\n1\n\nStderr:\n", false},
		{"RunPython", `{}`, "Error: provide either code or scriptPath.", true},
		{"RunPython", `{"skill": "calc", "code": "import os; print(os.path.exists('scripts/sum.py'))"}`, "Stdout:\nTrue\n\nStderr:\n", false},
		{"RunPython", `{"skill": "nobody", "code": "1"}`, `Error: "nobody": skill not found`, true},
	} {
		t.Run(tt.tool+" "+tt.arguments, func(t *testing.T) {
			r := b.toolCall(tt.tool, tt.arguments)
			if want, open := strings.CutSuffix(tt.want, "..."); r.Content != tt.want && !(open && strings.HasPrefix(r.Content, want)) {
				t.Errorf("got\n%.500s\nwant\n%.500s", r.Content, tt.want)
			}
			if r.IsError != tt.isError {
				t.Errorf("is error: %t", r.IsError)
			}
		})
	}
	t.Run("structured", func(t *testing.T) {
		got := string(b.toolCall("activate_skill", `{"skill": "calc"}`).Structured)
		want := `{"name": "calc", "digest": "` + digest("calc") + `", "base_dir": "/skills/calc", "instructions": "Use /skills/calc.", "allowed_tools": ["Bash(echo:*)", "Bash(yes:*)"], "scripts": ["scripts/big.sh", "scripts/sum.py"]}`
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		got = string(b.toolCall("read_skill_file", `{"skill": "calc", "path": "link.md", "limit": 4}`).Structured)
		if want := `{"path": "references/r.md", "text": "# R\n", "size": 4}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A result has the beginning of long output and says so. The execution's record and the
// sink have all of it.
func TestCallCutsOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "calc", frontMatter: "allowed-tools: Bash(cat:*)", files: map[string]string{
		"big.py": "import sys\nsys.stdout.write('é' * 200_000)", "big.txt": strings.Repeat("é", 200_000),
	}}.withVenv(t))
	const total = 400_000
	for _, tt := range []struct{ tool, arguments, sign string }{
		{"run_python_script", `{"skill_name": "calc", "script": "exec(open('big.py').read())"}`, `"error": "It printed more than 262144 bytes`},
		{"run_skill_script", `{"skill": "calc", "script_path": "big.py"}`, `[... OUTPUT TRUNCATED: exceeded 262144 bytes limit ...]", "stderr"`},
		{"bash", `{"skill": "calc", "command": "cat big.txt"}`, `"output_truncated": true`},
		{"RunPython", `{"code": "import sys\nsys.stdout.write('é' * 200_000)"}`, "\n[It printed more than 262144 bytes"},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			printed := 0
			r, err := b.Call(t.Context(), ToolCall{Who: b.who, Tool: tt.tool, Arguments: json.RawMessage(tt.arguments), Sink: func(o executor.Output) error {
				printed += len(o.Data)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(r.Content, tt.sign) || strings.Contains(r.Content, "\ufffd") || strings.Contains(r.Content, `\ufffd`) {
				t.Errorf("%d characters, ending in %.300s", len(r.Content), r.Content[max(0, len(r.Content)-300):])
			}
			if r.IsError {
				t.Error("truncated output is reported as an error")
			}
			if kept := b.outcome(r.ExecutionID).Stdout; printed != total || kept.DeliveredBytes != total {
				t.Errorf("the sink got %d, the execution kept %d, want %d", printed, kept.DeliveredBytes, total)
			}
		})
	}
}

// Each page of list_skills is bounded, and the pages together have every skill once. A query
// chooses by words of the name and the description.
func TestListSkillsIsBounded(t *testing.T) {
	t.Parallel()
	const count = 2*DefaultListedSkills + 20
	skills := make([]skillText, count)
	for i := range skills {
		description := "Fills PDF forms."
		if i < count/2 {
			description = strings.Repeat("d", 1000)
		}
		skills[i] = skillText{name: fmt.Sprintf("s-%04d", i), files: map[string]string{
			"SKILL.md": fmt.Sprintf("---\nname: s-%04d\ndescription: %s\n---\n", i, description),
		}}
	}
	b := newIdleBench(t, nil, append(skills, skillText{name: "hidden", frontMatter: "disable-model-invocation: true"})...)
	type page struct {
		Skills  []struct{ Name string }
		LeftOut int    `json:"left_out"`
		Next    string `json:"next_cursor"`
	}
	list := func(arguments map[string]any) (p page) {
		t.Helper()
		r := b.toolCall("list_skills", string(dumps(arguments)))
		if err := json.Unmarshal(r.Structured, &p); err != nil {
			t.Fatal(err)
		}
		if len(r.Content) > 2*MaxListedText || (p.Next == "") != (p.LeftOut == 0) {
			t.Errorf("%d bytes, next %q, %d left out", len(r.Content), p.Next, p.LeftOut)
		}
		return p
	}
	for _, limit := range []int{DefaultListedSkills, MaxListedSkills, 7} {
		var names []string
		for cursor, more := "", true; more; {
			p := list(map[string]any{"cursor": cursor, "limit": limit})
			for _, s := range p.Skills {
				names = append(names, s.Name)
			}
			if len(p.Skills) == 0 || len(p.Skills) > limit || len(names)+p.LeftOut != count {
				t.Fatalf("limit %d: %d in a page, %d so far, %d left out", limit, len(p.Skills), len(names), p.LeftOut)
			}
			cursor, more = p.Next, p.Next != ""
		}
		if len(names) != count || !slices.IsSorted(names) {
			t.Errorf("limit %d: %d names: %v", limit, len(names), names)
		}
	}
	for query, want := range map[string]int{"pdf": count / 2, "forms FILLS": count / 2, "s-0003": 1, "pdf s-0119": 1, "pdf s-0003": 0, "hidden": 0, " ": count} {
		p := list(map[string]any{"query": query})
		if got := len(p.Skills) + p.LeftOut; got != want {
			t.Errorf("query %q: %d, want %d", query, got, want)
		}
	}
}

// Tools name the same parameter in the same words.
func TestToolsDescribeParametersAlike(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, tool := range New(Config{}).Tools() {
		var s schema
		if err := json.Unmarshal(tool.Parameters, &s); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"skill", "command"} {
			p, ok := s.Properties[name]
			if ok && seen[name] != "" && seen[name] != p.Description {
				t.Errorf("%s: %s is %q, elsewhere %q", tool.Name, name, p.Description, seen[name])
			}
			if ok {
				seen[name] = p.Description
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("seen %v", seen)
	}
}

func TestCallRefusesArguments(t *testing.T) {
	t.Parallel()
	v := New(Config{})
	for _, tt := range []struct{ tool, arguments, field, want string }{
		{"run_python_script", `[]`, "", "run_python_script: the arguments are not a JSON object; give one JSON object with skill_name, script, args (optional), files (optional), session (optional)"},
		{"run_python_script", `null`, "", "run_python_script: the arguments are not a JSON object; give one JSON object with skill_name, script, args (optional), files (optional), session (optional)"},
		{"run_python_script", `{`, "", "run_python_script: the arguments are not valid JSON; give one JSON object with skill_name, script, args (optional), files (optional), session (optional)"},
		{"run_python_script", `{} {}`, "", "run_python_script: the arguments are more than one JSON value; give one JSON object with skill_name, script, args (optional), files (optional), session (optional)"},
		{"run_python_script", ``, "skill_name", "run_python_script: skill_name: is required: Name of the skill whose venv to use"},
		{"run_python_script", `{"skill_name": "a"}`, "script", "run_python_script: script: is required: Python code to execute"},
		{"run_python_script", `{"skill_name": "a", "script": null}`, "script", "run_python_script: script: must be of the type string"},
		{"run_python_script", `{"skill_name": 1, "script": ""}`, "skill_name", "run_python_script: skill_name: must be of the type string"},
		{"run_python_script", `{"Skill_Name": "a", "script": ""}`, "", `run_python_script: no field "Skill_Name"; it takes skill_name, script, args (optional), files (optional), session (optional)`},
		{"run_python_script", `{"skill_name": "a", "script": "", "timeout": 3}`, "", `run_python_script: no field "timeout"; it takes skill_name, script, args (optional), files (optional), session (optional)`},
		{"list_skills", `{"x": 1}`, "", `list_skills: no field "x"; it takes cursor (optional), limit (optional), query (optional)`},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "arguments": []}`, "arguments", "run_skill_script: arguments: must be of the type object"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "timeout": "3"}`, "timeout", "run_skill_script: timeout: must be of the type number"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "timeout": 1e999}`, "timeout", "run_skill_script: timeout: has a number that is too large"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "timeout": 0}`, "timeout", "run_skill_script: timeout: must be at least 0.001"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "timeout": 601}`, "timeout", "run_skill_script: timeout: must be at most 600"},
		{"RunPython", `{"code": "print('\ud800')"}`, "code", `RunPython: code: a \u escape is half of a surrogate pair: give both halves, or another character`},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "arguments": {"a": ["\udc00"]}}`, "arguments", `run_skill_script: arguments: a \u escape is half of a surrogate pair: give both halves, or another character`},
		{"read_skill_file", `{"skill": "a", "path": "b", "offset": 1.5}`, "offset", "read_skill_file: offset: must be of the type integer"},
		{"read_skill_file", `{"skill": "a", "path": "b", "offset": -1}`, "offset", "read_skill_file: offset: must be at least 0"},
		{"read_skill_file", `{"skill": "a", "path": "b", "offset": true}`, "offset", "read_skill_file: offset: must be of the type integer"},
		{"bash", `{"skill": "a", "command": "b", "args": ["c"]}`, "", `bash: no field "args"; it takes skill, command, files (optional), session (optional), timeout (optional), working_dir (optional)`},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "args": "--x"}`, "args", "run_skill_script: args: must be of the type array"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "args": ["--x", 3]}`, "args[1]", "run_skill_script: args[1]: must be of the type string"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "args": ["` + strings.Repeat("x", executor.MaxArgBytes+1) + `"]}`, "args[0]", "run_skill_script: args[0]: has more than 131071 characters"},
		{"run_skill_script", `{"skill": "a", "script_path": "b", "args": [` + strings.Repeat(`"", `, executor.MaxArgs) + `""]}`, "args", "run_skill_script: args: has 1001 items; at most 1000 are allowed"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"text": ""}]}`, "files[0].path", "bash: files[0].path: is required: Relative path of the file, such as data/in.csv; not the path of a file of the skill"},
		{"bash", `{"skill": "a", "command": "b", "files": ["x"]}`, "files[0]", "bash: files[0]: is not a JSON object; give an object with path, base64 (optional), text (optional), uri (optional)"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x", "content": ""}]}`, "files[0]", `bash: files[0]: no field "content"; it takes path, base64 (optional), text (optional), uri (optional)`},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x", "text": 1}]}`, "files[0].text", "bash: files[0].text: must be of the type string"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x"}]}`, "files[0]", "bash: files[0]: give exactly one of text, base64 and uri"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x", "text": "", "uri": "skill://a/b"}]}`, "files[0]", "bash: files[0]: give exactly one of text, base64 and uri"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x", "base64": "AA"}]}`, "files[0]", "bash: files[0]: base64 is not valid: illegal base64 data at input byte 0"},
		{"bash", `{"skill": "a", "command": "b", "files": [{"path": "x", "text": "` + strings.Repeat("x", MaxInlineBytes) + `"}, {"path": "y", "text": "y"}]}`, "files[1]", "bash: files[1]: the files have more than 8388608 bytes of text and base64 together; an artifact of an earlier call can be given by its uri"},
		{"bash", `{"skill": "a", "command": "b", "files": [` + strings.Repeat(`{"path": "x"},`, MaxToolFiles) + `{"path": "x"}]}`, "files", "bash: files: has 65 items; at most 64 are allowed"},
		{"RunPython", `{"timeout": 3}`, "", `RunPython: no field "timeout"; it takes args (optional), code (optional), files (optional), scriptPath (optional), session (optional), skill (optional), workingDirectory (optional)`},
		{"bash", `{"skill": "a", "command": "b", "timeout": 601}`, "timeout", "bash: timeout: must be at most 600"},
	} {
		t.Run(fmt.Sprintf("%s %.60s", tt.tool, tt.arguments), func(t *testing.T) {
			_, err := v.Call(t.Context(), ToolCall{Tool: tt.tool, Arguments: json.RawMessage(tt.arguments)})
			bad, ok := errors.AsType[*ArgumentsError](err)
			if !ok || bad.Field != tt.field || bad.Tool != tt.tool || bad.Error() != tt.want {
				t.Errorf("got %#v %v, want %q", err, err, tt.want)
			}
		})
	}
	_, err := v.Call(t.Context(), ToolCall{Tool: "rm"})
	if want := `there is no tool "rm"; the tools are list_skills, `; !is[*UnknownToolError](err) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Arguments from a model are either a checked object or refused.
func FuzzCheckArguments(f *testing.F) {
	f.Add(`{"skill": "a", "script_path": "b", "arguments": {"x": 1e5}, "timeout": null}`)
	f.Add(`{"skill": "a", "script_path": "b", "timeout": 5.0}`)
	f.Add(`{"skill": "a", "script_path": "b", "args": ["x"], "files": [{"path": "p", "text": "t", "uri": null}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		checked, err := checkArguments(runSkillScriptTool.Tool, json.RawMessage(text))
		if err != nil {
			if !is[*ArgumentsError](err) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		var v any
		if err := json.Unmarshal(checked, &v); err != nil {
			t.Fatalf("%q: %v", checked, err)
		}
		if err := resolve(t, runSkillScriptTool.Parameters).Validate(v); err != nil {
			t.Errorf("%q: %v", checked, err)
		}
	})
}

func TestDumps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value any
		want  string
	}{
		{map[string]any{}, `{}`},
		{[]any{}, `[]`},
		{[]any{1, "a,b:c", nil, true}, `[1, "a,b:c", null, true]`},
		{"\"\\\b\f\n\r\t\x00\x1f\x7f/<>&", `"\"\\\b\f\n\r\t\u0000\u001f\u007f/<>&"`},
		{"é\u2028\U0001F600\ufffd", `"\u00e9\u2028\ud83d\ude00\ufffd"`},
		{[]float{0, 2, 0.5, 1234567.25}, `[0.0, 2.0, 0.5, 1234567.25]`},
		{json.RawMessage(`{"b":1,"a":[2,3]}`), `{"b": 1, "a": [2, 3]}`},
	} {
		if got := string(dumps(tt.value)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// damage removes a file from a skill's snapshot.
func damage(t *testing.T, b *bench, name, path string) {
	t.Helper()
	sk, err := b.skills.Resolve(name)
	if err == nil {
		err = os.Remove(filepath.Join(sk.Dir, path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file that is missing from a snapshot is an error of the daemon, not a refusal.
func TestReadSkillFileOfADamagedSnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "calc", files: map[string]string{"x.md": "x"}})
	damage(t, b, "calc", "x.md")
	r, err := b.Call(t.Context(), ToolCall{Who: b.who, Tool: "read_skill_file", Arguments: json.RawMessage(`{"skill": "calc", "path": "x.md"}`)})
	if err == nil || is[*snapshot.PathError](err) {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := b.RunPython(context.Background(), b.who, PythonCall{Skill: "calc", Code: "1"}, nil); err != nil {
		t.Errorf("the rest of the skill: %v", err)
	}
}
