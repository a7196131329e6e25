package manifest

import (
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Requirement is a package that a skill declares.
type Requirement struct {
	// Text is the requirement as written, without options: "pandas>=2.0.0", "jq".
	Text string
	// System marks a system package. Others are Python packages.
	System bool
	File   string // the file that declares it, relative to the skill
	Line   int    // from 1; 0: not known
	// Script is the only script that needs it. Empty: all scripts do.
	Script string
	// Hashes are the values of --hash, "sha256:...". Empty: every file is accepted.
	Hashes []string
}

// PythonVersion is the interpreter version that a script requires (requires-python).
type PythonVersion struct {
	Script    string
	Specifier string // ">=3.11"
	Line      int
}

// PythonRequirement holds the parts of a Python requirement, as in the specification of
// dependency specifiers (PEP 508).
type PythonRequirement struct {
	Name      string // as written; compare with NormalName
	Extras    []string
	Specifier string // ">=2,<3", or empty
	URL       string // from "name @ URL", or empty
	Marker    string // the text after ";", or empty
}

var (
	packageName   = lazyregexp.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`)
	extraName     = lazyregexp.New(`^` + `[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?` + `$`)
	versionClause = lazyregexp.New(`^(===|==|~=|!=|<=|>=|<|>)\s*([A-Za-z0-9._*+!-]+)$`)
	nameRuns      = lazyregexp.New(`[-_.]+`)
)

// NormalName returns a package name in the form in which names are compared (PEP 503).
func NormalName(name string) string {
	return strings.ToLower(nameRuns.ReplaceAllString(name, "-"))
}

// Pinned reports whether the requirement allows only one version.
// "==1.*" allows many versions, so it does not count.
func (r PythonRequirement) Pinned() bool {
	for clause := range strings.SplitSeq(r.Specifier, ",") {
		clause = strings.TrimSpace(clause)
		if strings.HasPrefix(clause, "===") || strings.HasPrefix(clause, "==") && !strings.HasSuffix(clause, "*") {
			return true
		}
	}
	return false
}

// ParseRequirement parses the text of a Python requirement. It checks only the form of the
// versions, and nothing of the marker or URL.
// Markers are evaluated, and URLs refused, by package environment, which knows the interpreter.
func ParseRequirement(text string) (PythonRequirement, error) {
	fail := func(what string) (PythonRequirement, error) {
		return PythonRequirement{}, fmt.Errorf("requirement %.80q: %s", text, what)
	}
	rest := strings.TrimSpace(text)
	if len(rest) > maxRequirementBytes || strings.ContainsFunc(rest, snapshot.IsControl) {
		return fail("is too long or has control characters")
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
				return fail("an extra is not a valid name")
			}
			r.Extras = append(r.Extras, extra)
		}
		rest = strings.TrimSpace(after)
	}
	if url, ok := strings.CutPrefix(rest, "@"); ok {
		// Only a blank ends a URL, which may hold a semicolon.
		url, marker, _ := strings.Cut(strings.TrimSpace(url)+" ", " ")
		if r.URL = url; url == "" {
			return fail("'@' without a URL")
		}
		if marker = strings.TrimSpace(marker); marker != "" {
			var ok bool
			if r.Marker, ok = strings.CutPrefix(marker, ";"); !ok {
				return fail("only ';' and a marker may follow the URL")
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
			return fail("want versions such as >=1.0,<2, not " + snapshot.Printable(clause))
		}
		clauses = append(clauses, m[1]+m[2])
	}
	r.Specifier = strings.Join(clauses, ",")
	return r, nil
}
