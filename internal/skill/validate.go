package skill

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Validate returns the findings of strict validation, sorted by file and line.
func (s *Skill) Validate() []Finding { return slices.Clone(s.findings) }

// ValidateText checks the text of a SKILL.md. folder is the name of its folder; if it is
// empty, the rule that the skill has the folder's name is skipped.
func ValidateText(skillMD, folder string) []Finding {
	d := parseDocument([]byte(skillMD), manifestNames[0], folder)
	sortFindings(d.list)
	return d.list
}

// ValidateDir checks a skill folder. It needs no privilege and writes nothing. If the
// folder would not load, a finding says why. The error is not nil only if the folder could
// not be read.
func ValidateDir(dir string) ([]Finding, error) {
	_, found, err := ReadDir(dir)
	return found, err
}

// ReadDir reads a skill folder in place and copies nothing. It returns the findings of
// ValidateDir and a Skill whose Dir is the folder itself. If a file changes later,
// Skill.Open returns an error for it. The Skill may be one that would not load. It is nil
// if the folder has no readable manifest; a finding then says why.
func ReadDir(dir string) (*Skill, []Finding, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, err := read(context.Background(), f, filepath.Base(abs), Bounds{})
	if err == nil {
		sk := newSkill(r, abs)
		return sk, sk.Validate(), nil
	}
	var (
		manifest *ManifestError
		path     *PathError
		bound    *BoundError
	)
	switch {
	case errors.Is(err, ErrNoManifest):
		return nil, []Finding{{SeverityError, manifestNames[0], 0, RuleManifestMissing, err.Error()}}, nil
	case errors.As(err, &manifest):
		return nil, []Finding{manifest.Finding}, nil
	case errors.As(err, &path):
		return nil, []Finding{{SeverityError, path.Path, 0, RuleRefused, err.Error()}}, nil
	case errors.As(err, &bound):
		return nil, []Finding{{SeverityError, "", 0, RuleTooLarge, err.Error()}}, nil
	}
	return nil, nil, err
}

// validate returns all findings about a folder, sorted by file and line.
func (r *reading) validate() []Finding {
	all := findings{file: r.doc.file, list: r.doc.list}
	r.checkReferences(&all)
	for _, e := range r.tree.refused {
		if e.Why != VenvInterpreter { // expected: venv makes this link
			all.file = e.Path
			all.error(0, RuleRefused, "%s: it can't be used", e.Reason)
		}
	}
	for _, s := range r.tree.scripts {
		if !runnable[s.Language] {
			all.file = s.Path
			all.warn(0, RuleNoInterpreter, "no interpreter is known for it: use a known extension or a #! line")
		}
	}
	all.list = append(all.list, r.needsFindings...)
	sortFindings(all.list)
	return all.list
}

// baseDirReference matches a path beneath {baseDir} in prose or in a command.
var baseDirReference = regexp.MustCompile(`(?:\{baseDir\}|\$\{CLAUDE_SKILL_DIR\})/([\pL\pN_./-]+)([<*$\[{]?)`)

// checkReferences looks for files that the instructions name but the skill does not have.
// It skips placeholders and patterns.
func (r *reading) checkReferences(f *findings) {
	for i, line := range strings.Split(r.doc.body, "\n") {
		for _, m := range baseDirReference.FindAllStringSubmatch(line, -1) {
			p := strings.TrimRight(m[1], "./-")
			if p == "" || m[2] != "" {
				continue
			}
			if at := r.tree.resolve(p); at.reason == ReasonNotFound || at.reason == ReasonEscapes {
				f.warn(r.doc.bodyLine+i, RuleBaseDirReference, "%s/%s is not in the skill", BaseDirVar, p)
			}
		}
	}
}
