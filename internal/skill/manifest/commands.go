package manifest

import (
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Bounds of the command lines of SKILL.md. The rest is left out.
const (
	maxTools       = 32   // of each language
	maxCommandLine = 4096 // bytes
)

// commandLines finds the programs that command lines of SKILL.md run with uv, pipx and npx: the tools, and the
// packages that a script needs besides the packages that it declares. Lines of code blocks count, and
// code within a line. A line that can't be read is no finding: text of a document isn't a program.
// It knows just enough of Markdown (CommonMark, sections 4.5 and 6.1): a fence of backquotes or
// tildes opens a block until the same fence comes again, and single backquotes enclose code within
// a line. A line of a block that ends in a backslash goes on in the next one, as in a shell. A
// mistake of this reading costs a package that is prepared in vain, or one that a user adds to a
// requirements file; it allows nothing, because permission checks each command line again when it
// runs.
func (n *needsReader) commandLines(d *Document) {
	n.File = d.File
	fence := ""
	var joined []byte // at most maxCommandLine bytes and one line: a longer command line is left out
	for i, line := range strings.Split(d.Body, "\n") {
		trimmed := strings.TrimSpace(line)
		if mark := fenceOf(trimmed); mark != "" && (fence == "" || mark == fence) {
			if fence != "" {
				mark = ""
			}
			fence, joined = mark, joined[:0]
			continue
		}
		if fence == "" {
			// Between backquotes are the parts with odd positions.
			for j, code := range strings.Split(line, "`") {
				if j%2 == 1 {
					n.commandLine(d.BodyLine+i, code)
				}
			}
			continue
		}
		// A finding names the line on which the whole command ends.
		if before, more := strings.CutSuffix(trimmed, `\`); more {
			if len(joined) <= maxCommandLine {
				joined = append(append(joined, before...), ' ')
			}
			continue
		}
		n.commandLine(d.BodyLine+i, string(joined)+trimmed)
		joined = joined[:0]
	}
}

// fenceOf returns the mark of a line that begins or ends a code block, or "".
func fenceOf(line string) string {
	for _, mark := range []string{"```", "~~~"} {
		if strings.HasPrefix(line, mark) {
			return mark
		}
	}
	return ""
}

// capitals are the letters of a placeholder such as PACKAGE or TOOL_NAME. Names of packages have small
// letters by convention, and "uvx PACKAGE" must not install the package that has this name.
const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-"

// commandLine adds what one line runs.
// The cheap search for a launcher's name comes first: most lines of a document are prose.
func (n *needsReader) commandLine(line int, text string) {
	if len(text) > maxCommandLine || !slices.ContainsFunc(launcherParts, func(part string) bool { return strings.Contains(text, part) }) {
		return
	}
	for _, words := range commandWords(text) {
		// "timeout 60 uvx ruff" needs ruff, too.
		words = words[AfterWrappers(words):]
		l, ok, err := ParseLaunch(words)
		if !ok || err != nil {
			continue
		}
		switch {
		case l.Node:
			n.NodeTools = n.addTool(n.NodeTools, Requirement{Text: l.Tool, File: n.File, Line: line})
			continue
		case l.Tool != "":
			n.Tools = n.addTool(n.Tools, Requirement{Text: l.Tool, File: n.File, Line: line})
			continue
		}
		// --with counts only for a script of the skill. For other programs, such as pytest, it is
		// not known which script needs the package.
		args := l.Args(words)
		if len(l.With) == 0 || len(args) < 2 || args[0] != "python" {
			continue
		}
		at := n.tree.Resolve(strings.TrimPrefix(path.Clean(args[1]), "{baseDir}/"))
		if at.Reason != 0 || at.Entry.Kind != snapshot.KindFile {
			continue
		}
		for _, with := range l.With {
			// The requirement belongs to this script alone, so other scripts do not pay for it.
			n.add(Requirement{Text: with, File: n.File, Line: line, Script: at.Path})
		}
	}
}

// launcherParts are parts of the words that begin a Launch. A line without them has no Launch.
var launcherParts = []string{"uv", "px", "npm", "pnpm", "yarn", "bun"}

// addTool keeps the first line of each tool.
func (n *needsReader) addTool(tools []Requirement, r Requirement) []Requirement {
	name, _ := SplitNodeTool(r.Text) // a Python requirement has no @
	if p, err := ParseRequirement(name); err == nil {
		name = p.Name
	}
	if strings.Trim(name, capitals) == "" {
		n.Warn(r.Line, RuleToolPlaceholder, "%s stands for the name of a package: skillrun prepare leaves this command out", name)
		return tools
	}
	if len(tools) < maxTools && !slices.ContainsFunc(tools, func(t Requirement) bool { return t.Text == r.Text }) {
		tools = append(tools, r)
	}
	return tools
}

// commandWords splits a line of a document into the words of its commands, as a shell would split
// simple ones. Assignments in front of a command are left out.
// Words of different quotes join, as in a shell: a"b"c is one word. Backslashes and $ have no
// meaning here: a line that uses them names no package that could be known. A leading $ is a
// prompt, as in documents. nil: a quote is not closed, so the line is prose with an apostrophe.
func commandWords(line string) [][]string {
	var all [][]string
	var words []string
	var word strings.Builder
	inWord := false
	endWord := func() {
		if inWord && (len(words) > 0 || word.String() != "$" && !strings.Contains(word.String(), "=")) {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	quote := rune(0)
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			endWord()
		case c == '#' && !inWord:
			endCommand()
			return all
		case strings.ContainsRune(";&|()<>", c):
			endCommand()
		default:
			inWord = true
			word.WriteRune(c)
		}
	}
	if quote != 0 {
		return nil // not a line of a shell
	}
	endCommand()
	return all
}
