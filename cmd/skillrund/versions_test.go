package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A package that is installed in another version than the skill declares is a warning in the
// first event, in the CLI and in validate. With packages: strict it is a refusal.
func TestPackagesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	const find = `import importlib.metadata as m
print([d for d in ("pandas", "PyYAML", "numpy", "six") if any(m.distributions(name=d))][0])`
	out, err := exec.Command("/usr/bin/python3", "-c", find).Output()
	if err != nil {
		t.Skipf("/usr/bin/python3 has none of the packages that this test looks for: %v", err)
	}
	name := strings.TrimSpace(string(out))
	declares := map[string]string{"requirements.txt": name + ">=9999,<10000\n", "x.py": "print(42)"}
	warning := "skill 'versions' declares " + name + ">=9999,<10000, but "
	const fix = "run: skillrun prepare versions"

	dir := newDir(t)
	writeSkill(t, dir, "versions", "", declares)
	d := startDaemonIn(t, dir, "python: system\n")
	r := d.run(code("versions", "print(42)"))
	r.wantExit(t, 0)
	r.wantStdout(t, "42\n")
	if got := r.header.GetWarnings(); len(got) != 1 || !strings.HasPrefix(got[0], warning) || !strings.HasSuffix(got[0], fix) {
		t.Errorf("warnings %q, want one that begins with %q", got, warning)
	}
	if got := d.run(shell("versions", "echo 42")).header.GetWarnings(); len(got) > 0 {
		t.Errorf("bash: warnings %q", got)
	}
	call := d.callTool("RunPython", `{"code": "print(1)"}`).result
	if len(call.Warnings) > 0 || strings.Contains(call.Content, "Warning") {
		t.Errorf("a skill without packages: %v", call)
	}
	call = d.callTool("run_skill_script", `{"skill": "versions", "script_path": "x.py"}`).result
	shown, _ := call.Structured.AsMap()["warnings"].([]any)
	if call.IsError || len(call.Warnings) != 1 || !strings.HasPrefix(call.Warnings[0], warning) || len(shown) != 1 || shown[0] != call.Warnings[0] || !strings.Contains(call.Content, `"warnings": ["`) {
		t.Errorf("the function tool: %v", call)
	}
	typed, err := d.tools().ExecuteScript(t.Context(), &pb.ExecuteScriptRequest{Skill: "versions", ScriptPath: "x.py"})
	if err != nil || !slices.Equal(typed.GetWarnings(), call.Warnings) {
		t.Errorf("the typed call: %v, %v", typed, err)
	}
	both, err := d.cli("run", "versions", "-c", "print(42)").CombinedOutput()
	if text := string(both); err != nil || !strings.Contains(text, "skillrun: warning: "+warning) || !strings.Contains(text, "42\n") {
		t.Errorf("the client: %v, %s", err, text)
	}
	v, err := d.skills.ValidateSkill(t.Context(), &pb.ValidateSkillRequest{Subject: &pb.ValidateSkillRequest_Skill{Skill: "versions"}})
	if err != nil || !v.GetValid() || !slices.ContainsFunc(v.Findings, func(f *pb.Finding) bool {
		return f.Rule == "package-missing" && f.Severity == pb.FindingSeverity_FINDING_SEVERITY_WARNING && strings.Contains(f.Message, ", not >=9999")
	}) {
		t.Errorf("validate: %v, %v", v, err)
	}

	dir = newDir(t)
	writeSkill(t, dir, "versions", "", declares)
	d = startDaemonIn(t, dir, "python: system\npackages: strict\n")
	_, err = d.try(code("versions", "print(42)"))
	if info := errorInfo(err); status.Code(err) != codes.FailedPrecondition || info["reason"] != "PACKAGES_MISSING" || info["fix"] != "skillrun prepare versions" {
		t.Errorf("strict: got %v, want a refusal", err)
	}
}
