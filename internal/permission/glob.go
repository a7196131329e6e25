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

// takesPatterns reports whether a program with a guard may have a pattern at position first. A match
// never is an option, see options.patterns. Programs in languages take patterns only where they expect
// files.
func takesPatterns(args []string, first int) bool {
	name := programOf(args[0])
	switch {
	case slices.Contains(tars, name):
		return first > 1 // the first word may be a cluster of options without a dash (tarDanger)
	case slices.Contains(seds, name):
		return onlyOperands(args[first:]) && sedHasScript(args[:first])
	case slices.Contains(awks, name):
		return onlyOperands(args[first:]) && awkHasProgram(args[:first])
	}
	return guards[name].patterns && !guards[name].writesNext(args, first)
}

// onlyOperands reports whether no word is an option, whose value could be a match.
func onlyOperands(words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
}

// writesNext reports whether a word from position first on may be a pattern and the value of an option
// that names a file to write. checkWrite can't check a match.
func (o options) writesNext(args []string, first int) bool {
	for i := max(first-1, 1); i+1 < len(args); i++ {
		if hit, _, attached := o.find(args[i]); hit != nil && hit.opens && !attached && strings.ContainsAny(args[i+1], "*?[") {
			return true
		}
	}
	return false
}

// sedHasScript reports whether words have the whole script of sed, so that operands after them are
// files. GNU sed takes options after operands.
func sedHasScript(words []string) bool {
	return hasProgram(words, true, func(arg string) (name byte, attached, known bool) {
		name, _, attached, known = sedOption(arg)
		return name, attached, known
	})
}

// awkHasProgram is sedHasScript for awk. awk takes no option after the first operand. Only gawk certainly knows -e:
// others may ignore it and take a file name for the program.
func awkHasProgram(words []string) bool {
	return hasProgram(words, false, func(arg string) (name byte, attached, known bool) {
		if name, attached = awkOption(arg); name == 'e' && programOf(words[0]) != "gawk" {
			name = 0
		}
		return name, attached, true
	})
}

// hasProgram reports whether words have a whole program: as the first operand, or as the value of an option
// e or f. option returns the name of an option, and whether the next word is not its value.
func hasProgram(words []string, optionsAfterOperands bool, option func(arg string) (name byte, attached, known bool)) bool {
	has := false
	for i := 1; i < len(words); i++ {
		arg := words[i]
		if arg == "--" {
			return has || i+1 < len(words)
		}
		if len(arg) < 2 || arg[0] != '-' {
			if !optionsAfterOperands {
				return true
			}
			has = true // the program, or a file after it
			continue
		}
		name, attached, known := option(arg)
		if !attached {
			i++ // its value
		}
		if !known || i >= len(words) {
			return false // a pattern would be the value
		}
		has = has || name == 'e' || name == 'f'
	}
	return has
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
