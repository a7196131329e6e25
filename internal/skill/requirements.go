package skill

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds on what a skill declares. What is beyond them is a finding and is left
// out.
const (
	maxRequirements        = 1000
	maxRequirementBytes    = 1000
	maxRequirementFile     = 1 << 20 // bytes of a requirements.txt
	maxRequirementFiles    = 32      // read through -r
	maxRequirementIncludes = 8       // levels of -r
	maxMetadataScript      = 1 << 20 // bytes of a script that is searched for metadata
	maxMetadataScripts     = 1000
	maxMetadataBytes       = 64 << 10 // of one block
)

// requirementFiles are the files of a skill that list Python packages.
var requirementFiles = []string{"requirements.txt", "scripts/requirements.txt"}

// Requirements is what the skill says it needs: of the front matter's
// python_packages and system_packages, of requirements.txt in its root and in
// scripts/, and of the metadata blocks of its Python scripts (PEP 723). A text
// that is no valid requirement is in it, too, see ParseRequirement, and is a
// finding of Validate.
func (s *Skill) Requirements() []Requirement { return slices.Clone(s.needs.list) }

// PythonVersions is what scripts say of their interpreter, in the order of their
// paths.
func (s *Skill) PythonVersions() []PythonVersion { return slices.Clone(s.needs.versions) }

// An UnreadableRequirement is a file, or a line of it, that lists Python packages in a
// way that can't be read, so that nobody knows what the skill needs.
type UnreadableRequirement struct {
	File   string // relative to the skill
	Line   int    // from 1; 0: the whole file
	Reason string
}

// UnreadableRequirements is what Requirements had to leave out. Each is a finding of
// Validate, too.
func (s *Skill) UnreadableRequirements() []UnreadableRequirement {
	return slices.Clone(s.needs.unreadable)
}

// needs is what a skill declares.
type needs struct {
	list       []Requirement
	unreadable []UnreadableRequirement
	versions   []PythonVersion
}

// A needsReader collects what a skill declares. open reads a file of it.
type needsReader struct {
	needs
	*findings
	tree *tree
	open func(Entry) ([]byte, error)
	full bool
	read map[string]bool // requirement files
}

// readNeeds collects what a folder that was read declares. An error is that of
// open; everything else is a finding.
func readNeeds(r *reading, open func(Entry) ([]byte, error)) (needs, []Finding, error) {
	n := &needsReader{findings: &findings{}, tree: r.tree, open: open, read: map[string]bool{}}
	n.frontMatter(r.doc)
	for _, name := range requirementFiles {
		if r.tree.resolve(name).reason != 0 {
			continue // there is none, or it is refused, which is a finding of its own
		}
		if err := n.requirementFile(name, 1); err != nil {
			return needs{}, nil, err
		}
	}
	if err := n.scripts(); err != nil {
		return needs{}, nil, err
	}
	return n.needs, n.findings.list, nil
}

// refuse notes what can't be read.
func (n *needsReader) refuse(line int, rule, format string, args ...any) {
	n.error(line, rule, format, args...)
	n.needs.unreadable = append(n.needs.unreadable, UnreadableRequirement{n.file, line, fmt.Sprintf(format, args...)})
}

// add keeps one requirement.
func (n *needsReader) add(r Requirement) {
	n.file = r.File
	switch {
	case r.Text == "":
		return
	case len(n.needs.list) >= maxRequirements:
		if !n.full {
			n.refuse(r.Line, RuleRequirement, "more than %d requirements: the rest is not read", maxRequirements)
		}
		n.full = true
		return
	case len(r.Text) > maxRequirementBytes || strings.ContainsFunc(r.Text, isControl):
		n.refuse(r.Line, RuleRequirement, "a requirement of %d bytes (the maximum is %d), or with control characters, can't be read", len(r.Text), maxRequirementBytes)
		return
	}
	if !r.System {
		p, err := ParseRequirement(r.Text)
		switch {
		case err != nil:
			n.error(r.Line, RuleRequirement, "%v", err)
		case p.URL != "":
			n.error(r.Line, RuleRequirement, "%s names a URL: packages come from the daemon's index only", printable(r.Text))
		}
	}
	n.needs.list = append(n.needs.list, r)
}

func (n *needsReader) frontMatter(d *document) {
	for _, f := range []struct {
		name   string
		list   []string
		system bool
	}{{"python_packages", d.PythonPackages, false}, {"system_packages", d.SystemPackages, true}} {
		lines := d.itemLines[f.name]
		for i, text := range f.list {
			r := Requirement{Text: text, System: f.system, File: d.file}
			if i < len(lines) {
				r.Line = lines[i]
			}
			n.add(r)
		}
	}
}

