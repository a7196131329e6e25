package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// withFields returns a SKILL.md with the required fields and the given ones.
func withFields(fields string) string {
	return "---\nname: demo\ndescription: d\n" + fields + "\n---\nbody\n"
}

// rules formats findings as "rule:line".
func rules(list []Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s:%d", f.Rule, f.Line))
	}
	return out
}

func TestManifestFields(t *testing.T) {
	tests := []struct {
		fields string
		want   Manifest
		rules  []string
	}{
		{fields: "license: Apache-2.0", want: Manifest{License: "Apache-2.0"}},
		{fields: "compatibility: Requires python3", want: Manifest{Compatibility: "Requires python3"}},
		{fields: "author: me", want: Manifest{Author: "me"}},
		{fields: `version: "1.0.0"`, want: Manifest{Version: "1.0.0"}},
		{fields: "version: 1.0", want: Manifest{Version: "1.0"}, rules: []string{"field-type:4"}},
		{fields: "version: 2024-01-02", want: Manifest{Version: "2024-01-02"}, rules: []string{"field-type:4"}},
		{fields: "version: ~", want: Manifest{}},
		{fields: "version:", want: Manifest{}},
		{fields: "author: {name: me}", want: Manifest{Unknown: map[string]any{"author": map[string]any{"name": "me"}}}, rules: []string{"field-type:4"}},
		{fields: "author: [a, b]", want: Manifest{Unknown: map[string]any{"author": []any{"a", "b"}}}, rules: []string{"field-type:4"}},

		{fields: "tags: [a, 2, ~, b]", want: Manifest{Tags: []string{"a", "2", "b"}}},
		{fields: "tags: a, b ,,c", want: Manifest{Tags: []string{"a", "b", "c"}}, rules: []string{"field-type:4"}},
		{fields: "tags: [a, [b]]", want: Manifest{Tags: []string{"a"}, Unknown: map[string]any{"tags": []any{"a", []any{"b"}}}}, rules: []string{"field-type:4"}},
		{fields: "tags: {a: b}", want: Manifest{Unknown: map[string]any{"tags": map[string]any{"a": "b"}}}, rules: []string{"field-type:4"}},
		{fields: "required_tools: Read, Write", want: Manifest{RequiredTools: []string{"Read", "Write"}}, rules: []string{"field-type:4"}},
		{fields: "optional_tools:\n- Bash(git log:*)", want: Manifest{OptionalTools: []string{"Bash(git log:*)"}}},
		{fields: "python_packages:\n- pandas>=2,<3\n- numpy", want: Manifest{PythonPackages: []string{"pandas>=2,<3", "numpy"}}},
		{fields: "python_packages: pandas>=2,<3", want: Manifest{PythonPackages: []string{"pandas>=2,<3"}}, rules: []string{"field-type:4"}},
		{fields: "python_packages: ' '", want: Manifest{}, rules: []string{"field-type:4"}},
		{fields: "python: embedded", want: Manifest{Python: "embedded"}},
		{fields: "python: ' system '", want: Manifest{Python: "system"}},
		{fields: "python: auto", want: Manifest{Python: "auto"}},
		{fields: "python:", want: Manifest{}},
		{fields: "python: Embedded", want: Manifest{Unknown: map[string]any{"python": "Embedded"}}, rules: []string{"field-type:4"}},
		{fields: "python: '3.14'", want: Manifest{Unknown: map[string]any{"python": "3.14"}}, rules: []string{"field-type:4"}},
		{fields: "python: [system]", want: Manifest{Unknown: map[string]any{"python": []any{"system"}}}, rules: []string{"field-type:4"}},
		{fields: "system_packages: []", want: Manifest{SystemPackages: []string{}}},

		{fields: "activation_mode: auto\nmodel: big", want: Manifest{ActivationMode: "auto", Model: "big"}},
		{fields: "mode: true\nwhen_to_use: often", want: Manifest{Mode: true, WhenToUse: "often"}},
		{fields: "disable-model-invocation: true", want: Manifest{DisableModelInvocation: true}},
		{fields: "network_access: yes", want: Manifest{NetworkAccess: true}, rules: []string{"field-type:4"}},
		{fields: `network_access: "true"`, want: Manifest{NetworkAccess: true}, rules: []string{"field-type:4"}},
		{fields: "network_access: False", want: Manifest{}},
		{fields: "network_access: maybe", want: Manifest{Unknown: map[string]any{"network_access": "maybe"}}, rules: []string{"field-type:4"}},
		{fields: "network_access: 1", want: Manifest{Unknown: map[string]any{"network_access": 1.0}}, rules: []string{"field-type:4"}},
		{fields: "network_access: [true]", want: Manifest{Unknown: map[string]any{"network_access": []any{true}}}, rules: []string{"field-type:4"}},

		{fields: "max_execution_time: 300", want: Manifest{MaxExecutionTime: 300 * time.Second}},
		{fields: "max_execution_time: 0.5", want: Manifest{MaxExecutionTime: time.Second / 2}},
		{fields: "max_execution_time: 1e-30", want: Manifest{MaxExecutionTime: 1}},
		{fields: "max_execution_time: 600", want: Manifest{MaxExecutionTime: MaxExecutionTime}},
		{fields: "max_execution_time: 600.5", want: Manifest{MaxExecutionTime: MaxExecutionTime}, rules: []string{"field-value:4"}},
		{fields: "max_execution_time: 1e300", want: Manifest{MaxExecutionTime: MaxExecutionTime}, rules: []string{"field-value:4"}},
		{fields: "max_execution_time: 0", want: Manifest{Unknown: map[string]any{"max_execution_time": 0.0}}, rules: []string{"field-value:4"}},
		{fields: "max_execution_time: -1", want: Manifest{Unknown: map[string]any{"max_execution_time": -1.0}}, rules: []string{"field-value:4"}},
		{fields: "max_execution_time: .nan", want: Manifest{Unknown: map[string]any{"max_execution_time": ".nan"}}, rules: []string{"field-value:4"}},
		{fields: "max_execution_time: .inf", want: Manifest{Unknown: map[string]any{"max_execution_time": ".inf"}}, rules: []string{"field-value:4"}},
		{fields: `max_execution_time: "60"`, want: Manifest{MaxExecutionTime: time.Minute}, rules: []string{"field-type:4"}},
		{fields: `max_execution_time: "nan"`, want: Manifest{Unknown: map[string]any{"max_execution_time": "nan"}}, rules: []string{"field-type:4", "field-value:4"}},
		{fields: "max_execution_time: 5m", want: Manifest{Unknown: map[string]any{"max_execution_time": "5m"}}, rules: []string{"field-type:4"}},
		{fields: "max_execution_time: [5]", want: Manifest{Unknown: map[string]any{"max_execution_time": []any{5.0}}}, rules: []string{"field-type:4"}},
		{fields: "max_memory: 512", want: Manifest{MaxMemoryBytes: 512 << 20}},
		{fields: "max_memory: 8.5", want: Manifest{MaxMemoryBytes: 17 << 19}},
		{fields: "max_memory: 7.9", want: Manifest{}, rules: []string{"field-value:4"}},
		{fields: "max_memory: 1e18", want: Manifest{MaxMemoryBytes: 1 << 40}, rules: []string{"field-value:4"}},
		{fields: "max_memory: 0", want: Manifest{Unknown: map[string]any{"max_memory": 0.0}}, rules: []string{"field-value:4"}},
		{fields: "max_memory: 512MB", want: Manifest{Unknown: map[string]any{"max_memory": "512MB"}}, rules: []string{"field-type:4"}},

		{fields: "metadata:\n  category: x\n  level: 3", want: Manifest{Metadata: map[string]string{"category": "x", "level": "3"}}, rules: []string{"field-type:6"}},
		{fields: "metadata: {version: 1.2, no: ~}", want: Manifest{Metadata: map[string]string{"version": "1.2", "no": ""}}, rules: []string{"field-type:4"}},
		{fields: "metadata:\n  deep: {a: [1, x]}", want: Manifest{Metadata: map[string]string{"deep": `{"a":[1,"x"]}`}}, rules: []string{"field-type:5"}},
		{fields: "metadata:\n  a: x\n  a: y", want: Manifest{Metadata: map[string]string{"a": "y"}}, rules: []string{"duplicate-key:6"}},
		{fields: "metadata: text", want: Manifest{Unknown: map[string]any{"metadata": "text"}}, rules: []string{"field-type:4"}},

		{fields: "allowed-tools: Bash(git:*), Read", want: Manifest{AllowedTools: []string{"Bash(git:*)", "Read"}, HasAllowedTools: true}},
		{fields: "allowed-tools:\n- Bash(git log:*)\n- Read Write", want: Manifest{AllowedTools: []string{"Bash(git log:*)", "Read", "Write"}, HasAllowedTools: true}},
		{fields: "allowed-tools: ''", want: Manifest{HasAllowedTools: true}},
		{fields: "allowed-tools: []", want: Manifest{HasAllowedTools: true}},
		{fields: "allowed-tools:", want: Manifest{HasAllowedTools: true}, rules: []string{"field-type:4"}},
		{fields: "allowed-tools: ~", want: Manifest{HasAllowedTools: true}, rules: []string{"field-type:4"}},
		{fields: "allowed-tools: {Bash: git}", want: Manifest{HasAllowedTools: true, Unknown: map[string]any{"allowed-tools": map[string]any{"Bash": "git"}}}, rules: []string{"field-type:4"}},
		{fields: "allowed-tools: [Read, {Bash: git}]", want: Manifest{AllowedTools: []string{"Read"}, HasAllowedTools: true, Unknown: map[string]any{"allowed-tools": []any{"Read", map[string]any{"Bash": "git"}}}}, rules: []string{"field-type:4"}},

		{fields: "foo: bar", want: Manifest{Unknown: map[string]any{"foo": "bar"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: {a: 1, b: [true, ~, 2.5], 3: x}", want: Manifest{Unknown: map[string]any{"foo": map[string]any{"a": 1.0, "b": []any{true, nil, 2.5}, "3": "x"}}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: 9007199254740993", want: Manifest{Unknown: map[string]any{"foo": "9007199254740993"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: 2024-01-02", want: Manifest{Unknown: map[string]any{"foo": "2024-01-02"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: -.inf", want: Manifest{Unknown: map[string]any{"foo": "-.inf"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: !!int x", want: Manifest{Unknown: map[string]any{"foo": "x"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: !custom x", want: Manifest{Unknown: map[string]any{"foo": "x"}}, rules: []string{"unknown-field:4"}},
		{fields: "foo: ~", want: Manifest{Unknown: map[string]any{"foo": nil}}, rules: []string{"unknown-field:4"}},
		{fields: "? [a, b]\n: x", want: Manifest{Unknown: map[string]any{"[a b]": "x"}}, rules: []string{"unknown-field:4"}},
		{fields: "license: a\nlicense: b", want: Manifest{License: "b"}, rules: []string{"duplicate-key:5"}},
		{fields: "license: &l MIT\nauthor: *l", want: Manifest{License: "MIT", Author: "MIT"}},
	}
	for _, tt := range tests {
		t.Run(tt.fields, func(t *testing.T) {
			d := Parse([]byte(withFields(tt.fields)), "SKILL.md", "demo")
			if err := d.Err(); err != nil {
				t.Fatalf("err = %v", err)
			}
			tt.want.Name, tt.want.Description = "demo", "d"
			if !reflect.DeepEqual(d.Manifest, tt.want) {
				t.Errorf("got  %#v\nwant %#v", d.Manifest, tt.want)
			}
			if got := rules(d.List); !slices.Equal(got, tt.rules) {
				t.Errorf("rules = %v, want %v: %v", got, tt.rules, d.List)
			}
		})
	}
}

// Only the text between the delimiters is front matter.
func TestManifestLayout(t *testing.T) {
	tests := []struct {
		name        string
		text        string
		description string
		body        string
		bodyLine    int
		rules       []string
	}{
		{"plain", "---\nname: demo\ndescription: d\n---\nbody\n", "d", "body", 5, nil},
		{"CRLF", "---\r\nname: demo\r\ndescription: d\r\n---\r\n\r\nbody\r\nmore\r\n", "d", "body\nmore", 6, []string{"line-ends:1"}},
		{"some CRLF", "---\nname: demo\ndescription: d\n---\nbody\r\n", "d", "body", 5, []string{"line-ends:5"}},
		{"BOM", "\ufeff---\nname: demo\ndescription: d\n---\nbody", "d", "body", 5, []string{"byte-order-mark:1"}},
		{"BOM and CRLF", "\ufeff---\r\nname: demo\r\ndescription: d\r\n---\r\nbody", "d", "body", 5, []string{"byte-order-mark:1", "line-ends:1"}},
		{"blank lines first", "\n\n---\nname: demo\ndescription: d\n---\nbody", "d", "body", 7, []string{"front-matter:1"}},
		{"blanks after dashes", "--- \nname: demo\ndescription: d\n---\t\nbody", "d", "body", 5, nil},
		{"dashes in a line", "---\nname: demo\ndescription: a --- b\n---\nbody", "a --- b", "body", 5, nil},
		{"dashes quoted", "---\nname: demo\ndescription: '---'\n---\nbody", "---", "body", 5, nil},
		{"dashes in a block", "---\nname: demo\ndescription: |\n  a\n  ---\n  b\n---\nbody", "a\n---\nb", "body", 8, nil},
		{"dashes in a folded block", "---\nname: demo\ndescription: >-\n  a\n  ---\n---\nbody", "a ---", "body", 7, nil},
		{"four dashes", "---\nname: demo\ndescription: d\n#----\n---\nbody", "d", "body", 6, nil},
		{"rule in the body", "---\nname: demo\ndescription: d\n---\na\n\n---\n\nb\n", "d", "a\n\n---\n\nb", 5, nil},
		{"no body", "---\nname: demo\ndescription: d\n---", "d", "", 5, nil},
		{"two documents", "---\nname: demo\ndescription: d\n...\nallowed-tools: Bash\n---\nbody", "d", "body", 7, []string{"yaml:2"}},
		{"not UTF-8", "---\nname: demo\ndescription: d\n---\nbo\xffdy", "d", "bo\ufffddy", 5, []string{"encoding:5"}},
		{"multi-line", "---\nname: demo\ndescription: a\n  b\n  c\n---\nbody", "a b c", "body", 7, nil},
		{"trimmed", "---\nname: ' demo '\ndescription: ' d '\n---\nbody", "d", "body", 5, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Parse([]byte(tt.text), "SKILL.md", "demo")
			if err := d.Err(); err != nil {
				t.Fatalf("err = %v", err)
			}
			if d.Name != "demo" || d.Description != tt.description {
				t.Errorf("name, description = %q, %q, want demo, %q", d.Name, d.Description, tt.description)
			}
			if d.AllowedTools != nil {
				t.Errorf("allowed tools = %q, want none", d.AllowedTools)
			}
			if d.Body != tt.body || d.BodyLine != tt.bodyLine {
				t.Errorf("body = %q in line %d, want %q in line %d", d.Body, d.BodyLine, tt.body, tt.bodyLine)
			}
			if got := rules(d.List); !slices.Equal(got, tt.rules) {
				t.Errorf("rules = %v, want %v", got, tt.rules)
			}
		})
	}
}

// Each of these prevents loading. The error has the rule and the line.
func TestManifestErrors(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		from, to := 'a'+i, 'b'+i
		bomb += fmt.Sprintf("%c: &%c [%s]\n", to, to, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", from), 9), ","))
	}
	tests := []struct {
		name, text string
		rule       string
		line       int
	}{
		{"empty", "", RuleFrontMatter, 1},
		{"no front matter", "# Title\n", RuleFrontMatter, 1},
		{"text first", "x\n---\nname: demo\n---\n", RuleFrontMatter, 1},
		{"not closed", "---\nname: demo\ndescription: d\n", RuleFrontMatterOpen, 1},
		{"indented close", "---\nname: demo\ndescription: d\n ---\n", RuleFrontMatterOpen, 1},
		{"nothing in it", "---\n---\nbody", RuleFrontMatter, 2},
		{"only a comment", "---\n# x\n---\nbody", RuleFrontMatter, 2},
		{"a list", "---\n- name\n---\n", RuleFrontMatter, 2},
		{"a string", "---\nname\n---\n", RuleFrontMatter, 2},
		{"no name", "---\ndescription: d\n---\n", RuleNameMissing, 2},
		{"null name", "---\ndescription: d\nname:\n---\n", RuleNameMissing, 3},
		{"blank name", "---\nname: ' '\ndescription: d\n---\n", RuleNameMissing, 2},
		{"list name", "---\nname: [a]\ndescription: d\n---\n", RuleNameMissing, 2},
		{"name with slash", "---\nname: a/b\ndescription: d\n---\n", RuleNameInvalid, 2},
		{"name with dots", "---\nname: ..\ndescription: d\n---\n", RuleNameInvalid, 2},
		{"name with NUL", "---\nname: \"a\\0b\"\ndescription: d\n---\n", RuleNameInvalid, 2},
		{"long name", "---\nname: " + strings.Repeat("a", 65) + "\ndescription: d\n---\n", RuleNameInvalid, 2},
		{"no description", "---\nname: demo\n---\n", RuleDescription, 2},
		{"empty description", "---\nname: demo\ndescription: ''\n---\n", RuleDescription, 3},
		{"mapping description", "---\nname: demo\ndescription: {a: b}\n---\n", RuleDescription, 3},
		{"broken YAML", "---\nname: demo\ndescription: 'd\n---\n", RuleYAML, 3},
		{"colon in a value", "---\nname: demo\ndescription: use when: asked\n---\n", RuleYAML, 3},
		{"tab", "---\nname: demo\n\tx: y\n---\n", RuleYAML, 3},
		{"unknown alias", "---\nname: demo\ndescription: *x\n---\n", RuleYAML, 3},
		{"control character", "---\nname: demo\ndescription: a\x01b\n---\n", RuleYAML, 3},
		{"bracket", "---\nname: demo\nx: [1, 2\n---\n", RuleYAML, 3},
		{"bracket before another key", "---\nname: demo\nx: [1, 2\ndescription: d\n---\n", RuleYAML, 3},
		{"UTF-16", "\xff\xfe-\x00-\x00-\x00\n\x00", RuleFrontMatter, 1},
		{"alias bomb", withFields(bomb), RuleYAMLBounds, 2},
		{"alias to itself", withFields("x: &x [*x]"), RuleYAMLBounds, 2},
		{"deep", withFields("x: " + nest(maxYAMLDepth+2)), RuleYAMLBounds, 2},
		{"very deep", withFields("x: " + nest(30_000)), RuleYAML, 2},
		{"many bytes", withFields("x: &x " + strings.Repeat("y", 50_000) + "\nz: [" + strings.Repeat("*x,", 100) + "]"), RuleYAMLBounds, 2},
		{"large front matter", withFields("x: " + strings.Repeat("y", MaxFrontMatterBytes)), RuleFrontMatterSize, 2},
		{"large file", withFields("") + strings.Repeat("y", MaxBytes), RuleManifestSize, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Parse([]byte(tt.text), "SKILL.md", "demo")
			var err *ManifestError
			if !errors.As(d.Err(), &err) {
				t.Fatalf("err = %v, want a *ManifestError; %+v", d.Err(), d.Manifest)
			}
			f := err.Finding
			if f.Rule != tt.rule || f.Severity != SeverityError || f.File != "SKILL.md" {
				t.Errorf("finding = %+v, want an error of rule %s", f, tt.rule)
			}
			// yaml.v3 may report a syntax error up to two lines late.
			if near := f.Rule == RuleYAML && f.Line >= tt.line && f.Line <= tt.line+2; f.Line != tt.line && !near {
				t.Errorf("line = %d, want %d: %v", f.Line, tt.line, f)
			}
		})
	}
}

// The files in testdata/manifests are also the seeds of the fuzz test.
func TestManifestFiles(t *testing.T) {
	read := func(name string) *Document {
		text, err := os.ReadFile(filepath.Join("testdata/manifests", name))
		mustDo(t, err)
		return Parse(text, "SKILL.md", "")
	}
	full := Manifest{
		Name: "data-analysis", Description: "Analyze CSV and JSON files. Use it when numbers are asked for.",
		License: "Apache-2.0", Compatibility: "Requires python3, pandas",
		Metadata:     map[string]string{"category": "data-science", "version": "1.2"},
		AllowedTools: []string{"Bash(python:*)", "Bash(jq:*)", "Read", "Write"}, HasAllowedTools: true,
		Version: "1.0.0", Author: "someone", Tags: []string{"data", "csv"}, ActivationMode: "auto",
		RequiredTools: []string{"Bash"}, OptionalTools: []string{"Read"}, Model: "large", WhenToUse: "with tables",
		MaxExecutionTime: 5 * time.Minute, MaxMemoryBytes: 512 << 20,
		PythonPackages: []string{"pandas>=2.0.0"}, SystemPackages: []string{},
		Unknown: map[string]any{"extra": map[string]any{"nested": []any{1.0, 2.5, true, nil, "2024-01-02"}}},
	}
	d := read("full.md")
	if !reflect.DeepEqual(d.Manifest, full) || d.Err() != nil {
		t.Errorf("full.md: got  %#v\nwant %#v", d.Manifest, full)
	}
	if want := "# Data analysis\n\n    python {baseDir}/scripts/extract.py data.csv"; d.Body != want || d.BodyLine != 30 {
		t.Errorf("full.md: body %q in line %d", d.Body, d.BodyLine)
	}
	for name, want := range map[string][]string{
		"crlf.md":  {"byte-order-mark:1", "line-ends:1", "field-type:7"},
		"alias.md": {"unknown-field:5", "unknown-field:6"},
		"types.md": {"duplicate-key:6", "field-type:3", "description-missing:3", "field-type:4", "field-value:5", "field-type:6"},
		"none.md":  {"front-matter:1"},
	} {
		got := rules(read(name).List)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Several missing fields are all reported, not just the first.
func TestEveryMissingFieldIsFound(t *testing.T) {
	got := rules(Validate("---\nlicense: x\n---\n", ""))
	want := []string{"name-missing:2", "description-missing:2"}
	if !slices.Equal(got, want) {
		t.Errorf("rules = %v, want %v", got, want)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	var fields strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&fields, "x%d: 1\n", i)
	}
	got := Validate(withFields(fields.String()), "")
	if len(got) != maxFindings+1 {
		t.Fatalf("%d findings, want %d", len(got), maxFindings+1)
	}
	if !slices.ContainsFunc(got, func(f Finding) bool { return f.Rule == RuleTooMany }) {
		t.Error("no finding says that others were left out")
	}
}

// Parsing ends for any input, and its results are valid UTF-8 and JSON.
func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("testdata/manifests/*.md")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("seeds: %v, %v", seeds, err)
	}
	for _, p := range seeds {
		text, err := os.ReadFile(p)
		mustDo(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := Parse(text, "SKILL.md", "demo")
		if _, err := json.Marshal(d.Manifest); err != nil {
			t.Errorf("manifest is not JSON: %v", err)
		}
		for _, s := range []string{d.Name, d.Description, d.Body} {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
		for _, x := range d.List {
			if x.Line < 0 || x.Line > 1+strings.Count(string(text), "\n")+1 || !utf8.ValidString(x.Message) {
				t.Errorf("invalid finding %+v", x)
			}
		}
		if d.Err() != nil {
			return
		}
		if err := ValidName(d.Name); err != nil {
			t.Errorf("loaded with an invalid name: %v", err)
		}
		if d.Description == "" || d.MaxExecutionTime < 0 || d.MaxExecutionTime > MaxExecutionTime || d.MaxMemoryBytes < 0 {
			t.Errorf("loaded with %+v", d.Manifest)
		}
	})
}
