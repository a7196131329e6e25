package lint

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A markdown is the text of a SKILL.md, line by line. It knows as much of Markdown as the
// rules need: fences, pieces of code in a line, and links (references.go). A whole parser
// would find more, such as links by reference. But a SKILL.md is a stranger's text, and
// goldmark's time grows with the square of some texts: it took more than 8 s for 1 MiB of
// "[a](", of ">" or of "*a_ ". These expressions took 14 ms.
type markdown struct {
	file  string
	lines []string
	body  int // index of the first line after the front matter
	// blocks are the fenced code blocks, spans the pieces of code in lines.
	blocks []block
	spans  []span
}

// A block is a fenced code block.
type block struct {
	language string
	first    int // number of its first line
	lines    []string
}

// A span is `code` in a line.
type span struct {
	line int
	text string
}

var (
	// CommonMark 4.5: three or more backticks or tildes, then the info string. The > allows
	// one level of block quote.
	fence      = lazyregexp.New("^\\s*(?:>\\s*)?(```+|~~~+)\\s*([A-Za-z0-9_+-]*)")
	inlineCode = lazyregexp.New("`+([^`]+)`+")
)

// shells are the languages of blocks that hold command lines.
var shells = map[string]bool{"bash": true, "sh": true, "shell": true, "zsh": true, "console": true, "shell-session": true, "shellsession": true}

// readManifest reads SKILL.md, or skill.md, which package skill accepts, too.
func (c *check) readManifest() error {
	file := "SKILL.md"
	if _, err := c.skill.Lookup(file); err != nil {
		file = "skill.md"
	}
	text, err := c.read(file, maxText)
	if err != nil {
		return err
	}
	c.manifest = parseMarkdown(text)
	c.manifest.file = file
	return nil
}

// parseMarkdown parses the text of a SKILL.md. CRLF becomes LF, so that rules need not know it; line numbers stay.
func parseMarkdown(text string) markdown {
	m := markdown{lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")}
	m.body = frontMatterEnd(m.lines)
	m.readBody()
	return m
}

// frontMatterEnd is the index of the line after the second "---", or 0.
// It doesn't parse YAML. Validation has done that, so two lines of dashes are there in a
// valid skill.
func frontMatterEnd(lines []string) int {
	marks := 0
	for i, line := range lines {
		if strings.TrimRight(line, " \t") == "---" {
			if marks++; marks == 2 {
				return i + 1
			}
		}
	}
	return 0
}

// readBody finds the fenced code blocks and, outside of them, the inline code. A number of a line
// counts from 1 and from the beginning of the file.
func (m *markdown) readBody() {
	var open *block
	var mark string
	for i, line := range m.lines[m.body:] {
		number := m.body + i + 1
		at := fence.FindStringSubmatch(line)
		switch {
		case open == nil && at != nil:
			mark, open = at[1], &block{language: strings.ToLower(at[2]), first: number + 1}
		case open == nil:
			for _, s := range inlineCode.FindAllStringSubmatch(line, -1) {
				m.spans = append(m.spans, span{number, s[1]})
			}
		// A closing fence is at least as long as the opening one, of the same character, and
		// has no info string (CommonMark 4.5).
		case at != nil && at[2] == "" && strings.HasPrefix(at[1], mark):
			m.blocks, open = append(m.blocks, *open), nil
		default:
			open.lines = append(open.lines, line)
		}
	}
	// A block that isn't closed ends with the document (CommonMark 4.5).
	if open != nil {
		m.blocks = append(m.blocks, *open)
	}
}

// A CommandLine is a command line in a block of shell in a SKILL.md.
type CommandLine struct {
	Line int // counts from 1
	Text string
}

// CommandLines returns the command lines that a SKILL.md tells agents to run: those in its blocks of
// shell, without lines in which the reader must replace a part.
func CommandLines(text string) []CommandLine {
	var list []CommandLine
	for _, b := range parseMarkdown(text).blocks {
		if shells[b.language] {
			list = append(list, b.commands()...)
		}
	}
	return list
}

// placeholder matches a part of a manual's command that the reader must replace.
var placeholder = lazyregexp.New(`<[A-Za-z][^<>|&;]*>|\.\.\.|…|\[[A-Za-z-][^\]]*\]|\{[A-Za-z_ -]+\}|\byour[-_]|/path/to/`)

// construct matches the beginning of a construct of several lines.
var construct = lazyregexp.New(`^\s*(?:for|while|until|if|case|function|select)\b|\(\)\s*\{|<<`)

// commands returns the command lines of a block of shell. A line that ends in a backslash
// continues in the next line. Lines with placeholders are left out. A construct or an open
// quote makes the rest of the block one command, except in a session, where the rest can be output.
func (b block) commands() []CommandLine {
	var list []CommandLine
	// In a session only lines with a prompt are commands, if there is any prompt.
	session := (b.language == "console" || strings.HasPrefix(b.language, "shell")) && hasPrompt(b.lines)
	for i := 0; i < len(b.lines); i++ {
		first, text := i, b.lines[i]
		prompt := strings.HasPrefix(strings.TrimSpace(text), "$ ")
		if session && !prompt {
			continue // what a command printed
		}
		if prompt {
			text = strings.TrimPrefix(strings.TrimSpace(text), "$ ")
		}
		if strings.HasSuffix(text, `\`) && i+1 < len(b.lines) {
			text, i = b.join(text, i)
		}
		if !session && (construct.MatchString(text) || openQuote(text)) {
			text = strings.Join(append([]string{text}, b.lines[i+1:]...), "\n")
			i = len(b.lines)
		}
		text = strings.TrimSpace(text)
		// These are replaced by the skill's directory before a command runs, so they are no
		// placeholders.
		bare := strings.NewReplacer("{baseDir}", "", "${CLAUDE_SKILL_DIR}", "", "${CLAUDE_PLUGIN_ROOT}", "").Replace(text)
		if text == "" || strings.HasPrefix(text, "#") || placeholder.MatchString(bare) {
			continue
		}
		list = append(list, CommandLine{b.first + first, text})
	}
	return list
}

// join appends the lines after line i to text, as long as a backslash ends it. It returns the text and the
// index of its last line.
func (b block) join(text string, i int) (string, int) {
	var joined strings.Builder
	for strings.HasSuffix(text, `\`) && i+1 < len(b.lines) {
		joined.WriteString(strings.TrimSuffix(text, `\`))
		i++
		text = strings.TrimLeft(b.lines[i], " \t")
	}
	joined.WriteString(text)
	return joined.String(), i
}

// hasPrompt reports whether a block shows a session, with commands after "$ " and their output.
func hasPrompt(lines []string) bool {
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "$ ") {
			return true
		}
	}
	return false
}

// openQuote reports whether a line ends inside quotes.
// POSIX shell, 2.2 Quoting: a backslash quotes the next character except in single quotes,
// and # begins a comment at the beginning of a word.
func openQuote(line string) bool {
	var in byte
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case ch == '\\' && in != '\'':
			i++
		case in != 0 && ch == in:
			in = 0
		case in != 0:
		case ch == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return false
		case ch == '"' || ch == '\'':
			in = ch
		}
	}
	return in != 0
}
