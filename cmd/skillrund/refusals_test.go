package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Every refused request gets its code, its reason and a sentence that says what to do. It
// leaves no record.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "demo", `allowed-tools: "Bash(git status:*)"
max_execution_time: 60
max_memory: 256`, map[string]string{
		"scripts/ok.py": "print('ok')", "scripts/setuid.py": "print(1)", "scripts/notes.xyz": "x", "scripts/win.ps1": "x",
		"scripts/sub/x": "no interpreter", "data.csv": "a", "dir/file": "x",
	})
	writeSkill(t, dir, "online", "network_access: true", nil)
	root := filepath.Join(dir, "skills/demo")
	for link, target := range map[string]string{
		"scripts/out.py": "../../../outside.py", "scripts/loop.py": "loop.py", "scripts/absolute.py": "/etc/passwd", "scripts/in.py": "ok.py", "linkdir": "dir",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "scripts/setuid.py"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "")

	limited := func(l *pb.ExecutionLimits) *pb.ExecuteRequest {
		req := script("demo", "scripts/ok.py")
		req.Limits = l
		return req
	}
	with := func(change func(*pb.ExecuteRequest)) *pb.ExecuteRequest {
		req := script("demo", "scripts/ok.py")
		change(req)
		return req
	}
	file := func(paths ...string) *pb.ExecuteRequest {
		return with(func(r *pb.ExecuteRequest) {
			for _, p := range paths {
				r.Files = append(r.Files, &pb.InputFile{Path: p, Source: &pb.InputFile_Content{Content: []byte("x")}})
			}
		})
	}
	env := func(name, value string) *pb.ExecuteRequest {
		return with(func(r *pb.ExecuteRequest) { r.Env = map[string]string{name: value} })
	}
	for _, tt := range []struct {
		name, code, reason string
		req                *pb.ExecuteRequest
	}{
		{"unknown skill", "NotFound", "SKILL_NOT_FOUND", script("nobody", "x.py")},
		{"no skill", "InvalidArgument", "INVALID_SKILL_NAME", script("", "x.py")},
		{"name with /", "InvalidArgument", "INVALID_SKILL_NAME", script("../../etc", "x.py")},
		{"name with a backslash", "InvalidArgument", "INVALID_SKILL_NAME", script(`a\b`, "x.py")},
		{"name with ..", "InvalidArgument", "INVALID_SKILL_NAME", script("..", "x.py")},
		{"name with NUL", "InvalidArgument", "INVALID_SKILL_NAME", script("demo\x00", "x.py")},
		{"name too long", "InvalidArgument", "INVALID_SKILL_NAME", script(strings.Repeat("a", 65), "x.py")},
		{"look-alike name", "NotFound", "SKILL_NOT_FOUND", script("dеmo", "scripts/ok.py")}, // Cyrillic е
		{"wrong digest", "FailedPrecondition", "DIGEST_MISMATCH", script("demo@sha256:"+strings.Repeat("0", 64), "scripts/ok.py")},
		{"not a digest", "InvalidArgument", "INVALID_SKILL_DIGEST", script("demo@sha256:123", "scripts/ok.py")},
		{"no source", "InvalidArgument", "INVALID_REQUEST", &pb.ExecuteRequest{Skill: "demo"}},
		{"script missing", "NotFound", "SKILL_FILE_NOT_FOUND", script("demo", "scripts/none.py")},
		{"script is a directory", "InvalidArgument", "SKILL_PATH_IS_DIRECTORY", script("demo", "scripts")},
		{"script is the skill", "InvalidArgument", "INVALID_SKILL_PATH", script("demo", ".")},
		{"no script", "InvalidArgument", "INVALID_SKILL_PATH", script("demo", "")},
		{"script outside", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "../../etc/passwd")},
		{"script absolute", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "/etc/passwd")},
		{"script outside by a detour", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "scripts/../../x.py")},
		{"script of a sibling", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "../demo-evil/x.py")},
		{"link that leaves", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "scripts/out.py")},
		{"absolute link", "InvalidArgument", "SKILL_PATH_ESCAPES", script("demo", "scripts/absolute.py")},
		{"link loop", "FailedPrecondition", "SKILL_FILE_REFUSED", script("demo", "scripts/loop.py")},
		{"setuid script", "FailedPrecondition", "SKILL_FILE_REFUSED", script("demo", "scripts/setuid.py")},
		{"unknown extension", "FailedPrecondition", "UNKNOWN_EXTENSION", script("demo", "scripts/notes.xyz")},
		{"no extension, no shebang", "FailedPrecondition", "UNKNOWN_EXTENSION", script("demo", "scripts/sub/x")},
		{"missing interpreter", "FailedPrecondition", "INTERPRETER_MISSING", script("demo", "scripts/win.ps1")},
		{"unknown language", "InvalidArgument", "UNKNOWN_LANGUAGE", &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "x", Language: "cobol"}}}},
		{"code too large", "InvalidArgument", "INVALID_REQUEST", code("demo", strings.Repeat("#", 128<<10))},
		{"code with NUL", "InvalidArgument", "INVALID_REQUEST", code("demo", "a\x00b")},
		{"command not allowed", "PermissionDenied", "COMMAND_NOT_ALLOWED", command("demo", "rm -rf /")},
		{"command partly allowed", "PermissionDenied", "COMMAND_NOT_ALLOWED", command("demo", "git status; id")},
		{"command of a skill without allowed-tools", "PermissionDenied", "COMMAND_NOT_ALLOWED", command("online", "ls")},
		{"command with args", "InvalidArgument", "INVALID_REQUEST", withArgs(command("demo", "git status"), "x")},
		{"args not an object", "InvalidArgument", "INVALID_ARGUMENTS", with(func(r *pb.ExecuteRequest) { r.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: "[1]"} })},
		{"args too large", "InvalidArgument", "ARGUMENTS_TOO_LARGE", with(func(r *pb.ExecuteRequest) {
			r.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"x":"` + strings.Repeat("y", 11<<20) + `"}`}
		})},
		{"argument with NUL", "InvalidArgument", "INVALID_REQUEST", script("demo", "scripts/ok.py", "a\x00b")},
		{"argument too long", "InvalidArgument", "INVALID_REQUEST", script("demo", "scripts/ok.py", strings.Repeat("a", 128<<10))},
		{"env PATH", "InvalidArgument", "ENV_NOT_ALLOWED", env("PATH", "/x")},
		{"env LD_PRELOAD", "InvalidArgument", "ENV_NOT_ALLOWED", env("LD_PRELOAD", "x.so")},
		{"env PYTHONPATH", "InvalidArgument", "ENV_NOT_ALLOWED", env("PYTHONPATH", ".")},
		{"env SKILL_NAME", "InvalidArgument", "ENV_NOT_ALLOWED", env("SKILL_NAME", "x")},
		{"env BASH_ENV", "InvalidArgument", "ENV_NOT_ALLOWED", env("BASH_ENV", "x")},
		{"env GIT_DIR", "InvalidArgument", "ENV_NOT_ALLOWED", env("GIT_DIR", "x")},
		{"env name", "InvalidArgument", "ENV_NOT_ALLOWED", env("A=B", "x")},
		{"env empty name", "InvalidArgument", "ENV_NOT_ALLOWED", env("", "x")},
		{"env value with NUL", "InvalidArgument", "ENV_NOT_ALLOWED", env("A", "x\x00")},
		{"secret env too", "InvalidArgument", "ENV_NOT_ALLOWED", with(func(r *pb.ExecuteRequest) { r.SecretEnv = map[string]string{"LD_AUDIT": "x"} })},
		{"timeout 0", "InvalidArgument", "INVALID_REQUEST", limited(&pb.ExecutionLimits{WallTime: durationpb.New(0)})},
		{"timeout negative", "InvalidArgument", "INVALID_REQUEST", limited(&pb.ExecutionLimits{WallTime: durationpb.New(-time.Second)})},
		{"timeout 601 s", "InvalidArgument", "LIMIT_TOO_LARGE", wall(code("calculator", "print(1)"), 601*time.Second)},
		{"timeout above the skill's", "InvalidArgument", "LIMIT_TOO_LARGE", limited(&pb.ExecutionLimits{WallTime: durationpb.New(61 * time.Second)})},
		{"timeout not a duration", "InvalidArgument", "INVALID_REQUEST", limited(&pb.ExecutionLimits{WallTime: &durationpb.Duration{Seconds: 1, Nanos: -5}})},
		{"memory above the skill's", "InvalidArgument", "LIMIT_TOO_LARGE", limited(&pb.ExecutionLimits{MemoryBytes: 257 << 20})},
		{"memory too small to start", "InvalidArgument", "LIMIT_TOO_SMALL", limited(&pb.ExecutionLimits{MemoryBytes: 1 << 20})},
		{"too few open files to start", "InvalidArgument", "LIMIT_TOO_SMALL", limited(&pb.ExecutionLimits{OpenFiles: 31})},
		{"queue timeout", "InvalidArgument", "INVALID_REQUEST", with(func(r *pb.ExecuteRequest) { r.QueueTimeout = durationpb.New(601 * time.Second) })},
		{"memory overflow", "InvalidArgument", "LIMIT_TOO_LARGE", limited(&pb.ExecutionLimits{MemoryBytes: 1<<64 - 1})},
		{"processes", "InvalidArgument", "LIMIT_TOO_LARGE", limited(&pb.ExecutionLimits{Processes: 1 << 31})},
		{"output", "InvalidArgument", "LIMIT_TOO_LARGE", limited(&pb.ExecutionLimits{OutputBytes: 1 << 63})},
		{"input absolute", "InvalidArgument", "INVALID_INPUT_FILE", file("/etc/x")},
		{"input with ..", "InvalidArgument", "INVALID_INPUT_FILE", file("a/../../x")},
		{"input twice", "InvalidArgument", "INVALID_INPUT_FILE", file("a", "a")},
		{"input beneath an input", "InvalidArgument", "INVALID_INPUT_FILE", file("a", "a/b")},
		{"input where the skill has a file", "InvalidArgument", "INVALID_INPUT_FILE", file("data.csv")},
		{"input where the skill has a folder", "InvalidArgument", "INVALID_INPUT_FILE", file("scripts")},
		{"input beneath a file of the skill", "InvalidArgument", "INVALID_INPUT_FILE", file("data.csv/x")},
		{"input through a link", "InvalidArgument", "INVALID_INPUT_FILE", file("linkdir/x")},
		{"input without a name", "InvalidArgument", "INVALID_INPUT_FILE", file("")},
		{"input with NUL", "InvalidArgument", "INVALID_INPUT_FILE", file("a\x00b")},
		{"directory absolute", "InvalidArgument", "INVALID_REQUEST", in(script("demo", "scripts/ok.py"), "/etc")},
		{"directory above", "InvalidArgument", "INVALID_REQUEST", in(script("demo", "scripts/ok.py"), "a/../..")},
		{"key too long", "InvalidArgument", "INVALID_REQUEST", with(func(r *pb.ExecuteRequest) { r.IdempotencyKey = strings.Repeat("k", 129) })},
		{"too many labels", "InvalidArgument", "INVALID_REQUEST", with(func(r *pb.ExecuteRequest) {
			r.Labels = map[string]string{}
			for i := range 33 {
				r.Labels[fmt.Sprint(i)] = "x"
			}
		})},
		{"network that the daemon does not give", "FailedPrecondition", "NETWORK_NOT_GRANTED", code("online", "print(1)")},
		{"network that the skill does not ask for", "FailedPrecondition", "NETWORK_NOT_GRANTED", with(func(r *pb.ExecuteRequest) { r.NetworkRules = &pb.NetworkRules{} })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			r, err := d.try(tt.req)
			if err == nil {
				t.Fatalf("it ran: %v, stdout %q", r.outcome, r.stdout.String())
			}
			wantStatus(t, err, tt.code, tt.reason)
			if message := status.Convert(err).Message(); strings.Contains(message, dir) || message == "" {
				t.Errorf("message %q", message)
			}
		})
	}
	d.t = t
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) != 0 {
		t.Errorf("refused requests left records: %v, %v", list, err)
	}
	t.Run("message too large", func(t *testing.T) {
		d.t = t
		req := script("demo", "scripts/ok.py")
		req.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 17<<20)}
		if _, err := d.try(req); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("got %v, want ResourceExhausted", err)
		}
	})
	t.Run("a link within the skill runs", func(t *testing.T) {
		d.t = t
		d.run(script("demo", "scripts/in.py")).wantStdout(t, "ok\n")
	})
	t.Run("without its network", func(t *testing.T) {
		d.t = t
		req := code("online", "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 1)\nexcept OSError as e: print('no network')")
		req.NetworkRules = &pb.NetworkRules{Allow: []string{"none"}}
		d.run(req).wantStdout(t, "no network\n")
	})
}

