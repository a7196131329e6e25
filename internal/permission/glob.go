package permission

import (
	"fmt"
	"slices"
	"strings"
)

// direct are the runners that pass the words after a program's name to it one by one. Other
// runners may join them into a line for a shell. For wrappers see unwrap.
var direct = []string{"env", "xargs", "time", "setsid", "sh", "bash", "dash", "zsh", "ksh"}

// globDanger returns the reason why no rule allows args with a pattern of file names, or "". first is
// the position of the first pattern. The matches are not known before the command runs. So no pattern
// may be where words are checked: among the arguments of a program with a guard, or at or before the
// program that a runner runs.
func globDanger(args []string, first int) string {
	if guarded(args[0]) && !takesPatterns(args, first) {
		return fmt.Sprintf("* ? and [...] are not expanded for %s, since their matches can't be checked: name the files, or quote the word to pass it unchanged", excerpt(args[0]))
	}
	if runnerAt(args) < 0 {
		return ""
	}
	at := runs(args)
	if at == 0 || at >= first {
		return fmt.Sprintf("* ? and [...] are not expanded in the program that %s runs: name the program, without options before it, or quote the word to pass it unchanged", excerpt(args[0]))
	}
	return globDanger(args[at:], first-at)
}

// takesPatterns reports whether a program with a guard may have a pattern at position first. A match is
// never an option, and all dangerous forms of such a program are options, see options.patterns. tar's
// first word may be a cluster of options without a dash (tarDanger), so it must not be a pattern.
func takesPatterns(args []string, first int) bool {
	name := programOf(args[0])
	if slices.Contains(tars, name) {
		return first > 1
	}
	return guards[name].patterns
}

// runs returns the position of the program that a runner without options runs, or 0 if the
// position is not certain.
func runs(args []string) int {
	if inner := unwrap(args); inner != nil {
		return len(args) - len(inner)
	}
	if !slices.Contains(direct, runnerName(args[0])) {
		return 0
	}
	at := payload(args)
	if slices.ContainsFunc(args[1:max(at, 1)], func(word string) bool { return strings.HasPrefix(word, "-") }) {
		return 0
	}
	return at
}
