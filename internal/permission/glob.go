package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// direct are the runners that hand the words behind the program's name to it one
// by one; others may join them into a line for a shell. Wrappers: see unwrap.
var direct = []string{"env", "xargs", "time", "setsid", "sh", "bash", "dash", "zsh", "ksh"}

// globDanger says why args may hold no pattern of file names, whatever the rules
// are, or "". first is where the first one stands. What it will match is not known
// here, so none may stand where words are looked at: among the arguments of a
// program with a guard, and in front of, or as, the program that a runner runs.
func globDanger(args []string, first int) string {
	if guarded(args[0]) && !guards[path.Base(args[0])].patterns {
		return fmt.Sprintf("* ? and [...] are not expanded for %s, since what they match can't be checked: name the files, or quote the word to pass it on as it is", excerpt(args[0]))
	}
	if runnerAt(args) < 0 {
		return ""
	}
	at := runs(args)
	if at == 0 || at >= first {
		return fmt.Sprintf("* ? and [...] are not expanded in what %s runs: name it, without options in front, or quote the word to pass it on as it is", excerpt(args[0]))
	}
	return globDanger(args[at:], first-at)
}

// runs returns the position of the program that a runner without options runs, or
// 0 if that is not certain.
func runs(args []string) int {
	if inner := unwrap(args); inner != nil {
		return len(args) - len(inner)
	}
	if !slices.Contains(direct, path.Base(args[0])) {
		return 0
	}
	at := payload(args)
	if slices.ContainsFunc(args[1:max(at, 1)], func(word string) bool { return strings.HasPrefix(word, "-") }) {
		return 0
	}
	return at
}
