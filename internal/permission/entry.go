package permission

import (
	"slices"
	"strings"
)

// An Entry is one rule of an allowed-tools field, for those who check the field
// itself.
type Entry struct {
	Text string // as written
	// Problem says why it matches nothing, or less than it seems to. Empty: nothing
	// is wrong with it.
	Problem string
	// Program is the command that it allows, with {baseDir} put in; empty if it is
	// every command, a pattern, or the rule is none of Bash.
	Program string
	// Code is the script that it allows, if its words name one letter by letter, with
	// {baseDir} put in.
	Code string
	// Shadow is the text of another rule that allows all that this one does, and
	// comes first if they are the same. Empty: there is none.
	Shadow string
}

// Entries lists the rules in their order.
func (r Rules) Entries() []Entry {
	list := make([]Entry, len(r.list))
	for i, one := range r.list {
		list[i] = Entry{Text: one.text, Problem: one.problem}
		if one.problem != "" {
			continue
		}
		if one.fixed > 0 {
			list[i].Program, _, _ = strings.Cut(one.pattern, boundary)
			if code, ok := one.codeOf(one.words[:one.fixed]); ok && !code.module && code.name != list[i].Program {
				list[i].Code = code.name
			}
		}
		for j, other := range r.list {
			// Of two that are the same, the second one is too many.
			if j != i && other.allowsAll(one) && (j < i || !one.allowsAll(other)) {
				list[i].Shadow = other.text
				break
			}
		}
	}
	return list
}

// allowsAll reports whether every command that other covers is one that r covers.
// It may say no where it is so, and never yes where it isn't.
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
	// The other's wildcard counts as a letter here: only a wildcard of r takes it.
	if !r.takes(other.words) || other.prefix && !r.takes(append(slices.Clone(other.words), wildcard)) || r.leaves(other.words) != "" {
		return false
	}
	if other.kind == exactWords {
		return r.exception(other.words) == ""
	}
	// What stands in a rule letter by letter may be a form that no wildcard covers.
	return other.fixed == r.fixed || !guarded(other.words[0]) && !isRunner(other.words[0])
}
