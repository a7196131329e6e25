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
func (r rule) launched(args []string) (as rule, words []string, ok, named bool) {
	l, ok, err := manifest.ParseLaunch(args)
	if !ok || err != nil || r.fixed < l.Rest {
		return r, args, ok, false
	}
	if len(l.Program) == 0 && r.fixed == l.Rest || l.Tool == "" && len(r.words) == l.Rest && r.kind == wildcardWords {
		return r, args, true, false
	}
	as = r
	as.words = slices.Concat(l.Program, r.words[l.Rest:])
	as.pattern = strings.Join(as.words, boundary)
	as.fixed = r.fixed - l.Rest + len(l.Program)
	return as, l.Args(args), true, true
}
