package skill

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Limits on the requirements of a skill. Anything beyond them is a finding and is left out.
const (
	maxRequirements        = 1000
	maxRequirementBytes    = 1000
	maxRequirementFile     = 1 << 20 // bytes of a requirements.txt
	maxRequirementFiles    = 32      // in all, included ones too
	maxRequirementIncludes = 8       // levels of -r
	maxMetadataScript      = 1 << 20 // bytes of a script that is searched for metadata
	maxMetadataScripts     = 1000
	maxMetadataBytes       = 64 << 10 // of one block (PEP 723)
)

// requirementFiles are the files of a skill that list Python packages.
var requirementFiles = []string{"requirements.txt", "scripts/requirements.txt"}

// Requirements returns the packages that the skill declares: in python_packages and
// system_packages of the front matter, in requirements.txt and scripts/requirements.txt,
// and in the metadata blocks of its Python scripts (PEP 723). The list also has texts that
// ParseRequirement rejects; each of these is a finding of Validate.
func (s *Skill) Requirements() []Requirement { return slices.Clone(s.needs.list) }

// PythonVersions returns the interpreter versions that scripts require, sorted by the
// scripts' paths.
func (s *Skill) PythonVersions() []PythonVersion { return slices.Clone(s.needs.versions) }

// An UnreadableRequirement is a file, or a line of one, that lists Python packages but
// cannot be read. The skill's requirements are then incomplete.
type UnreadableRequirement struct {
	File   string // relative to the skill
	Line   int    // from 1; 0: the whole file
	Reason string
}

// UnreadableRequirements returns the declarations that Requirements left out. Each is also
// a finding of Validate.
func (s *Skill) UnreadableRequirements() []UnreadableRequirement {
	return slices.Clone(s.needs.unreadable)
}

// needs holds everything that a skill declares.
type needs struct {
	list       []Requirement
	unreadable []UnreadableRequirement
	versions   []PythonVersion
}

// A needsReader collects the declarations of one skill. open reads a file of the skill.
type needsReader struct {
	needs
	*findings
	tree *tree
	open func(Entry) ([]byte, error)
	full bool            // maxRequirements is reached and reported
	read map[string]bool // requirement files that were read, by path
}

// readNeeds collects the declarations of a folder. An error comes from open; everything
// else is a finding.
func readNeeds(r *reading, open func(Entry) ([]byte, error)) (needs, []Finding, error) {
	n := &needsReader{findings: &findings{}, tree: r.tree, open: open, read: map[string]bool{}}
	n.frontMatter(r.doc)
	for _, name := range requirementFiles {
		if r.tree.resolve(name).reason != 0 {
			continue // missing, or refused, which validate reports
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

// refuse reports a declaration that cannot be read.
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
			n.refuse(r.Line, RuleRequirement, "more than %d requirements: the rest is ignored", maxRequirements)
		}
		n.full = true
		return
	case len(r.Text) > maxRequirementBytes || strings.ContainsFunc(r.Text, isControl):
		n.refuse(r.Line, RuleRequirement, "requirement of %d bytes is ignored: it is longer than %d bytes or has control characters", len(r.Text), maxRequirementBytes)
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

// frontMatter adds the packages of python_packages and system_packages with their lines.
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

// requirementFile reads a file in pip's format. Only requirements, -r and --hash count,
// because the daemon decides where packages come from.
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
		n.refuse(0, RuleRequirementFile, "is not UTF-8 text (UTF-16?): save it as UTF-8")
		return nil
	}
	for _, l := range logicalLines(string(text)) {
		if err := n.requirementLine(name, l, level); err != nil {
			return err
		}
	}
	return nil
}

// logicalLine is a line joined with its continuation lines. line is the first one's number.
type logicalLine struct {
	text string
	line int
}

// logicalLines joins lines that end in a backslash and removes comments, as pip does. A
// comment begins with a # at the start of a line or after a blank.
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

// requirementLine handles one logical line: an include (-r), an ignored option, or a
// requirement with its hashes. Includes may only name files of the skill.
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
		n.error(l.line, RuleRequirementOption, "option %s is ignored: the daemon's configuration decides where packages come from", printable(option))
		return nil
	}
	r := Requirement{File: name, Line: l.line}
	// Everything after the first option is options too.
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
		// Keep an invalid hash: without it the requirement would accept every file.
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
