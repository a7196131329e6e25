package manifest

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// source is a SKILL.md that is split at its delimiters. Line ends are LF. The lines of both parts
// count from 1 in the file, for findings.
type source struct {
	yaml     string
	yamlLine int // number of the first line of yaml, from 1
	body     string
	bodyLine int
}

const delimiter = "---"

// splitFrontMatter finds the front matter: the lines between a first line "---" and the
// next line "---". Indented dashes, as in a block scalar, and dashes within a line do not
// end it. A byte order mark, CRLF line ends and blank lines before the first delimiter are
// tolerated and reported. It returns false if loading cannot go on.
func splitFrontMatter(data []byte, f *Findings) (source, bool) {
	if len(data) > MaxBytes {
		f.Stop(0, RuleManifestSize, "is %d bytes long, the maximum is %d", len(data), MaxBytes)
		return source{}, false
	}
	// From here on the file is repaired rather than refused: editors on Windows write byte order
	// marks and CRLF, and the text is still clear. Each repair is reported, since other hosts may
	// be stricter.
	if rest, ok := bytes.CutPrefix(data, []byte("\ufeff")); ok {
		f.Warn(1, RuleByteOrderMark, "starts with a byte order mark")
		data = rest
	}
	text := string(data)
	if !utf8.ValidString(text) {
		f.Error(invalidLine(text), RuleEncoding, "is not valid UTF-8")
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	if i := strings.Index(text, "\r\n"); i >= 0 {
		f.Warn(1+strings.Count(text[:i], "\n"), RuleLineEnds, "has CRLF line ends")
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}

	// SplitAfter never returns an empty list, so lines[open] exists.
	lines := strings.SplitAfter(text, "\n")
	open := 0
	for open < len(lines)-1 && strings.TrimSpace(lines[open]) == "" {
		open++
	}
	if !isDelimiter(lines[open]) {
		f.Stop(1, RuleFrontMatter, "SKILL.md must start with YAML frontmatter (---)")
		return source{}, false
	}
	if open > 0 {
		f.Warn(1, RuleFrontMatter, "has blank lines before the frontmatter")
	}
	end := open + 1
	for end < len(lines) && !isDelimiter(lines[end]) {
		end++
	}
	if end == len(lines) {
		f.Stop(open+1, RuleFrontMatterOpen, "SKILL.md frontmatter not properly closed with ---")
		return source{}, false
	}

	src := source{yaml: strings.Join(lines[open+1:end], ""), yamlLine: open + 2}
	// This bound comes before any parser sees the text.
	if len(src.yaml) > MaxFrontMatterBytes {
		f.Stop(src.yamlLine, RuleFrontMatterSize, "frontmatter is %d bytes long, the maximum is %d", len(src.yaml), MaxFrontMatterBytes)
		return source{}, false
	}
	body := end + 1
	for body < len(lines) && strings.TrimSpace(lines[body]) == "" {
		body++
	}
	src.body = strings.TrimRight(strings.Join(lines[body:], ""), "\n")
	src.bodyLine = body + 1
	return src, true
}

// isDelimiter reports whether a line is three dashes, with nothing after them but blanks. A
// leading blank is not allowed.
func isDelimiter(line string) bool {
	return strings.TrimRight(line, " \t\n") == delimiter
}

// invalidLine returns the line of the first byte that is not valid UTF-8.
func invalidLine(text string) int {
	line := 1
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		i += n
	}
	return line
}
