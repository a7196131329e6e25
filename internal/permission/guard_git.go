package permission

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
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

// gitTransport has the options that name the program at the other end of a connection; for a
// local repository git starts it here: git-fetch-pack(1), git-push(1).
var gitTransport = options{forms: []form{{long: "upload-pack"}, {long: "receive-pack"}, {long: "exec"}}}

// gitTransportURL matches transports that run a command or use inherited
// descriptors, gitremote-helpers(7).
var gitTransportURL = lazyregexp.New(`(^|=)(ext|fd)::`)

// gitStrategy has the option by which git runs the program git-merge-STRATEGY, git-merge(1).
// Git runs a strategy with a slash from the workspace.
var gitStrategy = options{forms: []form{{long: "strategy", runs: isFile}}}

// gitOutput has --output of the commands that print diffs, which writes a file: git-diff(1).
var gitOutput = options{forms: []form{{long: "output", opens: true}}}

// gitSubcommands are the options of subcommands that run a program or write a file.
var gitSubcommands = map[string]options{
	"pull":  {valued: "XjS", forms: slices.Concat(gitTransport.forms, []form{{short: 's', long: "strategy", runs: isFile}})},
	"fetch": gitTransport, "push": gitTransport, "ls-remote": gitTransport,
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
	"rebase":      {valued: "XC", forms: []form{{short: 'x', long: "exec"}, {short: 's', long: "strategy", runs: isFile}}},
	"merge":       {valued: "XmFS", forms: []form{{short: 's', long: "strategy", runs: isFile}}},
	"cherry-pick": gitStrategy, "revert": gitStrategy,
	"grep": {valued: "efmABC", forms: []form{{short: 'O', long: "open-files-in-pager"}}},
	"diff": gitOutput, "log": gitOutput, "show": gitOutput, "whatchanged": gitOutput, "diff-tree": gitOutput,
	"diff-index": gitOutput, "diff-files": gitOutput, "shortlog": gitOutput, "reflog": gitOutput, "stash": gitOutput, "range-diff": gitOutput,
	"format-patch": {forms: []form{{short: 'o', long: "output-directory", opens: true}}},
}

// gitRunners are subcommands that run programs that their arguments or the
// configuration name. If a subcommand has second words here, only its forms with
// these words do.
var gitRunners = map[string][]string{
	"maintenance": {"start"}, "bisect": {"run", "visualize", "view"}, "submodule": {"foreach"}, "hook": {"run"},
	"submodule--helper": nil, "bisect--helper": nil, "merge-index": nil, "filter-branch": nil, "for-each-repo": nil,
	"difftool": nil, "mergetool": nil, "remote-ext": nil, "remote-fd": nil, "shell": nil, "send-email": nil,
	"instaweb": nil, "web--browse": nil, "credential": nil, "p4": nil, "svn": nil, "cvsimport": nil, "cvsserver": nil, "imap-send": nil,
	"daemon": nil, "upload-pack": nil, "receive-pack": nil, "upload-archive": nil, "gui": nil, "citool": nil,
}

// gitRunningKey matches the keys of git's configuration that hold a program, a
// program's directory, or another configuration file, git-config(1).
var gitRunningKey = lazyregexp.New(`(?i)^(alias|pager|man|browser|web|instaweb|difftool|mergetool|filter|credential|gpg|` +
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

// gitDanger returns the reason why a wildcard must not cover these words of git, or "". It checks the
// global options, the words of every subcommand, and the subcommand with its options, in this order.
// The rule itself has the first fixed words.
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
	// Git runs the program git-SUBCOMMAND. With a slash that is a file of the workspace.
	if !isConfigKey(args[at]) && at >= fixed {
		return beyondRule(args[at])
	}
	if reason := gitRunnerDanger(args, at, fixed); reason != "" {
		return reason
	}
	rest := args[at+1:]
	if args[at] == "difftool" {
		difftool := options{forms: []form{{short: 'x', long: "extcmd"}}}
		return difftool.danger(args, at+1, fixed)
	}
	if args[at] == "config" {
		return gitConfigDanger(rest, max(fixed-at-1, 0))
	}
	return gitSubcommands[args[at]].danger(args, at+1, fixed)
}

// gitRunnerDanger checks the subcommand at position at against gitRunners.
func gitRunnerDanger(args []string, at, fixed int) string {
	seconds, runs := gitRunners[args[at]]
	if runs && seconds == nil && at >= fixed {
		return beyondRule(args[at])
	}
	for _, second := range seconds {
		if i := slices.Index(args[at:], second); i >= 0 && at+i+1 >= fixed {
			return beyondRule(args[at] + " " + second)
		}
	}
	return ""
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
		if i >= fixed && (gitRunningKey.MatchString(arg) && !gitHarmlessKey.MatchString(arg) || strings.HasPrefix(arg, "--ren") || arg == "rename-section") {
			return beyondRule(arg)
		}
	}
	return ""
}
