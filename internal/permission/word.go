package permission

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Inside a pattern two control characters stand for what text can't hold, since
// checkText refuses them: the boundary between two words, and the wildcard.
const (
	boundary = "\x00"
	wildcard = "\x01"
)

// The ways to write the skill's folder in rules and commands.
const (
	baseDirVar   = "{baseDir}"
	skillDirVar  = "${CLAUDE_SKILL_DIR}"
	pluginDirVar = "${CLAUDE_PLUGIN_ROOT}"
)

// A reader turns the words of one parsed text into literal strings.
type reader struct {
	// source is the text: an expansion is known by how it is written there.
	source string
	// baseDir is put in for the names of the skill's folder, after parsing, so
	// that no character of it means anything. Empty: they stand for themselves.
	baseDir string
	// pattern: an unquoted * becomes the wildcard and the other characters of
	// shell patterns are themselves, as in a rule.
	pattern bool
}

// word returns w after quote removal. What a shell would expand is refused.
func (r reader) word(w *syntax.Word) (string, error) {
	var text, shape strings.Builder
	for _, part := range w.Parts {
		var err error
		switch part := part.(type) {
		case *syntax.Lit:
			r.unquoted(part.Value, &text, &shape)
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", errors.New("$'...' quoting is not supported: write the characters themselves in '...'")
			}
			text.WriteString(part.Value)
			shape.WriteByte(quoted)
		case *syntax.DblQuoted:
			if part.Dollar {
				return "", errors.New(`$"..." quoting is not supported: use "..."`)
			}
			err = r.quotedParts(part.Parts, "$`\"\\", &text)
			shape.WriteByte(quoted)
		default:
			err = r.folder(part, &text)
			shape.WriteByte(quoted)
		}
		if err != nil {
			return "", err
		}
	}
	if err := checkShape(shape.String(), r.pattern); err != nil {
		return "", err
	}
	return r.expand(text.String()), nil
}

// quotedParts writes what stands in double quotes or in a here-document, where a
// backslash only escapes the characters in escapes.
func (r reader) quotedParts(parts []syntax.WordPart, escapes string, text *strings.Builder) error {
	for _, part := range parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			if err := r.folder(part, text); err != nil {
				return err
			}
			continue
		}
		for i := 0; i < len(lit.Value); i++ {
			if lit.Value[i] == '\\' && i+1 < len(lit.Value) && strings.IndexByte(escapes, lit.Value[i+1]) >= 0 {
				i++
			}
			text.WriteByte(lit.Value[i])
		}
	}
	return nil
}

// quoted stands in a word's shape for characters that have no meaning of their own.
const quoted = 'q'

// unquoted writes the text of an unquoted part, and its shape: each byte that
// isn't escaped, and quoted for one that is.
func (r reader) unquoted(s string, text, shape *strings.Builder) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			text.WriteByte(s[i])
			shape.WriteByte(quoted)
		case s[i] == '*' && r.pattern:
			text.WriteString(wildcard)
			shape.WriteByte('*')
		default:
			text.WriteByte(s[i])
			shape.WriteByte(s[i])
		}
	}
}

// folder accepts one expansion, the skill's folder, and refuses every other.
func (r reader) folder(part syntax.WordPart, text *strings.Builder) error {
	written := r.source[part.Pos().Offset():part.End().Offset()]
	if written == skillDirVar || written == pluginDirVar {
		text.WriteString(written)
		return nil
	}
	return fmt.Errorf("%s %s is not expanded: write the value itself, or quote it with '...'", expansion(part), excerpt(written))
}

func expansion(part syntax.WordPart) string {
	switch part.(type) {
	case *syntax.ParamExp:
		return "the variable"
	case *syntax.CmdSubst:
		return "the command substitution"
	case *syntax.ProcSubst:
		return "the process substitution"
	case *syntax.ArithmExp:
		return "the arithmetic expansion"
	case *syntax.ExtGlob:
		return "the pattern"
	}
	return "the expansion"
}

// expand puts in the skill's folder.
func (r reader) expand(s string) string {
	if r.baseDir == "" {
		return s
	}
	return strings.NewReplacer(baseDirVar, r.baseDir, skillDirVar, r.baseDir, pluginDirVar, r.baseDir).Replace(s)
}

// checkShape refuses a word that a shell would make other words of.
func checkShape(shape string, pattern bool) error {
	if shape != "" && shape[0] == '~' || strings.Contains(shape, "=~") || strings.Contains(shape, ":~") {
		return errors.New("~ is not expanded: write the path itself, or quote it")
	}
	if pattern {
		return nil
	}
	if i := strings.IndexByte(shape, '['); strings.ContainsAny(shape, "*?") || i >= 0 && strings.Contains(shape[i:], "]") {
		return errors.New("no shell expands * ? or [...] here: name the files, or quote the word to pass it on as it is")
	}
	for i := range len(shape) {
		if shape[i] == '{' && hasBraceExpansion(shape[i+1:]) {
			return errors.New("no shell expands {a,b} or {1..9} here: write the words out, or quote them")
		}
	}
	return nil
}

// hasBraceExpansion reports whether what follows a { could make several words
// of it. Bash pairs braces by rules that nobody knows by heart, so this errs
// towards yes; HEAD@{1}..HEAD@{2} is a no.
func hasBraceExpansion(rest string) bool {
	if comma := strings.IndexByte(rest, ','); comma >= 0 && strings.IndexByte(rest[comma:], '}') >= 0 {
		return true
	}
	inside, _, closed := strings.Cut(rest, "}")
	return closed && strings.Contains(inside, "..")
}
