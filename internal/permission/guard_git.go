package permission

import (
	"regexp"
	"slices"
	"strings"
)

// gitGlobal has git's options before the subcommand that make git run a program of the command
// line, or use any folder as a repository, with the configuration in it: git(1). -C and
// --work-tree pass: with them git searches for a repository, and finds no bare one, see
// gitEnv.
var gitGlobal = options{forms: []form{
	{short: 'c'}, {long: "config-env"}, {long: "exec-path"}, {long: "git-dir"}, {exact: "bare", flag: true},
}}

// gitGlobalValued has git's global options whose value is the next word.
var gitGlobalValued = []string{"-c", "-C", "--config-env", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"}

var gitTransport = options{forms: []form{{long: "upload-pack"}, {long: "receive-pack"}, {long: "exec"}}}

// gitTransportURL matches transports that run a command or use inherited
// descriptors, gitremote-helpers(7).
var gitTransportURL = regexp.MustCompile(`(^|=)(ext|fd)::`)

var gitOutput = options{forms: []form{{long: "output", opens: true}}}

// gitSubcommands are the options of subcommands that run a program or write a file.
var gitSubcommands = map[string]options{
	"fetch": gitTransport, "pull": gitTransport, "push": gitTransport, "ls-remote": gitTransport,
	"fetch-pack": gitTransport, "send-pack": gitTransport,
	"clone": {valued: "objb", forms: []form{
		{short: 'u', long: "upload-pack"}, {short: 'c', long: "config"}, {long: "template"}, {long: "separate-git-dir"},
	}},
	"init":        {valued: "b", forms: []form{{long: "template"}, {long: "separate-git-dir"}}},
	"apply":       {valued: "pC", forms: []form{{long: "unsafe-paths"}}},
	"fast-export": {forms: []form{{long: "export-marks", opens: true}}},
	"fast-import": {forms: []form{{long: "export-marks", opens: true}, {long: "export-pack-edges", opens: true}, {long: "allow-unsafe-features"}}},
	"submodule":   {forms: []form{{long: "template"}}},
	"archive":     {forms: []form{{long: "exec"}, {short: 'o', long: "output", opens: true}}},
	"rebase":      {valued: "sXC", forms: []form{{short: 'x', long: "exec"}}},
	"grep":        {valued: "efmABC", forms: []form{{short: 'O', long: "open-files-in-pager"}}},
	"diff":        gitOutput, "log": gitOutput, "show": gitOutput, "whatchanged": gitOutput, "diff-tree": gitOutput,
	"diff-index": gitOutput, "diff-files": gitOutput, "shortlog": gitOutput, "reflog": gitOutput, "stash": gitOutput, "range-diff": gitOutput,
	"format-patch": {forms: []form{{short: 'o', long: "output-directory", opens: true}}},
}

// gitRunners are subcommands that run what their arguments or the configuration
// name. With a second word, only that form of the subcommand.
var gitRunners = map[string]string{
	"maintenance": "start",
	"bisect":      "run", "submodule": "foreach", "hook": "run", "filter-branch": "", "for-each-repo": "",
	"difftool": "", "mergetool": "", "remote-ext": "", "remote-fd": "", "shell": "", "send-email": "",
	"instaweb": "", "web--browse": "", "credential": "", "p4": "", "svn": "", "cvsimport": "", "cvsserver": "", "imap-send": "",
	"daemon": "", "upload-pack": "", "receive-pack": "", "upload-archive": "", "gui": "", "citool": "",
}

// gitRunningKey matches the keys of git's configuration that hold a program, the
// place of one, or another configuration file, git-config(1).
var gitRunningKey = regexp.MustCompile(`(?i)^(alias|pager|man|browser|web|instaweb|difftool|mergetool|filter|credential|gpg|` +
	`include|includeif|uploadpack|receive|url|protocol|interactive|trailer|submodule|rebase|gc|sendemail|guitool|hook|http|ssh|tar|extensions|safe|init)\.` +
	`|^core\.(fsmonitor|pager|editor|sshcommand|hookspath|gitproxy|askpass|worktree|attributesfile|alternaterefscommand)` +
	`|^sequence\.editor|^diff\.external|^diff\..*\.(command|textconv)|^merge\..*\.driver|^remote\..*\.(uploadpack|receivepack|vcs|proxy)`)

// gitReading are the first words after "git config" that make it only read.
var gitReading = []string{"--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"}

// gitSubcommandAt returns the position of the subcommand, or len(args).
func gitSubcommandAt(args []string) int {
	at := 1
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		if slices.Contains(gitGlobalValued, args[at]) {
			at++
		}
		at++
	}
	return min(at, len(args))
}

// gitDanger says why a wildcard must not cover these words of git, or "". It checks the global
// options, the words of every subcommand, and the subcommand with its options, in this order. The
// rule itself has the first fixed words.
func gitDanger(args []string, fixed int) string {
	at := gitSubcommandAt(args)
	if len(args) > 1 && args[1] == "--exec-path" {
		return "" // it prints where the programs of git are, and ends
	}
	if reason := gitGlobal.danger(args[:at], 1, fixed); reason != "" {
		return reason
	}
	for i, arg := range args {
		if i >= fixed && (gitTransportURL.MatchString(arg) || ownedByGit(arg)) {
			return beyondRule(arg)
		}
	}
	if at == len(args) {
		return ""
	}
	rest := args[at+1:]
	if second, runs := gitRunners[args[at]]; runs {
		switch {
		case second == "" && at >= fixed:
			return beyondRule(args[at])
		case second != "" && slices.Contains(rest, second) && slices.Index(args, second)+1 >= fixed:
			return beyondRule(args[at] + " " + second)
		}
	}
	if args[at] == "difftool" {
		difftool := options{forms: []form{{short: 'x', long: "extcmd"}}}
		return difftool.danger(args, at+1, fixed)
	}
	if args[at] == "config" {
		return gitConfigDanger(rest, max(fixed-at-1, 0))
	}
	return gitSubcommands[args[at]].danger(args, at+1, fixed)
}

// gitConfigDanger checks the words after "git config", of which the rule has the first fixed ones.
// A form that starts an editor is refused even if the rule names it.
func gitConfigDanger(rest []string, fixed int) string {
	if len(rest) > 0 && slices.Contains(gitReading, rest[0]) {
		return ""
	}
	for i, arg := range rest {
		if arg == "-e" || len(arg) > 3 && strings.HasPrefix("--edit", arg) || arg == "edit" && i == 0 {
			return beyondRule(arg)
		}
		if i >= fixed && (gitRunningKey.MatchString(arg) || strings.HasPrefix(arg, "--ren") || arg == "rename-section") {
			return beyondRule(arg)
		}
	}
	return ""
}
