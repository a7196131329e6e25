package permission

import (
	"strings"
	"testing"
)

type row struct {
	rules, command string
	allow          bool
}

func decideRows(t *testing.T, rows []row) {
	t.Helper()
	for _, c := range rows {
		d := ParseRules([]string{c.rules}, "/skills/demo").Decide(c.command)
		if d.Allowed != c.allow {
			t.Errorf("%s: %.100q allowed = %v, want %v: %s", c.rules, c.command, d.Allowed, c.allow, d.Reason)
		}
		checkForm(t, c.command, d)
	}
}

func TestQuotingAndWords(t *testing.T) {
	decideRows(t, []row{
		{"Bash(git status:*)", `g"i"t st'at'us`, true},
		{"Bash(git status:*)", `\git status`, true},
		{"Bash(git status:*)", "git \\\n status", true},
		{"Bash(git status:*)", "gi\\\nt status", true},
		{"Bash(git status:*)", "git\\ status", false},
		{"Bash(git status:*)", `"git status"`, false},
		{"Bash(git status:*)", `git 'status '`, false},
		{"Bash(git status:*)", `git status ''`, true},
		{"Bash(git status)", `git status ''`, false},
		{"Bash(git status:*)", `git '' status`, false},
		{"Bash(git status:*)", `'' git status`, false},
		{"Bash(git status:*)", `git status "a'b" 'c"d'`, true},
		{"Bash(git status:*)", `git status "a \"b\" c"`, true},
		{"Bash(git status:*)", `git status "unclosed`, false},
		{"Bash(git status:*)", `git status 'unclosed`, false},
		{"Bash(git status:*)", `git status $"x"`, false},
		{"Bash(git status:*)", `git status "a$b"`, false},
		{"Bash(git status:*)", "git status \"`id`\"", false},
		{"Bash(git status:*)", `git status '$(id)'`, true},
		{"Bash(git status:*)", `git status \$HOME`, true},
		{"Bash(git status:*)", `git status a$`, true},
		{"Bash(git status:*)", `git status $[1+1]`, false},
		{"Bash(git status:*)", `git${IFS}status`, false},
		{"Bash(git status:*)", `git$IFS$9status`, false},
		{"Bash(git status:*)", `GIT status`, false},
		{"Bash(git status:*)", `git Status`, false},
		{"Bash(git status:*)", "  git status  ", true},
		{"Bash(git status:*)", "\n\n\tgit\tstatus\n\n", true},
		{"Bash(git status:*)", "git status;", true},
		{"Bash(git status:*)", "git status;;", false},
		{"Bash(git status:*)", ";git status", false},
		{"Bash(git status:*)", "git status &&", false},
		{"Bash(git status:*)", "git status &&\n", false},
		{"Bash(git status:*)", "git status &&\ngit status", true},
		{"Bash(git status:*)", "git status |", false},
		{"Bash(git status:*)", "git status &", false},
		{"Bash(git status:*)", "git status & git status", false},
		{"Bash(git status:*)", "git status#x", false},
		{"Bash(git status:*)", "# git status", false},
		{"Bash(git status:*)", "git status # $(id)", true},
		{"Bash(git status:*)", "# why\ngit status", true},
		{"Bash(git status:*)", "git status # x\nid", false},
		{"Bash(git status:*)", "   \n\t ", false},
		{"Bash(echo:*)", "echo !! !x", true},
		{"Bash(echo:*)", "!!", false},
		{"Bash(echo:*)", "! echo a", false},
		{"Bash(echo:*)", "echo a=b", true},
	})
}

