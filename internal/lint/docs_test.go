package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ruleNames are the values of the Rule constants in a source.
func ruleNames(t *testing.T, file string) []string {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(source, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Rule") {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return true
	})
	return names
}

var ruleRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (error|warning|either) \\| (.+) \\| (.+) \\|$")

// docs/validate.md has each rule once, with a reason and with what to do.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/validate.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range ruleRow.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	known := append(ruleNames(t, "rules.go"), ruleNames(t, "../skill/manifest/finding.go")...)
	slices.Sort(known)
	if len(known) < 30 {
		t.Fatalf("%d rules; the sources were not read", len(known))
	}
	if !slices.Equal(documented, known) {
		t.Errorf("docs/validate.md has %v\nthe code has %v", documented, known)
	}
}
