package docs

import (
	"bufio"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// resultsVariable names the file with the results of the whole test run, as
// `go test -json` prints them; make test sets it.
const resultsVariable = "SKILLRUN_TEST_RESULTS"

// mutationVariable names the run whose results are read. "later": make test, which skips the
// tests with mutationPrefix. "only": make test-mutation, which runs only these tests.
const (
	mutationVariable = "SKILLRUN_TEST_MUTATION"
	mutationPrefix   = "cmd/skillrund.TestMutation"
)

// ranElsewhere reports whether a test belongs to the other one of these two runs.
func ranElsewhere(test string) bool {
	switch os.Getenv(mutationVariable) {
	case "later":
		return strings.HasPrefix(test, mutationPrefix)
	case "only":
		return !strings.HasPrefix(test, mutationPrefix)
	}
	return false
}

// tables are the documents whose tables have promises, or threats, in the first
// column, and the least number of rows, lest a table that isn't read is taken for one
// that is true.
var tables = []struct {
	file string
	rows int
}{
	{"promises.md", 50},
	{"contracts.md", 40},
	{"security.md", 9},
}

// A promise is a row of a table: the promised behaviour, and the tests that show it,
// each as `folder.TestName` or `folder.TestName/subtest`.
type promise struct {
	file  string
	line  int
	text  string
	tests []string
}

var testName = regexp.MustCompile("`([a-z0-9/_-]+)\\.((?:Test|Fuzz|Example)[A-Za-z0-9_]*(?:/[^`]+)?)`")

// readPromises reads the tables of a document that have a column with tests. Such a
// column's head begins so.
func readPromises(t *testing.T, file string) []promise {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []promise
	const none = -1
	column, inside := none, false
	for i, line := range strings.Split(string(data), "\n") {
		// \| is a bar within a cell.
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, ""), "| "), "|")
		head := !inside
		inside = strings.HasPrefix(line, "|")
		if head {
			column = slices.IndexFunc(cells, func(c string) bool { return strings.HasPrefix(strings.ToLower(strings.TrimSpace(c)), "test") })
		}
		if !inside || head || column == none || strings.HasPrefix(cells[0], "---") {
			continue
		}
		p := promise{file: file, line: i + 1, text: strings.TrimSpace(cells[0])}
		tests := ""
		if len(cells) > column {
			tests = cells[column]
		}
		for _, m := range testName.FindAllStringSubmatch(tests, -1) {
			p.tests = append(p.tests, m[1]+"."+m[2])
		}
		out = append(out, p)
	}
	return out
}

// TestPromises fails for a promise without a test, for one whose test is not in
// the sources, and, given the results of a run, for one whose test did not run
// and pass there.
func TestPromises(t *testing.T) {
	var promises []promise
	for _, table := range tables {
		rows := readPromises(t, table.file)
		if len(rows) < table.rows {
			t.Fatalf("%s: %d promises; the table was not read", table.file, len(rows))
		}
		promises = append(promises, rows...)
	}
	sources := testsInSources(t)
	var results map[string]string
	if path := os.Getenv(resultsVariable); path != "" {
		results = readResults(t, path)
	}
	for _, p := range promises {
		if len(p.tests) == 0 {
			t.Errorf("%s:%d: %s: names no test", p.file, p.line, p.text)
		}
		for _, name := range p.tests {
			folder, test, _ := strings.Cut(name, ".") // no folder has a dot
			function, _, _ := strings.Cut(test, "/")
			top := folder + "." + function
			if !sources[top] {
				t.Errorf("%s:%d: %s: there is no test %s", p.file, p.line, p.text, top)
			} else if results != nil && !ranElsewhere(name) && results[name] != "pass" {
				t.Errorf("%s:%d: %s: %s did not pass: %q", p.file, p.line, p.text, name, results[name])
			}
		}
	}
}

// TestNamedTests fails for a test that a document names and that is not in the sources.
func TestNamedTests(t *testing.T) {
	sources := testsInSources(t)
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, file := range append(append(documents, decisions...), "../SECURITY.md", "../README.md", "../CHANGELOG.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(data), -1) {
			named++
			function, _, _ := strings.Cut(m[2], "/")
			if !sources[m[1]+"."+function] {
				t.Errorf("%s: there is no test %s.%s", file, m[1], function)
			}
		}
	}
	if named < 200 {
		t.Errorf("%d names were found; the documents were not read", named)
	}
}

// testsInSources returns every test function as folder.Name.
func testsInSources(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				found[filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../"))+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// readResults returns the last action of every test of a run.
func readResults(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	results := map[string]string{}
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var event struct{ Action, Package, Test string }
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			return results
		} else if err != nil {
			t.Fatal(err)
		}
		switch event.Action {
		case "pass", "fail", "skip":
			results[strings.TrimPrefix(event.Package, module)+"."+event.Test] = event.Action
		}
	}
}