func TestTextIsPlain(t *testing.T) {
	for _, text := range []string{
		"git status\x00", "git\x00 status", "git status\r", "git status\r\n", "git status \x1b[2K", "git status \x7f", "git\x0bstatus", "git\x0cstatus",
		"git\u00a0status", "git status\u00a0", "git\u2003status", "git status \u200b", "git\u3000status", "git\u2028status", "git status \u202e", "\ufeffgit status",
		"git status '\u200d'", "git status \u0085", "git status \u2800", "git status \u3164", "git status \xff", "git status '\xc3'", "git status \u00ad",
	} {
		decideRows(t, []row{{"Bash(git status:*)", text, false}, {"Bash", text, false}})
	}
	decideRows(t, []row{
		{"Bash(git status:*)", "git status 'naïve 日本 🚀'", true},
		{"Bash(git status:*)", "gіt status", false}, // a Cyrillic i
		{"Bash(git status:*)", "git status " + strings.Repeat("a", MaxCommand-len("git status ")), true},
		{"Bash(git status:*)", "git status " + strings.Repeat("a", MaxCommand-len("git status ")+1), false},
		{"Bash", strings.Repeat("(", MaxCommand), false},
		{"Bash", strings.Repeat("a ", MaxCommand/2), true},
	})
}

func TestExpansionsAreRefused(t *testing.T) {
	for _, args := range []string{
		"$x", "${x}", "${x:-y}", "${x@P}", "${!x}", "${#x}", "$@", "$*", "$#", "$?", "$$", "$!", "$0", "$1", "$-", "$_", `"$x"`, `"${x}"`,
		"$(id)", "`id`", `"$(id)"`, "$((1+1))", "$[1]", "<(id)", ">(id)", "$'a'", `$"a"`, "${CLAUDE_OTHER}",
		"@(a|b)", "!(a)", "*(a)", "+(a)", "?(a)", "{a,b}", "x{1..3}", "{a..c}", "{,}", "a{b,c}d",
		"~", "~/x", "~root", "a=~/x", "a:~", "a=b:~/c", "{a,*}", "*{1..3}", "~/*", "*:~", "$x*", "*`id`",
	} {
		decideRows(t, []row{{"Bash(echo:*)", "echo " + args, false}, {"Bash", "echo " + args, false}})
	}
	for _, args := range []string{
		"'*'", `"*"`, `\*`, "'[ab]'", `\?`, "[", "]", "a[1", "{", "}", "{}", "{a}", "HEAD@{1}", "HEAD@{1}..HEAD@{2}", "HEAD~1", "HEAD^", "a~", `\~`, "'~'",
		"'{a,b}'", `{a\,b}`, "a,b", "1..2", "%h", "^a", "a+b", "@x", "a@b", "-", "--", "-x=y", "=", "a=b=c", "'|'", `\;`, `a\ b`, "a:b", "é",
	} {
		decideRows(t, []row{{"Bash(echo:*)", "echo " + args, true}})
	}
}

func TestConstructsAreRefused(t *testing.T) {
	for _, command := range []string{
		"(echo a)", "{ echo a; }", "if echo a; then echo b; fi", "while echo a; do echo b; done", "until echo a; do echo b; done",
		"for x in a b; do echo a; done", "for ((;;)); do echo a; done", "select x in a; do echo b; done", "case a in a) echo a;; esac",
		"echo() { id; }; echo a", "function echo { id; }", "[[ -f a ]]", "[[ a =~ b ]]", "((1))", "((x=1))", "let x=1", "declare x=1", "local x",
		"export X=1", "readonly X=1", "typeset x", "nameref x=y", "coproc echo a", "time echo a", "time -p echo a", "! echo a", "echo a &", "echo a |& echo b &",
		"X=1", "LANG=C", "X=$(id)", "X=1; echo a", "X=(1 2)", "X[0]=1 echo a", "LANG+=C echo a", "LANG=(C) echo a", "echo a | { echo b; }", "echo a && (echo b)",
		"echo a; }", "echo a)", "> f", "< f", "<<< x", "echo a > f & ", "@test x { echo a; }",
	} {
		decideRows(t, []row{{"Bash(echo:*)", command, false}, {"Bash", command, false}})
	}
}

