package skill

import (
	"fmt"
	"regexp"
	"strings"
)

// Requirement is a package that a skill says it needs.
type Requirement struct {
	// Text is as written, without options: "pandas>=2.0.0", "jq".
	Text string
	// System says that it is a package of the system, and not of Python.
	System bool
	File   string // where it stands, relative to the skill
	Line   int    // from 1; 0: not known
	// Script is the only script that needs it. Empty: every one.
	Script string
	// Hashes are the values of --hash, "sha256:...". Empty: any file will do.
	Hashes []string
}

// PythonVersion is what a script says of the interpreter (requires-python).
type PythonVersion struct {
	Script    string
	Specifier string // ">=3.11"
	Line      int
}

// PythonRequirement is a requirement of a Python package taken apart, as the
// specification of dependency specifiers has it (PEP 508).
type PythonRequirement struct {
	Name      string // as written, see NormalName
	Extras    []string
	Specifier string // ">=2,<3", or empty
	URL       string // of "name @ URL"
	Marker    string // what follows ";", or empty
}

var (
	packageName   = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`)
	extraName     = regexp.MustCompile(`^` + `[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?` + `$`)
	versionClause = regexp.MustCompile(`^(===|==|~=|!=|<=|>=|<|>)\s*([A-Za-z0-9._*+!-]+)$`)
	nameRuns      = regexp.MustCompile(`[-_.]+`)
)

// NormalName is a package's name as names are compared (PEP 503).
func NormalName(name string) string {
	return strings.ToLower(nameRuns.ReplaceAllString(name, "-"))
}

// Pinned reports whether only one version will do.
func (r PythonRequirement) Pinned() bool {
	for clause := range strings.SplitSeq(r.Specifier, ",") {
		clause = strings.TrimSpace(clause)
		if strings.HasPrefix(clause, "===") || strings.HasPrefix(clause, "==") && !strings.HasSuffix(clause, "*") {
			return true
		}
	}
	return false
}

// ParseRequirement takes the text of a Python requirement apart. The versions and
// the marker are checked for their form only.
func ParseRequirement(text string) (PythonRequirement, error) {
	fail := func(what string) (PythonRequirement, error) {
		return PythonRequirement{}, fmt.Errorf("requirement %.80q: %s", text, what)
	}
	rest := strings.TrimSpace(text)
	if len(rest) > maxRequirementBytes || strings.ContainsFunc(rest, isControl) {
		return fail("too long, or with control characters")
	}
	r := PythonRequirement{Name: packageName.FindString(rest)}
	if r.Name == "" {
		return fail("does not begin with the name of a package")
	}
	rest = strings.TrimSpace(rest[len(r.Name):])
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		extras, after, ok := strings.Cut(inner, "]")
		if !ok {
			return fail("'[' without ']'")
		}
		for _, extra := range commas(extras) {
			if !extraName.MatchString(extra) {
				return fail("an extra that is no name")
			}
			r.Extras = append(r.Extras, extra)
		}
		rest = strings.TrimSpace(after)
	}
	if url, ok := strings.CutPrefix(rest, "@"); ok {
		// Only blanks end a URL: it may hold a semicolon.
		url, marker, _ := strings.Cut(strings.TrimSpace(url)+" ", " ")
		if r.URL = url; url == "" {
			return fail("'@' without a URL")
		}
		if marker = strings.TrimSpace(marker); marker != "" {
			var ok bool
			if r.Marker, ok = strings.CutPrefix(marker, ";"); !ok {
				return fail("more than a URL after '@'")
			}
		}
		r.Marker = strings.TrimSpace(r.Marker)
		return r, nil
	}
	versions, marker, marked := strings.Cut(rest, ";")
	if r.Marker = strings.TrimSpace(marker); marked && r.Marker == "" {
		return fail("';' without a marker")
	}
	versions = strings.TrimSpace(versions)
	if inner, ok := strings.CutPrefix(versions, "("); ok {
		if versions, ok = strings.CutSuffix(inner, ")"); !ok {
			return fail("'(' without ')'")
		}
	}
	var clauses []string
	for _, clause := range commas(versions) {
		m := versionClause.FindStringSubmatch(clause)
		if m == nil {
			return fail("want versions such as >=1.0,<2, not " + printable(clause))
		}
		clauses = append(clauses, m[1]+m[2])
	}
	r.Specifier = strings.Join(clauses, ",")
	return r, nil
}
