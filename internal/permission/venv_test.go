package permission

import (
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// Programs of a venv run by name if the skill ships them, or if its packages are prepared. The rules judge
// the path as written, and a request can't put code beside the script that then runs.
func TestProgramsOfAVenvByPath(t *testing.T) {
	head := func(more string) string {
		return "---\nname: demo\ndescription: Shows things.\nallowed-tools: " + more + "\n---\n"
	}
	const rules = "Bash(venv/bin/python scripts/*) Bash(.venv/bin/python3 scripts/*) Bash(venv/bin/tool:*) Bash({baseDir}/venv/bin/python3 scripts/*) Bash(./venv/bin/python scripts/*) Bash(.venv/bin/tool) Bash(venv/bin/other) Bash(cp:*) Bash(git commit:*)"
	files := func(more map[string]string) map[string]string {
		more["SKILL.md"], more["scripts/x.py"] = head(rules), "1"
		return more
	}
	ships := skilltest.Load(t, files(map[string]string{"venv/pyvenv.cfg": "version = 3.11.2\n", "venv/bin/python": "-> /usr/bin/python3.11", "venv/bin/python3": "-> python", "venv/bin/tool": "#!/x\n", "requirements.txt": "six\n"}))
	declares := skilltest.Load(t, files(map[string]string{"requirements.txt": "six\n"}))
	neither := skilltest.Load(t, files(map[string]string{}))
	var p Policy
	for _, tt := range []struct {
		sk         *skill.Skill
		line, want string
	}{
		{ships, "venv/bin/python scripts/x.py a", "python scripts/x.py a"},
		{ships, "./venv/bin/python scripts/x.py", "python scripts/x.py"},
		{ships, "{baseDir}/venv/bin/python3 scripts/x.py", "python3 scripts/x.py"},
		{ships, "timeout 5 nohup venv/bin/python scripts/x.py", "timeout 5 nohup python scripts/x.py"},
		{ships, "venv/bin/tool x | venv/bin/python scripts/x.py", "tool x|python scripts/x.py"},
		{ships, ".venv/bin/python3 scripts/x.py", "python3 scripts/x.py"}, // it declares packages, too
		{ships, "venv/bin/other", "venv/bin/other"},
		{ships, "git -c user.name=a -c user.email=b commit -m x", "git -c user.name=a -c user.email=b commit -m x"},
		{ships, "timeout 5 git -c user.name=a commit -m x", "timeout 5 git -c user.name=a commit -m x"},
		{ships, ".venv/bin/tool", ".venv/bin/tool"},
		{declares, "venv/bin/python scripts/x.py", "python scripts/x.py"},
		{declares, ".venv/bin/python3 scripts/x.py", "python3 scripts/x.py"},
		{declares, "venv/bin/tool x", "venv/bin/tool x"},
		{neither, "venv/bin/python scripts/x.py", "venv/bin/python scripts/x.py"},
		{ships, "python scripts/x.py", ""},
		{ships, "venv/bin/python -c 1", ""},
		{ships, "venv/bin/../bin/python scripts/x.py", ""},
		{ships, "cp y scripts/json.py && venv/bin/python scripts/x.py", ""},
		{declares, "cp y scripts/x.py && .venv/bin/python3 scripts/x.py", ""},
		{ships, "venv/bin/tool > scripts/json.py; venv/bin/python scripts/x.py", ""},
	} {
		d := p.DecideFor(tt.sk, tt.line)
		var got []string
		for _, args := range d.Plan.Commands() {
			got = append(got, strings.Join(args, " "))
		}
		if d.Allowed != (tt.want != "") || strings.Join(got, "|") != tt.want {
			t.Errorf("%s: got %q (%s), want %q", tt.line, got, d.Reason, tt.want)
		}
	}
	sk := skilltest.Load(t, map[string]string{"SKILL.md": head("Bash(.venv/bin/python main.py)"), "main.py": "1", "requirements.txt": "six\n"})
	grant, err := p.Check(Principal{}, sk, Source{Kind: Command, Command: ".venv/bin/python main.py"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if grant.RefusesFile("", "json.py") == "" || grant.RefusesFile("", "data/in.csv") != "" {
		t.Errorf("a module beside the script: %q, an input: %q", grant.RefusesFile("", "json.py"), grant.RefusesFile("", "data/in.csv"))
	}
	// Without allowed-tools, a skill's own scripts may run on the Python of its venv.
	own := Policy{Unlisted: Unlisted{Scripts: true}}
	bare := map[string]string{"SKILL.md": "---\nname: demo\ndescription: Shows things.\n---\n", "scripts/x.py": "1", "requirements.txt": "six\n"}
	sk = skilltest.Load(t, bare)
	if d := own.DecideFor(sk, ".venv/bin/python scripts/x.py a"); !d.Allowed || d.Plan.Commands()[0][0] != "python" {
		t.Errorf("an own script: got %+v", d)
	}
	for _, line := range []string{".venv/bin/python -c 1", ".venv/bin/pip install x", ".venv/bin/python other.py", "x/.venv/bin/python scripts/x.py"} {
		if d := own.DecideFor(sk, line); d.Allowed {
			t.Errorf("%s: allowed by %s", line, d.Rule)
		}
	}
}
