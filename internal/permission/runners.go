package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// builtins are commands that exist only in a shell. Builtins that are also programs (echo,
// printf, test, [, true, false, pwd, kill) are not in the list, since the program runs.
var builtins = strings.Fields(`
	: . alias bg bind break builtin caller cd chdir command compgen complete compopt continue declare dirs disown
	enable eval exec exit export fc fg getopts hash help history jobs let local logout mapfile popd pushd
	read readarray readonly return set shift shopt source suspend times trap type typeset ulimit umask
	unalias unset wait`)

// isBuiltin reports whether a name means a shell's builtin, which no program can replace.
func isBuiltin(name string) bool { return slices.Contains(builtins, name) }

// runners are programs that run another program, or a line of text, from their arguments or
// input. m4 is one by its esyscmd. Sources: their manuals, and the functions "shell" and "command" of gtfobins.org.
var runners = strings.Fields(`
	env xargs parallel sem
	sh bash rbash dash ash posh sash zsh ksh ksh93 mksh yash fish csh tcsh elvish nu xonsh pwsh powershell busybox toybox
	sudo sudoedit su doas runuser pkexec gosu su-exec setpriv capsh chroot fakeroot unshare nsenter bwrap firejail systemd-run
	systemd-nspawn machinectl start-stop-daemon daemonize dbus-run-session dbus-launch xvfb-run
	nohup timeout nice ionice chrt taskset numactl stdbuf unbuffer time prlimit setsid setarch linux32 linux64
	i386 x86_64 uname26 choom eatmydata catchsegv cpulimit proot
	watch entr inotifywait flock run-parts script expect screen tmux dtach at batch crontab incrontab anacron
	strace ltrace gdb lldb perf valgrind rr bpftrace
	npx bunx pnpx uvx pipx npm-exec corepack dotenv direnv
	ssh slogin rsh rlogin rexec sshpass autossh mosh ssh-agent scp sftp lftp ftp telnet socat nc ncat netcat
	chronic ifne pee grc distcc run-mailcap dc nocache aa-exec runcon schroot datefudge watchexec nix-shell systemd-inhibit gtime msgfilter msgexec m4 gm4
	pipesz uclampset coresched faketime rlwrap sg newgrp hyperfine multitime pexec torsocks torify proxychains proxychains4 gtimeout gnice gnohup
	gstdbuf genv gxargs softlimit chpst envdir envuidgid setuidgid setlock pgrphack tini dumb-init catatonit logsave
	aws-vault chamber envchain cgexec xdotool
	docker podman nerdctl buildah lxc lxc-attach ctr runc crun flatpak snap vagrant
	vi vim vim.basic vim.tiny rvim nvim view vimdiff ex ed red emacs emacsclient nano pico joe mc
	ld.so`)

// runnerWords has programs that are runners only with one of these words as a subcommand:
// "uv run", "mise x". Options may come before the word. Sources: their manuals.
var runnerWords = map[string][]string{
	"uv": {"run", "tool"}, "poetry": {"run", "shell"}, "pipenv": {"run", "shell"}, "pdm": {"run"}, "hatch": {"run", "shell"}, "rye": {"run"},
	"pixi": {"run", "exec", "shell"}, "conda": {"run"}, "mamba": {"run"}, "micromamba": {"run"},
	"pyenv": {"exec"}, "rbenv": {"exec"}, "nodenv": {"exec"}, "goenv": {"exec"}, "jenv": {"exec"}, "plenv": {"exec"},
	"asdf": {"exec"}, "mise": {"x", "exec", "watch"}, "rtx": {"x", "exec"}, "volta": {"run"}, "fnm": {"exec"}, "rustup": {"run"}, "bundle": {"exec"},
	"npm": {"exec", "x", "explore"}, "pnpm": {"exec", "dlx"}, "yarn": {"exec", "dlx"}, "bun": {"x"},
	"nix": {"run", "shell", "develop"}, "guix": {"shell", "environment"}, "ip": {"netns", "vrf"}, "sops": {"exec-env", "exec-file"},
	"doppler": {"run"}, "infisical": {"run"}, "dotenvx": {"run"}, "foreman": {"run"}, "op": {"run"}, "railway": {"run"},
}

