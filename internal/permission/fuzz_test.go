package permission

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// simpleCover is a second, simpler implementation of matching: word by word, with a
// recursive wildcard. It ignores exceptions, so it may cover more than the real one, but
// never less.
func simpleCover(rule string, args []string) bool {
	body, scoped := strings.CutPrefix(rule, "Bash(")
	body = strings.TrimSuffix(body, ")")
	if rule == "Bash" || scoped && strings.TrimSpace(body) == "*" {
		return true
	}
	if !scoped || strings.ContainsAny(body, "'\"\\{}$") {
		return scoped // the parser handles quoting
	}
	open := strings.HasSuffix(body, ":*")
	words := strings.Fields(strings.TrimSuffix(body, ":*"))
	if n := len(words); !open && n > 1 && words[n-1] == "*" {
		open, words = true, words[:n-1]
	}
	pattern := strings.Join(words, "\x00")
	text := strings.Join(args, "\x00")
	return simpleMatch(pattern, text) || open && simpleMatch(pattern+"\x00*", text)
}

func simpleMatch(pattern, text string) bool {
	if len(text) > 200 {
		return true // too slow for long texts
	}
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return simpleMatch(pattern[1:], text) || text != "" && simpleMatch(pattern, text[1:])
	}
	return text != "" && text[0] == pattern[0] && simpleMatch(pattern[1:], text[1:])
}

var duration = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[smhd]?$`)

// checkAllowed checks that an allowed plan may run, without using the code that allowed it.
func checkAllowed(t *testing.T, rules Rules, command string, p Plan) {
	t.Helper()
	var texts []string
	for _, r := range rules.list {
		if r.kind != otherTool {
			texts = append(texts, r.text)
		}
	}
	for _, step := range p {
		if len(step.Pipeline) == 0 || step.When < Always || step.When > IfFailed {
			t.Errorf("%q: step %+v", command, step)
		}
		for _, c := range step.Pipeline {
			covered := false
			for inner := c.Args; len(inner) > 0; inner = inner[1:] {
				covered = covered || slices.ContainsFunc(texts, func(text string) bool { return simpleCover(text, inner) })
				if inner[0] != "nohup" && inner[0] != "nice" && inner[0] != "timeout" && !duration.MatchString(inner[0]) {
					break
				}
			}
			if !covered {
				t.Errorf("%q: allowed, but %q is covered by none of %q", command, c.Args, texts)
			}
			for _, g := range c.Globs {
				if g.Arg < 1 || unescaped(g.Pattern) != c.Args[g.Arg] || guarded(c.Args[0]) && !guards[programOf(c.Args[0])].patterns && !slices.ContainsFunc([]string{"tar", "sed", "awk"}, func(name string) bool { return strings.HasSuffix(programOf(c.Args[0]), name) && g.Arg > 1 }) {
					t.Errorf("%q: pattern %+v in %q", command, g, c.Args)
				}
			}
			for _, word := range slices.Concat(c.Args, c.Env) {
				if strings.ContainsAny(word, "\x00\r\x1b\x7f") {
					t.Errorf("%q: word %q", command, word)
				}
			}
			for _, env := range c.Env {
				if strings.HasPrefix(env, "GIT_") && slices.Contains(c.Args, "git") {
					continue // added by the rule, see TestGitEnvironment
				}
				name, _, _ := strings.Cut(env, "=")
				if err := CheckEnv(Command, map[string]string{name: ""}); err != nil {
					t.Errorf("%q: %v", command, err)
				}
			}
			for _, r := range c.Redirects {
				if r.FD < 0 || r.FD > 9 || r.From < 0 || r.From > 9 {
					t.Errorf("%q: redirect %+v", command, r)
				}
				if r.Kind < Dup && r.Path != "/dev/null" && (r.Path == "" || path.IsAbs(r.Path) || slices.Contains(strings.Split(r.Path, "/"), "..")) {
					t.Errorf("%q: redirect to %q", command, r.Path)
				}
			}
		}
	}
}

func FuzzDecide(f *testing.F) {
	for _, rules := range []string{"Bash(git status:*)", "Bash(ls*) Bash(* x)", "Bash(a * b:*),Bash(echo 'x y')", "Bash", "Bash(find *)", `"Bash(python {baseDir}/x.py:*)"`} {
		for _, command := range []string{
			"git status && ls -l | a c b > out 2>&1", "echo x\\ y <<E\n$x\nE\n", "nohup timeout 5 git status", "LANG=C find . -name '*'", "python {baseDir}/x.py ${CLAUDE_SKILL_DIR}",
			"git status $(id) `id` <(id)", "a |& b &>> c", "{a,b} [[ x ]] ((1))", "'", "\"\\\n\"", "cat *.csv '*'[a\"]\"] | nice env A=1 b ?", "git stat?s *", "a <<-'E' <<F\nE\nF\n", "case x in y) z;; esac", "f() { :; }; f", "a 3>&1 1>&2",
		} {
			f.Add(rules, command)
		}
	}
	f.Fuzz(func(t *testing.T, text, command string) {
		rules := ParseRules([]string{text}, "/skills/demo")
		d := rules.Decide(command)
		checkForm(t, command, d)
		if d.Allowed {
			checkAllowed(t, rules, command, d.Plan)
		}
		if d.Missing != "" && !ParseRules([]string{d.Missing}, "/skills/demo").Decide(command).Allowed &&
			ParseRules([]string{d.Missing}, "/skills/demo").Decide(command).Missing == d.Missing {
			t.Errorf("%q: the missing rule %q does not cover it", command, d.Missing)
		}
	})
}

func FuzzParseRules(f *testing.F) {
	for _, seed := range []string{
		"Bash(git:*) Bash(jq:*) Read", "Bash((", "Bash (a), 'Bash(b)'", "Bash(a 'b c':*)", "bash(x)", "Bash(a;b)Bash", "((((", "))))", "Bash(* *)", "Bash(:*)", "Bash(\\*:*)", "Bash(<<E)", "Bash(a\nb)",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules := ParseRules([]string{text}, "/skills/demo")
		for _, r := range rules.list {
			if r.text == "" || r.kind == otherTool && r.pattern != "" && r.problem == "" {
				t.Errorf("%q: rule %+v", text, r)
			}
			if r.kind == wholeTool && strings.Trim(r.text, "Bash(* \t\r\n)") != "" {
				t.Errorf("%q: rule %q grants everything", text, r.text)
			}
		}
		// A rule never grants a program whose name is not in it.
		if !strings.Contains(text, "*") && !rules.Unscoped() && !strings.Contains(text, "zq") && rules.Decide("zq x").Allowed {
			t.Errorf("%q covers zq", text)
		}
	})
}