// requirementFile reads a file of pip's format, of which only requirements, -r and
// --hash count: a skill doesn't choose where packages come from.
func (n *needsReader) requirementFile(name string, level int) error {
	at := n.tree.resolve(name)
	n.file = name
	switch {
	case at.reason != 0 || at.entry.Kind != KindFile:
		n.error(0, RuleRequirementFile, "can't be read: it is not a file of the skill")
		return nil
	case n.read[at.path]:
		return nil
	case level > maxRequirementIncludes || len(n.read) >= maxRequirementFiles:
		n.error(0, RuleRequirementFile, "more than %d files, or %d levels, of -r: it is ignored", maxRequirementFiles, maxRequirementIncludes)
		return nil
	case at.entry.Size > maxRequirementFile:
		n.refuse(0, RuleRequirementFile, "is %d bytes long, the maximum is %d: it can't be read", at.entry.Size, maxRequirementFile)
		return nil
	}
	n.read[at.path] = true
	text, err := n.open(at.entry)
	if err != nil {
		return err
	}
	if bytes.IndexByte(text, 0) >= 0 || bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		n.refuse(0, RuleRequirementFile, "is no UTF-8 text (UTF-16?) and can't be read: write it as UTF-8")
		return nil
	}
	for _, l := range logicalLines(string(text)) {
		if err := n.requirementLine(name, l, level); err != nil {
			return err
		}
	}
	return nil
}

// logicalLine is a line with what continues it, and where it begins.
type logicalLine struct {
	text string
	line int
}

// logicalLines joins lines that end in a backslash and takes comments away, as pip
// does: a comment is a # at the start or after a blank.
func logicalLines(text string) []logicalLine {
	var out []logicalLine
	var parts []string
	first := 0
	text = strings.TrimPrefix(text, "\ufeff")
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if len(parts) == 0 {
			first = i + 1
		}
		comment := strings.HasPrefix(strings.TrimSpace(line), "#")
		if before, ok := strings.CutSuffix(line, `\`); ok && !comment {
			parts = append(parts, before)
			continue
		}
		parts = append(parts, line)
		whole := withoutComment(strings.Join(parts, ""))
		if whole != "" {
			out = append(out, logicalLine{whole, first})
		}
		parts = nil
	}
	if whole := withoutComment(strings.Join(parts, "")); whole != "" {
		out = append(out, logicalLine{whole, first})
	}
	return out
}

func withoutComment(line string) string {
	for i := 0; i < len(line); i++ {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

func (n *needsReader) requirementLine(name string, l logicalLine, level int) error {
	if include, ok := optionValue(l.text, "-r", "--requirement"); ok {
		if path.IsAbs(include) || strings.Contains(include, ":") {
			n.file = name
			n.error(l.line, RuleRequirementFile, "-r %s: only files of the skill can be included", printable(include))
			return nil
		}
		p := path.Join(path.Dir(name), include)
		if p == ".." || strings.HasPrefix(p, "../") || n.tree.resolve(p).reason != 0 {
			n.file = name
			n.error(l.line, RuleRequirementFile, "-r %s: not in the skill", printable(include))
			return nil
		}
		return n.requirementFile(p, level+1)
	}
	n.file = name
	words := strings.Fields(l.text)
	if strings.HasPrefix(l.text, "-") {
		option, _, _ := strings.Cut(words[0], "=")
		n.error(l.line, RuleRequirementOption, "option %s is ignored: where packages come from, and how, is the daemon's configuration", printable(option))
		return nil
	}
	r := Requirement{File: name, Line: l.line}
	// What follows the first option is options.
	end := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
	if end < 0 {
		end = len(words)
		r.Text = l.text
	} else {
		r.Text = strings.Join(words[:end], " ")
	}
	for i := end; i < len(words); i++ {
		option, value, given := strings.Cut(words[i], "=")
		if option == "--hash" && !given && i+1 < len(words) {
			i++
			value = words[i]
		}
		if option != "--hash" {
			n.error(l.line, RuleRequirementOption, "option %s is ignored", printable(option))
			continue
		}
		if !requirementHash.MatchString(value) {
			n.error(l.line, RuleRequirement, "--hash=%s: want sha256:, sha384: or sha512: and hex digits", printable(value))
		}
		// Kept as it is: a hash that can't match must not become no hash.
		r.Hashes = append(r.Hashes, value)
	}
	n.add(r)
	return nil
}

// optionValue reads "-r file", "-rfile", "--requirement file" and
// "--requirement=file".
func optionValue(text, short, long string) (string, bool) {
	if rest, ok := strings.CutPrefix(text, long); ok && rest != "" && strings.ContainsRune("= \t", rune(rest[0])) {
		return strings.TrimSpace(rest[1:]), true
	}
	if rest, ok := strings.CutPrefix(text, short); ok && !strings.HasPrefix(text, "--") {
		return strings.TrimSpace(rest), true
	}
	return "", false
}
