package skill

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Validate returns the findings of strict validation, sorted by file and line.
func (s *Skill) Validate() []manifest.Finding { return slices.Clone(s.findings) }

// ReadDir reads and checks a skill folder in place. It needs no privilege, copies nothing and
// writes nothing. It returns a Skill whose Dir is the folder itself, and the findings. If a
// file changes later, Skill.Open returns an error for it. The Skill may be one that would not
// load. It is nil if the folder has no readable manifest; a finding then says why. The error
// is not nil only if the folder could not be read.
func ReadDir(dir string) (*Skill, []manifest.Finding, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, err := read(context.Background(), snapshot.Source{Dir: f}, filepath.Base(abs), snapshot.Bounds{})
	if err == nil {
		sk := newSkill(r, abs, "")
		return sk, sk.Validate(), nil
	}
	if f, ok := findingOf(err); ok {
		return nil, []manifest.Finding{f}, nil
	}
	return nil, nil, err
}

// findingOf returns the finding that explains why a folder does not load. It returns false if the
// folder is not the reason.
func findingOf(err error) (manifest.Finding, bool) {
	f := manifest.Finding{Severity: manifest.SeverityError}
	var (
		invalid *manifest.ManifestError
		path    *snapshot.PathError
		bound   *snapshot.BoundError
	)
	switch {
	case errors.Is(err, ErrNoManifest):
		f.File, f.Rule = manifest.Names[0], manifest.RuleManifestMissing
	case errors.As(err, &invalid):
		return invalid.Finding, true
	case errors.As(err, &path):
		f.File, f.Rule = path.Path, manifest.RuleRefused
	case errors.As(err, &bound):
		f.Rule = manifest.RuleTooLarge
	default:
		return f, false
	}
	f.Message = err.Error()
	return f, true
}

// validate returns all findings about a folder, sorted by file and line.
func (r *reading) validate() []manifest.Finding {
	all := manifest.Findings{File: r.doc.File, List: r.doc.List}
	// A manifest that does not load has a finding that says more.
	if unlisted := (*UnlistedError)(nil); r.doc.Err() == nil && errors.As(r.unlisted, &unlisted) {
		all.Warn(0, manifest.RuleUnlisted, "agents that list skills over MCP (skills/list) do not see this one: %s", unlisted.Reason)
	}
	r.checkReferences(&all)
	for _, e := range r.tree.Refused {
		if e.Why != snapshot.VenvInterpreter { // expected: venv makes this link
			all.File = e.Path
			all.Error(0, manifest.RuleRefused, "%s: it can't be used", e.Reason)
		}
	}
	for _, s := range r.tree.Scripts {
		if !s.Runnable() {
			all.File = s.Path
			all.Warn(0, manifest.RuleNoInterpreter, "no interpreter is known for it: use a known extension or a #! line")
		}
	}
	all.List = append(all.List, r.needsFindings...)
	manifest.Sort(all.List)
	return all.List
}

// baseDirReference matches a path beneath {baseDir} in prose or in a command.
var baseDirReference = lazyregexp.New(`(?:\{baseDir\}|\$\{CLAUDE_SKILL_DIR\})/([\pL\pN_./-]+)([<*$\[{]?)`)

// checkReferences looks for files that the instructions name but the skill does not have.
// It skips placeholders and patterns.
func (r *reading) checkReferences(f *manifest.Findings) {
	for i, line := range strings.Split(r.doc.Body, "\n") {
		for _, m := range baseDirReference.FindAllStringSubmatch(line, -1) {
			p := strings.TrimRight(m[1], "./-")
			if p == "" || m[2] != "" {
				continue
			}
			if at := r.tree.Resolve(p); at.Reason == snapshot.ReasonNotFound || at.Reason == snapshot.ReasonEscapes {
				f.Warn(r.doc.BodyLine+i, manifest.RuleBaseDirReference, "%s/%s is not in the skill", baseDirVar, p)
			}
		}
	}
}
