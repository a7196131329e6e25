package permission

import (
	"reflect"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	cmd := func(words ...string) SimpleCommand { return SimpleCommand{Args: words} }
	with := func(r ...Redirect) SimpleCommand { return SimpleCommand{Args: []string{"a"}, Redirects: r} }
	one := func(c ...SimpleCommand) Plan { return Plan{{Pipeline: c}} }
	piped := func(c SimpleCommand) SimpleCommand { c.PipeStderr = true; return c }
	for _, c := range []struct {
		command string
		want    Plan
	}{
		{"a", one(cmd("a"))},
		{"a;b\nc", Plan{{Always, []SimpleCommand{cmd("a")}}, {Always, []SimpleCommand{cmd("b")}}, {Always, []SimpleCommand{cmd("c")}}}},
		{"a && b || c; d", Plan{
			{Always, []SimpleCommand{cmd("a")}}, {IfSucceeded, []SimpleCommand{cmd("b")}},
			{IfFailed, []SimpleCommand{cmd("c")}}, {Always, []SimpleCommand{cmd("d")}},
		}},
		{"a || b && c", Plan{{Always, []SimpleCommand{cmd("a")}}, {IfFailed, []SimpleCommand{cmd("b")}}, {IfSucceeded, []SimpleCommand{cmd("c")}}}},
		{"a | b | c && d | e", Plan{{Always, []SimpleCommand{cmd("a"), cmd("b"), cmd("c")}}, {IfSucceeded, []SimpleCommand{cmd("d"), cmd("e")}}}},
		{"a |& b | c", one(piped(cmd("a")), cmd("b"), cmd("c"))},
		{"a >f |& b", one(piped(with(Redirect{FD: 1, Kind: Write, Path: "f"})), cmd("b"))},
		{"a > f", one(with(Redirect{FD: 1, Kind: Write, Path: "f"}))},
		{"a >| f", one(with(Redirect{FD: 1, Kind: Write, Path: "f"}))},
		{">f a", one(with(Redirect{FD: 1, Kind: Write, Path: "f"}))},
		{"a >> d/f", one(with(Redirect{FD: 1, Kind: Append, Path: "d/f"}))},
		{"a 2> f", one(with(Redirect{FD: 2, Kind: Write, Path: "f"}))},
		{"a < f", one(with(Redirect{FD: 0, Kind: Read, Path: "f"}))},
		{"a 3< f", one(with(Redirect{FD: 3, Kind: Read, Path: "f"}))},
		{"a &> f", one(with(Redirect{FD: 1, Kind: Write, Path: "f"}, Redirect{FD: 2, Kind: Dup, From: 1}))},
		{"a &>> f", one(with(Redirect{FD: 1, Kind: Append, Path: "f"}, Redirect{FD: 2, Kind: Dup, From: 1}))},
		{"a >& f", one(with(Redirect{FD: 1, Kind: Write, Path: "f"}, Redirect{FD: 2, Kind: Dup, From: 1}))},
		{"a 2>&1", one(with(Redirect{FD: 2, Kind: Dup, From: 1}))},
		{"a >&2", one(with(Redirect{FD: 1, Kind: Dup, From: 2}))},
		{"a <&1", one(with(Redirect{FD: 0, Kind: Dup, From: 1}))},
		{"a 3>&1 1>&2 2>&3", one(with(Redirect{FD: 3, Kind: Dup, From: 1}, Redirect{FD: 1, Kind: Dup, From: 2}, Redirect{FD: 2, Kind: Dup, From: 3}))},
		{"a > '/dev/null' 2>&1", one(with(Redirect{FD: 1, Kind: Write, Path: "/dev/null"}, Redirect{FD: 2, Kind: Dup, From: 1}))},
		{"a > 'x y'", one(with(Redirect{FD: 1, Kind: Write, Path: "x y"}))},
		{"a > ..f/a..", one(with(Redirect{FD: 1, Kind: Write, Path: "..f/a.."}))},
		{"a <<< 'b c'", one(with(Redirect{Kind: Text, Text: "b c\n"}))},
		{"a <<E\nb\\$c\nE\n", one(with(Redirect{Kind: Text, Text: "b$c\n"}))},
		{"a <<'E'\nb\\$c $x `y`\nE", one(with(Redirect{Kind: Text, Text: "b\\$c $x `y`\n"}))},
		{"a <<\\E\n$x\nE\n", one(with(Redirect{Kind: Text, Text: "$x\n"}))},
		{"a <<\"E F\"\n{baseDir}\nE F\n", one(with(Redirect{Kind: Text, Text: "{baseDir}\n"}))},
		{"a <<E\n{baseDir} ${CLAUDE_SKILL_DIR} * ~\nE\n", one(with(Redirect{Kind: Text, Text: "/skills/demo /skills/demo * ~\n"}))},
		{"a <<-E\n\tb\n\t\tc\n\tE\n", one(with(Redirect{Kind: Text, Text: "b\nc\n"}))},
		{"a <<E\nE\n", one(with(Redirect{Kind: Text}))},
		{"a <<E | b\nx\nE\n", one(with(Redirect{Kind: Text, Text: "x\n"}), cmd("b"))},
		{"LANG=C LC_ALL= APP_X='1 2' a b", one(SimpleCommand{Args: []string{"a", "b"}, Env: []string{"LANG=C", "LC_ALL=", "APP_X=1 2"}})},
		{"{baseDir}/x a{baseDir}b", one(cmd("/skills/demo/x", "a/skills/demob"))},
	} {
		d := ParseRules([]string{"Bash"}, "/skills/demo").Decide(c.command)
		if !d.Allowed || !reflect.DeepEqual(d.Plan, c.want) {
			t.Errorf("%q:\n got %+v (%s)\nwant %+v", c.command, d.Plan, d.Reason, c.want)
		}
	}
}

