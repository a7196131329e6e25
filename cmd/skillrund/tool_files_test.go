package main

import (
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// writeFileSkill writes a skill whose script copies its files, and one with a file to copy.
func writeFileSkill(t *testing.T, dir string) {
	t.Helper()
	writeSkill(t, dir, "copier", `allowed-tools: "Bash(cp:*)"`, map[string]string{
		"scripts/join.py": "import sys\n*names, out = sys.argv[1:]\nopen(out, 'wb').write(b'|'.join(open(n, 'rb').read() for n in names))\nprint(out)\n",
	})
	writeSkill(t, dir, "shapes", "", map[string]string{"assets/square.svg": "<svg/>"})
}

// joined is the file that join.py makes of a text, of bytes and of square.svg.
const joined = "a,b|\x00\xff|<svg/>"

// Agents over MCP, with the official client, give a script arguments and files, read the artifact
// by its link, and give it to the next call.
func TestMCPArgsAndFilesOfficialClient(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	for _, era := range []string{"legacy", "2026-07-28"} {
		t.Run(era, func(t *testing.T) {
			data := runClient(t, "files.mjs", append([]string{era}, d.mcpCommand().Args...), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock")
			var got struct {
				Structured struct {
					ExitCode  int `json:"exit_code"`
					Artifacts []struct{ Path, URI string }
					Session   struct{ Changes []struct{ URI string } }
				}
				Links []struct{ URI, Name string }
				Blob  []byte
				Next  string
				Wrong string
			}
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if len(got.Links) != 1 || len(got.Structured.Artifacts) != 1 || got.Links[0].URI != got.Structured.Session.Changes[0].URI || got.Links[0].Name != "out/all.bin" {
				t.Errorf("artifacts: %s", data)
			}
			if string(got.Blob) != joined || !strings.Contains(got.Next, "Stdout:\n"+base64.StdEncoding.EncodeToString([]byte(joined))+"\n") {
				t.Errorf("content: %q, the next call: %q", got.Blob, got.Next)
			}
			if want := "run_skill_script: files[0]: give exactly one of text, base64 and uri"; got.Wrong != want {
				t.Errorf("got %q, want %q", got.Wrong, want)
			}
		})
	}
}

// The same with grpcurl, as the typed calls.
func TestTypedArgsAndFilesGrpcurl(t *testing.T) {
	t.Parallel()
	grpcurl, err := filepath.Abs("../../.tools/grpcurl")
	if err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	writeFileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	call := func(method, request string) map[string]any {
		t.Helper()
		out, err := exec.Command(grpcurl, "-plaintext", "-unix", "-d", request, d.dir+"/s.sock", "skillrun.v1."+method).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", method, request, err, out)
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return got
	}
	artifact := func(r map[string]any) map[string]any {
		t.Helper()
		list, _ := r["artifacts"].([]any)
		if len(list) != 1 {
			t.Fatalf("got %v, want one artifact", r)
		}
		return list[0].(map[string]any)
	}
	const files = `"files": [{"path": "in/a.csv", "content": "YSxi"}, {"path": "b.bin", "content": "AP8="}, {"path": "c.svg", "uri": "skill://shapes/assets/square.svg"}]`
	script := artifact(call("ToolService/ExecuteScript", `{"skill": "copier", "script_path": "scripts/join.py", "args": ["in/a.csv", "b.bin", "c.svg", "all.bin"], `+files+`}`))
	uri, _ := script["uri"].(string)
	id, _, _ := strings.Cut(strings.TrimPrefix(uri, "execution://"), "/")
	if got := string(d.artifact(id, "all.bin")); got != joined || uri != "execution://"+id+"/artifacts/all.bin" {
		t.Errorf("%v has %q", script, got)
	}
	again := `"files": [{"path": "x", "uri": "` + uri + `"}]`
	command := call("ToolService/ExecuteCommand", `{"skill": "copier", "command": "cp x y", `+again+`}`)
	if got := artifact(command); command["success"] != true || got["sha256"] != script["sha256"] {
		t.Errorf("ExecuteCommand: %v", command)
	}
	python := call("ToolService/RunPython", `{"code": "import sys, shutil; shutil.copy(*sys.argv[1:])", "args": ["x", "y"], `+again+`}`)
	if got := artifact(python); got["sha256"] != script["sha256"] {
		t.Errorf("RunPython: %v", python)
	}
	missing := call("ToolService/RunPythonScript", `{"skill_name": "copier"}`)
	if want := "Error executing script: script is required: give Python code"; missing["error"] != want || len(missing) != 1 {
		t.Errorf("without a script: %v", missing)
	}
	// false is there, as the contract's object has it.
	constraints := call("SkillService/ActivateSkill", `{"skill": "copier"}`)["context"].(map[string]any)["constraints"].(map[string]any)
	if constraints["network_access"] != false || constraints["max_execution_time"] != 300.0 || constraints["working_directory"] != "/workspace" {
		t.Errorf("constraints: %v", constraints)
	}
}

// RunPythonScript takes arguments and files, too, and names the field of a timeout that is too long.
func TestRunPythonScriptArgsAndFiles(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "calc", "", nil)
	addVenv(t, dir, "calc")
	d := startDaemonIn(t, dir, "")
	request := &pb.RunPythonScriptRequest{
		SkillName: "calc", Script: new("import sys\nopen('out.txt', 'w').write(open(sys.argv[1]).read() * 2)"), Args: []string{"in.txt"},
		Files: []*pb.InputFile{{Path: "in.txt", Source: &pb.InputFile_Content{Content: []byte("ab")}}},
	}
	r, err := d.tools().RunPythonScript(t.Context(), request)
	if err != nil || r.GetReturncode() != 0 || r.Error != nil || len(r.Artifacts) != 1 || r.Artifacts[0].SizeBytes != 4 {
		t.Errorf("got %v, %v", r, err)
	}
	request.Timeout = durationpb.New(601 * time.Second)
	r, err = d.tools().RunPythonScript(t.Context(), request)
	if want := "Error executing script: timeout: 10m1s is above the daemon's maximum, 10m0s"; err != nil || r.GetError() != want {
		t.Errorf("got %v, %v; want %q", r, err, want)
	}
}