func TestBuiltinsNeedAShell(t *testing.T) {
	for _, command := range []string{
		"cd x", "cd x && git status", "git status; cd /", "eval git status", "exec git status", "source x", ". x", "command git status", "builtin echo", "set -x",
		"trap id EXIT", "exit 0", "git status || exit 1", "read x", "alias git=id", "unset PATH", "shopt -s extglob", "wait", "ulimit -n 1", "umask 0", "hash -p x git", "enable -f x y",
		"type git", "pushd x", ":", "mapfile a", "test -f x && return", `"cd" x`, `'eval' id`, "export",
	} {
		decideRows(t, []row{{"Bash", command, false}, {"Bash(git status:*) Bash(cd:*) Bash(eval:*) Bash(test:*)", command, false}})
	}
	d := ParseRules([]string{"Bash"}, "").Decide("cd sub && ls")
	if !strings.Contains(d.Reason, "working_directory") {
		t.Errorf("cd: reason %q doesn't name working_directory", d.Reason)
	}
	for _, command := range []string{"echo a", "printf a", "test -f x", "[ -f x ]", "true", "false", "pwd", "kill 1"} {
		decideRows(t, []row{{"Bash", command, true}})
	}
}

func TestRuleForms(t *testing.T) {
	decideRows(t, []row{
		{"Bash(ls *)", "ls", true},
		{"Bash(ls *)", "ls -la x", true},
		{"Bash(ls *)", "lsof", false},
		{"Bash(ls*)", "ls", true},
		{"Bash(ls*)", "lsof -i", true},
		{"Bash(ls*)", "ls -la", true},
		{"Bash(ls*)", "ols", false},
		{"Bash(ls:*)", "'ls -la'", false},
		{"Bash(npm run test*)", "npm run test:unit --watch", true},
		{"Bash(npm run test*)", "npm run build", false},
		{"Bash(npm run test:unit)", "npm run test:unit", true},
		{"Bash(git * main)", "git checkout main", true},
		{"Bash(git * main)", "git push origin main", true},
		{"Bash(git * main)", "git checkout mainly", false},
		{"Bash(git * main)", "'git x' main", false},
		{"Bash(git * main:*)", "git checkout main -f", true},
		{"Bash(git log --format=* -n *)", "git log --format=%h -n 3", true},
		{"Bash(* --version)", "node --version", true},
		{"Bash(* --version)", "bash -c id --version", false},
		{"Bash(* --version)", "env id --version", false},
		{"Bash(e*)", "env id", false},
		{"Bash(*sh)", "bash", false},
		{"Bash(*)", "rm -rf x", true},
		{"Bash( * )", "rm -rf x", true},
		{"Bash()", "ls", false},
		{"Bash( )", "ls", false},
		{"Bash(:*)", "ls", false},
		{"Bash(python)", "python", true},
		{"Bash(python)", "python x", false},
		{`Bash(git commit -m "a b":*)`, `git commit -m 'a b' x`, true},
		{`Bash(git commit -m "a b":*)`, `git commit -m a b`, false},
		{`Bash(git commit -m 'a b')`, `git commit -m a\ b`, true},
		{`Bash(echo "*":*)`, `echo '*' x`, true},
		{`Bash(echo "*":*)`, `echo a x`, false},
		{`Bash(echo \*)`, `echo '*'`, true},
		{`Bash(echo \*)`, `echo a`, false},
		{"Bash(grep a.c:*)", "grep abc", false},
		{"Bash(grep a.c:*)", "grep a.c f", true},
		{"Bash(grep ^a+$ f)", "grep ^a+$ f", true},
		{"Bash(grep [ab]? f)", "grep '[ab]?' f", true},
		{"Bash(grep [ab] f)", "grep a f", false},
		{"Bash(a | b)", "a '|' b", false},
		{"Bash(a;b)", "a", false},
		{"Bash(a > b)", "a", false},
		{"Bash(X=1 a:*)", "a", false},
		{"Bash(a # b)", "a", false},
		{"Bash(a $x:*)", "a b", false},
		{"Bash(a &)", "a", false},
		{"Bash(a;)", "a", false},
		{"Bash(! a)", "a", false},
		{"Bash((a))", "a", false},
		{"Bash('')", "a", false},
		{"Bash(a", "a", false},
		{"Bash(a))", "a", false},
		{"Bash(a)b", "a", false},
		{"Bash(a)Bash(b)", "b", false},
		{"Bash(a),Bash(b)", "b", true},
		{"Bash(a);Bash(b)", "b", false},
		{"Bash (a:*)", "a", true},
		{"Bash (a:*)", "b", false},
		{"Bash, (a:*)", "b", false},
		{"bash", "a", false},
		{"BASH(a)", "a", false},
		{"Bash:*", "a", false},
		{"BashOutput", "a", false},
		{"Bash*", "a", false},
		{`"Bash(a:*)"`, "a", true},
		{`'Bash(a:*)', "Read"`, "a x", true},
		{`"Bash(a:*), Read"`, "a x", true},
		{"Bash(a:*)\n\tBash(b:*)", "b", true},
		{"Bash(a:*) # Bash(b)", "a", true},
		{"Bash(git:*:*)", "git x", false},
		{"Bash(a\u00a0b:*)", "a b", false},
		{"Bash(python {baseDir}/scripts/x.py:*)", "python {baseDir}/scripts/x.py 1", true},
		{"Bash(python {baseDir}/scripts/x.py:*)", "python /skills/demo/scripts/x.py", true},
		{"Bash(python {baseDir}/scripts/x.py:*)", "python ${CLAUDE_SKILL_DIR}/scripts/x.py", true},
		{"Bash(python {baseDir}/scripts/x.py:*)", `python "${CLAUDE_PLUGIN_ROOT}/scripts/x.py"`, true},
		{"Bash(python ${CLAUDE_SKILL_DIR}/x.py)", "python '{baseDir}/x.py'", true},
		{"Bash(python {baseDir}/x.py)", "python ${CLAUDE_SKILL_DIR:-/tmp}/x.py", false},
		{"Bash(python {baseDir}/x.py)", "python $CLAUDE_SKILL_DIR/x.py", false},
		{"Bash(python {baseDir}/x.py)", "python /skills/demo-evil/x.py", false},
		{"Bash(python /skills/demo:*)", "python /skills/demo/x.py", false},
		{"", "ls", false},
		{"Read", "Read", false},
	})
}

