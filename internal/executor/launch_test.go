package executor

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// A command of uv or pipx is replaced by the command that it starts. The rest of the plan stays.
func TestLaunched(t *testing.T) {
	command := func(words string) permission.SimpleCommand {
		return permission.SimpleCommand{Args: strings.Fields(words), Env: []string{"X=1"}, PipeStderr: true, Redirects: []permission.Redirect{{FD: 1, Kind: permission.Write, Path: "out"}}}
	}
	globbed := command("uv run --with x scripts/x.py *.csv")
	globbed.Globs = []permission.Glob{{Arg: 5, Pattern: "*.csv"}}
	plan := permission.Plan{{Pipeline: []permission.SimpleCommand{globbed, command("sort -u")}}, {When: permission.IfFailed, Pipeline: []permission.SimpleCommand{command("uvx ruff@1 check")}}}
	got, launches, err := launched(plan)
	if err != nil || len(launches) != 2 || launches[0].With[0] != "x" || launches[1].Tool != "ruff==1" {
		t.Fatalf("got %+v, %v", launches, err)
	}
	want := permission.SimpleCommand(command("python scripts/x.py *.csv"))
	want.Globs = []permission.Glob{{Arg: 2, Pattern: "*.csv"}}
	if !reflect.DeepEqual(got[0].Pipeline[0], want) {
		t.Errorf("got %+v, want %+v", got[0].Pipeline[0], want)
	}
	if !reflect.DeepEqual(got[0].Pipeline[1], plan[0].Pipeline[1]) || !reflect.DeepEqual(got[1].Pipeline[0], command("ruff check")) || got[1].When != permission.IfFailed {
		t.Errorf("got %+v", got)
	}
	if plan[0].Pipeline[0].Args[0] != "uv" || plan[0].Pipeline[0].Globs[0].Arg != 5 {
		t.Error("the grant's plan was changed")
	}
	if got, _, err := launched(permission.Plan{{Pipeline: []permission.SimpleCommand{command("timeout 60 uv run x.py a")}}}); err != nil || strings.Join(got[0].Pipeline[0].Args, " ") != "timeout 60 python x.py a" {
		t.Errorf("behind timeout: got %+v, %v", got, err)
	}
	if got, _, err := launched(permission.Plan{{Pipeline: []permission.SimpleCommand{command("nohup nice -n 5 timeout -k 1 9 uv run x.py a")}}}); err != nil || strings.Join(got[0].Pipeline[0].Args, " ") != "nohup nice -n 5 timeout -k 1 9 python x.py a" {
		t.Errorf("behind three wrappers with options: got %+v, %v", got, err)
	}
	for line, glob := range map[string]int{"uv run --with * x.py": 3, "uv run *": 2, "uvx ruff*": 1, "timeout 1 uv run *": 4, "uv run --directory x y.py": -1} {
		c := command(line)
		if glob >= 0 {
			c.Globs = []permission.Glob{{Arg: glob, Pattern: c.Args[glob]}}
		}
		_, _, err := launched(permission.Plan{{Pipeline: []permission.SimpleCommand{c}}})
		var refused *RequestError
		if !errors.As(err, &refused) || refused.Field != "command" {
			t.Errorf("%s: got %v, want a *RequestError", line, err)
		}
	}
}

// A command of npx is replaced by its program, and asks for one package.
func TestLaunchedNode(t *testing.T) {
	lines := func(lines ...string) (plan permission.Plan) {
		for _, line := range lines {
			plan = append(plan, permission.Step{Pipeline: []permission.SimpleCommand{{Args: strings.Fields(line)}}})
		}
		return plan
	}
	got, launches, err := launched(lines("npx -y @s/tool@1 a", "timeout 5 npx -p x y"))
	if err != nil || !reflect.DeepEqual(got, lines("tool a", "timeout 5 y")) {
		t.Fatalf("got %+v, %v", got, err)
	}
	var u environment.Use
	if err := launchedUse(&u, launches[:1]); err != nil || !u.RunsNode || u.RunsPython || *u.NodeTool != (environment.NodeTool{Text: "@s/tool@1", Program: "tool"}) {
		t.Errorf("got %+v, %v", u, err)
	}
	var refused *RequestError
	if err := launchedUse(&u, launches); !errors.As(err, &refused) {
		t.Errorf("two tools: got %v, want a *RequestError", err)
	}
	if _, _, err := launched(lines("npx ./x.js")); !errors.As(err, &refused) || refused.Field != "command" {
		t.Errorf("a file: got %v, want a *RequestError", err)
	}
}

// The packages of a command line must be declared, and they must fit each other and the interpreter.
func TestLaunchedUse(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"SKILL.md": "---\nname: demo\ndescription: A demo.\npython_packages: [rich==13.0, pytest]\n---\n" +
		"Run `uvx ruff@1 check` or `uvx black` or `uv run --with attrs x.py`.\n", "x.py": ""})
	var refused *RequestError
	var missing *PackagesError
	var interpreter *InterpreterError
	tests := map[string]struct {
		lines      []string
		runsPython bool
		with, tool string
		err        any
	}{
		"a script":                  {lines: []string{"uv run x.py"}},
		"declared packages":         {lines: []string{"uv run --with rich --with attrs x.py"}, with: "rich==13.0 attrs"},
		"the same versions":         {lines: []string{"uv run --with rich==13.0 x.py"}, with: "rich==13.0"},
		"other versions":            {lines: []string{"uv run --with rich==12.0 x.py"}, err: &missing},
		"an undeclared package":     {lines: []string{"uv run --with numpy x.py"}, err: &missing},
		"a tool":                    {lines: []string{"uvx ruff check"}, tool: "ruff==1"},
		"a tool twice":              {lines: []string{"uvx ruff check", "uvx ruff format"}, tool: "ruff==1"},
		"a tool of the environment": {lines: []string{"uvx pytest", "uv run x.py"}, with: "pytest"},
		"two tools":                 {lines: []string{"uvx ruff", "uvx black"}, err: &refused},
		"a tool beside Python":      {lines: []string{"uvx ruff"}, runsPython: true, err: &refused},
		"an undeclared tool":        {lines: []string{"uvx mypy"}, err: &missing},
		"another interpreter":       {lines: []string{"uv run --python 3.9 x.py"}, err: &interpreter},
		"the interpreter":           {lines: []string{"uv run --python 3.11 x.py"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var step permission.Plan
			for _, line := range tt.lines {
				step = append(step, permission.Step{Pipeline: []permission.SimpleCommand{{Args: strings.Fields(line)}}})
			}
			_, launches, err := launched(step)
			if err != nil {
				t.Fatal(err)
			}
			u := environment.Use{Skill: sk, Python: runtime.Runtime{Version: "3.11.2"}, RunsPython: tt.runsPython}
			err = launchedUse(&u, launches)
			if tt.err != nil {
				if err == nil || !errors.As(err, tt.err) {
					t.Errorf("got %v, want a %T", err, tt.err)
				}
				return
			}
			tool := ""
			if u.Tool != nil {
				tool = u.Tool.Text
			}
			if err != nil || strings.Join(u.With, " ") != tt.with || tool != tt.tool || !u.RunsPython {
				t.Errorf("got %q, tool %q, %t, %v; want %q, tool %q", u.With, tool, u.RunsPython, err, tt.with, tt.tool)
			}
		})
	}
}
