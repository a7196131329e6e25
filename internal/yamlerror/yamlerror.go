// Package yamlerror finds the lines of the errors of yaml.v3.
//
// yaml.v3 counts the lines of some errors from 0, and has no line for others.
package yamlerror

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

var (
	// The parser of yaml.v3 counts the lines of these errors from 0. Its scanner counts from 1.
	countsFromZero = lazyregexp.New(`^did not find expected (<|node content|key$|'-' indicator|',' or )`)
	// The errors of yaml.v3's reader, which is the first to see a byte. They have no line.
	encoding      = lazyregexp.New(`UTF-8|Unicode character`)
	unknownAnchor = lazyregexp.New(`^unknown anchor '(.*)' referenced`)
)

// Split returns the line and the text of an error of yaml.v3. lines is the file, line by line. The line is 0 if the error
// has none.
func Split(err error, lines []string) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	switch {
	case strings.Contains(text, "found a tab") || strings.Contains(text, "cannot start any token"):
		// yaml.v3 may name the line where the value before the tab begins.
		for i := max(line, 1); i <= len(lines); i++ {
			if TabIndent(lines[i-1]) {
				return i, text
			}
		}
	case countsFromZero.MatchString(text):
		line = min(line+1, len(lines))
	case line > 0:
	case text == "control characters are not allowed":
		line = first(lines, func(s string) bool { return strings.ContainsFunc(s, control) })
	case Encoding(text):
		line = first(lines, func(s string) bool { return !utf8.ValidString(s) })
	default:
		if m := unknownAnchor.FindStringSubmatch(text); m != nil {
			alias := regexp.MustCompile(`(^|[\s\[{,:-])\*` + regexp.QuoteMeta(m[1]) + `([\s\]},:]|$)`)
			line = first(lines, alias.MatchString)
		}
	}
	return line, text
}

// TabIndent reports whether a line has a tab in its indentation, where YAML has only spaces.
func TabIndent(line string) bool {
	return strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t-"))], "\t")
}

// Encoding reports whether the text of an error says that the file is not in UTF-8.
func Encoding(text string) bool { return encoding.MatchString(text) }

// control reports whether YAML allows no such character.
func control(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85
}

// first returns the number of the first line that matches, or 0.
func first(lines []string, matches func(string) bool) int {
	for i, line := range lines {
		if matches(line) {
			return i + 1
		}
	}
	return 0
}