func TestEveryCommandMustBeCovered(t *testing.T) {
	rules := "Bash(git status:*) Bash(git log:*)"
	decideRows(t, []row{
		{rules, "git status && git log", true},
		{rules, "git status || git log; git status | git log", true},
		{rules, "git status |& git log", true},
		{rules, "git status && git log && id", false},
		{rules, "git status; id; git log", false},
		{rules, "git status | id | git log", false},
		{rules, "git status |& id", false},
		{rules, strings.Repeat("git status; ", 60), true},
		{rules, strings.Repeat("git status; ", 60) + "id", false},
		{rules, strings.Repeat("git status | ", MaxPipeline-1) + "git log", true},
		{rules, strings.Repeat("git status | ", MaxPipeline) + "git log", false},
		{"Bash", strings.Repeat("a;", MaxCommands), true},
		{"Bash", strings.Repeat("a;", MaxCommands+1), false},
	})
}

func TestRunnersNeedAPayload(t *testing.T) {
	for _, c := range []row{
		{"Bash(env:*)", "env", false},
		{"Bash(env *)", "env A=1 id", false},
		{"Bash(env A=1:*)", "env A=1 id", false},
		{"Bash(env -u X:*)", "env -u X id", false},
		{"Bash(env A=1 git:*)", "env A=1 git status", true},
		{"Bash(env A=1 git:*)", "env A=1 git -c alias.x=!id x", false},
		{"Bash(env sh:*)", "env sh -c id", false},
		{"Bash(env sh x.sh:*)", "env sh x.sh", false},
		{"Bash(xargs:*)", "xargs id", false},
		{"Bash(xargs grep:*)", "xargs grep x", true},
		{"Bash(xargs -n 1 :*)", "xargs -n 1 id", false},
		{"Bash(xargs -I {} :*)", "xargs -I {} id", false},
		{"Bash(xargs sed:*)", "xargs sed '1e id'", false},
		{"Bash(sh:*)", "sh -c id", false},
		{"Bash(sh:*)", "sh x.sh", false},
		{"Bash(sh)", "sh", true},
		{"Bash(sh -c id)", "sh -c id", true},
		{"Bash(bash -c:*)", "bash -c id", false},
		{"Bash(bash scripts/x.sh:*)", "bash scripts/x.sh a b", true},
		{"Bash(bash scripts/x.sh:*)", "bash -x scripts/x.sh", false},
		{"Bash(bash -e scripts/x.sh:*)", "bash -e scripts/x.sh a", true},
		{"Bash(bash * x.sh)", "bash -c id x.sh", false},
		{"Bash(/bin/sh:*)", "/bin/sh -c id", false},
		{"Bash(bash5.2:*)", "bash5.2 -c id", false},
		{"Bash(/lib64/ld-linux-x86-64.so.2:*)", "/lib64/ld-linux-x86-64.so.2 /usr/bin/id", false},
		{"Bash(timeout:*)", "timeout 5 id", false},
		{"Bash(timeout 5:*)", "timeout 5 id", false},
		{"Bash(timeout -s KILL 5:*)", "timeout -s KILL 5 id", false},
		{"Bash(timeout 5 git:*)", "timeout 5 git status", true},
		{"Bash(sudo -u bob:*)", "sudo -u bob id", false},
		{"Bash(flock lock:*)", "flock lock id", false},
		{"Bash(watch ls)", "watch ls", true},
		{"Bash(npx:*)", "npx evil", false},
		{"Bash(npx eslint:*)", "npx eslint .", true},
		{"Bash(busybox:*)", "busybox sh", false},
		{"Bash(vim:*)", "vim -c '!id'", false},
		{"Bash", "env sh -c id", true},
		{"Bash(*)", "xargs id", true},
	} {
		decideRows(t, []row{c})
	}
	for _, runner := range runners {
		if runner != "ld.so" {
			decideRows(t, []row{{"Bash(" + runner + ":*)", runner + " id", false}, {"Bash(" + runner + " *)", runner + " -x id", false}})
		}
	}
}

