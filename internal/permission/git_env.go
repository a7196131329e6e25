package permission

import (
	"slices"
	"strconv"
)

// gitVariables is part of the environment of a git command that a rule covers. It overrides
// the programs that a repository's configuration could choose, see git(1). The editor ":"
// changes nothing, see git-var(1).
var gitVariables = []string{
	"GIT_EDITOR=:", "GIT_SEQUENCE_EDITOR=:", "GIT_PAGER=cat", "GIT_SSH_COMMAND=ssh", "GIT_ASKPASS=", "GIT_PROXY_COMMAND=",
	"GIT_TERMINAL_PROMPT=0",
}

// gitSettings are git settings for such a command, see git-config(1). They override the
// configuration of every repository, but a -c on the command line overrides them. Two kinds
// of settings remain. Keys with a name chosen by the user (filter.NAME.clean,
// diff.NAME.textconv, remote.NAME.uploadpack) cannot be set for all names. No setting
// switches off diff.external in all versions of git.
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
	{"rebase.instructionFormat", "%s"}, // a newline in it would add a command to the list of git rebase -i
}

// gitEnv returns the environment with which a rule may cover a git command, or nil
// if args do not run git. named is the number of args that the rule has letter by letter.
// GIT_CONFIG_COUNT and its keys have the rank of -c (git-config(1), "ENVIRONMENT").
func gitEnv(args []string, named int) []string {
	for runnerAt(args) >= 0 {
		at := payload(args)
		if at == 0 {
			return nil
		}
		args, named = args[at:], named-at
	}
	if programOf(args[0]) != "git" {
		return nil
	}
	settings := slices.Clone(gitSettings)
	at := gitSubcommandAt(args)
	// Git uses a folder with the layout of a bare repository as one only if the rule names
	// that folder with -C.
	if place := slices.Index(args[:at], "-C"); place < 0 || place+1 >= named {
		settings = append(settings, [2]string{"safe.bareRepository", "explicit"})
	}
	if at < len(args) && isConfigKey(args[at]) {
		settings = append(settings, [2]string{"alias." + args[at], ""}) // git ignores aliases with the name of a git command
	}
	env := append(slices.Clone(gitVariables), "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	for i, s := range settings {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s[0], "GIT_CONFIG_VALUE_"+n+"="+s[1])
	}
	return env
}

// isConfigKey reports whether alias.NAME is a valid git configuration key. Git can only
// define an alias of another name as alias.NAME.command, which git 2.39 does not know.
func isConfigKey(name string) bool {
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return name != "" && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z')
}
