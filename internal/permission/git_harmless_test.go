package permission

import (
	"slices"
	"strings"
	"testing"
)

// A rule also allows settings that run no program, and the settings do not widen the rule.
func TestGitHarmlessSettings(t *testing.T) {
	for _, c := range []struct {
		rules, command string
		allowed        bool
	}{
		{"Bash(git:*)", "git -c user.name=a -c user.email=a@b commit -m x", true},
		{"Bash(git:*)", `git -c "user.name=A B" -c commit.gpgsign=false commit -am x`, true},
		{"Bash(git commit:*)", "git -c user.name=a commit -m x", true},
		{"Bash(git log:*)", "git -C sub -c core.quotePath=false log", false}, // -C is not in the rule
		{"Bash(git:*)", "git -C sub -c core.quotePath=false log", true},
		{"Bash(git log:*)", "git -c color.ui=never -c Core.QuotePath=off -c log.date=iso log --stat", true},
		{"Bash(git init:*)", "git -c init.defaultBranch=main init", true},
		{"Bash(git:*)", "git -c core.pager=cat -c core.hooksPath=/dev/null -c advice.detachedHead=false checkout x", true},
		{"Bash(git:*)", "git -c color.ui status", true},
		{"Bash(git status:*)", "git -c user.name=a commit", false},
		{"Bash(git:*)", "git -c user.name=a -c core.fsmonitor=./x status", false},
		{"Bash(git:*)", "git -c core.pager=./x log", false},
		{"Bash(git:*)", "git -c core.pager log", false},
		{"Bash(git:*)", "git -c sequence.editor=: rebase --continue", true},
		{"Bash(git:*)", "git config --global init.defaultBranch main", true},
		{"Bash(git:*)", "git config rebase.autoStash true", true},
		{"Bash(git:*)", "git config init.templateDir x", false},
		{"Bash(git:*)", "git config sequence.editor :", false},
		{"Bash(git:*)", "git -c sequence.editor=./x rebase --continue", false},
		{"Bash(git:*)", "git -c core.editor=vi commit", false},
		{"Bash(git:*)", "git -c core.hooksPath=hooks commit", false},
		{"Bash(git:*)", "git -c commit.gpgsign=true commit", false},
		{"Bash(git:*)", "git -c commit.gpgsign commit", false},
		{"Bash(git:*)", "git -c alias.x='!id' x", false},
		{"Bash(git:*)", "git -c user.name=a -c alias.x='!id' x", false},
		{"Bash(git:*)", "git -c user.signingkey=x commit -S", false},
		{"Bash(git:*)", "git -c diff.external=./x diff", false},
		{"Bash(git:*)", "git -c diff.a.textconv=./x diff", false},
		{"Bash(git:*)", "git -c pager.log=./x log", false},
		{"Bash(git:*)", "git -c gpg.program=./x log", false},
		{"Bash(git:*)", "git -c credential.helper='!id' fetch", false},
		{"Bash(git:*)", "git -c include.path=x status", false},
		{"Bash(git:*)", "git -c filter.a.clean=./x add .", false},
		{"Bash(git:*)", "git -c user.namex=a status", false},
		{"Bash(git:*)", "git -c xuser.name=a status", false},
		{"Bash(git:*)", "git -cuser.name=a status", false}, // git does not know this form
		{"Bash(git:*)", "git -c user.name=a difftool -x id", false},
		{"Bash(git:*)", "git --exec-path=x -c user.name=a status", false},
		{"Bash(git:*)", "git -c user.name=a --config-env=alias.x=Y x", false},
		{"Bash(git:*)", "git -c 'user.name=a\nb.c=d' status", true}, // backslash and n: part of the name
		{"Bash(ls:*)", "ls -c user.name=a", true},
		{"Bash(git:*)", "GIT_AUTHOR_NAME=a GIT_AUTHOR_DATE='2026-01-01 00:00' git commit -m x", true},
		{"Bash(git:*)", "GIT_PAGER=cat GIT_EDITOR=true GIT_CONFIG_GLOBAL=/dev/null git log", true},
		{"Bash(git:*)", "GIT_PAGER=./x git log", false},
		{"Bash(git:*)", "GIT_EDITOR=./x git commit", false},
		{"Bash(git:*)", "GIT_CONFIG_GLOBAL=x git log", false},
		{"Bash(git:*)", "GIT_CONFIG_COUNT=1 git log", false},
		{"Bash(git:*)", "GIT_SSH_COMMAND=id git fetch", false},
		{"Bash(git:*)", "GIT_DIR=x git log", false},
		{"Bash(git:*)", "GIT_AUTHOR_NAME=$USER git commit", false},
	} {
		d := ParseRules([]string{c.rules}, "/skills/demo").Decide(c.command)
		if d.Allowed != c.allowed {
			t.Errorf("%s %s: allowed %t: %s", c.rules, c.command, d.Allowed, d.Reason)
		}
	}
}

// The plan has the settings of the line, and the variables of a covered git after the variables of the
// line. Each name is there once.
func TestGitHarmlessPlan(t *testing.T) {
	d := ParseRules([]string{"Bash(git log:*)"}, "").Decide("GIT_PAGER= GIT_AUTHOR_NAME=a git -c color.ui=never log")
	if !d.Allowed {
		t.Fatal(d.Reason)
	}
	c := d.Plan[0].Pipeline[0]
	if want := []string{"git", "-c", "color.ui=never", "log"}; !slices.Equal(c.Args, want) {
		t.Errorf("got %q, want %q", c.Args, want)
	}
	var names []string
	for _, e := range c.Env {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains(names, name) {
			t.Errorf("%s twice in %q", name, c.Env)
		}
		names = append(names, name)
	}
	if c.Env[0] != "GIT_AUTHOR_NAME=a" || !slices.Contains(c.Env, "GIT_PAGER=cat") || !slices.Contains(c.Env, "GIT_CONFIG_KEY_0=core.fsmonitor") {
		t.Errorf("got %q", c.Env)
	}
	if err := CheckEnv(Command, map[string]string{"GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_DATE": "now"}); err != nil {
		t.Error(err)
	}
	if err := CheckEnv(Command, map[string]string{"GIT_PAGER": "cat"}); err == nil {
		t.Error("GIT_PAGER passes in the environment of a request")
	}
}