func TestWrappers(t *testing.T) {
	rules := "Bash(git status:*)"
	decideRows(t, []row{
		{rules, "nohup git status", true},
		{rules, "nice git status", true},
		{rules, "timeout 5 git status", true},
		{rules, "timeout 0.5s git status", true},
		{rules, "nohup timeout 5 nice git status -s", true},
		{rules, "nohup id", false},
		{rules, "nohup", false},
		{rules, "nohup -- git status", false},
		{rules, "nice -n 5 git status", false},
		{rules, "timeout git status", false},
		{rules, "timeout 5", false},
		{rules, "timeout 5 -s KILL git status", false},
		{rules, "timeout --foreground 5 git status", false},
		{rules, "timeout 5x git status", false},
		{rules, "nohup sh -c 'git status'", false},
		{rules, "/usr/bin/nohup git status", false},
		{rules, `"time" git status`, false},
		{rules, "stdbuf -oL git status", false},
		{rules, "setsid git status", false},
		{rules, "env git status", false},
		{"Bash(find:*)", "nohup find . -delete", false},
	})
}

func TestReasonsHelp(t *testing.T) {
	for _, c := range []struct{ rules, command, reason, missing string }{
		{"Bash(git status:*),Read", "rm -rf x", "'rm' is not covered by any rule: allowed are Bash(git status:*)", "Bash(rm:*)"},
		{"Bash(git status:*)", "git push -f", "'git push'", "Bash(git push:*)"},
		{"Bash(git status:*)", "nohup rm x", "'rm x'", "Bash(rm x:*)"},
		{"Read", "ls -l", "no Bash rule", "Bash(ls:*)"},
		{"Bash(make:*)", "make *", "not expanded for 'make'", ""},
		{"Bash(ls:*)", "ls {a,b}", "no shell expands", ""},
		{"Bash(ls:*)", "ls > /etc/x", "working directory", ""},
		{"Bash(find:*)", "find . -exec id ';'", "exact command", "Bash(find . -exec id ';')"},
		{"Bash(env *)", "env 'a b'", "name the program", "Bash(env 'a b')"},
		{"Bash(ls)", "ls $(id)", "command substitution", ""},
		{"Bash(ls)", "ls |", "does not parse", ""},
		{"Bash(ls)", strings.Repeat("x", 300), "...'", ""},
	} {
		d := ParseRules([]string{c.rules}, "").Decide(c.command)
		if d.Allowed || !strings.Contains(d.Reason, c.reason) || strings.Contains(d.Reason, "\n") {
			t.Errorf("%s: %q: allowed %v, reason %q, want one with %q", c.rules, c.command, d.Allowed, d.Reason, c.reason)
		}
		if c.missing != "" && d.Missing != c.missing {
			t.Errorf("%s: %q: missing %q, want %q", c.rules, c.command, d.Missing, c.missing)
		}
		if d.Missing != "" && !ParseRules([]string{c.rules, d.Missing}, "").Decide(c.command).Allowed {
			t.Errorf("%q: the missing rule %q does not cover it", c.command, d.Missing)
		}
	}
	d := ParseRules([]string{"Bash(a:*) Bash(b:*)"}, "").Decide("a; b; a")
	if want := "Bash(a:*), Bash(b:*)"; d.Rule != want || d.Reason != "covered by "+want {
		t.Errorf("rule %q, reason %q, want %q", d.Rule, d.Reason, want)
	}
}

