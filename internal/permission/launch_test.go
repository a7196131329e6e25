package permission

import "testing"

// A rule for a command of uv or pipx also holds for the program that the command starts.
func TestRulesOfUV(t *testing.T) {
	decideRows(t, []row{
		{"Bash(uv run scripts/*)", "uv run scripts/x.py a", true},
		{"Bash(uv run scripts/*)", "timeout 60 uv run scripts/x.py a", true},
		{"Bash(nice -n 5 uv run scripts/*)", "nice -n 5 uv run scripts/x.py a", true},
		{"Bash(timeout -k 1 5 uv run -m pkg.*)", "timeout -k 1 5 uv run -m pkg.tool", true},
		{"Bash(nice -n 5 uv run scripts/*)", "nice -n 5 uv run scripts/../evil.py", false},
		{"Bash(nice -n 5 uv run scripts/*)", "nice -n 5 uv run --with evil scripts/x.py", false},
		{"Bash(uv run scripts/*)", "nice -n 5 uv run scripts/x.py", false},
		{"Bash(nice -n 5 uv run:*)", "nice -n 5 uv run evil.py", false},
		{"Bash(nice -n 5 uv:*)", "nice -n 5 uv run evil.py", false},
		{"Bash(nice -n 5:*)", "nice -n 5 uv run evil.py", false},
		{"Bash(uv run scripts/x.py:*)", "uv run scripts/x.py a -c b", true},
		{"Bash(uv run scripts/x.py)", "uv run scripts/x.py a", false},
		{"Bash(uv run --with x scripts/*)", "uv run --with x scripts/x.py", true},
		{"Bash(uv run --with x scripts/*)", "uv run --with y scripts/x.py", false},
		{"Bash(uv run --script scripts/*)", "uv run --script scripts/x a", true},
		{"Bash(uv run -m pkg.*)", "uv run -m pkg.tool", true},
		{"Bash(uv run python scripts/*)", "uv run python scripts/x.py", true},
		{"Bash(uv run python scripts/*)", "uv run python -c 1", false},
		{"Bash(uvx ruff@0.8.0:*)", "uvx ruff@0.8.0 check .", true},
		{"Bash(uvx ruff@0.8.0:*)", "uvx ruff check .", false},
		{"Bash(uvx --from httpie http:*)", "uvx --from httpie http GET x", true},
		{"Bash(pipx run scripts/*)", "pipx run scripts/x.py", true},
		// Words that the rule doesn't name choose no program and no package.
		{"Bash(uv run:*)", "uv run scripts/x.py", false},
		{"Bash(uv run *)", "uv run --with evil scripts/x.py", false},
		{"Bash(uv run scripts/*)", "uv run scripts/../evil.py", false},
		{"Bash(uv run scripts/*)", "uv run --with evil scripts/x.py", false},
		{"Bash(uv run scripts/*)", "uv run scripts/tool", false}, // a program, which uv runs directly
		{"Bash(uv run:*)", "uv run -m evil", false},
		{"Bash(uv run -m:*)", "uv run -m evil", false},
		{"Bash(uvx:*)", "uvx evil", false},
		{"Bash(uvx --from httpie:*)", "uvx --from httpie sh -c id", false},
		// Rules also check the arguments of the started program.
		{"Bash(uvx --from x awk:*)", "uvx --from x awk 'BEGIN{system(\"id\")}'", false},
		{"Bash(uvx --from x find:*)", "uvx --from x find . -exec id ;", false},
		{"Bash(uv run find:*)", "uv run find . -delete", false},
	})
}

// The same for npx and its like.
func TestRulesOfNPX(t *testing.T) {
	decideRows(t, []row{
		{"Bash(npx eslint:*)", "npx eslint . --fix", true},
		{"Bash(npx eslint@9:*)", "npx eslint@9 .", true},
		{"Bash(npx -y eslint *)", "npx -y eslint .", true},
		{"Bash(npx -p typescript tsc:*)", "npx -p typescript tsc --init", true},
		{"Bash(npx tsx scripts/*)", "npx tsx scripts/x.ts a", true},
		{"Bash(npm exec -- eslint:*)", "npm exec -- eslint .", true},
		{"Bash(npx eslint .)", "npx eslint .", true},
		{"Bash(npx eslint:*)", "timeout 5 npx eslint .", true},
		// Words that the rule doesn't name choose no package.
		{"Bash(npx:*)", "npx evil", false},
		{"Bash(npx:*)", "npx -y evil", false},
		{"Bash(npx *)", "npx -p evil eslint", false},
		{"Bash(npx -y:*)", "npx -y evil", false},
		{"Bash(npx -p:*)", "npx -p evil x", false},
		{"Bash(npx -p typescript:*)", "npx -p typescript sh -c id", false},
		{"Bash(npx eslint:*)", "npx eslint@9 .", false},
		{"Bash(npx eslint:*)", "npx -p evil eslint", false},
		{"Bash(npx eslint)", "npx eslint .", false},
		{"Bash(npx tsx scripts/*)", "npx tsx scripts/../evil.ts", false},
		// Rules also check the arguments of the started program.
		{"Bash(npx -p x find:*)", "npx -p x find . -exec id ;", false},
		{"Bash(npx -p x awk:*)", "npx -p x awk 'BEGIN{system(\"id\")}'", false},
	})
}

// A rule that names the begin of what uv or npx starts can match, so validation has nothing to say.
func TestProblemsOfLaunchRules(t *testing.T) {
	for text, fine := range map[string]bool{
		"Bash(uv run scripts/*)": true, "Bash(uv run --with x scripts/*)": true, "Bash(npx eslint:*)": true, "Bash(uvx ruff*)": true, "Bash(uv run scripts/x.py)": true,
		"Bash(uv run:*)": false, "Bash(uv run *)": false, "Bash(npx:*)": false, "Bash(uvx *)": false, "Bash(bash scripts/*)": false,
	} {
		if got := ParseRules([]string{text}, "").Problems(); (len(got) == 0) != fine {
			t.Errorf("%s: got %v", text, got)
		}
		// Sandboxes have no uv and no npx, so nobody need install them.
		if got := ParseRules([]string{text}, "").Entries()[0].Program; fine && got != "" {
			t.Errorf("%s: it allows the program %q", text, got)
		}
	}
}
