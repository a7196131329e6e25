package main

import "github.com/skillrun/skillrun/internal/permission"

// decideHere decides by the package that the daemon uses, too, so both give the same answer. It
// knows no policy: with shell: true, a daemon allows every line to a skill with an unscoped Bash rule.
func decideHere(rules, baseDir, line string) (decision, error) {
	d := permission.ParseRules([]string{rules}, baseDir).Decide(line)
	return decision{d.Allowed, d.Reason, d.Rule, d.Missing, string(d.Instead)}, nil
}