func TestRedirectsStayInside(t *testing.T) {
	for _, redirect := range []string{
		"> /etc/passwd", ">> /x", "< /etc/passwd", ">| /x", "&> /x", "&>> /x", ">& /x", "2> /tmp/x", "> ../x", "> a/../x", "> a/..", "> ..", "> .", "> ./", "> a/", "> ''",
		"> $HOME/x", "> ~/x", "> *", "> a{b,c}", "> $(id)", "> >(id)", "< <(id)", "> /dev/tcp/x/1", "> /dev/stderr", "> //dev/null", "> /dev/null/../x", "> /dev//null",
		"<> f", "2>&-", ">&-", "<&-", "3>&2-", "{fd}> x", "{fd}>&1", "10> x", "99> x", "2>&7", "2>&10", "2>&x", "<&x", "> {baseDir}/x", "> " + strings.Repeat("a", maxPath+1),
		"<<E\n$x\nE\n", "<<E\n`id`\nE\n", "<<E\n$(id)\nE\n", "<<$x\n$x\n", "<<E\nx\n", "<<$'E'\nx\nE\n", "<<< $x", "<<< `id`", "> a b> c > d <",
		strings.Repeat("> a ", MaxRedirects+1),
	} {
		decideRows(t, []row{{"Bash(git status:*)", "git status " + redirect, false}, {"Bash", "git status " + redirect, false}})
	}
	for _, redirect := range []string{"> ./x", "> a/./b", "> a/b/c", "2> x 3< y", "> 'a*b'", strings.Repeat("> a ", MaxRedirects)} {
		decideRows(t, []row{{"Bash(git status:*)", "git status " + redirect, true}})
	}
	// A here-document does not hide the commands after it.
	decideRows(t, []row{
		{"Bash(git status:*)", "git status <<E\nx\nE\nid", false},
		{"Bash(git status:*)", "git status <<E; id\nx\nE\n", false},
		{"Bash(git status:*)", "git status <<'E'\nE\nid\nE\n", false},
		{"Bash(git status:*)", "git status <<'E'\n E\nid\nE\n", true},
	})
}

func TestAssignments(t *testing.T) {
	for _, name := range []string{"LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "APP_KEY", "INPUT_FILE"} {
		decideRows(t, []row{{"Bash(git status:*)", name + "=x git status", true}})
	}
	for _, prefix := range []string{
		"PATH=.", "LD_PRELOAD=x", "GIT_PAGER=id", "IFS=x", "X=1", "lang=C", "LC_=x", "APP_=x", "PYTHONPATH=.", "BASH_ENV=x", "LANG=$x", "LANG=`id`", "LANG=~", "LANG=~/x",
		"LANG=C PATH=.", "LANG+=x", "LANG[0]=x", "LANG=(x)", "LANG=C; git status &&", "APP_X=*", "APP_X={a,b}",
	} {
		decideRows(t, []row{{"Bash(git status:*)", prefix + " git status", false}, {"Bash", prefix + " git status", false}})
	}
	// An assignment after the program's name is an argument.
	decideRows(t, []row{{"Bash(git status:*)", "git status X=1", true}, {"Bash(git status:*)", "git X=1 status", false}, {"Bash(git status:*)", "'LANG=C' git status", false}})
}