// runnerAt returns the position of the word that makes args a runner: 0 for xargs, 1 for
// "uv run". It returns -1 if args are not a runner. A word after options counts
// even if it may be the value of one.
func runnerAt(args []string) int {
	if isRunner(args[0]) {
		return 0
	}
	words := runnerWords[path.Base(args[0])]
	for i := 1; i < len(args) && len(words) > 0; i++ {
		if slices.Contains(words, args[i]) && (i == 1 || strings.HasPrefix(args[1], "-")) {
			return i
		}
	}
	return -1
}

// isRunner reports whether name, with or without a directory, is a runner. The dynamic
// loader is one, see ld.so(8).
func isRunner(name string) bool {
	base := path.Base(name)
	return slices.Contains(runners, runnerName(name)) || strings.HasPrefix(base, "ld-linux") || strings.HasPrefix(base, "ld-musl")
}

// runnerName returns a runner's name without directory and version.
func runnerName(name string) string {
	return withoutVersion(path.Base(name), func(known string) bool { return slices.Contains(runners, known) })
}

// anyWord are runners that may take a command from any of their words: they have subcommands, join the words into a line
// for a shell, start a second program after a separator, take options after operands, or have an unknown number of
// operands before the program. Only a rule with the exact words covers such a runner. Sources: their manuals.
var anyWord = strings.Fields(`
	watch watchexec parallel sem hyperfine pee runcon run-mailcap nix nix-shell guix xdotool
	su runuser start-stop-daemon at batch anacron dotenv chamber mise rtx
	docker podman nerdctl buildah lxc lxc-attach ctr runc crun flatpak snap vagrant
	ssh slogin rsh rlogin rexec autossh mosh tmux screen script
	vi vim vim.basic vim.tiny rvim nvim view vimdiff ex ed red emacs emacsclient nano pico joe mc
	chpst choom cgexec cpulimit nsenter sshpass unshare bwrap systemd-nspawn perf rr direnv machinectl gdb lldb nc ncat netcat socat lftp ftp telnet dc m4 gm4`)

// A runnerUsage describes a runner's arguments, to find the program that it runs.
type runnerUsage struct {
	valued   string   // short options that take a value
	long     []string // long options that take a value
	operands int      // words before the program
}

