package permission

import (
	"reflect"
	"strings"
	"testing"
)

// unescaped removes the backslashes that escape.
func unescaped(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

func TestGlobsInPlan(t *testing.T) {
	for _, c := range []struct {
		command string
		args    []string
		globs   []Glob
	}{
		{"ls *.csv", []string{"ls", "*.csv"}, []Glob{{1, "*.csv"}}},
		{"cat a data/*.json ? 'b'", []string{"cat", "a", "data/*.json", "?", "b"}, []Glob{{2, "data/*.json"}, {3, "?"}}},
		{"ls [a-c] [!x]* [^x]", []string{"ls", "[a-c]", "[!x]*", "[^x]"}, []Glob{{1, "[a-c]"}, {2, "[!x]*"}, {3, "[^x]"}}},
		{`ls '*' "?" \* \[a]`, []string{"ls", "*", "?", "*", "[a]"}, nil},
		{`ls '*'* "a b"? \**`, []string{"ls", "**", "a b?", "**"}, []Glob{{1, `\**`}, {2, "a b?"}, {3, `\**`}}},
		{`ls [a"]"b] [a"-"z] ["!"a] ['^'a] *\\`, []string{"ls", "[a]b]", "[a-z]", "[!a]", "[^a]", `*\`}, []Glob{{1, `[a\]b]`}, {2, `[a\-z]`}, {3, `[\!a]`}, {4, `[\^a]`}, {5, `*\\`}}},
		{"cat {baseDir}/*.txt '{baseDir}'?", []string{"cat", "/skills/[d]/*.txt", "/skills/[d]?"}, []Glob{{1, `/skills/\[d\]/*.txt`}, {2, `/skills/\[d\]?`}}},
		{`cat "${CLAUDE_SKILL_DIR}"/*`, []string{"cat", "/skills/[d]/*"}, []Glob{{1, `/skills/\[d\]/*`}}},
		{"cat {baseDir}/x", []string{"cat", "/skills/[d]/x"}, nil},
		{"ls -* é*", []string{"ls", "-*", "é*"}, []Glob{{1, "-*"}, {2, "é*"}}},
		{"echo [ a] [1,2]", []string{"echo", "[", "a]", "[1,2]"}, []Glob{{3, "[1,2]"}}},
	} {
		d := ParseRules([]string{"Bash"}, "/skills/[d]").Decide(c.command)
		want := Plan{{Pipeline: []SimpleCommand{{Args: c.args, Globs: c.globs}}}}
		if !reflect.DeepEqual(d.Plan, want) {
			t.Errorf("%q:\n got %+v (%s)\nwant %+v", c.command, d.Plan, d.Reason, want)
		}
	}
}

func TestGlobsAreCovered(t *testing.T) {
	decideRows(t, []row{
		{"Bash(ls:*)", "ls *.csv", true},
		{"Bash(ls *)", "ls *.csv", true},
		{"Bash(ls*)", "ls *.csv", true},
		{"Bash(cat:*)", "cat data/*.json", true},
		{"Bash(python:*)", "python process.py *.csv", true},
		{"Bash(python process.py:*)", "python process.py *.csv", true},
		{"Bash(python {baseDir}/x.py:*)", "python {baseDir}/x.py [a-z]?", true},
		{"Bash(cat:*) Bash(wc:*)", "cat *.txt | wc -l && cat ?", true},
		{"Bash(cat:*)", "cat *.txt > all.txt", true},
		{"Bash", "rm -f *.tmp", true},
		{"Bash(echo:*)", "echo * a* ? a?b [ab] a[0-9] [a\"]\"b]", true},
		// A rule with an inner wildcard compares patterns as written.
		{"Bash(ls *.csv)", "ls *.csv", true},
		{"Bash(ls *.csv)", "ls ?.csv", true},
		{"Bash(ls *.csv)", "ls *.json", false},
		{"Bash(tool * main)", "tool x* main", true},
		{"Bash(tool * main)", "tool x mai?", false},
		// The words before a rule's wildcard never match a pattern.
		{"Bash(tool status:*)", "tool s*", false},
		{"Bash(tool status:*)", "tool st?tus x", false},
		{"Bash(tool status:*)", "tool [s]tatus", false},
		{"Bash(tool status:*)", "tool status s*", true},
		{"Bash(tool '*':*)", "tool * x", false},
		{"Bash(tool '*':*)", "tool '*' x", true},
		{"Bash(tool a?c:*)", "tool a?c x", false},
		{"Bash(tool a?c *x)", "tool a?c x", false},
		// An exact rule covers a pattern that is written the same.
		{"Bash(ls a.csv)", "ls *.csv", false},
		{"Bash(ls a.csv)", "ls ?.csv", false},
		{"Bash(ls ?.csv)", "ls ?.csv", true},
		{"Bash(ls ?.csv)", "ls [a].csv", false},
		{"Bash(ls '*.csv')", "ls *.csv", true},
	})
}

func TestGlobsElsewhereAreRefused(t *testing.T) {
	for _, command := range []string{
		"l* x", "g*t status", "?s", "[l]s", "/usr/bin/l?", "ls | c*", "LANG=* ls", "APP_X=? ls", "APP_X=[a] ls", "ls > *", "ls >> a?", "ls < *.csv", "ls 2> [a]", "ls &> *", "cat <<< *", "cat <<< [a]",
		// Programs with a guard take no patterns where a match could be more than a file, whatever the rule.
		"sed *", "sed -n *", "sed -f *", "sed -e *.sed x", "sed -n -l * p", "sed --expression * x", "sed p *.txt -e *", "sed p *.txt -f x", "sed -- *", "sed p -- *.txt -f", "gsed -- ?",
		"awk *", "awk -f *", "awk -f ? x", "awk -v * 1", "gawk -i * 1", "gawk --source * x", "awk -- *", "awk 1 *.csv -f x", "mawk -F * 1",
		"sort -o * x", "sort -uo * x", "sort --output *.txt", "sort x* -o ?", "shuf -o * x", "git status *", "git add ?",
		"tar *", "tar c* x", "gcc *.c", "make *", "split *", "tree *", "diff3 *",
		"npm run *", "rsync * x", "go test ./*", "wget *", "pandoc *.md", "fd *",
		// The program that a runner runs is not a pattern.
		"env *", "env A=* ls", "env -i ls *", "env -u * ls", "env git *", "env A=1 make *", "xargs *", "xargs git add *", "xargs -n 1 cat *", "xargs sh *", "nice *", "nice git *", "nice -n 5 cat *", "nohup make *", "timeout 5 *",
		"timeout * ls", "timeout -s 9 5 ls *", "timeout 5 nice make *", "bash *", "bash -c *", "bash -c 'cat \"$@\"' x *", "sh *.sh", "sh -- *", "sudo cat *", "sudo --user bob *", "watch ls *", "ssh host cat *", "parallel cat *",
		"docker exec c *", "docker run *", "vim *", "su bob *", "flock f *", "busybox ls *", "env env cat *", "strace cat *",
	} {
		decideRows(t, []row{{"Bash", command, false}})
	}
	decideRows(t, []row{
		{"Bash(git log ?.c)", "git log ?.c", false},
		{"Bash(find:*)", "find . -name '*.py'", true},
		{"Bash(find:*)", "find src/* -name *.py", true},
		{"Bash(sort:*)", "sort -u *.csv", true},
		{"Bash(sort:*)", "sort *.csv -o out.csv", true},
		{"Bash(sort:*)", "sort -oout.csv ?.csv", true},
		{"Bash(sort:*)", "/usr/bin/sort ?", false},
		{"Bash(/usr/bin/sort:*)", "/usr/bin/sort ?", true},
		{"Bash(sort:*)", "sort -o ../x *.csv", false},
		{"Bash(shuf:*)", "shuf -n 3 *.txt", true},
		{"Bash(rg:*)", "rg -n TODO src/*.py", true},
		{"Bash(zip:*)", "zip -r out.zip *.csv data/*", true},
		{"Bash(sed:*)", "sed s/a/b/ *.txt", true},
		{"Bash(sed:*)", "sed -i.bak -e s/a/b/ -e p *.txt x", true},
		{"Bash(sed:*)", "sed --quiet --expression=1p *.txt", true},
		{"Bash(sed:*)", "sed -n -- 1p *.txt", true},
		{"Bash(sed:*)", "sed -n 1e *.txt", false},
		{"Bash(sed:*)", "sed 's/a/b/w x' *.txt", false},
		{"Bash(sed -f x.sed:*)", "sed -f x.sed *.txt", true},
		{"Bash(sed:*)", "sed -f x.sed *.txt", false},
		{"Bash(awk:*)", "awk '{print $1}' *.csv", true},
		{"Bash(awk:*)", "awk -F , -v n=1 -- '{print n}' [a-z]*.csv", true},
		{"Bash(awk:*)", "awk '{system($0)}' *.csv", false},
		{"Bash(gawk:*)", "gawk -e '{print $1}' *.csv", true},
		{"Bash(awk:*)", "awk -e '{print $1}' *.csv", false},
		{"Bash(gawk:*)", "gawk --source 1 *.csv", true},
		{"Bash(sort:*)", "sort --compress-program * x", false},
		{"Bash(rg:*)", "rg --pre * x", false},
		{"Bash(find:*)", "find . -exec * ;", false},
		{"Bash(find:*)", "find * -delete", false},
		{"Bash(zip:*)", "zip -T -TT * x", false},
		{"Bash(nice sort:*)", "nice sort *.csv", true},
		{"Bash(sed:*), Bash(python scripts/x.py:*)", "sed -i s/a/b/ scripts/* && python scripts/x.py", false},
		{"Bash(sed:*), Bash(python scripts/x.py:*)", "sed -i s/a/b/ *.csv && python scripts/x.py", true},
		{"Bash(tar:*)", "tar cf x.tar *.py data/*", true},
		{"Bash(tar:*)", "tar -xzf build-*.tar.gz -C out", true},
		{"Bash(tar:*)", "tar --create --file x.tar [a-z]*", true},
		{"Bash(tar:*)", "tar [cI]f x", false},
		{"Bash(tar:*)", "tar xf x.tar -I *", false},
		{"Bash(tar:*)", "tar xIf * x.tar", false},
		{"Bash(tar:*)", "tar xf x.tar --to-command=*", false},
		{"Bash(tar:*)", "tar xf x.tar --checkpoint=1 --checkpoint-action=exec=?", false},
		{"Bash(tar:*), Bash(python scripts/x.py:*)", "tar xf *.tar scripts/* && python scripts/x.py", false},
		{"Bash(xargs tar:*)", "xargs tar cf x.tar *", false},
		{"Bash(sort:*)", "sort '*'", true},
		{"Bash(cat:*)", "nice cat *", true},
		{"Bash(cat:*)", "nohup timeout 5 cat *", true},
		{"Bash(cat:*)", "timeout 5 env *", false},
		{"Bash(bash run.sh:*)", "bash run.sh *.csv", true},
		{"Bash(bash run.sh:*)", "bash run.s? x", false},
		{"Bash(bash:*)", "bash run.sh *.csv", false},
		{"Bash(env A=1 cat:*)", "env A=1 cat *", true},
		{"Bash(xargs cat:*)", "xargs cat *", true},
		{"Bash(xargs git add:*)", "xargs git add *", false},
		{"Bash", "env A=1 cat *", true},
		{"Bash", "nice env cat *", true},
	})
	for command, want := range map[string]string{
		"git add *": "'git'", "l* x": "name the program", "ls > *": "in arguments only", "env *": "program that 'env' runs", "cd *": "builtin", "nice make *": "'make'",
	} {
		d := ParseRules([]string{"Bash"}, "").Decide(command)
		if !strings.Contains(d.Reason, want) || d.Missing != "" {
			t.Errorf("%q: reason %q, missing %q, want one with %q", command, d.Reason, d.Missing, want)
		}
	}
}
