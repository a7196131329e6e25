package lint

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

var (
	// relative is a path of one of the published directories, at the beginning of a word.
	// scripts, references and assets are the directories that the skill format names. The
	// second group is a character after the path that makes it a pattern.
	relative = lazyregexp.New("(?:^|[\\s\"'=(])(?:\\./)?((?:scripts|references|assets)/[\\pL\\pN_./-]+)([<*$\\[{?]?)")
	// link is the target of a link or an image.
	link = lazyregexp.New(`\]\(\s*<?([^)\s<>]+)>?(?:\s+"[^"]*")?\s*\)`)
	// written comes before the name of a file that a command makes.
	written = lazyregexp.New(`(?:>|\s-o|--?out(?:put)?(?:-file|-dir)?|mkdir(?: -p)?|touch)[ =]?["']?$`)
)

// maxWritten is more than the longest text that written matches.
const maxWritten = 32

// illustration is in lines whose names are made up.
var illustration = lazyregexp.New(`(?i)\bexamples?\b|\be\.g\.|\bsuch as\b|\bwould\b`)

// references looks for files that the instructions name by a relative path and the
// skill doesn't have. Those beneath {baseDir} are package skill's.
// Blocks of other languages than shells are skipped: their strings are often made up.
func (c *check) references() {
	lines := map[string]int{} // of each that is missing, the first
	missing := func(line int, p string) {
		if p = strings.TrimRight(p, "./-"); p == "" {
			return
		}
		if _, err := c.skill.Lookup(p); isMissing(err) && (lines[p] == 0 || line < lines[p]) {
			lines[p] = line
		}
	}
	words := func(line int, text string) {
		for _, at := range relative.FindAllStringSubmatchIndex(text, -1) {
			name, pattern := text[at[2]:at[3]], at[4] < at[5]
			if !pattern && !written.MatchString(text[max(0, at[2]-maxWritten):at[2]]) && !placeholderName(name) {
				missing(line, name)
			}
		}
	}
	for _, b := range c.manifest.blocks {
		if b.language != "" && !shells[b.language] || b.isTree() {
			continue
		}
		for i, line := range b.lines {
			words(b.first+i, line)
		}
	}
	illustrated := map[int]bool{} // by line; a line may have very many spans
	for _, s := range c.manifest.spans {
		made, known := illustrated[s.line]
		if !known {
			made = illustration.MatchString(c.manifest.lines[s.line-1])
			illustrated[s.line] = made
		}
		if !made {
			words(s.line, s.text)
		}
	}
	c.links(missing)
	for _, p := range slices.Sorted(maps.Keys(lines)) {
		c.warn(c.manifest.file, lines[p], RuleReferenceMissing, "%s is not in the skill: add it, or correct the path", p)
	}
}

// links looks at the targets of links outside of code.
// A link without a dot or a slash is no file: it is often a word in brackets.
func (c *check) links(missing func(line int, p string)) {
	inBlock := map[int]bool{}
	for _, b := range c.manifest.blocks {
		for i := range b.lines {
			inBlock[b.first+i] = true
		}
	}
	for i, line := range c.manifest.lines[c.manifest.body:] {
		number := c.manifest.body + i + 1
		if inBlock[number] {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
			target, err := url.Parse(m[1])
			if err != nil || target.Scheme != "" || target.Host != "" || target.Path == "" || strings.HasPrefix(target.Path, "/") ||
				strings.ContainsAny(target.Path, "{}<>*$") || placeholderName(target.Path) || !strings.ContainsAny(target.Path, "./") {
				continue
			}
			missing(number, target.Path)
		}
	}
}

// isTree reports whether a block draws a directory.
func (b block) isTree() bool { return strings.ContainsAny(strings.Join(b.lines, "\n"), "├└│") }

// placeholderName reports whether a name stands for another one.
// A real file with such a name loses this check only.
func placeholderName(name string) bool {
	for _, word := range []string{"example", "your", "path/to", "foo", "xxx", "my_", "my-"} {
		if strings.Contains(strings.ToLower(name), word) {
			return true
		}
	}
	return false
}
