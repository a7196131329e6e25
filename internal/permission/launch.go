package permission

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// launched returns the command that a command of uv, pipx or npx starts, and the rule in the form for
// that command: for "uv run scripts/x.py" and Bash(uv run scripts/*) it returns "python scripts/x.py" and
// Bash(python scripts/*). ok is false for other commands. named is false if the rule doesn't name both
// the words that uv or npx reads itself and the program or script that it starts; as and words are then
// the unchanged rule and command.
//
// The rule may name nice or timeout with options in front of them.
func (r rule) launched(args []string) (as rule, words []string, ok, named bool) {
	at := manifest.AfterWrappers(args)
	l, ok, err := manifest.ParseLaunch(args[at:])
	rest := at + l.Rest
	if !ok || err != nil || r.fixed < rest {
		return r, args, ok, false
	}
	if len(l.Program) == 0 && r.fixed == rest || l.Tool == "" && len(r.words) == rest && r.kind == wildcardWords {
		return r, args, true, false
	}
	as = r
	as.words = slices.Concat(l.Program, r.words[rest:])
	as.pattern = strings.Join(as.words, boundary)
	as.fixed = r.fixed - rest + len(l.Program)
	return as, l.Args(args[at:]), true, true
}

// namesLaunched reports whether a rule for uv, pipx or npx names the program that they start, perhaps by a part of a
// word as in Bash(uv run scripts/*).
func (r rule) namesLaunched() bool {
	// The text that replaces the wildcard decides whether uv takes the word for a script or for a program.
	return slices.ContainsFunc([]string{"x", "x.py"}, func(word string) bool {
		_, _, _, named := r.launched(strings.Split(strings.ReplaceAll(r.pattern, wildcard, word), boundary))
		return named
	})
}
