package permission

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// launched returns what a command of uv, pipx or npx really runs, and the rule as it would be written
// for that: for "uv run scripts/x.py" and Bash(uv run scripts/*), "python scripts/x.py" and
// Bash(python scripts/*). ok is false for other commands. named is false if the rule doesn't name
// the words that uv or npx reads itself, and the program or script that it starts; as and words then are
// the rule and the command themselves.
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
