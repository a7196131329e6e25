package permission

import (
	"path"
	"slices"
	"strconv"
)

// gitVariables are what a git that a rule covers finds in its environment, so that
// the configuration of a repository chooses none of these programs, git(1).
// ":" is an editor that changes nothing, git-var(1).
var gitVariables = []string{
	"GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:", "GIT_PAGER=cat", "GIT_SSH_COMMAND=ssh", "GIT_ASKPASS=", "GIT_PROXY_COMMAND=",
	"GIT_TERMINAL_PROMPT=0",
}

// gitSettings are settings of git for such a command, git-config(1). They win over
// the configuration of any repository, and lose to a -c in the command line. Settings
// with a name of the user's choice in their key (filter.NAME.clean, diff.NAME.textconv,
// remote.NAME.uploadpack) can't be set for all names; diff.external can't be
// switched off by a setting in every version of git.
var gitSettings = [][2]string{
	{"core.fsmonitor", "false"},
	{"core.hooksPath", "/dev/null"},
	{"core.attributesFile", "/dev/null"},
	{"core.alternateRefsCommand", "true"},
	{"protocol.ext.allow", "never"},
	{"protocol.fd.allow", "never"},
	{"credential.helper", ""},
	{"gpg.program", "gpg"},
	{"gpg.openpgp.program", "gpg"},
	{"gpg.x509.program", "gpgsm"},
	{"gpg.ssh.program", "ssh-keygen"},
	{"gpg.ssh.defaultKeyCommand", ""},
	{"interactive.diffFilter", "cat"},
	{"rebase.instructionFormat", "%s"}, // a line end in it adds a command to the list of git rebase -i
}

// gitEnv returns the environment that makes git safe to cover by a rule, or nil if
// args don't run git. named is how many of args the rule has letter by letter.
func gitEnv(args []string, named int) []string {
	for runnerAt(args) >= 0 {
		at := payload(args)
		if at == 0 {
			return nil
		}
		args, named = args[at:], named-at
	}
	if path.Base(args[0]) != "git" {
		return nil
	}
	settings := slices.Clone(gitSettings)
	at := gitSubcommandAt(args)
	// A folder that is laid out as a bare repository is used as one only where the
	// rule names it.
	if place := slices.Index(args[:at], "-C"); place < 0 || place+1 >= named {
		settings = append(settings, [2]string{"safe.bareRepository", "explicit"})
	}
	if at < len(args) && isConfigKey(args[at]) {
		settings = append(settings, [2]string{"alias." + args[at], ""}) // git ignores it for its own commands
	}
	env := append(slices.Clone(gitVariables), "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	for i, s := range settings {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s[0], "GIT_CONFIG_VALUE_"+n+"="+s[1])
	}
	return env
}

// isConfigKey reports whether alias.NAME is a key of git's configuration. An alias of
// another name can only be alias.NAME.command, which git 2.39 doesn't know.
func isConfigKey(name string) bool {
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return name != "" && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z')
}
