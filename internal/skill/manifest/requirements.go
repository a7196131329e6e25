package manifest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
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
	// Bytes of one block (PEP 723). The TOML parser's time grows with the square of the number of keys: 64 KiB of keys take
	// 0.3 s, and there may be maxMetadataScripts blocks.
	maxMetadataBytes = 16 << 10
)

// requirementFiles are the files of a skill that list Python packages.
var requirementFiles = []string{"requirements.txt", "scripts/requirements.txt"}

// An UnreadableRequirement is a file, or a line of one, that lists Python packages but
// cannot be read. The skill's requirements are then incomplete.
type UnreadableRequirement struct {
	File   string // relative to the skill
	Line   int    // from 1; 0: the whole file
	Reason string
}

// Needs holds everything that a skill declares: in python_packages and system_packages of
// the front matter, in requirements.txt and scripts/requirements.txt, in the metadata
// blocks of its Python scripts (PEP 723), in the command lines of SKILL.md, and in package.json
// or scripts/package.json.
type Needs struct {
	// List also has texts that ParseRequirement rejects; each of these is a finding.
	List []Requirement
	// Unreadable has the declarations that List lacks. Each is also a finding.
	Unreadable []UnreadableRequirement
	Versions   []PythonVersion // sorted by the scripts' paths
	// Tools are the packages that SKILL.md's command lines run as tools, with uvx, "uv tool run"
	// or "pipx run". Each has its own environment.
	Tools []Requirement
	// NodeTools are the same with npx and its like.
	NodeTools []Requirement
	// Node are the packages of package.json.
	Node NodeNeeds
}

// A needsReader collects the declarations of one skill. open reads a file of the skill.
type needsReader struct {
	Needs
	*Findings
	tree *snapshot.Tree
	open func(snapshot.Entry) ([]byte, error)
	full bool            // maxRequirements is reached and reported; add keeps nothing more
	read map[string]bool // requirement files that were read, by path
}

// ReadNeeds collects the declarations of a folder: of its manifest d and of files in its tree,
// which open reads. An error comes from open; everything else is a finding.
// The order of the sources is the order of List, so equal skills give equal lists.
func ReadNeeds(d *Document, tree *snapshot.Tree, open func(snapshot.Entry) ([]byte, error)) (Needs, []Finding, error) {
	n := &needsReader{Findings: &Findings{}, tree: tree, open: open, read: map[string]bool{}}
	n.frontMatter(d)
	for _, name := range requirementFiles {
		if tree.Resolve(name).Reason != 0 {
			continue // missing, or refused, which validation reports
		}
		if err := n.requirementFile(name, 1); err != nil {
			return Needs{}, nil, err
		}
	}
	if err := n.scripts(); err != nil {
		return Needs{}, nil, err
	}
	if err := n.nodePackages(); err != nil {
		return Needs{}, nil, err
	}
	n.commandLines(d)
	return n.Needs, n.Findings.List, nil
}

// refuse reports a declaration that cannot be read.
// Unlike a plain finding it makes a later build fail: with an incomplete list, a script would fail
// with a missing module, which is harder to explain.
func (n *needsReader) refuse(line int, rule, format string, args ...any) {
	n.Error(line, rule, format, args...)
	n.Unreadable = append(n.Unreadable, UnreadableRequirement{n.File, line, fmt.Sprintf(format, args...)})
}

// add keeps one requirement. A text that is not a valid requirement is kept with a finding: the
// build refuses it later with the file and the line.
func (n *needsReader) add(r Requirement) {
	n.File = r.File
	switch {
	case r.Text == "":
		return
	case len(n.Needs.List)+len(n.Unreadable) >= maxRequirements:
		if !n.full {
			n.refuse(r.Line, RuleRequirement, "more than %d requirements: the rest is ignored", maxRequirements)
		}
		n.full = true
		return
	case len(r.Text) > maxRequirementBytes || strings.ContainsFunc(r.Text, snapshot.IsControl):
		n.refuse(r.Line, RuleRequirement, "requirement of %d bytes is ignored: it is longer than %d bytes or has control characters", len(r.Text), maxRequirementBytes)
		return
	}
	if !r.System {
		p, err := ParseRequirement(r.Text)
		switch {
		case err != nil:
			n.Error(r.Line, RuleRequirement, "%v", err)
		case p.URL != "":
			n.Error(r.Line, RuleRequirement, "%s names a URL: packages come from the daemon's index only", snapshot.Printable(r.Text))
		}
	}
	n.Needs.List = append(n.Needs.List, r)
}

// frontMatter adds the packages of python_packages and system_packages with their lines.
func (n *needsReader) frontMatter(d *Document) {
	for _, f := range []struct {
		name   string
		list   []string
		system bool
	}{{"python_packages", d.PythonPackages, false}, {"system_packages", d.SystemPackages, true}} {
		lines := d.itemLines[f.name]
		for i, text := range f.list {
			r := Requirement{Text: text, System: f.system, File: d.File}
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
	at := n.tree.Resolve(name)
	n.File = name
	switch {
	case at.Reason != 0 || at.Entry.Kind != snapshot.KindFile:
		n.Error(0, RuleRequirementFile, "can't be read: it is not a file of the skill")
		return nil
	// A file that includes itself ends here.
	case n.read[at.Path]:
		return nil
	case level > maxRequirementIncludes || len(n.read) >= maxRequirementFiles:
		n.Error(0, RuleRequirementFile, "more than %d files, or %d levels, of -r: it is ignored", maxRequirementFiles, maxRequirementIncludes)
		return nil
	case at.Entry.Size > maxRequirementFile:
		n.refuse(0, RuleRequirementFile, "is %d bytes long, the maximum is %d: it can't be read", at.Entry.Size, maxRequirementFile)
		return nil
	}
	n.read[at.Path] = true
	text, err := n.open(at.Entry)
	if err != nil {
		return err
	}
	// PowerShell's redirections (pip freeze > requirements.txt) write UTF-16.
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

// withoutComment cuts a comment off and trims the rest. A # within a word, as in a URL, begins
// none.
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
			n.File = name
			n.Error(l.line, RuleRequirementFile, "-r %s: only files of the skill can be included", snapshot.Printable(include))
			return nil
		}
		p := path.Join(path.Dir(name), include)
		if p == ".." || strings.HasPrefix(p, "../") || n.tree.Resolve(p).Reason != 0 {
			n.File = name
			n.Error(l.line, RuleRequirementFile, "-r %s: not in the skill", snapshot.Printable(include))
			return nil
		}
		return n.requirementFile(p, level+1)
	}
	n.File = name
	words := strings.Fields(l.text)
	if strings.HasPrefix(l.text, "-") {
		option, _, _ := strings.Cut(words[0], "=")
		n.Error(l.line, RuleRequirementOption, "option %s is ignored: the daemon's configuration decides where packages come from", snapshot.Printable(option))
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
			n.Error(l.line, RuleRequirementOption, "option %s is ignored", snapshot.Printable(option))
			continue
		}
		if !requirementHash.MatchString(value) {
			n.Error(l.line, RuleRequirement, "--hash=%s: want sha256:, sha384: or sha512: and hex digits", snapshot.Printable(value))
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