// runnerUsages has the usage of runners that take more than options without a value and a
// program. The key "npm explore" is for one word of runnerWords, "npm" for the others.
var runnerUsages = map[string]runnerUsage{
	"env": {valued: "uCS"}, "sudo": {valued: "ughpCrtTRDU"}, "doas": {valued: "uC"}, "runuser": {valued: "ugGcsw"},
	"timeout": {valued: "sk", operands: 1}, "nice": {valued: "n"}, "ionice": {valued: "cnpPu"},
	"chrt": {valued: "TPD", operands: 1}, "taskset": {operands: 1}, "stdbuf": {valued: "ioe"},
	"xargs": {valued: "InPdLsaE"}, "parallel": {valued: "jInNLSa"},
	"bash": {valued: "coO"}, "sh": {valued: "co"}, "dash": {valued: "co"}, "zsh": {valued: "co"}, "ksh": {valued: "co"},
	"flock": {valued: "wEc", operands: 1}, "chroot": {operands: 1}, "setarch": {operands: 1}, "su": {operands: 1, valued: "cgGsw"},
	"ssh": {valued: "BbcDEeFIiJLlmOopQRSWw", operands: 1}, "npx": {valued: "pc"}, "watch": {valued: "nq"},
	"strace": {valued: "abeEIoOpPsSuUX"}, "faketime": {valued: "pf", operands: 1}, "sg": {valued: "c", operands: 1},
	"uclampset": {valued: "mMp"}, "pipesz": {valued: "snf"}, "softlimit": {valued: "adflmoprst"}, "gtimeout": {valued: "sk", operands: 1},
	"datefudge": {operands: 1}, "schroot": {valued: "cnudp"}, "aa-exec": {valued: "pn"}, "gtime": {valued: "fo"},
	"msgfilter": {valued: "iDow"}, "msgexec": {valued: "iD"}, "grc": {valued: "c"},
	"gosu": {operands: 1}, "su-exec": {operands: 1}, "setuidgid": {operands: 1}, "envuidgid": {operands: 1},
	"envdir": {operands: 1}, "setlock": {operands: 1}, "logsave": {operands: 1}, "envchain": {operands: 1},
	"gnice": {valued: "n"}, "genv": {valued: "uCS"}, "gstdbuf": {valued: "ioe"}, "gxargs": {valued: "InPdLsaE"}, "time": {valued: "fo"},
	"dtach": {valued: "er", operands: 1}, "coresched": {valued: "sdt", operands: 1}, "npm explore": {operands: 1},
	"sops": {operands: 1, long: []string{"--user", "--filename"}},
	"aws-vault": {valued: "dt", operands: 2, long: []string{
		"--duration", "--mfa-token", "--region", "--backend", "--prompt", "--keychain", "--secret-service-collection",
		"--pass-dir", "--pass-cmd", "--pass-prefix", "--file-dir"}},
	"uv":  {valued: "pwC", long: []string{"--with", "--with-editable", "--with-requirements", "--python", "--directory", "--project", "--extra", "--group", "--package", "--index", "--env-file"}},
	"nix": {operands: 1}, "ip": {operands: 2}, "rustup": {operands: 1}, "conda": {valued: "np"}, "npm": {valued: "pcw"},
}

var runnerAssignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*=`)

// payload returns the position of the program or script that a runner runs. It returns 0 if
// the words end before it, or if it is a runner too.
func payload(words []string) int {
	start := runnerAt(words)
	if start < 0 {
		return 0 // the words end before the one that makes it a runner
	}
	name := runnerName(words[0])
	usage, ok := runnerUsages[name+" "+words[start]]
	if !ok {
		usage = runnerUsages[name]
	}
	operands := usage.operands
	for i := start + 1; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "" || word == "-" || word == "--" || runnerAssignment.MatchString(word):
		case slices.Contains(usage.long, word):
			i++ // its value
		case word[0] == '-':
			if word[1] != '-' && strings.IndexByte(usage.valued, word[len(word)-1]) >= 0 {
				i++ // its value
			}
		case operands > 0:
			operands--
		case isRunner(word):
			return 0
		default:
			return i
		}
	}
	return 0
}

// runnerProblem returns the reason why a rule that fixes only words, the first ones of command, does not cover command,
// which runs a runner. It returns "" if words have the program to run.
func runnerProblem(words, command []string) string {
	name := excerpt(strings.Join(command[:runnerAt(command)+1], " "))
	switch {
	case slices.Contains(anyWord, runnerName(command[0])):
		return fmt.Sprintf("%s may run any of its words, so the rule must have all words, without *", name)
	case len(words) == 0 || payload(words) == 0:
		return fmt.Sprintf("%s runs other programs, so the rule must name the program to run", name)
	}
	return ""
}

// unwrap returns the command that nohup, nice or timeout without options runs, or a git command without
// its first harmless setting. The effect of the removed words is known, so a rule for the inner command
// covers the whole command. unwrap returns nil for every other command.
func unwrap(args []string) []string {
	if inner := withoutGitSetting(args); inner != nil {
		return inner
	}
	if at := manifest.AfterWrapper(args); at > 0 && !strings.HasPrefix(args[1], "-") {
		return args[at:]
	}
	return nil
}
