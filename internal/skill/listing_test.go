package skill

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// A skill that MCP's Skills extension does not list has a finding that says why, loaded or as a
// folder. A listed skill has no such finding.
func TestUnlistedSkillsHaveAFinding(t *testing.T) {
	for name, tt := range map[string]struct {
		content files
		want    string // part of the finding; empty: no finding
	}{
		"conforms":    {files{"SKILL.md": "---\nname: demo\ndescription: d\n---\n"}, ""},
		"own fields":  {files{"SKILL.md": "---\nname: demo\ndescription: d\nmetadata: {a: '1'}\ncompatibility: c\nx: {y: [1]}\n---\n"}, ""},
		"metadata":    {files{"SKILL.md": "---\nname: demo\ndescription: d\nmetadata: {a: '1', b: 2}\n---\n"}, "its metadata must map names to texts"},
		"no metadata": {files{"SKILL.md": "---\nname: demo\ndescription: d\nmetadata:\n---\n"}, "its metadata must map names to texts"},
		"a list":      {files{"SKILL.md": "---\nname: demo\ndescription: d\nmetadata: [a]\n---\n"}, "its metadata must map names to texts"},
		"compatible":  {files{"SKILL.md": "---\nname: demo\ndescription: d\ncompatibility: " + strings.Repeat("c", 501) + "\n---\n"}, "its compatibility must be a text of 1 to 500"},
		"prototype":   {files{"SKILL.md": "---\nname: demo\ndescription: d\n__proto__: {a: b}\n---\n"}, "__proto__"},
		"name":        {files{"SKILL.md": "---\nname: Demo\ndescription: d\n---\n"}, "lowercase letters, digits and single hyphens; rename it"},
		"description": {files{"SKILL.md": "---\nname: demo\ndescription: " + strings.Repeat("d", 1025) + "\n---\n"}, "1025 characters, the maximum is 1024"},
		"manifest":    {files{"skill.md": "---\nname: demo\ndescription: d\n---\n"}, "rename it to SKILL.md"},
		"mark":        {files{"SKILL.md": "\ufeff---\nname: demo\ndescription: d\n---\n"}, "byte order mark"},
		"blank lines": {files{"SKILL.md": "\n---\nname: demo\ndescription: d\n---\n"}, "blank lines"},
		"encoding":    {files{"SKILL.md": "---\nname: demo\ndescription: d\nx: \xff\n---\n"}, "UTF-8"},
		"repeated":    {files{"SKILL.md": "---\nname: demo\ndescription: d\nx: 1\nx: 2\n---\n"}, "field 'x' is already in line 4"},
		"size":        {files{"SKILL.md": "---\nname: demo\ndescription: d\n---\n", "data": strings.Repeat("x", MaxListedBytes)}, "the maximum is 16777216"},
		"aliases":     {files{"SKILL.md": "---\nname: demo\ndescription: d\na: &a " + strings.Repeat("x", 30<<10) + "\nb: [" + strings.Repeat("*a, ", 10) + "]\n---\n"}, "aliases"},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := skillDir(t, tt.content)
			if _, ok := tt.content["SKILL.md"]; !ok { // skillDir adds one
				mustDo(t, os.Remove(filepath.Join(dir, "SKILL.md")))
			}
			_, found, err := ReadDir(dir)
			mustDo(t, err)
			i := slices.IndexFunc(found, func(f manifest.Finding) bool { return f.Rule == manifest.RuleUnlisted })
			sk := open(t, RegistryConfig{Roots: Roots(root)}).List()[0]
			listing, err := sk.Listing()
			if tt.want == "" {
				if i >= 0 || err != nil || listing.Description != "d" || len(sk.Files()) != len(tt.content) {
					t.Errorf("findings %v, listing %+v, %v", found, listing, err)
				}
				return
			}
			if i < 0 || found[i].Severity != manifest.SeverityWarning || !strings.Contains(found[i].Message, tt.want) {
				t.Fatalf("findings %v, want one with %q", found, tt.want)
			}
			if unlisted := (*UnlistedError)(nil); !errors.As(err, &unlisted) || !strings.Contains(found[i].Message, unlisted.Reason) || unlisted.Name != sk.Name {
				t.Errorf("%v does not give the reason of the finding", err)
			}
		})
	}
	// A manifest that does not load has the finding that says so, and no other.
	_, dir := skillDir(t, files{"SKILL.md": "---\nname: demo\n---\n"})
	if _, found, err := ReadDir(dir); err != nil || len(found) != 1 || found[0].Rule != manifest.RuleDescription {
		t.Errorf("%v, %v", found, err)
	}
}

// The log counts and names the skills that are not listed, once as long as they stay the same. It leaves
// out hidden skills.
func TestUnlistedSkillsAreLogged(t *testing.T) {
	root := t.TempDir()
	files{
		"one/SKILL.md": "---\nname: one\ndescription: d\nmetadata: {a: 1}\n---\n", "two/SKILL.md": named("two"),
		"hidden/SKILL.md": "---\nname: hidden\ndescription: d\nmetadata: {a: 1}\ndisable-model-invocation: true\n---\n",
	}.Write(t, root)
	var log bytes.Buffer
	r := open(t, RegistryConfig{Roots: []Root{{Dir: root, Namespace: "team"}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	const line = `level=WARN msg="skills not listed over MCP; skillrun validate says why" count=1 skills=[team/one]`
	for range 2 {
		if got := log.String(); strings.Count(got, "not listed over MCP") != 1 || !strings.Contains(got, line) {
			t.Errorf("log: %s", got)
		}
		_, err := r.Reload(t.Context())
		mustDo(t, err)
	}
	if why := resolve(t, r, "one").Unlisted(); !strings.HasPrefix(why, "its metadata must map") || resolve(t, r, "two").Unlisted() != "" {
		t.Errorf("reasons: %q", why)
	}
}