func TestBaseDirIsInert(t *testing.T) {
	for _, base := range []string{"/skills/my skill", "/skills/a;id", "/skills/$(id)", "/skills/*", "/skills/'", "/skills/a b)"} {
		rules := ParseRules([]string{"Bash(python {baseDir}/x.py:*)"}, base)
		if p := rules.Problems(); len(p) > 0 {
			t.Errorf("%q: problems %v", base, p)
		}
		d := rules.Decide("python {baseDir}/x.py a")
		if !d.Allowed || d.Plan[0].Pipeline[0].Args[1] != base+"/x.py" {
			t.Errorf("%q: %+v", base, d)
		}
	}
	if d := ParseRules([]string{"Bash(python {baseDir}/x.py)"}, "/skills/*").Decide("python /skills/y/x.py"); d.Allowed {
		t.Error("a * of the skill's name became a wildcard")
	}
	unknown := ParseRules([]string{"Bash(python ${CLAUDE_SKILL_DIR}/x.py)"}, "")
	if d := unknown.Decide("python ${CLAUDE_SKILL_DIR}/x.py"); !d.Allowed {
		t.Errorf("without a folder: %s", d.Reason)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		rules string
		want  int
	}{
		{"Bash(git:*), Read, WebFetch(domain:example.com), mcp__x__y, KillBash", 0},
		{"Bash(git status), Bash, Bash(*), Bash(ls*), Bash(git * main)", 0},
		{"Bash((", 1}, {"Bash(git:*", 1}, {"Bash(a)b", 1}, {"bash(git:*)", 1}, {"Bash()", 1}, {"Bash(a | b)", 1}, {"Bash(env *)", 1},
		{"Bash(cd:*)", 1}, {"Bash(a $x)", 1}, {"Bash(~/x:*)", 1}, {"Bash, (a)", 2}, {"Bash(a\x01b)", 1}, {"Bash(a\u200bb)", 1}, {"Bash:*", 1},
		{"Bash(sh -c 'a b')", 0},
	} {
		p := ParseRules([]string{c.rules}, "/skills/demo").Problems()
		if len(p) != c.want {
			t.Errorf("%q: problems %v, want %d", c.rules, p, c.want)
		}
		for _, one := range p {
			if one.Rule == "" || one.Reason == "" {
				t.Errorf("%q: %+v has an empty field", c.rules, one)
			}
		}
	}
}

func TestRulesAreBounded(t *testing.T) {
	r := ParseRules([]string{strings.Repeat("Bash(a),", MaxRules) + "Bash(b)"}, "")
	if r.Decide("b").Allowed || !r.Decide("a").Allowed {
		t.Error("a rule beyond MaxRules counts, or one within does not")
	}
	var zero Rules
	if zero.Decide("ls").Allowed || zero.Unscoped() {
		t.Error("the zero Rules allow something")
	}
}