// A skill that can't be loaded does not keep other skills from loading.
func TestBrokenSkillsDoNotStopTheDaemon(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, "skills", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("no-manifest/scripts/x.py", "print(1)")
	write("broken-yaml/SKILL.md", "---\nname: [\n---\n")
	write("no-name/SKILL.md", "---\ndescription: x\n---\n")
	write("twice-a/SKILL.md", "---\nname: twice\ndescription: first\n---\n")
	write("twice-b/SKILL.md", "---\nname: twice\ndescription: second\n---\n")
	write("crlf/SKILL.md", "\ufeff---\r\nname: crlf\r\ndescription: \"a --- b\"\r\nunknown-field: 1\r\n---\r\n# Hi\r\n")
	d := startDaemonIn(t, dir, "")
	for _, folder := range []string{"broken-yaml", "no-name", "twice"} {
		if !strings.Contains(d.log.String(), folder) {
			t.Errorf("the log does not name %s", folder)
		}
	}
	s, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "crlf"})
	if err != nil || s.Description != "a --- b" || s.UnknownFields.GetFields()["unknown-field"].GetNumberValue() != 1 {
		t.Errorf("crlf: %v, %v", s, err)
	}
	twice, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "twice"})
	if err != nil || twice.Description != "first" {
		t.Errorf("of two skills of one name the first is kept: %v, %v", twice, err)
	}
	for _, name := range []string{"no-manifest", "broken-yaml", "no-name"} {
		_, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: name})
		wantStatus(t, err, "NotFound", "SKILL_NOT_FOUND")
	}
}
