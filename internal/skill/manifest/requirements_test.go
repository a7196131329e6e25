package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestRequirementsOfEverySource(t *testing.T) {
	needs, found := readSkill(t, files{
		"SKILL.md": "---\nname: demo\ndescription: Shows things.\npython_packages:\n  - pandas>=2.0.0\n  - \"numpy\"\nsystem_packages: [jq]\n---\n",
		"requirements.txt": "# first\n\nrequests>=2,<3 # why\nrich[a, b]==13.0 ; python_version < '4'\n" +
			"six==1.16.0 \\\n  --hash=sha256:" + strings.Repeat("a", 64) + " \\\n  --hash sha256:" + strings.Repeat("b", 64) + "\n-r more/base.txt\n",
		"more/base.txt":            "-r ../requirements.txt\r\nattrs\r\n",
		"scripts/requirements.txt": "click",
		"scripts/x.py":             "#!/usr/bin/env python3\n# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\n#   \"httpx<1\",\n# ]\n# ///\nprint(1)\n",
		"scripts/y.py":             "print(1)\n",
	})
	want := []Requirement{
		{Text: "pandas>=2.0.0", File: "SKILL.md", Line: 5},
		{Text: "numpy", File: "SKILL.md", Line: 6},
		{Text: "jq", System: true, File: "SKILL.md", Line: 7},
		{Text: "requests>=2,<3", File: "requirements.txt", Line: 3},
		{Text: "rich[a, b]==13.0 ; python_version < '4'", File: "requirements.txt", Line: 4},
		{Text: "six==1.16.0", File: "requirements.txt", Line: 5, Hashes: []string{"sha256:" + strings.Repeat("a", 64), "sha256:" + strings.Repeat("b", 64)}},
		{Text: "attrs", File: "more/base.txt", Line: 2},
		{Text: "click", File: "scripts/requirements.txt", Line: 1},
		{Text: "httpx<1", File: "scripts/x.py", Line: 5, Script: "scripts/x.py"},
	}
	if got := needs.List; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got, want := needs.Versions, []PythonVersion{{"scripts/x.py", ">=3.9", 3}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(found) != 0 {
		t.Errorf("got %v, want no finding", found)
	}
}

// A skill cannot choose where packages come from.
func TestRequirementFindings(t *testing.T) {
	block := func(inner string) string { return "# /// script\n" + inner + "# ///\n" }
	cases := []struct {
		name, file, text string
		rule             string
		line             int
		kept             []string
	}{
		{"index option", "requirements.txt", "--index-url https://evil.example/simple\nsix\n", RuleRequirementOption, 1, []string{"six"}},
		{"short index option", "requirements.txt", "-i https://evil.example/simple", RuleRequirementOption, 1, nil},
		{"editable", "requirements.txt", "-e ./pkg", RuleRequirementOption, 1, nil},
		{"option of one", "requirements.txt", "six --global-option=x", RuleRequirementOption, 1, []string{"six"}},
		{"constraints", "requirements.txt", "-c c.txt", RuleRequirementOption, 1, nil},
		{"include outside", "requirements.txt", "-r ../../etc/passwd", RuleRequirementFile, 1, nil},
		{"include absolute", "requirements.txt", "-r /etc/passwd", RuleRequirementFile, 1, nil},
		{"include URL", "requirements.txt", "--requirement=https://evil.example/r.txt", RuleRequirementFile, 1, nil},
		{"include missing", "requirements.txt", "-rmore.txt", RuleRequirementFile, 1, nil},
		{"include of a folder", "requirements.txt", "-r scripts", RuleRequirementFile, 0, nil},
		{"too large", "requirements.txt", strings.Repeat("# x\n", maxRequirementFile/4+1), RuleRequirementFile, 0, nil},
		{"no name", "requirements.txt", "six\n==2\n", RuleRequirement, 2, []string{"six", "==2"}},
		{"bad hash", "requirements.txt", "six --hash=md5:0", RuleRequirement, 1, []string{"six"}},
		{"URL", "requirements.txt", "six @ https://evil.example/six.whl", RuleRequirement, 1, []string{"six @ https://evil.example/six.whl"}},
		{"too long", "requirements.txt", "six" + strings.Repeat("x", maxRequirementBytes), RuleRequirement, 1, nil},
		{"not closed", "scripts/x.py", "# /// script\n# dependencies = []\n", RuleScriptMetadata, 1, nil},
		{"two blocks", "scripts/x.py", block("# dependencies=[]\n") + "\n" + block("# dependencies=[]\n"), RuleScriptMetadata, 5, nil},
		{"no TOML", "scripts/x.py", "\n" + block("# dependencies=[]\n# what\n"), RuleScriptMetadata, 4, nil},
		{"wrong type", "scripts/x.py", block("# dependencies = \"six\"\n"), RuleScriptMetadata, 2, nil},
		{"bad requires-python", "scripts/x.py", block("#\n# requires-python = \"three\"\n"), RuleScriptMetadata, 3, nil},
		{"long block", "scripts/x.py", block(strings.Repeat("# #############\n", maxMetadataBytes/10)), RuleScriptMetadata, 1, nil},
		{"long script", "scripts/x.py", strings.Repeat("#\n", maxMetadataScript/2+1), RuleScriptMetadata, 0, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			needs, found := readSkill(t, files{c.file: c.text, "scripts/keep.txt": ""})
			var kept []string
			for _, r := range needs.List {
				kept = append(kept, r.Text)
			}
			if !slices.Equal(kept, c.kept) {
				t.Errorf("kept: got %q, want %q", kept, c.kept)
			}
			for _, f := range found {
				if f.Rule == c.rule && f.Line == c.line {
					return
				}
			}
			t.Errorf("got %v, want %s at line %d", found, c.rule, c.line)
		})
	}
}

