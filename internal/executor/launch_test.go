package executor

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
)

// A command of uv or pipx is replaced by what it starts; everything else of the plan stays.
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
