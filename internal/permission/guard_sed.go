package permission

import (
	"fmt"
	"strings"
)

// sedDanger checks sed's scripts. e runs a program and w writes a file, as commands and as
// flags of s; -f takes a script that is not checked. With --sandbox GNU sed refuses all of
// these. A rule that allows r or "w /dev/stdout" would break if that option were added to
// every line, and busybox has no such option, so this check stays. -i passes: it writes the
// files that it is given, in place. The rule itself has the first fixed words: a script among
// them is not checked. The result is the reason of a refusal, or "".
func sedDanger(args []string, fixed int) string {
	var scripts, operands []int // positions in args
	var text []string
	explicit := false
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if arg == "--sandbox" {
			return ""
		}
		if arg == "--" {
			for j := i + 1; j < len(args); j++ {
				operands = append(operands, j)
			}
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			operands = append(operands, i)
			continue
		}
		name, value, attached, known := sedOption(arg)
		if !known {
			return beyondRule(arg)
		}
		position := i
		if !attached && strings.IndexByte("efl", name) >= 0 && i+1 < len(args) {
			i++
			value, position = args[i], i
		}
		switch name {
		case 'e':
			explicit = true
			scripts, text = append(scripts, position), append(text, value)
		case 'f':
			explicit = true
			if position >= fixed {
				return fmt.Sprintf("the script %s can't be checked, so only a rule that names it allows it", excerpt(value))
			}
		case 'i':
			if strings.Contains(value, "/") {
				return beyondRule(arg)
			}
		}
	}
	if !explicit && len(operands) > 0 {
		scripts, text = operands[:1], []string{args[operands[0]]}
	}
	if len(scripts) == 0 || scripts[len(scripts)-1] < fixed {
		return ""
	}
	return sedScript(strings.Join(text, "\n"))
}

// sedLong has the long options that take a value. GNU sed takes any abbreviation.
var sedLong = map[string]byte{"expression": 'e', "file": 'f', "line-length": 'l', "in-place": 'i'}

// sedOption returns the option of an argument by which it takes a value, or 0,
// and the value attached to it. known is false if GNU sed has no such option.
func sedOption(arg string) (name byte, value string, attached, known bool) {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		long, value, attached = strings.Cut(long, "=")
		for option, name := range sedLong {
			if long != "" && strings.HasPrefix(option, long) {
				return name, value, attached || name == 'i', true
			}
		}
		return 0, "", true, true
	}
	for i := 1; i < len(arg); i++ {
		switch {
		case strings.IndexByte("efl", arg[i]) >= 0:
			return arg[i], arg[i+1:], i+1 < len(arg), true
		case arg[i] == 'i':
			return 'i', arg[i+1:], true, true
		case strings.IndexByte("nErsuzb", arg[i]) < 0:
			return 0, "", true, false
		}
	}
	return 0, "", true, true
}

// sedScript returns the part of a sed script that a wildcard must not cover, or "". It reads only as much
// of GNU sed's grammar as it needs to tell commands from text. If versions of sed differ, or the
// grammar is not certain, it refuses the script.
func sedScript(script string) string {
	const unread = "the sed script is not understood, so only a rule with the exact command allows it"
	s := script
	for {
		s = strings.TrimLeft(s, " \t\n;{}")
		if s == "" {
			return ""
		}
		rest, ok := sedAddresses(s)
		if !ok || rest == "" {
			return unread
		}
		command := rest[0]
		s = rest[1:]
		switch {
		case command == 'e' || command == 'w' || command == 'W':
			if command != 'e' && sedStdout(s) {
				s = afterLine(s)
				continue
			}
			return sedForm(command)
		case command == '{' || strings.IndexByte("=dDgGhHnNpPxFz", command) >= 0:
		case strings.IndexByte("lLqQ", command) >= 0:
			s = strings.TrimLeft(s, " \t0123456789")
		case strings.IndexByte("aic", command) >= 0:
			s = afterText(s)
		case strings.IndexByte("rR#", command) >= 0:
			s = afterLine(s)
		case strings.IndexByte("btTv:", command) >= 0:
			s = strings.TrimLeft(s, " \t")
			end := strings.IndexAny(s+";", "; \t\n}")
			// Where a brace may end a label, it must not be part of one.
			if command == ':' && end < len(s) && s[end] == '}' {
				return unread
			}
			s = s[end:]
		case command == 's' || command == 'y':
			var flag byte
			if s, flag, ok = sedSubstitute(s, command == 's'); !ok {
				return unread
			}
			if flag != 0 {
				return sedForm(flag)
			}
		default:
			return unread
		}
	}
}

