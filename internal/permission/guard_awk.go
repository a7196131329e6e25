package permission

import (
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// awkDanger checks awk programs. system() and | run a program, @ loads code or calls a
// function by name, and -f, -E, -i and -l take code that is not checked. The sandbox decides
// about files that awk writes with >. No option of awk replaces this check: mawk has no
// sandbox mode, and gawk's refuses output to files, too.
func awkDanger(args []string, fixed int) string {
	var programs []int // positions in args
	code := false      // an option that every awk knows names it
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' || arg == "--" {
			if arg == "--" {
				i++
			}
			// Also after -e: original-awk does not know -e, ignores the word, and takes this one for the program.
			if !code && i < len(args) {
				programs = append(programs, i)
			}
			break
		}
		option, attached := awkOption(arg)
		position := i
		if !attached && i+1 < len(args) {
			i++
			position = i
		}
		switch option {
		case 'F', 'v', 0:
		case 'e':
			programs = append(programs, position)
		default:
			code = true
			if position >= fixed {
				return fmt.Sprintf("the code that %s names can't be checked, so only a rule that names it allows it", excerpt(arg))
			}
		}
	}
	for _, at := range programs {
		if at >= fixed && awkRuns(args[at]) {
			return fmt.Sprintf("the awk program %s can run another program, which only a rule with the exact command allows", excerpt(args[at]))
		}
	}
	return ""
}

// awkOption classifies an option of awk: F, v, e (program text), 0 (another option, without a
// value) or f (an option that takes code). Unknown options are f. attached: the value is in the
// same word, or the option takes no value.
func awkOption(arg string) (option byte, attached bool) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, _, attached := strings.Cut(long, "=")
		switch name {
		case "field-separator":
			return 'F', attached
		case "assign":
			return 'v', attached
		case "source":
			return 'e', attached
		case "posix", "traditional", "re-interval", "sandbox", "csv", "characters-as-bytes", "bignum", "lint", "version", "help":
			return 0, true
		}
		return 'f', attached
	}
	switch arg[1] {
	case 'F', 'v', 'e':
		return arg[1], len(arg) > 2
	case 'P', 'c', 'r', 'S', 'k', 'b', 'M', 'V', 'h':
		if len(arg) == 2 {
			return 0, true
		}
	}
	return 'f', len(arg) > 2
}

// awkRuns reports whether an awk program may run another one: whether it has the
// word system, a | that is not ||, or an @ outside strings, regular expressions
// and comments. If one of them is anywhere in the program, the begin and end of
// every string, regular expression and comment must be certain, because
// implementations differ there. In doubt the answer is yes.
func awkRuns(program string) bool {
	if !strings.ContainsAny(strings.ReplaceAll(program, "||", ""), "|@") && !strings.Contains(program, "system") {
		return false
	}
	previous := byte('\n') // the last byte that is not a blank
	for i := 0; i < len(program); i++ {
		c := program[i]
		switch {
		case c == '"' || c == '/' && strings.IndexByte("\n(,{;!~&|=?:", previous) >= 0:
			end, ok := awkSkip(program, i)
			if !ok {
				return true
			}
			i = end
		case c == '\\' || c == '/' && !awkDivides(program[:i]):
			return true
		case c == '#':
			line := strings.IndexByte(program[i:], '\n')
			if line < 0 {
				return false
			}
			i += line
		case strings.HasPrefix(program[i:], "||"):
			i++
		case c == '|' || c == '@' || strings.HasPrefix(program[i:], "system"):
			return true
		}
		if program[i] != ' ' && program[i] != '\t' {
			previous = program[i]
		}
	}
	return false
}

// awkDivides reports whether a / after this text certainly divides: a number, a field or an
// element stands before it. A name could be a keyword before a regular expression.
func awkDivides(before string) bool {
	operand := strings.TrimRight(before, " \t")
	rest := strings.TrimRight(operand, "0123456789")
	if rest != operand || strings.HasSuffix(rest, "]") {
		return true
	}
	rest, name := rest[:strings.LastIndexByte(rest, '$')+1], rest[strings.LastIndexByte(rest, '$')+1:]
	// After these two functions without parentheses mawk reads a regular expression.
	return rest != "" && awkName.MatchString(name) && name != "length" && name != "getline"
}

var awkName = lazyregexp.New(`^[A-Za-z_]+$`)

// awkSkip returns the position at which the string or regular expression that
// begins at start ends. ok is false if its end is in doubt.
func awkSkip(program string, start int) (end int, ok bool) {
	closing := program[start]
	bracket := false
	for i := start + 1; i < len(program); i++ {
		switch c := program[i]; {
		case c == '\\':
			i++
		case c == '\n' || c == closing && bracket:
			return 0, false
		case c == closing:
			return i, true
		case closing == '/' && c == '[':
			bracket = true
		case closing == '/' && c == ']':
			bracket = false
		}
	}
	return 0, false
}
