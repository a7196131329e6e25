package main

import (
	"strings"
	"unicode/utf8"
)

// bare are the characters that need no quotes in a command line.
const bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// isBare reports whether a shell takes a word as it is. Shells give no meaning to characters beyond ASCII.
func isBare(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return r < utf8.RuneSelf && !strings.ContainsRune(bare, r)
	})
}

// commandLine turns the words after "--" into the line that allowed-tools decides about. One
// word is the whole line, with its pipes and redirects. Of several words each is quoted, so
// that it stays one word.
func commandLine(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// quote writes a word so that sh, and the parser of internal/permission, read it as this one
// word.
func quote(word string) string {
	if word != "" && strings.Trim(word, bare) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}
