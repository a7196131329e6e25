package permission

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Patterns of rules use two control characters that checkText refuses in text: one between
// words and one for the wildcard.
const (
	boundary = "\x00"
	wildcard = "\x01"
)

// Ways to write the skill's folder in rules and commands.
const (
	baseDirVar   = "{baseDir}"
	skillDirVar  = "${CLAUDE_SKILL_DIR}"
	pluginDirVar = "${CLAUDE_PLUGIN_ROOT}"
)

// A reader converts the words of a parsed text into literal strings.
type reader struct {
	// source is the text. Expansions are recognized by their spelling there.
	source string
	// baseDir replaces the names of the skill's folder. That happens after parsing, so that
	// no character of baseDir is special. Empty: the names are kept.
	baseDir string
	// pattern is set for rules: an unquoted * becomes the wildcard, and other characters of
	// shell patterns are literal.
	pattern bool
}

// word returns w after quote removal. It refuses words that a shell would expand.
func (r reader) word(w *syntax.Word) (string, error) {
	text, pattern, err := r.argument(w)
	if err == nil && pattern != "" {
		return "", errors.New("* ? and [...] are expanded in arguments only: name the file, or quote the word to pass it unchanged")
	}
	return text, err
}

// argument is word for arguments, which may be patterns of file names. pattern is "" if w
// is not one.
func (r reader) argument(w *syntax.Word) (text, pattern string, err error) {
	var b wordBuilder
	for _, part := range w.Parts {
		if err := r.part(part, &b); err != nil {
			return "", "", err
		}
	}
	shape := b.shape.String()
	if err := checkShape(shape, r.pattern); err != nil {
		return "", "", err
	}
	if !r.pattern && isGlob(shape) {
		pattern = expand(b.pattern.String(), escape(r.baseDir))
	}
	return expand(b.text.String(), r.baseDir), pattern, nil
}

// A wordBuilder holds three forms of a word: text after quote removal, shape with only the
// unquoted characters, and the word as a pattern of file names.
type wordBuilder struct {
	text, shape, pattern strings.Builder
}

// literal adds quoted text.
func (b *wordBuilder) literal(s string) {
	b.text.WriteString(s)
	b.shape.WriteByte(quoted)
	b.pattern.WriteString(escape(s))
}

// escape adds a backslash before characters that are special in a pattern of file names.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\!^-`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// part adds one part of a word. Quoting with $'...' and $"..." is refused.
func (r reader) part(part syntax.WordPart, b *wordBuilder) error {
	var text strings.Builder
	var err error
	switch part := part.(type) {
	case *syntax.Lit:
		r.unquoted(part.Value, b)
		return nil
	case *syntax.SglQuoted:
		if part.Dollar {
			return errors.New("$'...' quoting is not supported: write the characters themselves in '...'")
		}
		text.WriteString(part.Value)
	case *syntax.DblQuoted:
		if part.Dollar {
			return errors.New(`$"..." quoting is not supported: use "..."`)
		}
		err = r.quotedParts(part.Parts, "$`\"\\", &text)
	default:
		err = r.folder(part, &text)
	}
	b.literal(text.String())
	return err
}

// quotedParts writes the text of double quotes or of a here-document. A backslash escapes
// only the characters in escapes.
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

// quoted replaces a quoted character in a word's shape.
const quoted = 'q'

// unquoted adds an unquoted part. A backslash quotes the next byte.
func (r reader) unquoted(s string, b *wordBuilder) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.literal(s[i : i+1])
		case s[i] == '\\':
			b.literal(s[i:])
		case s[i] == '*' && r.pattern:
			b.text.WriteString(wildcard)
			b.shape.WriteByte('*')
		default:
			b.text.WriteByte(s[i])
			b.shape.WriteByte(s[i])
			b.pattern.WriteByte(s[i])
		}
	}
}

// folder writes the skill's folder, which is the only expansion that is allowed.
func (r reader) folder(part syntax.WordPart, text *strings.Builder) error {
	written := r.source[part.Pos().Offset():part.End().Offset()]
	if written == skillDirVar || written == pluginDirVar {
		text.WriteString(written)
		return nil
	}
	return needsCode{fmt.Errorf("%s %s is not expanded: write the value itself, or quote it with '...'", expansion(part), excerpt(written))}
}

// expansion names a kind of expansion in a refusal.
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

// expand replaces the names of the skill's folder, unless baseDir is empty.
func expand(s, baseDir string) string {
	if baseDir == "" || !strings.Contains(s, "{") { // each of the names has a {
		return s
	}
	return strings.NewReplacer(baseDirVar, baseDir, skillDirVar, baseDir, pluginDirVar, baseDir).Replace(s)
}

// isGlob reports whether a shell would expand the word to file names.
func isGlob(shape string) bool {
	i := strings.IndexByte(shape, '[')
	return strings.ContainsAny(shape, "*?") || i >= 0 && strings.Contains(shape[i:], "]")
}

// checkShape refuses a word that a shell would turn into other words.
func checkShape(shape string, pattern bool) error {
	if shape != "" && shape[0] == '~' || strings.Contains(shape, "=~") || strings.Contains(shape, ":~") {
		return errors.New("~ is not expanded: write the path itself, or quote it")
	}
	if pattern {
		return nil
	}
	for i := range len(shape) {
		if shape[i] == '{' && hasBraceExpansion(shape[i+1:]) {
			return needsCode{errors.New("no shell expands {a,b} or {1..9} here: write the words out, or quote them")}
		}
	}
	return nil
}

// hasBraceExpansion reports whether the text after a { could expand to several words. It is
// simpler than bash's rules and errs on the side of yes. HEAD@{1}..HEAD@{2} is a no.
func hasBraceExpansion(rest string) bool {
	if comma := strings.IndexByte(rest, ','); comma >= 0 && strings.IndexByte(rest[comma:], '}') >= 0 {
		return true
	}
	inside, _, closed := strings.Cut(rest, "}")
	return closed && strings.Contains(inside, "..")
}
