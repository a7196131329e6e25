package permission

import (
	"slices"
	"strings"
)

// matches compares the words of a command with the rule's words. The words from position
// first on may be patterns of file names. Patterns are compared as written, but only
// literal words match the words before a rule's wildcard.
func (r rule) matches(args []string, first int) bool {
	switch r.kind {
	case wholeTool:
		return true
	case exactWords:
		return strings.Join(args, boundary) == r.pattern
	case wildcardWords:
		return first >= r.fixed && r.takes(args)
	}
	return false
}

// takes reports whether args match the words of the rule. A wildcard in the first word does
// not match a directory.
func (r rule) takes(args []string) bool {
	text := strings.Join(args, boundary)
	if !matchWildcard(r.pattern, text) && !(r.prefix && matchWildcard(r.pattern+boundary+wildcard, text)) {
		return false
	}
	before, _, wild := strings.Cut(r.words[0], wildcard)
	return !wild || !strings.Contains(args[0][len(before):], "/") || matchName(r.words[0], args[0])
}

// matchName is matchWildcard for a program's name, in which a wildcard does not match "/".
func matchName(pattern, name string) bool {
	return slices.EqualFunc(strings.Split(pattern, "/"), strings.Split(name, "/"), matchWildcard)
}

// leaves returns the word of args in which a wildcard would match a "..", or "". Such a
// word could name a file outside the folder that the rule names. A word that is only a
// wildcard names no folder and is skipped.
func (r rule) leaves(args []string) string {
	for _, word := range r.words[r.fixed:] {
		before, after, _ := strings.Cut(word, wildcard)
		after = after[strings.LastIndex(after, wildcard)+1:]
		if before == "" && after == "" {
			continue
		}
		for _, arg := range args[min(r.fixed, len(args)):] {
			begins := before != "" && strings.HasPrefix(arg, before)
			ends := after != "" && strings.HasSuffix(arg, after)
			if !begins && !ends {
				continue
			}
			matched := arg
			if begins {
				matched = arg[strings.LastIndex(before, "/")+1:]
			}
			if slices.Contains(strings.Split(matched, "/"), "..") {
				return arg
			}
		}
	}
	return ""
}

// matchWildcard reports whether text equals pattern with some text in place of each
// wildcard. It takes each piece between two wildcards at its first occurrence. That finds
// every match, and bounds the time by the product of the lengths.
func matchWildcard(pattern, text string) bool {
	pieces := strings.Split(pattern, wildcard)
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(pieces) == 1 {
		return pattern == text
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = after
	}
	return true
}
