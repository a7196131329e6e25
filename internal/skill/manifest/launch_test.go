package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseLaunch(t *testing.T) {
	for _, c := range []struct {
		line   string // words without quotes
		runs   string
		with   string // separated by blanks
		tool   string
		python string
		err    string // part of the error
	}{
		{line: "uv run scripts/x.py a --with b", runs: "python scripts/x.py a --with b"},
		{line: "uv run --script scripts/x a", runs: "python scripts/x a"},
		{line: "uv -q run -s x", runs: "python x"},
		{line: "uv run --no-project --isolated -q -- x.py -q", runs: "python x.py -q"},
		{line: "uv run --with requests --with=rich>12,<13 -w a,b[c]>=1,<2,d@1.0 x.py", runs: "python x.py", with: "requests rich>12,<13 a b[c]>=1,<2 d==1.0"},
		{line: "uv run --python 3.12 x.py", runs: "python x.py", python: "==3.12.*"},
		{line: "uv run -p cpython@3.12.1 x.py", runs: "python x.py", python: "==3.12.1"},
		{line: "uv run --python=>=3.11 x.py", runs: "python x.py", python: ">=3.11"},
		{line: "uv run -m json.tool a", runs: "python -m json.tool a"},
		{line: "uv run python -c 1", runs: "python -c 1"},
		{line: "uv run pytest -q", runs: "pytest -q"},
		{line: "uv run -", runs: "python -"},
		{line: "uv run", runs: "python"},
		{line: "uv run --python pypy x.py", err: "--python pypy"},
		{line: "uv run --with git+https://x/y x.py", err: "requirement"},
		{line: "uv run --with a@https://x/y x.py", err: "the daemon's index only"},
		{line: "uv run --with", err: "needs a value"},
		{line: "uv run --directory / x.py", err: "option --directory can't be met"},
		{line: "uv run --env-file=x x.py", err: "option --env-file"},
		{line: "uvx ruff@0.8.0 check .", runs: "ruff check .", tool: "ruff==0.8.0"},
		{line: "uvx ruff@latest", runs: "ruff", tool: "ruff"},
		{line: "uvx --from httpie http GET x", runs: "http GET x", tool: "httpie"},
		{line: "uv tool run --from httpie==3.0 http", runs: "http", tool: "httpie==3.0"},
		{line: "uvx python -V", runs: "python -V"},
		{line: "uvx --with x ruff", err: "--with can't be met for a tool"},
		{line: "uvx --from git+https://x/y z", err: "requirement"},
		{line: "uvx", err: "names no program"},
		{line: "uvx ./x", err: "requirement"},
		{line: "pipx run black==24.10.0 .", runs: "black .", tool: "black==24.10.0"},
		{line: "pipx run black[jupyter]==24.10.0 .", runs: "black .", tool: "black[jupyter]==24.10.0"},
		{line: "pipx run --spec black==24 black .", runs: "black .", tool: "black==24"},
		{line: "pipx run scripts/x.py a", runs: "python scripts/x.py a"},
	} {
		words := strings.Fields(c.line)
		l, ok, err := ParseLaunch(words)
		if c.err != "" {
			if !ok || err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %+v, %t, %v; want an error with %q", c.line, l, ok, err, c.err)
			}
			continue
		}
		if got := strings.Join(l.Args(words), " "); !ok || err != nil || got != c.runs || strings.Join(l.With, " ") != c.with || l.Tool != c.tool || l.Python != c.python {
			t.Errorf("%s: got %q, %+v, %t, %v", c.line, got, l, ok, err)
		}
	}
	for _, line := range []string{"uv", "uv sync", "uv pip install x", "pipx install x", "uv tool install run", "python uv run x.py", "uv run-x", ""} {
		if _, ok, err := ParseLaunch(strings.Fields(line)); ok || err != nil {
			t.Errorf("%s: got %t, %v", line, ok, err)
		}
	}
}

// Command lines of SKILL.md name packages: in code blocks and in code within a line.
func TestRequirementsOfCommandLines(t *testing.T) {
	const body = `Run uvx prose@1.0 never.

Use ` + "`uvx inline@1.0 .` or `pipx run 'black==24.10.0' .`" + `.

` + "```bash" + `
$ uv run --with requests \
    scripts/x.py
X=1 uv run --with 'rich>12,<13' {baseDir}/scripts/y.py < in | uvx piped@2.0 # uvx comment@1.0
uv run --with nothing scripts/none.py && uvx <package>
uvx inline@1.0 again
uvx 'unclosed
uvx --from git+https://x/y z
` + "```" + `

~~~
uvx other
~~~
`
	needs, found := readSkill(t, files{"SKILL.md": "---\nname: demo\ndescription: Shows things.\n---\n" + body, "scripts/x.py": "1", "scripts/y.py": "1"})
	want := []Requirement{{Text: "requests", File: "SKILL.md", Line: 11, Script: "scripts/x.py"}, {Text: "rich>12,<13", File: "SKILL.md", Line: 12, Script: "scripts/y.py"}}
	if !reflect.DeepEqual(needs.List, want) {
		t.Errorf("got %+v\nwant %+v", needs.List, want)
	}
	var tools []string
	for _, r := range needs.Tools {
		tools = append(tools, r.Text)
	}
	if want := []string{"inline==1.0", "black==24.10.0", "piped==2.0", "other"}; !slices.Equal(tools, want) || needs.Tools[0].Line != 7 {
		t.Errorf("got %q, want %q; %+v", tools, want, needs.Tools)
	}
	if len(found) != 0 {
		t.Errorf("got %v, want no finding", found)
	}
	many := strings.Builder{}
	for i := range 2 * maxTools {
		many.WriteString("`uvx tool" + strings.Repeat("x", i) + "` ")
	}
	if needs, _ := readSkill(t, files{"SKILL.md": "---\nname: demo\ndescription: Shows things.\n---\n" + many.String()}); len(needs.Tools) != maxTools {
		t.Errorf("got %d tools, want %d", len(needs.Tools), maxTools)
	}
}

// A word in capitals stands for the name of a package. It is a warning with its line, and no tool.
func TestPlaceholdersAreNoTools(t *testing.T) {
	needs, found := readSkill(t, files{"SKILL.md": "---\nname: demo\ndescription: Shows things.\n---\nRun `uvx PACKAGE` or `pipx run TOOL_NAME a`.\n\n`uvx PKG@VERSION`, `uvx ruff`, `uvx A2B`\n"})
	var tools, lines []string
	for _, r := range needs.Tools {
		tools = append(tools, r.Text)
	}
	for _, f := range found {
		if f.Rule == RuleToolPlaceholder && f.Severity == SeverityWarning {
			lines = append(lines, f.String())
		}
	}
	if want := []string{"ruff", "A2B"}; !slices.Equal(tools, want) {
		t.Errorf("tools %q, want %q", tools, want)
	}
	const leftOut = " stands for the name of a package: skillrun prepare leaves this command out"
	if want := []string{"SKILL.md:5: PACKAGE" + leftOut, "SKILL.md:5: TOOL_NAME" + leftOut, "SKILL.md:7: PKG" + leftOut}; !slices.Equal(lines, want) {
		t.Errorf("warnings %q, want %q", lines, want)
	}
}
