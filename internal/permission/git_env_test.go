package permission

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each row plants a program in a repository and runs git as a rule allows. The program must
// run without the environment that the rule adds, and must not run with it.
func TestGitEnvironment(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	for _, c := range []struct {
		name, config string
		files        map[string]string
		command      string
	}{
		{"fsmonitor", "[core]\n\tfsmonitor = PLANT\n", nil, "git status"},
		{"hook", "", map[string]string{".git/hooks/pre-commit": "#!/bin/sh\nPLANT\n"}, "git commit -qam x"},
		{"hooks' path", "[core]\n\thooksPath = hooks\n", map[string]string{"hooks/pre-commit": "#!/bin/sh\nPLANT\n"}, "git commit -qam x"},
		{"alias", "[alias]\n\tst = !PLANT\n", nil, "git st"},
		{"editor", "[core]\n\teditor = PLANT #\n", nil, "git commit -qa"},
		{"list of a rebase", "[rebase]\n\tinstructionFormat = %s%nexec PLANT\n", nil, "git rebase -qi HEAD~1 --autostash"},
		{"signature", "[gpg]\n\tprogram = ./sign\n[commit]\n\tgpgSign = true\n", map[string]string{"sign": "#!/bin/sh\nPLANT\n"}, "git commit -qam x"},
		{"ssh", "[core]\n\tsshCommand = PLANT #\n", nil, "git ls-remote ssh://127.0.0.1/x"},
		{"transport", "[protocol \"ext\"]\n\tallow = always\n[remote \"o\"]\n\turl = ext::PLANT\n", nil, "git fetch o"},
		{"bare repository", "", map[string]string{
			"bare/HEAD": "ref: refs/heads/x\n", "bare/config": "[core]\n\trepositoryformatversion = 0\n\tworktree = ..\n\tfsmonitor = PLANT\n", "bare/objects/x": "", "bare/refs/x": "",
		}, "git -C bare status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain := plantAndRun(t, c.config, c.files, c.command, nil)
			args := strings.Fields(c.command)
			d := ParseRules([]string{"Bash(git:*)"}, "").Decide(c.command)
			if !d.Allowed {
				t.Fatal(d.Reason)
			}
			covered := plantAndRun(t, c.config, c.files, c.command, d.Plan[0].Pipeline[0].Env)
			if !plain || covered {
				t.Errorf("%q: ran without the environment: %v, want true; with it: %v, want false", args, plain, covered)
			}
		})
	}
}

// plantAndRun creates a repository with the planted program, runs the command, and reports
// whether the planted program ran.
func plantAndRun(t *testing.T, config string, files map[string]string, command string, env []string) bool {
	t.Helper()
	dir := t.TempDir()
	mark := filepath.Join(t.TempDir(), "ran")
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_NOSYSTEM=1", "EDITOR=true"}
	git := func(env []string, args ...string) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(base, env...)
		out, err := cmd.CombinedOutput()
		t.Logf("%q: %v\n%s", args, err, out)
	}
	git(nil, "git", "init", "-q")
	for _, text := range []string{"a", "b", "c"} {
		put(t, dir, "f", text)
		git(nil, "git", "add", "f")
		git(nil, "git", "commit", "-qm", text)
	}
	put(t, dir, "f", "changed")
	text, err := os.ReadFile(filepath.Join(dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	plant := strings.NewReplacer("PLANT", "touch "+mark)
	put(t, dir, ".git/config", string(text)+plant.Replace(config))
	for name, text := range files {
		put(t, dir, name, plant.Replace(text))
	}
	git(env, strings.Fields(command)...)
	_, err = os.Stat(mark)
	return err == nil
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestGitEnvironmentIsForGit(t *testing.T) {
	for _, c := range []struct {
		rules, command string
		key            string // a setting that env must have
		lacks          string
	}{
		{"Bash(git:*)", "git status", "safe.bareRepository", ""},
		{"Bash(git:*)", "nohup git status", "core.fsmonitor", ""},
		{"Bash(env A=1 git:*)", "env A=1 git status", "core.fsmonitor", ""},
		{"Bash(git:*)", "git -C x log", "safe.bareRepository", ""},
		{"Bash(git -C x log:*)", "git -C x log -n 1", "core.hooksPath", "safe.bareRepository"},
		{"Bash(git st)", "git st", "alias.st", ""},
		{"Bash(/usr/bin/git:*)", "/usr/bin/git status", "core.fsmonitor", ""},
		{"Bash(ls:*)", "ls git", "", "GIT_"},
		{"Bash", "git status", "", "GIT_"},
	} {
		d := ParseRules([]string{c.rules}, "").Decide(c.command)
		if !d.Allowed {
			t.Fatal(d.Reason)
		}
		env := strings.Join(d.Plan[0].Pipeline[0].Env, "\n")
		if !strings.Contains(env, c.key) || c.lacks != "" && strings.Contains(env, c.lacks) {
			t.Errorf("%s: %s: %s", c.rules, c.command, env)
		}
	}
}
