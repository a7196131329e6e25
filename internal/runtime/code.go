package runtime

import (
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// maxArgument is the kernel's limit for one argument, in bytes without the final NUL:
// MAX_ARG_STRLEN is 131,072 with it, execve(2).
const maxArgument = 131_071

// codeName takes the place of a file name in a MissingError.
const codeName = "inline code"

// LanguageError reports an unknown language of inline code.
type LanguageError struct{ Language string }

func (e *LanguageError) Error() string {
	return fmt.Sprintf("language %q: unknown, use python, bash, sh, node, ruby or perl", e.Language)
}

// CodeError refuses the text of inline code.
type CodeError struct{ Reason string }

func (e *CodeError) Error() string { return "code: " + e.Reason }

// ForCode returns the invocation of inline code. An empty language means python. The
// caller's arguments start at sys.argv[1], $1, process.argv[1] (node has no script
// name there) or ARGV[0]. The error is a *LanguageError, a *CodeError, a *MissingError
// or a *VenvError.
// The size is checked here, because execve(2) would fail with E2BIG only after a sandbox was
// made for it.
func (s *Set) ForCode(sk *skill.Skill, language, text string) (Invocation, error) {
	program := language
	switch language {
	case "", "python":
		program = "python3"
	case "bash", "sh", "node", "ruby", "perl":
	default:
		return Invocation{}, &LanguageError{Language: language}
	}
	switch {
	case text == "":
		return Invocation{}, &CodeError{Reason: "empty"}
	case strings.Contains(text, "\x00"):
		return Invocation{}, &CodeError{Reason: "contains a NUL"}
	}
	args := codeArgs(program, text)
	for _, arg := range args {
		if len(arg) > maxArgument {
			return Invocation{}, &CodeError{Reason: fmt.Sprintf("%d bytes, at most %d: put it into a script or an input file", len(text), maxArgument-(len(arg)-len(text)))}
		}
	}
	inv, err := s.inSkill(sk, program, codeName)
	if err != nil {
		return Invocation{}, err
	}
	inv.Args = append(inv.Args, args...)
	return inv, nil
}

// codeArgs passes code in a form in which the interpreter can mistake neither the
// code's leading "-" nor a later argument for an option.
func codeArgs(program, text string) []string {
	switch program {
	case "bash", "sh":
		return []string{"-c", "--", text, program} // $0
	case "node":
		return []string{"--eval=" + text, "--"}
	case "ruby", "perl":
		return []string{"-e", text, "--"}
	}
	return []string{"-c", text}
}