// sedForm is the reason for a refused e or w, as a command or as a flag of s.
func sedForm(command byte) string {
	if command == 'e' {
		return "the e of sed runs a program, which only a rule with the exact command allows"
	}
	return "the w of sed writes a file, which only a rule with the exact command allows: redirect the output instead"
}

// sedStdout reports whether a w command writes to a stream that is open anyway.
func sedStdout(s string) bool {
	line, _, _ := strings.Cut(s, "\n")
	name := strings.TrimSpace(line)
	return name == "/dev/stdout" || name == "/dev/stderr"
}

// afterLine skips the rest of a line: a file name or a comment, which ends only there.
func afterLine(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return rest
}

// afterText skips the text of a, i or c: to the first line end that no backslash
// stands before.
func afterText(s string) string {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '\n':
			return s[i+1:]
		}
	}
	return ""
}

// sedAddresses skips the addresses in front of a command and the !.
func sedAddresses(s string) (rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "":
			return "", false
		case strings.IndexByte("0123456789$,~+!", s[0]) >= 0:
			s = s[1:]
		case s[0] == '/' || s[0] == '\\' && len(s) > 1:
			if s[0] == '\\' {
				s = s[1:]
			}
			if s[0] >= 0x80 || strings.IndexByte("\\\n[]", s[0]) >= 0 {
				return "", false
			}
			if s, ok = afterRegexp(s[1:], s[0]); !ok {
				return "", false
			}
			s = strings.TrimLeft(s, "IM")
		default:
			return s, true
		}
	}
}

// afterDelimiter returns the text after the next delimiter that no backslash escapes.
func afterDelimiter(s string, delimiter byte) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case delimiter:
			return s[i+1:], true
		}
	}
	return "", false
}

// afterRegexp returns the text after a regular expression and its delimiter. Versions of sed
// differ on a delimiter inside brackets, so there ok is false.
func afterRegexp(s string, delimiter byte) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case delimiter:
			return s[i+1:], true
		case '[':
			length := bracketLength(s[i:], delimiter)
			if length == 0 {
				return "", false
			}
			i += length - 1
		}
	}
	return "", false
}

// bracketLength returns the length of the bracket expression that s begins with,
// or 0 if its end is in doubt. POSIX, 9.3.5 RE Bracket Expression: "]" in the first place is
// literal, and [:class:], [.x.] and [=x=] nest.
func bracketLength(s string, delimiter byte) int {
	i := 1
	if strings.HasPrefix(s[i:], "^") {
		i++
	}
	if strings.HasPrefix(s[i:], "]") {
		i++
	}
	for ; i < len(s); i++ {
		switch {
		case s[i] == delimiter || s[i] == '\n' || s[i] == '\\' && !strings.HasPrefix(s[i:], `\n`) && !strings.HasPrefix(s[i:], `\t`):
			return 0
		case s[i] == ']':
			return i + 1
		case s[i] == '[' && i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0:
			inside, _, closed := strings.Cut(s[i+2:], s[i+1:i+2]+"]")
			if !closed || strings.IndexByte(inside, delimiter) >= 0 {
				return 0
			}
			i += len("[:") + len(inside) + len(":]") - 1
		}
	}
	return 0
}

// sedSubstitute skips the two parts of s or y, and the flags of s. It returns the
// flag that is dangerous, or 0.
func sedSubstitute(s string, flags bool) (rest string, flag byte, ok bool) {
	if s == "" || strings.IndexByte("\\\n[]", s[0]) >= 0 || s[0] >= 0x80 {
		return "", 0, false
	}
	delimiter := s[0]
	if s, ok = afterRegexp(s[1:], delimiter); !ok {
		return "", 0, false
	}
	if s, ok = afterDelimiter(s, delimiter); !ok || !flags {
		return s, 0, ok
	}
	s = strings.TrimLeft(s, "gpiImM0123456789")
	if s != "" && (s[0] == 'e' || s[0] == 'w') {
		if s[0] == 'w' && sedStdout(s[1:]) {
			return afterLine(s), 0, true
		}
		return "", s[0], true
	}
	return s, 0, true
}
