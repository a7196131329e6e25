package lint

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// absolute matches a path of one person's machine. Text in the middle of a word, of a URL or
// after a variable does not match. A sandbox has /usr, a few files of /etc, /tmp, /workspace,
// /skills and /home/skill.
// The class before the path keeps out URLs, "$HOME/x", "~/x", globs and closing brackets. A
// drive letter with a backslash is a path of Windows.
var absolute = lazyregexp.New(`(?:^|[^\w./~$}\])>*-])((?:/(?:home|Users|root|mnt|opt|srv|media|Volumes|Applications|private|Library)/|[A-Z]:\\{1,2}[A-Za-z])[^\s"'` + "`" + `<>|;,()]*)`)

// absolutePath is the first path in text that a sandbox doesn't have, or "".
func absolutePath(text string) string {
	for _, m := range absolute.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1]+"/", "/home/skill/") {
			return m[1]
		}
	}
	return ""
}

func (c *check) absolute(file string, line int, p string) {
	c.warn(file, line, RuleAbsolutePath, "%s looks like a path that no sandbox has: use a relative path, {baseDir} for files of the skill, or /tmp", p)
}

// manifestPaths looks at the code in SKILL.md. A path is reported once.
func (c *check) manifestPaths() {
	said := map[string]bool{}
	look := func(line int, text string) {
		if p := absolutePath(text); p != "" && !said[p] {
			said[p] = true
			c.absolute(c.manifest.file, line, p)
		}
	}
	for _, b := range c.manifest.blocks {
		for i, line := range b.lines {
			look(b.first+i, line)
		}
	}
	for _, s := range c.manifest.spans {
		look(s.line, s.text)
	}
}

// programPaths looks at a program's code and strings, not at its comments.
// A path is reported once for each program.
func (c *check) programPaths(p program) {
	said := map[string]bool{}
	for i, line := range p.withoutComments() {
		if i == 0 && strings.HasPrefix(line, "#!") {
			continue // other rules check the #! line
		}
		if at := absolutePath(line); at != "" && !said[at] {
			said[at] = true
			c.absolute(p.path, i+1, at)
		}
	}
}

// withoutComments is the lines of a program with its comments blank. For languages
// other than Python only lines that are nothing but a comment are known.
// The result has as many lines as the program, so an index gives the line number.
func (p program) withoutComments() []string {
	if p.language == "python" {
		return scanPython(p.text).strings
	}
	out := make([]string, len(p.lines))
	inBlock := false
	for i, line := range p.lines {
		text := strings.TrimSpace(line)
		switch {
		case p.language == "node" && inBlock:
			inBlock = !strings.Contains(text, "*/")
		case p.language == "node" && strings.HasPrefix(text, "/*"):
			inBlock = !strings.Contains(text, "*/")
		case p.language == "node" && strings.HasPrefix(text, "//"):
		case p.language != "node" && strings.HasPrefix(text, "#") && !strings.HasPrefix(line, "#!"):
		default:
			out[i] = line
		}
	}
	return out
}
