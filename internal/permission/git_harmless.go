package permission

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// gitHarmlessKey matches the keys of git's configuration that a git command may set by -c although
// no rule names them: git-config(1). Their values are names, dates, colours, numbers, switches and
// words of a fixed list. None is a program, a file, a command line or another configuration.
var gitHarmlessKey = lazyregexp.New(`(?i)^(` +
	`(user|author|committer)\.(name|email)|user\.useconfigonly` +
	`|color\.[a-z.-]+|advice\.[a-z]+|column\.[a-z]+|i18n\.(commitencoding|logoutputencoding)` +
	`|core\.(quotepath|autocrlf|eol|safecrlf|whitespace|abbrev|filemode|ignorecase|precomposeunicode|longpaths|commentchar|checkstat|trustctime|loosecompression|compression|preloadindex|untrackedcache)` +
	`|init\.defaultbranch|push\.(default|followtags|autosetupremote)|pull\.(ff|rebase)|merge\.(ff|conflictstyle|renames|renamelimit|stat)|fetch\.(prune|prunetags)` +
	`|branch\.(autosetupmerge|autosetuprebase|sort)|tag\.sort|rerere\.enabled|rebase\.(autostash|autosquash|stat)` +
	`|diff\.(algorithm|renames|renamelimit|noprefix|mnemonicprefix|context|interhunkcontext|wordregex|colormoved|colormovedws|statgraphwidth|suppressblankempty)` +
	`|log\.(date|decorate|abbrevcommit|follow|showroot)|status\.(short|branch|relativepaths|showuntrackedfiles|aheadbehind|renames|showstash|displaycommentprefix)|grep\.(linenumber|column|fullname|patterntype|extendedregexp)|blame\.(date|showemail|showroot|blankboundary)` +
	`|pack\.(threads|windowmemory|depth|window)|index\.(threads|version)|feature\.manyfiles|checkout\.(defaultremote|guess)|clone\.defaultremotename` +
	`)$`)

// gitHarmlessValues are settings that are harmless with these values only: they switch something
// off, or name a program that does nothing.
var gitHarmlessValues = map[string][]string{
	"commit.gpgsign": {"false", "no", "off", "0"}, "tag.gpgsign": {"false", "no", "off", "0"}, "tag.forcesignannotated": {"false"}, "push.gpgsign": {"false"}, "log.showsignature": {"false"},
	"core.pager": {"cat", ""}, "core.editor": {"true", ":"}, "sequence.editor": {"true", ":"}, "core.fsmonitor": {"false"}, "core.hookspath": {"/dev/null"},
	"gc.auto": {"0"}, "maintenance.auto": {"false"}, "submodule.recurse": {"false"}, "commit.verbose": {"false"}, "credential.helper": {""},
}

// gitSets reports whether the value of a -c is a harmless setting. A key without a value means true.
func gitSets(setting string) bool {
	key, value, given := strings.Cut(setting, "=")
	if !given {
		value = "true"
	}
	if values, ok := gitHarmlessValues[strings.ToLower(key)]; ok {
		return slices.Contains(values, value)
	}
	return gitHarmlessKey.MatchString(key)
}

// withoutGitSetting returns a git command without its first harmless -c, or nil if no -c is harmless.
// Rules are compared with the shorter command: Bash(git commit:*) covers git -c user.name=x commit.
func withoutGitSetting(args []string) []string {
	if programOf(args[0]) != "git" {
		return nil
	}
	for at := 1; at+1 < len(args) && strings.HasPrefix(args[at], "-"); at++ {
		if args[at] == "-c" && gitSets(args[at+1]) {
			return slices.Concat(args[:at], args[at+2:])
		}
		if slices.Contains(gitGlobalValued, args[at]) {
			at++
		}
	}
	return nil
}

// gitHarmlessEnv are variables of git that may be set in front of a command: git(1). They are in
// a commit as its author and committer.
var gitHarmlessEnv = []string{
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
}

// harmlessAssignments may stand in front of a command with these values only.
var harmlessAssignments = []string{
	"GIT_PAGER=cat", "GIT_PAGER=", "PAGER=cat", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true", "GIT_EDITOR=:", "GIT_OPTIONAL_LOCKS=0", "GIT_MERGE_AUTOEDIT=no",
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
}
