package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says how much a finding matters.
type Severity uint8

const (
	// SeverityError marks a breach of the published rules.
	SeverityError Severity = iota + 1
	// SeverityWarning marks something that is likely to break or not portable. Loading
	// reports everything that it tolerates as a warning.
	SeverityWarning
)

func (s Severity) String() string {
	switch s {
	case SeverityError:
		return "error"
	case SeverityWarning:
		return "warning"
	}
	return "unspecified"
}

// Finding is one problem that validation or loading noticed.
type Finding struct {
	Severity Severity
	File     string // relative to the skill
	Line     int    // from 1; 0: the whole file
	Rule     string // one of the Rule constants
	Message  string // the problem and, unless it is obvious, the remedy
}

// String has the form of a compiler's message, without the line if it is 0.
func (f Finding) String() string {
	at := f.File
	if f.Line > 0 {
		at = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return fmt.Sprintf("%s: %s", at, f.Message)
}

// Names of the rules; they never change. If a published validator has a text for a rule,
// the finding's message is that text.
const (
	RuleManifestMissing   = "manifest-missing"
	RuleManifestName      = "manifest-name"
	RuleManifestSize      = "manifest-size"
	RuleTooLarge          = "skill-size"
	RuleEncoding          = "encoding"
	RuleByteOrderMark     = "byte-order-mark"
	RuleLineEnds          = "line-ends"
	RuleFrontMatter       = "front-matter"
	RuleFrontMatterOpen   = "front-matter-open"
	RuleFrontMatterSize   = "front-matter-size"
	RuleYAML              = "yaml"
	RuleYAMLBounds        = "yaml-bounds"
	RuleDuplicateKey      = "duplicate-key"
	RuleNameMissing       = "name-missing"
	RuleNameInvalid       = "name-invalid"
	RuleNameGrammar       = "name-grammar"
	RuleNameLength        = "name-length"
	RuleNameFolder        = "name-folder"
	RuleDescription       = "description-missing"
	RuleDescriptionSize   = "description-length"
	RuleCompatibility     = "compatibility-length"
	RuleFieldType         = "field-type"
	RuleFieldValue        = "field-value"
	RuleUnknownField      = "unknown-field"
	RuleRefused           = "refused-entry"
	RuleNoInterpreter     = "no-interpreter"
	RuleBaseDirReference  = "base-dir-reference"
	RuleRequirement       = "requirement"
	RuleRequirementFile   = "requirement-file"
	RuleRequirementOption = "requirement-option"
	RuleScriptMetadata    = "script-metadata"
	RuleToolPlaceholder   = "tool-placeholder"
	RuleNodePackages      = "node-packages"
	RuleNodeLock          = "node-lock-missing"
	RuleNodeScripts       = "node-install-scripts"
	RuleUnlisted          = "mcp-unlisted"
	RuleTooMany           = "too-many-findings"
)

// ManifestError says why a SKILL.md cannot be loaded. It holds the first finding that
// prevents loading; Finding.Rule tells the cases apart.
type ManifestError struct{ Finding Finding }

func (e *ManifestError) Error() string { return e.Finding.String() }

// Findings collects the findings about one file, or about several: File is the one that the
// next finding is about.
type Findings struct {
	File  string
	List  []Finding
	fatal *Finding // the first one that prevents loading
}

// add appends a finding. After maxFindings it adds one finding that says so and drops the
// rest.
// The bound keeps a hostile SKILL.md, with a mistake in each of its many lines, from filling the
// daemon's memory and the client's screen.
func (f *Findings) add(s Severity, line int, rule, format string, args ...any) {
	switch {
	case len(f.List) < maxFindings:
		f.List = append(f.List, Finding{s, f.File, line, rule, fmt.Sprintf(format, args...)})
	case len(f.List) == maxFindings:
		f.List = append(f.List, Finding{s, f.File, 0, RuleTooMany, "more findings are left out"})
	}
}

// Error records a breach of the published rules.
func (f *Findings) Error(line int, rule, format string, args ...any) {
	f.add(SeverityError, line, rule, format, args...)
}

// Warn records something that is likely to break or not portable.
func (f *Findings) Warn(line int, rule, format string, args ...any) {
	f.add(SeverityWarning, line, rule, format, args...)
}

// Stop records an error that prevents loading.
// The caller stops too where it can't go on. The first such error is kept even if the list is full.
func (f *Findings) Stop(line int, rule, format string, args ...any) {
	f.Error(line, rule, format, args...)
	if f.fatal == nil {
		f.fatal = &Finding{SeverityError, f.File, line, rule, fmt.Sprintf(format, args...)}
	}
}

// Err returns a *ManifestError if something prevents loading, else nil.
func (f *Findings) Err() error {
	if f.fatal == nil {
		return nil
	}
	return &ManifestError{*f.fatal}
}

// Sort sorts findings by file and line. Findings of one line keep their order.
func Sort(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
}

// AsWarnings returns copies of findings as warnings, for a skill that loads in spite of
// them.
func AsWarnings(list []Finding) []Finding {
	out := slices.Clone(list)
	for i := range out {
		out[i].Severity = SeverityWarning
	}
	return out
}
