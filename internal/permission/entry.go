package permission

import "slices"

// An Entry is one rule of an allowed-tools field, for programs that check the field itself.
type Entry struct {
	Text string // as written
	// Problem says why the rule matches nothing, or less than it seems to. Empty if the
	// rule is fine.
	Problem string
	// Program is the program that the rule allows, with {baseDir} replaced. Empty if the
	// rule allows all programs or a pattern of them, is not a Bash rule, or is for uv, pipx or npx, which
	// do not run.
	Program string
	// Code is the script that the rule allows, with {baseDir} replaced, if the rule names
	// one letter by letter.
	Code string
	// Shadow is the text of another rule that allows everything that this one does. Of
	// equal rules, the later ones are shadowed. Empty if no rule does.
	Shadow string
}

// Entries returns the rules in their order.
func (r Rules) Entries() []Entry {
	list := make([]Entry, len(r.list))
	for i, one := range r.list {
		list[i] = Entry{Text: one.text, Problem: one.problem}
		if one.problem != "" {
			continue
		}
		if one.fixed > 0 {
			named := r.named(one.words[:one.fixed])
			if !one.namesLaunched() {
				list[i].Program = named[0]
			}
			if code, ok := one.codeOf(named); ok && !code.module && code.name != list[i].Program {
				list[i].Code = code.name
			}
		}
		for j, other := range r.list {
			// Of two equal rules, the later one is superfluous.
			if j != i && other.allowsAll(one) && (j < i || !one.allowsAll(other)) {
				list[i].Shadow = other.text
				break
			}
		}
	}
	return list
}

// allowsAll reports whether r covers every command that other covers. If it is not certain,
// the answer is no. A wrong yes would let validation call a needed rule superfluous; a wrong no
// only hides a remark.
func (r rule) allowsAll(other rule) bool {
	if r.problem != "" || other.problem != "" {
		return false
	}
	if r.kind == otherTool || other.kind == otherTool {
		return r.kind == other.kind && r.text == other.text
	}
	if r.kind == wholeTool || r.kind == other.kind && r.pattern == other.pattern && r.prefix == other.prefix {
		return true
	}
	if r.kind != wildcardWords || other.kind == wholeTool || other.fixed == 0 {
		return false
	}
	// The other rule's wildcard is an ordinary character here, so only a wildcard of r
	// matches it.
	if !r.takes(other.words) || other.prefix && !r.takes(append(slices.Clone(other.words), wildcard)) || r.leaves(other.words) != "" {
		return false
	}
	if other.kind == exactWords {
		return r.exception(other.words) == ""
	}
	// Words that a rule has letter by letter may be a form that no wildcard covers.
	return other.fixed == r.fixed || !guarded(other.words[0]) && !isRunner(other.words[0])
}
