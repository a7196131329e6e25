package snapshot

import (
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// comments is a language's comment syntax: line comments and block comments.
type comments struct {
	line   []string
	blocks [][2]string
}

// commentsOf has the comment syntax of each language. "" stands for an unknown language.
var commentsOf = map[string]comments{
	"python":     {[]string{"#"}, [][2]string{{`"""`, `"""`}, {`'''`, `'''`}}},
	"node":       {[]string{"//"}, [][2]string{{"/*", "*/"}}},
	"ruby":       {[]string{"#"}, [][2]string{{"=begin", "=end"}}},
	"perl":       {[]string{"#"}, [][2]string{{"=pod", "=cut"}, {"=head1", "=cut"}}},
	"batch":      {[]string{"rem ", "@rem ", "::"}, nil},
	"powershell": {[]string{"#"}, [][2]string{{"<#", "#>"}}},
	"":           {[]string{"#"}, nil},
	"bash":       {[]string{"#"}, nil},
	"sh":         {[]string{"#"}, nil},
}

// encodingLine matches an encoding declaration in the first two lines, see PEP 263.
var encodingLine = lazyregexp.New(`^#.*coding[:=]`)

// describe returns the first comment block or docstring in the first 50 lines of a
// script, without comment marks, at most 500 characters. Models read the text to choose a script.
// It is untrusted, as everything that a skill says.
// It knows comments, not languages: text in a string that looks like a comment is taken for one.
func describe(language string, head []byte) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(string(head), "\r\n", "\n"), "\ufffd")
	text = strings.TrimPrefix(text, "\ufeff")
	lines := strings.Split(text, "\n")
	lines = lines[:min(len(lines), maxDescriptionLines)]
	syntax := commentsOf[language]
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if i == 0 && strings.HasPrefix(line, "#!") || i < 2 && encodingLine.MatchString(line) {
			continue
		}
		if block, ok := syntax.block(line, lines[i+1:]); ok {
			if d := shorten(block); d != "" {
				return d
			}
			continue
		}
		if _, ok := syntax.lineComment(line); ok {
			if d := shorten(syntax.run(lines[i:])); d != "" {
				return d
			}
		}
	}
	return ""
}

// lineComment returns the text of a line that has only a comment. Marks are compared without
// regard to case: REM and rem are the same in a batch file.
func (c comments) lineComment(line string) (string, bool) {
	for _, mark := range c.line {
		if len(line) < len(mark) || !strings.EqualFold(line[:len(mark)], mark) {
			continue
		}
		text := line[len(mark):]
		if !strings.HasSuffix(mark, " ") { // a sign such as # may be repeated, a word such as rem may not
			text = strings.TrimLeft(text, mark)
		}
		return strings.TrimSpace(text), true
	}
	return "", false
}

// run returns the text of the comment lines at the start of lines.
func (c comments) run(lines []string) []string {
	var text []string
	for _, line := range lines {
		t, ok := c.lineComment(strings.TrimSpace(line))
		if !ok {
			break
		}
		text = append(text, t)
	}
	return text
}

// block returns the text of a block comment that begins in line and goes on in rest. A
// block that is not closed goes on to the last line of rest.
func (c comments) block(line string, rest []string) ([]string, bool) {
	for _, mark := range c.blocks {
		inner, ok := strings.CutPrefix(line, mark[0])
		if !ok {
			continue
		}
		var text []string
		for {
			before, _, closed := strings.Cut(inner, mark[1])
			before = strings.TrimSpace(before)
			if mark[0] == "/*" {
				before = strings.TrimSpace(strings.TrimLeft(before, "*"))
			}
			text = append(text, before)
			if closed {
				return text, true
			}
			if len(rest) == 0 {
				return text, true
			}
			inner, rest = rest[0], rest[1:]
		}
	}
	return nil, false
}

// shorten joins lines and cuts the text at a word. It drops control characters, since
// descriptions are printed on terminals.
func shorten(lines []string) string {
	text := strings.Map(func(r rune) rune {
		if IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.Join(lines, "\n"))
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) <= maxScriptDescription {
		return text
	}
	text = string([]rune(text)[:maxScriptDescription])
	if i := strings.LastIndexAny(text, " \n"); i > 0 {
		text = text[:i]
	}
	return strings.TrimSpace(text)
}