func TestRequirementsAreBounded(t *testing.T) {
	var lines strings.Builder
	for i := range maxRequirements + 5 {
		fmt.Fprintf(&lines, "p%d\n", i)
	}
	needs, _ := readSkill(t, files{"requirements.txt": lines.String()})
	if got := len(needs.List); got != maxRequirements {
		t.Errorf("got %d requirements, want %d", got, maxRequirements)
	}
	deep := files{"requirements.txt": "-r r1.txt"}
	for i := 1; i < 20; i++ {
		deep[fmt.Sprintf("r%d.txt", i)] = fmt.Sprintf("p%d\n-r r%d.txt\n", i, i+1)
	}
	needs, _ = readSkill(t, deep)
	if got, want := len(needs.List), maxRequirementIncludes-1; got != want {
		t.Errorf("got %d levels, want %d", got, want)
	}
}

// If several lines could close a block, the last one does.
func TestMetadataBlockEndsLate(t *testing.T) {
	block, first, err := metadataBlock("x\r\n# /// script\r\n# a = 1\r\n# ///\r\n# b = 2\r\n# ///\r\n# c\r\n")
	if want := "a = 1\n///\nb = 2\n"; block != want || first != 2 || err != nil {
		t.Errorf("got %q, %d, %v; want %q, 2", block, first, err, want)
	}
}

func TestParseRequirement(t *testing.T) {
	cases := []struct {
		text string
		want PythonRequirement
		bad  bool
	}{
		{text: "six", want: PythonRequirement{Name: "six"}},
		{text: "A.b-C[x,y-z] (>= 1.0, !=1.5.*) ; os_name == 'posix'", want: PythonRequirement{Name: "A.b-C", Extras: []string{"x", "y-z"}, Specifier: ">=1.0,!=1.5.*", Marker: "os_name == 'posix'"}},
		{text: "a~=1.0,<2", want: PythonRequirement{Name: "a", Specifier: "~=1.0,<2"}},
		{text: "a[]", want: PythonRequirement{Name: "a"}},
		{text: "a@https://h/a;b.whl ; x", want: PythonRequirement{Name: "a", URL: "https://h/a;b.whl", Marker: "x"}},
		{text: "a;x", want: PythonRequirement{Name: "a", Marker: "x"}},
		{text: "", bad: true}, {text: "-x", bad: true}, {text: "a[", bad: true}, {text: "a[-]", bad: true}, {text: "a @", bad: true},
		{text: "a @ b c", bad: true}, {text: "a;", bad: true}, {text: "a (>1", bad: true}, {text: "a 1.0", bad: true},
		{text: "a>1 2", bad: true}, {text: "a\x01", bad: true}, {text: "./a.whl", bad: true}, {text: "a --x", bad: true},
	}
	for _, c := range cases {
		got, err := ParseRequirement(c.text)
		if !reflect.DeepEqual(got, c.want) || (err != nil) != c.bad {
			t.Errorf("%q: got %+v, %v; want %+v, error %t", c.text, got, err, c.want, c.bad)
		}
	}
	for text, want := range map[string]bool{"a==1": true, "a===x": true, "a==1.*": false, "a>=1": false, "a": false} {
		if r, err := ParseRequirement(text); err != nil || r.Pinned() != want {
			t.Errorf("%q: got %t, %v, want %t", text, r.Pinned(), err, want)
		}
	}
	if got := NormalName("A.b__C-.d"); got != "a-b-c-d" {
		t.Errorf("got %s, want a-b-c-d", got)
	}
}
